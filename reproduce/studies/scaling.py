"""How the error falls with training samples, resolution, depth and width.

CATO against SAOT on Darcy and against Transolver on Pipe, as in the paper's figures. One quantity
is varied at a time, the others are the recipe's. With fewer samples a training has as many steps as
with all of them, so that what is compared is what the samples teach.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cato.benchmarks import get_benchmark
from cato.errors import InputError
from cato.models.registry import model_class
from cato.runs.load import data_spec
from cato.runs.settings import Changes, RunConfig, build_settings
from reproduce.experiment import Experiment, definitions
from reproduce.figures import save_figure
from reproduce.figures.scaling import scaling_figure
from reproduce.results import Row, by_benchmark, log_slope, outcome, percent, setting_of, size_of
from reproduce.verdicts import TOO_SHORT, combine, compare_to_rivals, is_positive

SUMMARY = ("rows", ("benchmark", "model", "axis", "value", "relative_l2", "spread"))


@dataclass(frozen=True)
class Point:
    """One training: the varied quantity and its value."""

    benchmark: str
    model: str
    axis: str
    value: float
    config: RunConfig

    @property
    def job(self) -> str:
        """Name by the settings, so that the recipe itself is trained once for all axes."""
        data, model, train = self.config.data, self.config.model, self.config.train
        words = [self.benchmark, self.config.scale, self.model]
        words += [f"n{data_spec(self.config).counts['train']}", f"r{data.resolution or 'own'}"]
        words += [f"depth{model.depth}", f"width{model.width}", f"steps{train.steps}"]
        return "-".join([*words, f"seed{train.seed}"])


def axes_of(benchmark: str) -> tuple[str, dict[str, Sequence[float]]]:
    """The rival on a benchmark, and the values of every varied quantity."""
    axes = dict(definitions()["scaling"][benchmark])
    return axes.pop("rival"), axes


def run(experiment: Experiment) -> Row:
    """Train CATO and the rival at every value."""
    known = definitions()["scaling"]
    unknown = [name for name in experiment.all_benchmarks if name not in known]
    if unknown:
        raise InputError(f"scaling is studied on {', '.join(known)}; got {unknown[0]}")
    points = [
        point
        for seed in experiment.seeds
        for name in experiment.all_benchmarks
        for point in plan(name, experiment, seed)
    ]
    finished = experiment.train({point.job: point.config for point in points})
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
    return {**experiment.record(finished), "rows": rows}


def plan(benchmark: str, experiment: Experiment, seed: int) -> Iterator[Point]:
    """All trainings of a benchmark with one seed."""
    rival, axes = axes_of(benchmark)
    for model in ("cato", rival):
        base = build_settings(benchmark, experiment.scale, model)
        num_samples, shape = data_spec(base).counts["train"], data_spec(base).problem.shape
        train = {"train": {"seed": seed, "steps": experiment.num_steps(base)}}
        for axis, values in axes.items():
            for number in values:
                value = int(number)
                changes: Changes = {"model": {axis: value}}
                if axis == "samples":
                    value = round(number * num_samples)
                    changes = {} if number == 1 else {"data": {"count": value}}
                elif axis == "resolution":
                    value = round(number * (shape[0] - 1)) + 1
                    changes = {} if number == 1 else {"data": {"resolution": value}}
                config = experiment.config(benchmark, model, changes, train)
                yield Point(benchmark, model, axis, value, config)


def curves(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    """The rows of a benchmark by model and axis, in ascending order of the value."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["value"]):
        groups.setdefault((row["model"], row["axis"]), []).append(row)
    return groups


def slope(rows: Sequence[Row]) -> float:
    """Slope of log error against log value: −1 halves the error at twice the value."""
    return log_slope([row["value"] for row in rows], [row["relative_l2"] for row in rows])


def draw(results: Row, out: Path) -> None:
    """A picture for each benchmark."""
    for benchmark, rows in by_benchmark(results["rows"]).items():
        panels: dict[str, dict[str, Any]] = {}
        for (model, axis), line in curves(rows).items():
            panels.setdefault(axis, {})[model_class(model).title] = (line, slope(line))
        words = setting_of(results).replace("`", "")
        figure = scaling_figure(panels, f"{get_benchmark(benchmark).title}, scale {words}")
        save_figure(figure, out / f"scaling-{benchmark}.png")


def page(results: Row) -> dict[str, Any]:
    """A line for each varied quantity and model, and the verdict."""
    benchmarks = []
    for benchmark, rows in by_benchmark(results["rows"]).items():
        lines = []
        for (model, axis), line in sorted(curves(rows).items(), key=lambda item: item[0][1]):
            errors = ", ".join(
                f"{row['value']:g}: {percent(row['relative_l2'], row['spread'])}" for row in line
            )
            lines.append([axis, model_class(model).title, errors, f"{slope(line):.2f}"])
        verdict, where = against_rival(rows)
        rival = model_class(rival_in(rows)).title
        benchmarks.append(
            {"name": benchmark, "rows": lines, "rival": rival, "verdict": verdict, "where": where}
        )
    return {"benchmarks": benchmarks}


def rival_in(rows: Sequence[Row]) -> str:
    """The model that CATO is compared with."""
    (rival,) = {row["model"] for row in rows} - {"cato"}
    return str(rival)


def against_rival(rows: Sequence[Row]) -> tuple[str, str]:
    """Whether CATO's error is lower at every value, and at how many; the recipe counts once."""
    found = {(row["model"], row["axis"], row["value"]): row for row in rows}
    rival = rival_in(rows)
    pairs = {
        (row["relative_l2"], other["relative_l2"]): compare_to_rivals(row, [other])
        for (name, *key), row in found.items()
        if name == "cato"
        for other in [found[rival, *key]]
    }
    verdicts = list(pairs.values())
    words = f"at {sum(map(is_positive, verdicts))} of {len(verdicts)}"
    if early := verdicts.count(TOO_SHORT):
        words += f", {TOO_SHORT} at {early}"
    return combine(verdicts), words
