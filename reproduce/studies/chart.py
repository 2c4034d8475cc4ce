"""What the learned chart does (paper, "Model analysis", figure "physical grid and chart space").

The paper finds one learned chart nearly one-dimensional (94 % and 6 % of its variance, a
participation ratio of 1.126) and better than normalised coordinates (0.0041 against 0.0045),
without saying of which benchmark. Here:

- the nodes of all test samples in physical, normalised and learned coordinates: principal
  components, participation ratio, folded cells, and how far component k varies along mesh axis k,
  whose attention it serves. Every node counts the same, so fine parts of a mesh weigh more;
- the same for the chart before training, of the same seed, and for other random charts, without
  which one would not know what was learnt;
- the test error with each kind of chart, where the paper could mean it: Airfoil and Darcy.
"""

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.collections import LineCollection

from cato.benchmarks import get_benchmark
from cato.benchmarks.view import Window
from cato.data.dataset import Dataset
from cato.models.cato.chart import Chart
from cato.models.contract import Operator
from cato.models.registry import build_model, model_class
from cato.progress import progress_bar
from cato.runs.folder import Run
from cato.runs.load import load_splits, load_surrogate
from cato.runs.settings import Changes, RunConfig
from cato.surrogate import Surrogate
from cato.viz.fields import new_figure
from cato.viz.figures import draw_grid
from reproduce.experiment import Experiment
from reproduce.figures import save_figure
from reproduce.results import Row, by_benchmark, outcome, percent, provenance_of
from reproduce.verdicts import IN_PART, NOT_SHOWN, check_observed, compare_to_rivals

SUMMARY = ("spaces", ("benchmark", "space", "seed", "first", "dimension", "folded"))
PAPER_ERRORS = {"learned": 0.0041, "normalised": 0.0045}
PAPER_SHARES, PAPER_DIMENSION = (0.94, 0.06), 1.126
"""The paper's numbers, of one benchmark that it does not name."""
ANISOTROPIC = 0.9
"""Share of the first component from which a chart counts as nearly one-dimensional."""
KINDS: dict[str, Changes] = {
    "learned": {},
    "normalised": {"model": {"chart": "normalised"}},
    "raw": {"model": {"chart": "raw"}},
    "none": {"model": {"chart": "none"}},
}
"""Kinds of chart and the settings that they change in the recipe."""
COMPARED = ("airfoil", "darcy")
"""Benchmarks on which every kind is trained; on the others only the learned one is."""
NUM_RANDOM = 100
"""Untrained charts measured for each benchmark."""


class ChartStats(NamedTuple):
    """Statistics of the charts of one benchmark."""

    spaces: list[Row]
    """One row for each coordinate space and seed."""
    random: Row
    """Means over random untrained charts."""


class Principal(NamedTuple):
    """Principal components of a set of points, the largest first."""

    centre: np.ndarray
    axes: np.ndarray
    """Unit vectors, (D, D), a row for each component."""
    variances: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        """Of the variance, that each component explains."""
        return self.variances / self.variances.sum()

    @property
    def dimension(self) -> float:
        """Participation ratio (Σλ)² / Σλ²: D if all variances are equal, 1 if there is but one."""
        return float(self.variances.sum() ** 2 / np.square(self.variances).sum())

    @property
    def segments(self) -> np.ndarray:
        """The axes as lines (D, 2, D) of ±√3 deviations, the extent of an evenly filled box."""
        arms = np.sqrt(3 * self.variances)[:, None] * self.axes
        return np.stack([self.centre - arms, self.centre + arms], axis=1)


def principal(points: np.ndarray) -> Principal:
    """Eigenvalues and eigenvectors of the covariance of (N, D) points."""
    centre = points.mean(0)
    apart = points - centre
    variances, vectors = np.linalg.eigh(apart.T @ apart / len(points))
    # Rounding may leave the smallest variance of points on a line just below 0.
    return Principal(centre, vectors.T[::-1], variances[::-1].clip(min=0))


def folded_share(nodes: np.ndarray) -> float:
    """Share of the cells of a mesh of (H, W, 2) nodes that are not oriented as most are.

    The sign of a cell's area is that of det ∂ζ/∂(mesh index); a cell without area counts too.
    """
    diagonal = nodes[1:, 1:] - nodes[:-1, :-1]
    other = nodes[:-1, 1:] - nodes[1:, :-1]
    area = diagonal[..., 0] * other[..., 1] - diagonal[..., 1] * other[..., 0]
    return float(1 - max((area > 0).mean(), (area < 0).mean()))


def along_shares(nodes: np.ndarray) -> np.ndarray:
    """For each component k of (*mesh, D) nodes, the share of its variance along mesh axis k.

    The variance is that within the mesh lines of axis k, and that between them. 1: component k
    tells the nodes of a line apart and not the lines; 0: all nodes of a line are at one place.
    """
    parts = np.moveaxis(nodes, -1, 0)
    return np.array([part.var(axis=axis).mean() / part.var() for axis, part in enumerate(parts)])


def run(experiment: Experiment) -> Row:
    """Train CATO with each kind of chart, then measure and draw the learned charts."""
    jobs: dict[str, RunConfig] = {}
    names: dict[tuple[str, str], list[str]] = {}
    for seed in experiment.seeds:
        for benchmark in experiment.all_benchmarks:
            for kind in KINDS if benchmark in COMPARED else ("learned",):
                job, jobs[job] = experiment.one_change(benchmark, KINDS[kind], seed)
                names.setdefault((benchmark, kind), []).append(job)
    finished = experiment.train(jobs, need_weights=True)
    groups = {key: [finished[job] for job in group] for key, group in names.items()}
    stats = []
    with progress_bar("charts", len(experiment.all_benchmarks)) as bar:
        for done, benchmark in enumerate(experiment.all_benchmarks):
            bar(done, benchmark)
            stats.append(_chart_stats(groups[benchmark, "learned"], experiment.out))
        bar(len(stats))
    return {
        **experiment.record(finished),
        "spaces": [row for found in stats for row in found.spaces],
        "random": [found.random for found in stats],
        "errors": [
            {"benchmark": benchmark, "chart": kind, **outcome(group)}
            for (benchmark, kind), group in groups.items()
            if benchmark in COMPARED
        ],
    }


def _chart_stats(runs: list[Run], out: Path) -> ChartStats:
    """Measure and draw the spaces of one benchmark, and measure random charts on it."""
    benchmark = runs[0].config.benchmark
    test = load_splits(runs[0].config).test
    surrogate = load_surrogate(runs[0])
    physical, seen = nodes_of(test), nodes_of(test, surrogate)
    box = Chart(test.problem.dimension, "normalised")
    spaces: dict[tuple[str, int | None], list[np.ndarray]] = {("physical", None): physical}
    if "coords" in test.problem.normalise:
        spaces["standardised", None] = seen
    spaces["normalised", None] = through(box, seen)
    for run in runs:
        seed = run.config.train.seed
        spaces["untrained", seed] = through(untrained_chart(run, seed), seen)
        spaces["learned", seed] = through(chart_of(load_surrogate(run).model), seen)
    rows = [
        {
            "benchmark": benchmark,
            "space": space,
            "seed": seed,
            **describe(test, samples),
            "provenance": provenance_of([r for r in runs if seed in (None, r.config.train.seed)]),
        }
        for (space, seed), samples in spaces.items()
    ]
    first = runs[0].config.train.seed
    shown = {"physical grid": physical}
    shown[f"chart before training (seed {first})"] = spaces["untrained", first]
    shown[f"learned chart (seed {first})"] = spaces["learned", first]
    _picture(runs[0], test, shown, out)
    everywhere = [np.concatenate(seen)]
    at_random = [
        principal(through(untrained_chart(runs[0], seed), everywhere)[0])
        for seed in range(NUM_RANDOM)
    ]
    firsts = np.array([found.shares[0] for found in at_random])
    random = {
        "benchmark": benchmark,
        "num_charts": NUM_RANDOM,
        "first": float(firsts.mean()),
        "dimension": float(np.mean([found.dimension for found in at_random])),
        "anisotropic": float((firsts >= ANISOTROPIC).mean()),
        "provenance": provenance_of(runs),
    }
    return ChartStats(rows, random)


def nodes_of(data: Dataset, surrogate: Surrogate | None = None) -> list[np.ndarray]:
    """The nodes (N, D) of every sample, of one where all share them; as a surrogate sees them."""
    coords = data.coords if data.coords.ndim == 3 else data.coords[None]
    if surrogate is not None:
        coords = surrogate.normaliser.encode_coords(coords.to(surrogate.device)).cpu()
    if data.mask is None:
        return list(coords.double().numpy())
    coords = coords.expand(len(data.mask), -1, -1)
    return [nodes[kept].double().numpy() for nodes, kept in zip(coords, data.mask, strict=True)]


@torch.no_grad()
def through(chart: Chart, samples: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The nodes of every sample in the chart, in double precision: signs of small cells count."""
    exact = deepcopy(chart).cpu().double()
    return [exact(torch.from_numpy(nodes)[None])[0].numpy() for nodes in samples]


def untrained_chart(run: Run, seed: int) -> Chart:
    """The chart that a training of this run's model with this seed starts from."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return chart_of(build_model(run.config.model_name, run.config.model, run.problem))


def chart_of(model: Operator) -> Chart:
    """The chart of a model that has one."""
    chart = model.chart
    assert isinstance(chart, Chart)
    return chart


def describe(data: Dataset, samples: Sequence[np.ndarray]) -> dict[str, Any]:
    """Figures of the nodes of samples in some space: all together, and means over the samples."""
    pooled, each = principal(np.concatenate(samples)), [principal(nodes) for nodes in samples]
    figures: dict[str, Any] = {
        "first": float(pooled.shares[0]),
        "shares": pooled.shares.tolist(),
        "variances": pooled.variances.tolist(),
        "dimension": pooled.dimension,
        "mean_shares": np.mean([found.shares for found in each], axis=0).tolist(),
        "mean_dimension": float(np.mean([found.dimension for found in each])),
        "folded": None,
        "along": None,
    }
    if data.problem.geometry != "cloud":
        meshes = [nodes.reshape(*data.problem.shape, -1) for nodes in samples]
        figures["folded"] = float(np.mean([folded_share(mesh) for mesh in meshes]))
        figures["along"] = np.mean([along_shares(mesh) for mesh in meshes], axis=0).tolist()
    return figures


def _picture(run: Run, data: Dataset, shown: dict[str, list[np.ndarray]], out: Path) -> None:
    """The first test sample in several spaces, with the principal axes of all samples.

    Panels have true proportions, in squares around their nodes; clouds are coloured by their x.
    """
    config = run.config
    title = f"{model_class(config.model_name).title} on {get_benchmark(config.benchmark).title}"
    figure, axes = new_figure(1, len(shown), (4.0 * len(shown), 4.5), title)
    physical = next(iter(shown.values()))[0]
    for panel, (space, samples) in zip(axes.flat, shown.items(), strict=True):
        nodes = samples[0]
        draw_grid(panel, data.problem, nodes, physical[:, 0])
        found = principal(np.concatenate(samples))
        for width, colour in ((3.6, "white"), (1.8, "black")):
            lines = LineCollection(list(found.segments), colors=colour, linewidths=width)
            lines.set_zorder(5)
            panel.add_collection(lines)
        shares = " / ".join(f"{share:.1%}" for share in found.shares)
        words = f"{space}\nvariance {shares}, dimension {found.dimension:.3f}"
        panel.set_title(words, fontsize=9)
        symbols = "xy" if nodes is physical else "ξη"
        panel.set(xlabel=symbols[0], ylabel=symbols[1], aspect="equal")
        window = Window.around(nodes)
        x, y, half = window.left + window.right, window.bottom + window.top, max(window.size) / 2
        panel.set(xlim=(x / 2 - half, x / 2 + half), ylim=(y / 2 - half, y / 2 + half))
    save_figure(figure, out / f"chart-{config.benchmark}.png")


def one_dimensional(rows: list[Row]) -> str:
    """Whether training made the charts of a benchmark nearly one-dimensional, seed by seed.

    In part, if it did with most seeds.
    """
    grid = _of(rows, "physical")[0]["first"]
    pairs = list(zip(_of(rows, "untrained"), _of(rows, "learned"), strict=True))
    met = [
        after["first"] >= ANISOTROPIC and after["first"] > max(before["first"], grid)
        for before, after in pairs
    ]
    if all(met):
        return check_observed(True, len(met))
    return IN_PART if 2 * sum(met) > len(met) else NOT_SHOWN


def page(results: Row) -> dict[str, Any]:
    """Summary, errors by kind of chart, and all statistics of each benchmark."""
    spaces = by_benchmark(results["spaces"])
    summary, benchmarks = [], []
    for random in results["random"]:
        name = random["benchmark"]
        rows = spaces[name]
        before, after = _of(rows, "untrained"), _of(rows, "learned")
        cells = [one_dimensional(rows), f"{_of(rows, 'physical')[0]['first']:.1%}"]
        cells += [_firsts(before), _firsts(after)]
        cells.append(", ".join(f"{row['dimension']:.3f}" for row in after))
        summary.append([get_benchmark(name).title, *cells, f"{random['anisotropic']:.0%}"])
        gains = [100 * (b["first"] - a["first"]) for a, b in zip(before, after, strict=True)]
        table = [_cells(row) for row in rows]
        benchmarks.append({"name": name, "rows": table, "gains": gains, "random": random})
    return {
        "summary": summary,
        "benchmarks": benchmarks,
        "errors": [_errors(name, rows) for name, rows in by_benchmark(results["errors"]).items()],
        "anisotropic": ANISOTROPIC,
        "paper": {"errors": PAPER_ERRORS, "shares": PAPER_SHARES, "dimension": PAPER_DIMENSION},
    }


def _cells(row: Row) -> list[str]:
    return [
        row["space"] + ("" if row["seed"] is None else f", seed {row['seed']}"),
        _shares(row["shares"]),
        f"{row['dimension']:.3f}",
        f"{_shares(row['mean_shares'])}; {row['mean_dimension']:.3f}",
        "–" if row["folded"] is None else f"{row['folded']:.1%}",
        "–" if row["along"] is None else _shares(row["along"]),
    ]


def _errors(name: str, rows: list[Row]) -> dict[str, Any]:
    """The kinds of chart on one benchmark, and whether the learned one is better."""
    found = {row["chart"]: row for row in rows}
    learned, normalised = found["learned"], found["normalised"]
    lines = [
        [
            kind,
            percent(row["relative_l2"], row["spread"]),
            "" if row is learned else f"{row['relative_l2'] / learned['relative_l2'] - 1:+.1%}",
            percent(row["validation"], row["validation_spread"]),
            str(PAPER_ERRORS.get(kind, "")),
        ]
        for kind, row in found.items()
    ]
    gain = 1 - learned["relative_l2"] / normalised["relative_l2"]
    verdict = compare_to_rivals(learned, [normalised])
    return {"name": name, "rows": lines, "verdict": verdict, "gain": gain}


def _of(rows: list[Row], space: str) -> list[Row]:
    return [row for row in rows if row["space"] == space]


def _firsts(rows: list[Row]) -> str:
    return ", ".join(f"{row['first']:.1%}" for row in rows)


def _shares(values: list[float]) -> str:
    return " / ".join(f"{value:.1%}" for value in values)
