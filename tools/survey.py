"""Statistics and pictures of the generated data: 100 samples of every benchmark at `paper` scale.

    make survey       # writes tools/results/survey.json, docs/images/survey-*.png, the cards

The samples are generated first (resumable; minutes per benchmark) and kept in data/survey. The
results are the acceptance rate of draws, the range of every channel, the solver's diagnostics, and
facts particular to the flow or body. Some deviations from the original are measured too, on a few
samples. Each card in docs/benchmarks/ has a block for the result.

    python -m tools.survey darcy pipe            # these only
    python -m tools.survey --scale smoke         # a trial: prints the blocks, writes nothing
"""

import argparse
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from cato.benchmarks import BENCHMARKS, get_benchmark
from cato.benchmarks.contract import Rejected
from cato.benchmarks.view import is_deformed
from cato.data.generate import generate
from cato.data.sampling import sample_rng
from cato.data.spec import DataSpec
from cato.data.store import Stored, StoredSplit, read_store
from cato.files import atomic_write
from cato.problem import Problem
from cato.progress import note, progress_bar
from cato.viz.fields import draw_field
from tools.benchmark_pages import pages, survey_block
from tools.pages import write_pages
from tools.results import ROOT, Row, stamped, update_rows

IMAGES = ROOT / "docs" / "images"
NUM_SAMPLES, SEED, NUM_PICTURES = 100, 0, 12
NUM_REPEATED = 4
"""Samples that are solved again to measure a deviation."""

Facts = dict[str, dict[str, float] | float]
"""A `spread` over samples, or one number for all."""


def main() -> None:
    """Generate, measure, write."""
    parser = argparse.ArgumentParser(description="statistics of the generated data")
    parser.add_argument("names", nargs="*", metavar="benchmark", help="all by default")
    parser.add_argument("--root", type=Path, default=Path("data/survey"), help="for the samples")
    parser.add_argument("--scale", default="paper", help="any other than paper writes nothing")
    options = parser.parse_args()
    for name in [get_benchmark(name).name for name in options.names or BENCHMARKS]:
        stored = samples(name, options.scale, options.root)
        row = survey(name, options.scale, stored)
        print(survey_block(row))
        if options.scale == "paper":
            draw_sheet(IMAGES / f"survey-{name}.png", stored)
            update_rows("survey", [row], "benchmark", BENCHMARKS)
            write_pages(pages())


def samples(name: str, scale: str, root: Path) -> Stored:
    """Generate what is missing, and read it."""
    path = generate(name, scale, count=NUM_SAMPLES, splits=("train",), seed=SEED, root=root)
    return read_store(path, "delete it")


def survey(name: str, scale: str, stored: Stored) -> Row:
    """All statistics of one benchmark."""
    split, problem = stored.splits["train"], stored.problem
    num_accepted, num_drawn = len(split.targets), int(split.attempts.sum())
    channels = {f"input {n}": split.inputs[..., k] for k, n in enumerate(problem.inputs)}
    channels |= {f"output {n}": split.targets[..., k] for k, n in enumerate(problem.outputs)}
    if split.coords is not None:
        channels |= {f"coordinate {n}": split.coords[..., k] for k, n in enumerate("xy")}
    row = {
        "benchmark": name,
        "scale": scale,
        "num_drawn": num_drawn,
        "num_accepted": num_accepted,
        "acceptance_rate": num_accepted / num_drawn,
        "channels": {label: range_of(values) for label, values in channels.items()},
        "diagnostics": {
            label: {"median": float(np.median(v)), "largest": float(v[np.abs(v).argmax()])}
            for label, v in split.diagnostics.items()
        },
        "facts": FACTS[name](scale, problem, split) if name in FACTS else {},
    }
    spec = DataSpec(name, scale, SEED, NUM_SAMPLES)
    settings = {"num_samples": NUM_SAMPLES, "seed": SEED, "num_repeated": NUM_REPEATED}
    return stamped(row, settings, spec.key)


def range_of(values: np.ndarray) -> dict[str, float]:
    """Smallest, mean, standard deviation, largest, in double precision."""
    v = values.astype(np.float64)
    return {"min": v.min(), "mean": v.mean(), "std": v.std(), "max": v.max()}


def spread(values: Iterable[float]) -> dict[str, float]:
    """Smallest, median and largest over the samples."""
    v = np.array(list(values), np.float64)
    return {"smallest": float(v.min()), "median": float(np.median(v)), "largest": float(v.max())}


def relative(difference: np.ndarray, values: np.ndarray) -> float:
    """Ratio of two L2 norms."""
    return float(np.linalg.norm(difference) / np.linalg.norm(values))


# Facts particular to a benchmark


def darcy(scale: str, problem: Problem, split: StoredSplit) -> Facts:
    """Share of permeable area and highest pressure."""
    return {
        "share of a = 12": spread((split.inputs[..., 0] == 12).mean(axis=(1, 2))),
        "highest pressure": spread(split.targets.max(axis=(1, 2, 3))),
    }


def navier_stokes(scale: str, problem: Problem, split: StoredSplit) -> Facts:
    """Enstrophy by frame, the conserved mean, and aliasing by keeping every fourth node."""
    from cato.benchmarks.navier_stokes.solver import Torus, draw_vorticity, solve

    past = np.moveaxis(split.inputs, -1, 1)
    frames = np.concatenate([past, split.targets[..., 0]], axis=1).astype(np.float64)
    enstrophy = 0.5 * (frames**2).mean(axis=(2, 3)).T
    facts: Facts = {
        f"enstrophy ½⟨w²⟩ at t = {t}": spread(values) for t, values in enumerate(enstrophy, start=1)
    }
    facts["mean vorticity of any frame, largest size"] = float(
        np.abs(frames.mean(axis=(2, 3))).max()
    )
    grid = get_benchmark("navier_stokes").parameters(scale)
    folded = []
    with progress_bar("navier_stokes: aliasing", NUM_REPEATED) as bar:
        for k in range(NUM_REPEATED):
            rng = sample_rng(SEED, "navier_stokes", "train", k, int(split.attempts[k]) - 1)
            fine = solve(draw_vorticity(rng, grid.stride * grid.resolution))[-1]
            torus = Torus(len(fine))
            waves = torus.coefficients(fine.astype(np.float64))
            k_x, k_y = (np.abs(k) / (2 * np.pi) for k in torus.wavenumbers)
            carried = np.maximum(k_x, k_y) < grid.resolution / 2
            missing = fine - torus.values(np.where(carried, waves, 0))
            folded.append(relative(missing, fine))
            bar(k + 1)
    label = f"relative L2 of waves that the kept nodes cannot carry, t = 20, {NUM_REPEATED} samples"
    return facts | {label: spread(folded)}


def airfoil(scale: str, problem: Problem, split: StoredSplit) -> Facts:
    """Highest Mach numbers, and how often the flow is supersonic."""
    fastest = split.targets.max(axis=(1, 2, 3))
    return {
        "share of samples with supersonic nodes": float((fastest > 1).mean()),
        "share of supersonic nodes": spread((split.targets > 1).mean(axis=(1, 2, 3))),
        "highest Mach number": spread(fastest),
    }


def pipe(scale: str, problem: Problem, split: StoredSplit) -> Facts:
    """How far pipes bend, and flux errors with the article's law for the centreline."""
    from cato.benchmarks.pipe.benchmark import draw_centreline
    from cato.benchmarks.pipe.solver import solve

    assert split.coords is not None
    along, across = problem.shape
    centre = split.coords[:, :, across // 2, 1]
    facts: Facts = {
        "largest distance of the centreline from y = 0": spread(abs(centre).max(axis=1))
    }
    errors = []
    with progress_bar("pipe: the article's law", NUM_REPEATED) as bar:
        for k in range(NUM_REPEATED):
            rng = sample_rng(SEED, "pipe", "train", k, 0)
            try:
                errors.append(solve(draw_centreline(rng, "paper"), (along, across)).flux_error)
            except Rejected:
                note(f"pipe: the article's law, draw {k} is rejected")
            bar(k + 1)
    facts[f"accepted of {NUM_REPEATED} draws by the article's law"] = len(errors)
    return facts | ({"flux_error of these": spread(errors)} if errors else {})


def plasticity(scale: str, problem: Problem, split: StoredSplit) -> Facts:
    """Largest displacements, and how much they change on the mesh of `small`."""
    from cato.benchmarks.plasticity.solver import solve

    moved = np.hypot(split.targets[..., 2], split.targets[..., 3]).max(axis=(1, 2, 3))
    facts: Facts = {"largest displacement, mm": spread(moved)}
    coarse_shape = ((problem.shape[0] + 1) // 2, (problem.shape[1] + 1) // 2)
    differences = []
    with progress_bar("plasticity: half the resolution", NUM_REPEATED) as bar:
        for k in range(NUM_REPEATED):
            rng = sample_rng(SEED, "plasticity", "train", k, int(split.attempts[k]) - 1)
            knots = get_benchmark("plasticity").draw(rng, None)
            coarse = solve(knots, coarse_shape).fields[..., 2:]
            fine = split.targets[k, :, ::2, ::2, 2:]
            differences.append(relative(coarse - fine, fine))
            bar(k + 1)
    label = f"relative L2 change of displacements at half the resolution, {NUM_REPEATED} samples"
    return facts | {label: spread(differences)}


def elasticity(scale: str, problem: Problem, split: StoredSplit) -> Facts:
    """The distribution of the stress."""
    levels = (1, 25, 50, 75, 99)
    values = np.percentile(split.targets, levels)
    facts: Facts = {
        f"stress, percentile {p}": float(v) for p, v in zip(levels, values, strict=True)
    }
    return facts | {"highest stress": spread(split.targets.max(axis=(1, 2)))}


FACTS: dict[str, Callable[[str, Problem, StoredSplit], Facts]] = {
    f.__name__: f for f in (darcy, navier_stokes, airfoil, pipe, plasticity, elasticity)
}


# The card


def draw_sheet(path: Path, stored: Stored) -> None:
    """Some samples in one picture with one colour scale; of frames the last one."""
    problem = stored.problem
    shown = [picture(problem, stored, k) for k in range(NUM_PICTURES)]
    low, high = np.percentile([values for _, values in shown], (0.5, 99.5))
    style: dict[str, Any] = {"vmin": low, "vmax": high}
    figure = Figure(figsize=(11, 6.5), layout="compressed")
    panels = figure.subplots(3, NUM_PICTURES // 3)
    for axes, (coords, values) in zip(panels.flat, shown, strict=True):
        drawn = draw_field(axes, problem, coords.reshape(-1, 2), values.ravel(), **style)
    bar = figure.colorbar(drawn, ax=panels, extend="both", fraction=0.03)  # type: ignore[arg-type]
    shown_name = "displacement, mm" if is_deformed(problem) else problem.outputs[0]
    bar.set_label(shown_name + ("" if problem.time == "steady" else ", last frame"))
    with BytesIO() as buffer, atomic_write(path) as temporary:
        figure.savefig(buffer, dpi=70)
        Image.open(buffer).convert("RGB").quantize(256).save(temporary, "PNG", optimize=True)


def picture(problem: Problem, stored: Stored, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates and values to draw: a moving mesh deformed, coloured by its displacement."""
    split = stored.splits["train"]
    targets = split.targets[k] if problem.time == "steady" else split.targets[k, -1]
    if is_deformed(problem):
        return targets[..., :2], np.hypot(targets[..., 2], targets[..., 3])
    coords = stored.coords if split.coords is None else split.coords[k]
    assert coords is not None
    return coords, targets[..., 0]


if __name__ == "__main__":
    main()
