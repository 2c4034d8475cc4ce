"""Trainings that differ from a recipe in a few settings, and what came out of them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from cato.data.generate import covering, generate_file
from cato.studies.jobs import figures_of
from cato.training.config import RunConfig, recipe, run_config
from cato.training.run import Run
from cato.training.weights import data_spec, load_surrogate

Changes = Mapping[str, Mapping[str, Any]]
"""Settings by group, such as {"train": {"seed": 1}}."""


def varied(benchmark: str, scale: str, model: str, *changes: Changes) -> RunConfig:
    """A recipe with some settings changed, the later ones last."""
    values = recipe(benchmark, scale, model).to_dict()
    for change in changes:
        for group, settings in change.items():
            values[group] = values[group] | dict(settings)
    return run_config(values, "study")


def data_in(folder: Path) -> Changes:
    """The data files are in this folder."""
    return {"data": {"root": str(folder)}}


def provide_data(jobs: Iterable[RunConfig], folder: Path, workers: int | None) -> None:
    """Generate the data of all jobs that are missing; whole scales first, they serve for parts."""
    specs = {data_spec(config) for config in jobs}
    for spec in sorted(specs, key=lambda spec: (spec.count is not None, spec.file_name)):
        generate_file(covering(spec, folder), folder, workers)


def outcome(runs: Sequence[Run]) -> dict[str, Any]:
    """Errors of the same training with several seeds, and what it took."""
    logs = [run.log() for run in runs]
    tests = [figures_of(run)["relative_l2"] for run in runs]
    validations = [min(line["validation"] for line in log) for log in logs]
    return {
        "relative_l2": mean(tests),
        "spread": spread(tests),
        "errors": tests,
        "validation": mean(validations),
        "validation_spread": spread(validations),
        "epochs": mean(log[-1]["epoch"] for log in logs),
        "minutes": mean(log[-1]["seconds"] / 60 for log in logs),
    }


def num_parameters(run: Run) -> int:
    """Of the trained model."""
    return sum(p.numel() for p in load_surrogate(run).model.parameters())


def spread(values: Sequence[float]) -> float | None:
    """Standard deviation, where there is more than one value."""
    return stdev(values) if len(values) > 1 else None


def percent(value: float, deviation: float | None = None) -> str:
    """An error for a table, with its spread."""
    return f"{value:.2%}" + ("" if deviation is None else f" ± {deviation:.2%}")
