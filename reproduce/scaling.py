"""How the error falls with training samples, resolution, depth and width.

CATO against SAOT on Darcy and against Transolver on Pipe, as in the paper's figures. One quantity
is varied at a time, the others are the recipe's. With fewer samples a training has as many steps as
with all of them, so that what is compared is what the samples teach.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cato.benchmarks import get_benchmark
from cato.errors import InputError
from cato.files import write_json
from cato.models.registry import model_entry
from cato.runs.load import data_spec
from cato.runs.settings import RunConfig, recipe
from reproduce.experiment import Changes, Setup
from reproduce.figures.scaling import scaling_figure
from reproduce.outcomes import by_benchmark, log_slope, outcome, percent, setting_of, size_of
from reproduce.pages import save_figure, save_page
from reproduce.verdicts import TOO_SHORT, decide, holds, of_parts

RIVALS = {"darcy": "saot", "pipe": "transolver"}
"""Whom the paper compares with, by benchmark."""
AXES: dict[str, dict[str, tuple[float, ...]]] = {
    "darcy": {
        "samples": (1 / 8, 1 / 4, 1 / 2, 1),
        "resolution": (1 / 2, 3 / 4, 1, 3 / 2),
        "depth": (1, 2, 4, 8),
        "width": (16, 32, 64, 128),
    },
    "pipe": {
        "samples": (1 / 8, 1 / 4, 1 / 2, 1),
        "depth": (1, 2, 4, 8),
        "width": (16, 32, 64, 128),
    },
}
"""What is varied, and its values; samples and mesh intervals in units of the scale's."""


@dataclass(frozen=True)
class Point:
    """One training: what is varied, and its value."""

    benchmark: str
    model: str
    axis: str
    value: float
    config: RunConfig

    @property
    def job(self) -> str:
        """By its settings, so that the recipe itself is trained once for all axes."""
        data, model, train = self.config.data, self.config.model, self.config.train
        words = [self.benchmark, self.config.scale, self.model]
        words += [f"n{data_spec(self.config).counts['train']}", f"r{data.resolution or 'own'}"]
        words += [f"depth{model.depth}", f"width{model.width}", f"steps{train.steps}"]
        return "-".join([*words, f"seed{train.seed}"])


def scaling(benchmarks: Sequence[str], setup: Setup) -> dict[str, Any]:
    """Train what is missing and write scaling.json, scaling.md and a picture for each benchmark.

    Args:
        benchmarks: Some of `RIVALS`.
        setup: Of the trainings.

    Returns:
        The contents of scaling.json.
    """
    unknown = [name for name in benchmarks if name not in RIVALS]
    if unknown:
        raise InputError(f"scaling is studied on {', '.join(RIVALS)}; got {unknown[0]}")
    points = [
        point for seed in setup.seeds for name in benchmarks for point in plan(name, setup, seed)
    ]
    finished = setup.train({point.job: point.config for point in points}, "scaling")
    groups: dict[tuple[str, str, str, float], list[str]] = {}
    for point in points:
        key = (point.benchmark, point.model, point.axis, point.value)
        groups.setdefault(key, []).append(point.job)
    rows = [
        {
            "benchmark": benchmark,
            "model": model,
            "axis": axis,
            "value": value,
            "parameters": size_of(finished[names[0]]),
            **outcome([finished[name] for name in names]),
        }
        for (benchmark, model, axis, value), names in groups.items()
    ]
    results = {
        **setup.record(finished),
        "rows": rows,
        "slopes": [
            {"benchmark": b, "model": m, "axis": a, "slope": _slope(lines)}
            for (b, m, a), lines in curves(rows).items()
        ],
    }
    write_json(setup.out / "scaling.json", results)
    write_page(results, setup.out)
    return results


def plan(benchmark: str, setup: Setup, seed: int) -> Iterator[Point]:
    """All trainings of a benchmark with one seed."""
    for model in ("cato", RIVALS[benchmark]):
        base = recipe(benchmark, setup.scale, model)
        num_samples, shape = data_spec(base).counts["train"], data_spec(base).problem.shape
        train = {"train": {"seed": seed, "steps": setup.num_steps(base)}}
        for axis, values in AXES[benchmark].items():
            for number in values:
                value = int(number)
                changes: Changes = {"model": {axis: value}}
                if axis == "samples":
                    value = round(number * num_samples)
                    changes = {} if number == 1 else {"data": {"count": value}}
                elif axis == "resolution":
                    value = round(number * (shape[0] - 1)) + 1
                    changes = {} if number == 1 else {"data": {"resolution": value}}
                config = setup.config(benchmark, model, changes, train)
                yield Point(benchmark, model, axis, value, config)


def curves(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    """The rows of each benchmark, model and axis, by their value."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["value"]):
        groups.setdefault((row["benchmark"], row["model"], row["axis"]), []).append(row)
    return groups


def _slope(rows: Sequence[dict[str, Any]]) -> float:
    """Of log error against log value: −1 halves the error at twice the value."""
    return log_slope([row["value"] for row in rows], [row["relative_l2"] for row in rows])


def write_page(results: dict[str, Any], out: Path) -> None:
    """scaling.md and its pictures, from the results alone."""
    settings, rows = results["settings"], results["rows"]
    lines = [
        f"Scale `{settings['scale']}`, {settings['share']:.0%} of the steps of the recipes for "
        f"every training, {len(settings['seeds'])} seed(s), one thread. Test error (relative L2 on "
        "physical values) at the checkpoint of the lowest validation error; *slope* is that of log "
        "error against log value.",
    ]
    for benchmark, here in by_benchmark(rows).items():
        chosen = curves(here)
        slopes = {
            (line["model"], line["axis"]): line["slope"]
            for line in results["slopes"]
            if line["benchmark"] == benchmark
        }
        title = get_benchmark(benchmark).title
        panels: dict[str, dict[str, Any]] = {axis: {} for _, _, axis in chosen}
        for (_, model, axis), line in chosen.items():
            panels[axis][model_entry(model).title] = (line, slopes[model, axis])
        figure = scaling_figure(panels, f"{title}, scale {setting_of(results).replace('`', '')}")
        save_figure(figure, out / f"scaling-{benchmark}.png")
        lines += ["", f"## {title}", "", f"![{title}](scaling-{benchmark}.png)", ""]
        lines += _table(chosen, slopes)
        verdict, where = against_rival(here)
        lines += [
            "",
            f"The paper's claim, a lower error than {model_entry(RIVALS[benchmark]).title}'s at "
            f"every value: **{verdict}**, {where}.",
        ]
    save_page(out, "scaling", "How errors scale", lines)


def _table(
    chosen: Mapping[tuple[str, str, str], list[dict[str, Any]]],
    slopes: Mapping[tuple[str, str], float],
) -> list[str]:
    lines = ["| varied | model | errors | slope |", "|---|---|---|---|"]
    for (_, model, axis), line in sorted(chosen.items(), key=lambda item: item[0][2]):
        errors = ", ".join(
            f"{row['value']:g}: {percent(row['relative_l2'], row['spread'])}" for row in line
        )
        lines.append(
            f"| {axis} | {model_entry(model).title} | {errors} | {slopes[model, axis]:.2f} |"
        )
    return lines


def against_rival(rows: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """Whether CATO's error is lower at every value, and at how many; the recipe counts once."""
    found = {(row["model"], row["axis"], row["value"]): row for row in rows}
    (rival,) = {row["model"] for row in rows} - {"cato"}
    pairs = {
        (row["relative_l2"], found[rival, *key]["relative_l2"]): decide(row, [found[rival, *key]])
        for (name, *key), row in found.items()
        if name == "cato"
    }
    verdicts = list(pairs.values())
    words = f"at {sum(map(holds, verdicts))} of {len(verdicts)}"
    if early := verdicts.count(TOO_SHORT):
        words += f", {TOO_SHORT} at {early}"
    return of_parts(verdicts), words
