"""Cost of the models (paper, "Scaling & efficiency"): parameters, operations, time and memory.

Two questions: the cost of every model at the paper's settings, drawn as the paper's bubble charts
and compared with its claims; and the growth of a forward's cost with the mesh, compared with the
paper's O(HW(H + W)). Operations are counted (`reproduce.flops`); times are measured on one CPU
thread (`reproduce.profiling`), while the paper's are those of a GPU.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from cato.benchmarks import BENCHMARKS, get_benchmark
from cato.errors import InputError
from cato.models.registry import MODELS, default_model, model_class, num_parameters
from cato.progress import note, progress_bar
from cato.runs.settings import build_settings
from reproduce.attention_variants import title_of
from reproduce.experiment import OURS, Experiment
from reproduce.figures import save_figure
from reproduce.figures.efficiency import Bubble, Curve, bubble_chart, growth_chart
from reproduce.profiling import BATCH, LARGEST_FORWARD, LONGEST_FORWARD, MATMUL, measured
from reproduce.results import Row, by_benchmark, log_slope, measured_now
from reproduce.verdicts import NOT_SHOWN, SHOWN, check_gain

SUMMARY = ("rows", ("benchmark", "model", "parameters", "gflop_forward", "epoch_seconds"))
GROWING = ("axial_attention", "full_attention")
"""Variants of CATO whose growth is measured besides that of the models."""
NUM_LARGEST = 4
"""Number of the largest meshes that determine the exponent; small meshes are mostly overhead."""


class Measurement(NamedTuple):
    """A row of the results: its table, its title and the parts to measure."""

    table: str
    title: str
    parts: dict[str, Row]
    """Settings by the kind of the part."""


def run(experiment: Experiment) -> Row:
    """Measure what is missing; measurements that fail are listed, and tried again next time."""
    sizes, repeats = tuple(sorted(set(experiment.sizes))), experiment.repeats
    if len(sizes) < 2 or repeats < 1:
        raise InputError("give at least two sizes, and at least 1 for --repeats")
    for name in experiment.all_benchmarks:
        if get_benchmark(name).problem(experiment.scale).geometry == "cloud":
            raise InputError(f"efficiency is measured on meshes; {name} is a cloud")
    found = _measure(list(plan(experiment, sizes)), experiment.runs)
    names = ("scale", "growth_scale", "repeats")
    settings = {name: getattr(experiment, name) for name in names} | {"sizes": list(sizes)}
    return {
        "settings": settings | {"batch": BATCH, "threads": 1},
        "rows": with_epochs(found["rows"], experiment.scale),
        "plain": found["plain"],
        "parameters": _parameters(experiment.scale),
        "growth": [with_exponents(row) for row in found["growth"]],
        "failed": found["failed"],
    }


def plan(experiment: Experiment, sizes: tuple[int, ...]) -> Iterator[Measurement]:
    """All measurements."""
    repeats = {"repeats": experiment.repeats}
    for benchmark in experiment.all_benchmarks:
        where = {"benchmark": benchmark, "scale": experiment.scale}
        for name in experiment.all_models:
            which: Row = where | {"model": name}
            parts = {"step": which | repeats, "operations": which}
            yield Measurement("rows", f"{name} on {benchmark}", parts)
        plain = {"step": where | {"model": "plain_cato"} | repeats}
        yield Measurement("plain", f"plain CATO on {benchmark}", plain)
    for name in (*experiment.all_models, *GROWING):
        grows = {"model": name, "scale": experiment.growth_scale, "sizes": sizes} | repeats
        yield Measurement("growth", f"growth of {name}", {"growth": grows})


def _measure(planned: Sequence[Measurement], runs: Path) -> dict[str, list[Row]]:
    """The rows by table, one measurement at a time."""
    found: dict[str, list[Row]] = {"rows": [], "plain": [], "growth": [], "failed": []}
    with progress_bar("efficiency", len(planned)) as bar:
        for number, (table, title, parts) in enumerate(planned):
            bar(number, title)
            row: Row = {}
            for kind, settings in parts.items():
                if "failed" not in row:
                    row |= measured(kind, runs, settings)
            if "failed" in row:
                note(f"{title} failed: {row['failed']}")
                failure = {"what": title, "why": row["failed"]}
                found["failed"].append(failure | {"provenance": measured_now(settings)})
            else:
                found[table].append(row)
        bar(len(planned))
    return found


def _parameters(scale: str) -> list[Row]:
    """Number of parameters of every model on every benchmark that it supports, by the recipes."""
    rows = []
    for benchmark in BENCHMARKS:
        problem = get_benchmark(benchmark).problem(scale)
        names = [default_model(problem), *(name for name in MODELS if name not in OURS)]
        for name in names:
            if problem.geometry in model_class(name).geometries:
                config = build_settings(benchmark, scale, name)
                size = num_parameters(name, config.model, problem)
                row = {"benchmark": benchmark, "model": name, "parameters": size}
                rows.append(row | {"provenance": measured_now(config.to_dict())})
    return rows


def with_epochs(rows: Sequence[Row], scale: str) -> list[Row]:
    """The rows with the time of an epoch over all samples that the paper trains on.

    Steps are measured in matmuls timed next to them; a matmul has the median time of all rows, so
    that a moment in which the machine was slow does not count against a model.
    """
    if not rows:
        return []
    matmul = median(BATCH * r["step_seconds_per_sample"] / r["step_in_matmuls"] for r in rows)
    longer = []
    for row in rows:
        samples = get_benchmark(row["benchmark"]).scale(scale)
        # The paper has no validation split: ours is part of its training samples.
        num_steps = (samples.train + samples.validation) / BATCH
        longer.append(row | {"epoch_seconds": num_steps * row["step_in_matmuls"] * matmul})
    return longer


def exponent(nodes: Sequence[float], costs: Sequence[float]) -> float | None:
    """p of cost ~ nodes^p over the largest meshes; None with fewer than two."""
    if len(costs) < 2:
        return None
    return log_slope(nodes[: len(costs)][-NUM_LARGEST:], costs[-NUM_LARGEST:])


def with_exponents(row: Row) -> Row:
    """A model's growth with its exponents in the number of nodes."""
    nodes = [size["size"] ** 2 for size in row["rows"]]
    matmuls = [size["matmuls"] for size in row["rows"] if "matmuls" in size]
    gflop = [size["gflop"] for size in row["rows"]]
    fitted = {"flop_exponent": exponent(nodes, gflop), "time_exponent": exponent(nodes, matmuls)}
    return {"model": row["model"], **fitted, **row}


def claims(rows: Sequence[Row]) -> list[Row]:
    """The paper's sentences on efficiency, each with our measurement."""
    by_name = {(row["benchmark"], row["model"]): row for row in rows}
    checked = []
    for quantity, key, share, least in (
        ("parameters", "parameters", "around 85 %", 0.80),
        ("GFLOPs", "gflop_forward", "69 %", 0.685),
    ):
        if {("darcy", "cato"), ("darcy", "saot")} <= set(by_name):
            ours, theirs = (by_name["darcy", name][key] for name in ("cato", "saot"))
            saved = 1 - ours / theirs
            checked.append(
                {
                    "claim": f"Darcy: {quantity} reduced by {share} compared to SAOT",
                    "measured": f"{saved:.1%} fewer" if saved > 0 else f"{-saved:.1%} more",
                    "verdict": check_gain(saved, least),
                }
            )
    for claim, key in (
        ("the lowest GFLOPs", "gflop_forward"),
        ("the shortest training time", "epoch_seconds"),
        ("the fewest parameters", "parameters"),
    ):
        trio = {name: by_name.get(("pipe", name)) for name in ("cato", "transolver", "saot")}
        if all(trio.values()):
            values = {name: row[key] for name, row in trio.items() if row}
            ratios = [
                f"{values[name] / values['cato']:.2f} times as much by {model_class(name).title}"
                for name in ("transolver", "saot")
            ]
            checked.append(
                {
                    "claim": f"Pipe: {claim} of CATO, Transolver and SAOT",
                    "measured": ", ".join(ratios),
                    "verdict": SHOWN if min(values.values()) == values["cato"] else NOT_SHOWN,
                }
            )
    return checked


def draw(results: Row, out: Path) -> None:
    """bubble-NAME.png for each benchmark, and growth.png."""
    scale = results["settings"]["scale"]
    for benchmark, rows in by_benchmark(results["rows"]).items():
        bubbles = [
            Bubble(
                row["model"],
                model_class(row["model"]).title,
                row["gflop_forward"],
                row["epoch_seconds"] / 60,
                row["parameters"],
            )
            for row in rows
        ]
        title = f"{get_benchmark(benchmark).title}, scale {scale}"
        save_figure(bubble_chart(bubbles, title), out / f"bubble-{benchmark}.png")
    curves = [_curve(row) for row in results["growth"]]
    if curves:
        title = f"Darcy on square meshes, scale {results['settings']['growth_scale']}"
        save_figure(growth_chart(curves, title), out / "growth.png")


def _curve(row: Mapping[str, Any]) -> Curve:
    return Curve(
        row["model"],
        title_of(row["model"]),
        [size["size"] ** 2 for size in row["rows"]],
        [size["gflop"] for size in row["rows"]],
        [size["seconds"] for size in row["rows"] if "seconds" in size],
    )


def page(results: Row) -> dict[str, Any]:
    """Tables of costs, parameters, claims and growth."""
    plain = {row["benchmark"]: row["step_in_matmuls"] for row in results["plain"]}
    costs = []
    for name, rows in by_benchmark(results["rows"]).items():
        table = [_cost(row) for row in sorted(rows, key=lambda row: row["epoch_seconds"])]
        ours = [row["step_in_matmuls"] for row in rows if row["model"] == "cato"]
        slow = (plain[name], plain[name] / ours[0]) if ours and name in plain else None
        costs.append({"name": name, "rows": table, "plain": slow})
    growth = sorted(results["growth"], key=lambda row: row["rows"][-1]["gflop"])
    return {
        "costs": costs,
        "parameters": _parameter_table(results["parameters"]),
        "claims": [
            [c["claim"], c["measured"], f"**{c['verdict']}**"] for c in claims(results["rows"])
        ],
        "growth": [_growth(row) for row in growth],
        "expected": _expected(growth),
        "failed": results["failed"],
        "matmul": MATMUL,
        "limits": {"seconds": LONGEST_FORWARD, "memory": LARGEST_FORWARD},
        "num_largest": NUM_LARGEST,
    }


def _cost(row: Row) -> list[str]:
    return [
        title_of(row["model"]),
        f"{row['parameters']:,}",
        f"{row['gflop_forward']:.3g}",
        f"{row['gflop_step']:.3g}",
        f"{row['epoch_seconds'] / 60:.3g}",
        f"{row['step_in_matmuls']:.3g}",
        f"{row['memory_gib']:.2f}",
    ]


def _parameter_table(rows: Sequence[Row]) -> dict[str, Any]:
    """Every model on every benchmark that it supports, in millions."""
    groups = by_benchmark(rows)
    sizes = {
        ("cato" if row["model"] in OURS else row["model"], row["benchmark"]): row["parameters"]
        for row in rows
    }
    lines = [
        [title_of(model)]
        + [f"{sizes[model, b] / 1e6:.2f}" if (model, b) in sizes else "/" for b in groups]
        for model in dict.fromkeys(model for model, _ in sizes)
    ]
    return {"columns": ["model", *(get_benchmark(b).title for b in groups)], "rows": lines}


def _growth(row: Row) -> list[str]:
    run = [size for size in row["rows"] if "seconds" in size][-1]
    return [
        title_of(row["model"]),
        _number(row["flop_exponent"]),
        _number(row["time_exponent"]),
        f"{row['rows'][-1]['gflop']:.3g}",
        f"{run['size']}²",
        f"{run['seconds']:.3g}",
        f"{run['memory_gib']:.2f}",
    ]


def _expected(growth: Sequence[Row]) -> list[str]:
    """Measured exponents compared with the theory, for square meshes."""
    rows = {row["model"]: row for row in growth}
    expected = {
        "axial_attention": ("O(HW(H + W)) is p = 1.5 for CATO's attention", 1.5, 1.5),
        "cato": ("everything else in CATO is linear, so p is between 1 and 1.5", 1.0, 1.5),
        "full_attention": ("full attention approaches p = 2 from below", 1.5, 2.0),
    }
    lines = []
    for name, (theory, low, high) in expected.items():
        if name in rows and rows[name]["flop_exponent"] is not None:
            counted = rows[name]["flop_exponent"]
            agrees = low - 0.005 <= counted <= high + 0.005
            lines.append(
                f"{theory}: operations {counted:.2f}, which "
                f"{'agrees' if agrees else '**does not agree**'}; "
                f"time {_number(rows[name]['time_exponent'])}."
            )
    if {"cato", "full_attention"} <= set(rows):
        full, ours = rows["full_attention"]["rows"][-1], rows["cato"]["rows"][-1]
        lines.append(
            f"At {ours['size']} × {ours['size']} nodes full attention needs "
            f"{full['gflop'] / ours['gflop']:.0f} times the operations of CATO."
        )
    return lines


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
