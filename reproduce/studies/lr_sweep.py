"""Learning rates: the same sweep for every model on every benchmark, judged on validation.

From coarse to fine: AdamW and Muon are both tried with one rate, then the better one's untried
neighbours on the ladder `RATES`, until its best rate lies between worse ones or at an end of the
ladder. The `small` recipes take the best optimiser and rate from here. All trainings have schedule
`wsd`, so that the screen can extend the best ones.
"""

from collections.abc import Mapping
from typing import Any

import torch

from cato.benchmarks import get_benchmark
from cato.models.registry import build_model, model_class
from cato.runs.folder import Run
from cato.runs.settings import RunConfig, build_settings
from reproduce.experiment import Experiment, Planned
from reproduce.results import Row, by_benchmark, outcome, percent, provenance_of
from reproduce.studies.compare import models_for

SUMMARY = ("rows", ("benchmark", "model", "optimizer", "rate"))
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
"""Learning rates of AdamW; that of Muon is twice as large, as in the defaults."""
FIRST = 3e-3
"""The rate that all models try with every optimiser: the most frequent best one of 2026-11-16."""
NUM_BESIDE = 2
"""Rates next to the first one."""
OPTIMIZERS = ("adamw", "muon")
LEAST_IN_MUON = 0.05
"""Share of a model's parameters from which on Muon is tried; of FNO's it is 0.2 %."""
Choice = tuple[str, str, str]
"""Benchmark, model and optimiser."""


def run(experiment: Experiment) -> Row:
    """Train every model with as many rates as its best one asks for."""
    tried: dict[Choice, dict[float, list[Run]]] = {
        (benchmark, model, optimizer): {}
        for benchmark in experiment.all_benchmarks
        for model in models_for(benchmark, experiment.scale, experiment.all_models, quiet=True)
        for optimizer in optimizers_for(experiment.config(benchmark, model))
    }
    minutes: dict[str, float] = {}
    while jobs := _next_jobs(experiment, tried):
        finished = experiment.train({name: job for names in jobs.values() for name, job in names})
        for (choice, rate), names in jobs.items():
            tried[choice][rate] = [finished[name] for name, _ in names]
        recorded = experiment.record(finished)
        minutes |= recorded["minutes"]
    rows = [
        _row(benchmark, model, {key[2]: runs for key, runs in tried.items() if key[:2] == group})
        for group in dict.fromkeys(key[:2] for key in tried)
        for benchmark, model in [group]
    ]
    return {"settings": recorded["settings"], "minutes": minutes, "rows": rows}


def planned(experiment: Experiment) -> list[Planned]:
    """The trainings, if the first rate turns out best; every step along the ladder is one more.

    The first of a model stands for the one that other experiments extend.
    """
    found = []
    for benchmark in experiment.all_benchmarks:
        for model in models_for(benchmark, experiment.scale, experiment.all_models, quiet=True):
            number = len(optimizers_for(experiment.config(benchmark, model))) + NUM_BESIDE
            for seed in experiment.seeds:
                names = [model, *(f"{model}, rate {k}" for k in range(1, number))]
                for name in names:
                    found += experiment.planned(benchmark, name, seed)
    return found


def optimizers_for(config: RunConfig) -> tuple[str, ...]:
    """Muon only where it makes a difference: where it updates enough of the parameters."""
    problem = get_benchmark(config.benchmark).problem(config.scale)
    with torch.device("meta"):
        model = build_model(config.model_name, config.model, problem)
    in_muon = sum(matrix.numel() for matrix in model.hidden_matrices())
    share = in_muon / sum(parameter.numel() for parameter in model.parameters())
    return OPTIMIZERS if share >= LEAST_IN_MUON else OPTIMIZERS[:1]


def next_rates(errors: Mapping[str, Mapping[float, float]]) -> dict[str, list[float]]:
    """The rates to try next, by optimiser; none if the best one of the best optimiser is found.

    Args:
        errors: By optimiser and rate; empty for an optimiser without trainings.
    """
    if untried := [name for name, found in errors.items() if not found]:
        return {name: [FIRST] for name in untried}
    better = min(errors, key=lambda name: min(errors[name].values()))
    found = errors[better]
    best = RATES.index(min(found, key=lambda rate: found[rate]))
    return {better: [r for r in RATES[max(0, best - 1) : best + 2] if r not in found]}


def settings_of(optimizer: str, rate: float) -> dict[str, Any]:
    """The settings of a training with this optimiser and rate."""
    return {"optimizer": optimizer, "learning_rate": rate, "muon_learning_rate": 2 * rate}


def _next_jobs(
    experiment: Experiment, tried: Mapping[Choice, Mapping[float, list[Run]]]
) -> dict[tuple[Choice, float], list[tuple[str, RunConfig]]]:
    """The trainings of the next round, by what they try; a job for each seed."""
    jobs = {}
    for benchmark, model in dict.fromkeys(choice[:2] for choice in tried):
        errors = {
            choice[2]: {rate: _error(found) for rate, found in runs.items()}
            for choice, runs in tried.items()
            if choice[:2] == (benchmark, model)
        }
        for optimizer, rates in next_rates(errors).items():
            for rate in rates:
                choice = (benchmark, model, optimizer)
                jobs[choice, rate] = [_job(experiment, choice, rate, s) for s in experiment.seeds]
    return jobs


def _job(experiment: Experiment, choice: Choice, rate: float, seed: int) -> tuple[str, RunConfig]:
    benchmark, model, optimizer = choice
    words = (benchmark, experiment.scale, model, experiment.budget, optimizer)
    train = settings_of(optimizer, rate) | {"seed": seed}
    name = "-".join((*words, f"rate{rate:g}", f"seed{seed}"))
    return name, experiment.config(benchmark, model, {"train": train})


def _error(runs: list[Run]) -> float:
    return float(outcome(runs)["validation"])


def _row(benchmark: str, model: str, tried: Mapping[str, Mapping[float, list[Run]]]) -> Row:
    errors: list[Row] = [
        {"optimizer": optimizer, "rate": rate, "validation": _error(runs)}
        for optimizer, by_rate in tried.items()
        for rate, runs in sorted(by_rate.items())
    ]
    best = min(errors, key=lambda found: found["validation"])
    return {
        "benchmark": benchmark,
        "model": model,
        "optimizer": best["optimizer"],
        "rate": best["rate"],
        "tried": errors,
        "provenance": provenance_of(tried[best["optimizer"]][best["rate"]]),
    }


def differing_recipes(results: Row) -> list[str]:
    """Models and benchmarks whose recipes do not have the optimiser and rate of the sweep."""
    found = []
    for row in results["rows"]:
        train = build_settings(row["benchmark"], results["settings"]["scale"], row["model"]).train
        best = settings_of(row["optimizer"], row["rate"])
        if train.optimizer == "adamw":
            del best["muon_learning_rate"]
        if any(getattr(train, name) != value for name, value in best.items()):
            found.append(f"{row['model']} on {row['benchmark']}: {best}")
    return found


def page(results: Row) -> dict[str, Any]:
    """For each benchmark a line for each model and optimiser."""
    rates = sorted({found["rate"] for row in results["rows"] for found in row["tried"]})
    return {
        "rates": [f"{rate:g}" for rate in rates],
        "benchmarks": {
            name: [line for row in rows for line in _lines(row, rates)]
            for name, rows in by_benchmark(results["rows"]).items()
        },
    }


def _lines(row: Row, rates: list[float]) -> list[list[str]]:
    """The validation errors of a model by optimiser, the best one bold; / was not tried."""
    lines = []
    for optimizer in dict.fromkeys(found["optimizer"] for found in row["tried"]):
        errors = {
            found["rate"]: percent(found["validation"])
            for found in row["tried"]
            if found["optimizer"] == optimizer
        }
        if optimizer == row["optimizer"]:
            errors[row["rate"]] = f"**{errors[row['rate']]}**"
        title = model_class(row["model"]).title
        lines.append([title, optimizer, *(errors.get(rate, "/") for rate in rates)])
    return lines
