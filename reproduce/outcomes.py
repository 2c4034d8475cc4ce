"""What came out of the trainings of a study."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import inf, isfinite
from statistics import mean, stdev
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from cato.inference.evaluate import solve_all
from cato.models.registry import num_parameters
from cato.physics import gradient, inverse_metric, relative_l2
from cato.runs.folder import Run
from cato.runs.load import load_splits, load_surrogate
from reproduce.jobs import figures_of


def by_benchmark(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The rows of a results file by their benchmark, in its order."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["benchmark"], []).append(row)
    return groups


def log_slope(values: Sequence[float], results: Sequence[float]) -> float:
    """s of result ~ value^s, by least squares of the logarithms."""
    return float(np.polyfit(np.log(values), np.log(results), 1)[0])


def outcome(runs: Sequence[Run]) -> dict[str, Any]:
    """Errors of the same training with several seeds, and what it took."""
    logs = [run.log() for run in runs]
    found = [figures_of(run) for run in runs]
    tests = [_or_infinite(figures["relative_l2"]) for figures in found]
    validations = [min(_or_infinite(line["validation"]) for line in log) for log in logs]
    return {
        "relative_l2": mean(tests),
        "spread": spread(tests),
        "errors": tests,
        "mean_predictor": found[0]["mean_predictor"],
        "validation": mean(validations),
        "validation_spread": spread(validations),
        "epochs": mean(log[-1]["epoch"] for log in logs),
        "minutes": mean(log[-1]["seconds"] / 60 for log in logs),
        "diverged": sum(bool(figures.get("diverged")) for figures in found),
    }


def _or_infinite(error: float) -> float:
    """What is no number, from a training that diverged, is worse than any."""
    return error if isfinite(error) else inf


def gradient_errors(runs: Sequence[Run]) -> dict[str, float | None]:
    """Relative error of ∇û on the validation samples of a steady mesh: mean and spread of seeds."""
    problem = runs[0].problem
    if problem.time != "steady" or problem.geometry == "cloud":
        return {"gradient_error": None, "gradient_spread": None}
    data = load_splits(runs[0].config).validation
    metric = inverse_metric(data.coords, problem.shape, problem.periodic, problem.period)
    slopes = partial(gradient, metric=metric, shape=problem.shape, periodic=problem.periodic)
    truth = slopes(data.targets).flatten(2)
    errors = [
        relative_l2(slopes(solve_all(load_surrogate(run), data)).flatten(2), truth).mean().item()
        for run in runs
    ]
    return {"gradient_error": mean(errors), "gradient_spread": spread(errors)}


def size_of(run: Run) -> int:
    """Parameters of a run's model."""
    return num_parameters(run.config.model_name, run.config.model, run.problem)


def median_sample(errors: Float[Tensor, " S"]) -> int:
    """The sample with as many smaller errors as larger ones, or one more of the smaller."""
    return int(errors.argsort(stable=True)[len(errors) // 2])


def spread(values: Sequence[float]) -> float | None:
    """Standard deviation, where there is more than one value and all are finite."""
    return stdev(values) if len(values) > 1 and all(map(isfinite, values)) else None


def percent(value: float, deviation: float | None = None) -> str:
    """An error for a table, with its spread."""
    return f"{value:.2%}" + ("" if deviation is None else f" ± {deviation:.2%}")


def budget_of(settings: Mapping[str, Any]) -> str:
    """What every training got, from the settings in a results file."""
    if settings.get("minutes") is not None:
        return f"{settings['minutes']:g} minutes each"
    share = settings["share"]
    return "the recipe's epochs" if share == 1 else f"{share:.0%} of the recipe's steps"


def setting_of(results: Mapping[str, Any]) -> str:
    """Scale, budget and seeds of a study's trainings."""
    settings = results["settings"]
    num_seeds = len(settings["seeds"])
    plural = "" if num_seeds == 1 else "s"
    return f"`{settings['scale']}`, {budget_of(settings)}, {num_seeds} seed{plural}"
