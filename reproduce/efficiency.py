"""What the models cost (paper, "Scaling & efficiency"): parameters, operations, time and memory.

Two questions: what every model costs at the paper's settings, drawn as the paper's bubble charts
and held against its claims; and how the cost of a forward grows with the mesh, beside the paper's
O(HW(H + W)). Operations are counted (`reproduce.flops`), times are measured on one CPU thread
(`reproduce.profiling`): the paper's are those of a GPU.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from cato.benchmarks import BENCHMARKS, get_benchmark
from cato.errors import InputError
from cato.files import write_json
from cato.models.registry import (
    MODELS,
    default_model,
    grid_models,
    model_entry,
    num_parameters,
)
from cato.progress import note, progress_bar
from cato.runs.provenance import environment
from cato.runs.settings import recipe
from reproduce.compare import OURS
from reproduce.efficiency_page import write_page
from reproduce.figures.efficiency import Bubble, Curve, bubble_chart, growth_chart
from reproduce.outcomes import by_benchmark, log_slope
from reproduce.pages import save_figure
from reproduce.profiling import BATCH, REPEATS, measured
from reproduce.references import title_of
from reproduce.verdicts import NOT_SHOWN, SHOWN, at_least

SIZES = (32, 64, 96, 128, 192, 256, 384, 512)
GROWING = ("axial_attention", "full_attention")
"""What CATO's growth is compared with beside the models."""
NUM_LARGEST = 4
"""Of the sizes, so many of the largest decide the exponent: small meshes cost overhead."""

Row = dict[str, Any]


class Manner(NamedTuple):
    """How it is measured."""

    scale: str
    growth_scale: str
    repeats: int


def efficiency(
    models: Sequence[str] = (),
    *,
    benchmarks: Sequence[str] = ("darcy", "pipe"),
    sizes: Sequence[int] = SIZES,
    scale: str = "paper",
    growth_scale: str = "small",
    repeats: int = REPEATS,
    runs: Path = Path("runs/efficiency"),
    out: Path = Path("results/efficiency"),
) -> dict[str, Any]:
    """Measure what is missing; write efficiency.json, efficiency.md and the charts.

    Measurements that fail are told on the page and tried again the next time.

    Args:
        models: Their names; all that work on meshes if empty.
        benchmarks: Those to measure a training step on.
        sizes: Nodes per side of the square meshes of the growth.
        scale: Of the recipes for the training steps.
        growth_scale: Of the recipes for the growth.
        repeats: Measurements of which the median is taken.
        runs: Folder of the measurements; a killed study goes on there.
        out: Folder of the results.

    Returns:
        The contents of efficiency.json.
    """
    names = tuple(models) or grid_models()
    for name in names:
        model_entry(name)  # refuses what does not exist
    sizes = tuple(sorted(set(sizes)))
    if not benchmarks or len(sizes) < 2 or repeats < 1:
        raise InputError("name at least one benchmark and two sizes, and measure at least once")
    for name in benchmarks:
        if get_benchmark(name).problem(scale).geometry == "cloud":
            raise InputError(f"efficiency is measured on meshes; {name} is a cloud")
    manner = Manner(scale, growth_scale, repeats)
    found = _measure(list(_wanted(names, benchmarks, sizes, manner)), runs)
    rows = with_epochs(found["costs"], scale)
    results = {
        "settings": {
            "scale": scale,
            "growth_scale": growth_scale,
            "sizes": list(sizes),
            "repeats": repeats,
            "batch": BATCH,
            "threads": 1,
        },
        "environment": environment() | {"threads": 1},
        "rows": rows,
        "plain": found["plain"],
        "parameters": _parameters(scale),
        "claims": claims(rows),
        "growth": [with_exponents(row) for row in found["growth"]],
        "failed": found["failed"],
    }
    write_json(out / "efficiency.json", results)
    _draw(results, out)
    write_page(results, out)
    return results


def _parameters(scale: str) -> list[Row]:
    """Of every model on every benchmark that it can do, by the recipes."""
    rows = []
    for benchmark in BENCHMARKS:
        problem = get_benchmark(benchmark).problem(scale)
        names = [default_model(problem), *(name for name in MODELS if name not in OURS)]
        for name in names:
            if problem.geometry in model_entry(name).operator.geometries:
                size = num_parameters(name, recipe(benchmark, scale, name).model, problem)
                rows.append({"benchmark": benchmark, "model": name, "parameters": size})
    return rows


class Wanted(NamedTuple):
    """A row of the results, and the measurements that it is made of."""

    group: str
    title: str
    parts: dict[str, Row]
    """Settings by the kind of the measurement."""


def _wanted(
    names: Sequence[str], benchmarks: Sequence[str], sizes: tuple[int, ...], manner: Manner
) -> Iterator[Wanted]:
    """All rows."""
    repeats = {"repeats": manner.repeats}
    for benchmark in benchmarks:
        for name in names:
            which: Row = {"benchmark": benchmark, "scale": manner.scale, "model": name}
            parts = {"step": which | repeats, "operations": which}
            yield Wanted("costs", f"{name} on {benchmark}", parts)
        plain = {"benchmark": benchmark, "scale": manner.scale, "model": "plain_cato"}
        yield Wanted("plain", f"plain CATO on {benchmark}", {"step": plain | repeats})
    for name in (*names, *GROWING):
        grows = {"model": name, "scale": manner.growth_scale, "sizes": sizes} | repeats
        yield Wanted("growth", f"growth of {name}", {"growth": grows})


def _measure(wanted: Sequence[Wanted], runs: Path) -> dict[str, list[Row]]:
    """The rows by group, one measurement at a time; those that fail are set aside."""
    found: dict[str, list[Row]] = {"costs": [], "plain": [], "growth": [], "failed": []}
    with progress_bar("efficiency", len(wanted)) as bar:
        for number, (group, title, parts) in enumerate(wanted):
            bar(number, title)
            row: Row = {}
            for kind, settings in parts.items():
                if "failed" not in row:
                    row |= measured(kind, runs, settings)
            if "failed" in row:
                note(f"{title} failed: {row['failed']}")
                found["failed"].append({"what": title, "why": row["failed"]})
            else:
                found[group].append(row)
        bar(len(wanted))
    return found


def with_epochs(rows: Sequence[Row], scale: str) -> list[Row]:
    """The rows with the time of an epoch: all samples that the paper trains on.

    Steps were measured in matmuls of their moment; a matmul has the median time of all rows, so
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
    """p of cost ~ nodes^p over the largest meshes; None where there are fewer than two."""
    if len(costs) < 2:
        return None
    return log_slope(nodes[: len(costs)][-NUM_LARGEST:], costs[-NUM_LARGEST:])


def with_exponents(row: Row) -> Row:
    """A model's growth with its exponents in the number of nodes."""
    nodes = [size["size"] ** 2 for size in row["rows"]]
    matmuls = [size["matmuls"] for size in row["rows"] if "matmuls" in size]
    gflop = [size["gflop"] for size in row["rows"]]
    fitted = {"flop_exponent": exponent(nodes, gflop), "time_exponent": exponent(nodes, matmuls)}
    return {"model": row["model"], **fitted, "rows": row["rows"]}


def claims(rows: Sequence[Row]) -> list[Row]:
    """The paper's sentences on efficiency, each beside what was measured."""
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
                    "verdict": at_least(saved, least),
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
                f"{values[name] / values['cato']:.2f} times as much by {model_entry(name).title}"
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


def _draw(results: Mapping[str, Any], out: Path) -> None:
    """bubble-NAME.png for each benchmark, and growth.png."""
    scale = results["settings"]["scale"]
    for benchmark, rows in by_benchmark(results["rows"]).items():
        bubbles = [
            Bubble(
                row["model"],
                model_entry(row["model"]).title,
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
