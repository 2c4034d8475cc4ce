"""Learning rates: the same short sweep for every model, judged on validation.

Every model trains with each rate for the same time on each benchmark. Its rate is the one with the
lowest product of validation errors over the benchmarks; the `small` recipes take it from here, for
clouds too, on which CATO-PC has the rate of CATO.
"""

from math import prod
from typing import Any

from cato.benchmarks import get_benchmark
from cato.models.registry import model_class
from cato.runs.folder import Run
from cato.runs.settings import RunConfig
from reproduce.experiment import Experiment
from reproduce.results import Row, outcome, percent, provenance_of

SUMMARY = ("rows", ("model", "best"))
RATES = (1e-3, 3e-3, 1e-2)
"""Learning rates of AdamW; that of Muon is twice as large, as in the defaults."""


def run(experiment: Experiment) -> Row:
    """Train every model with every rate."""
    jobs: dict[str, RunConfig] = {}
    names: dict[tuple[str, float, str], list[str]] = {}
    for seed in experiment.seeds:
        for model in experiment.all_models:
            for benchmark in experiment.all_benchmarks:
                for rate in RATES:
                    train = settings_of(rate) | {"seed": seed}
                    words = (benchmark, experiment.scale, model, experiment.budget)
                    job = "-".join((*words, f"rate{rate:g}", f"seed{seed}"))
                    jobs[job] = experiment.config(benchmark, model, {"train": train})
                    names.setdefault((model, rate, benchmark), []).append(job)
    finished = experiment.train(jobs)
    errors: dict[str, dict[float, dict[str, float]]] = {}
    for (model, rate, benchmark), group in names.items():
        found = outcome([finished[name] for name in group])["validation"]
        errors.setdefault(model, {}).setdefault(rate, {})[benchmark] = found
    rows = []
    for model, tried in errors.items():
        trained = [run for run in finished.values() if run.config.model_name == model]
        provenance = provenance_of(trained)
        provenance["data"] = ", ".join(dict.fromkeys(run.record["data"] for run in trained))
        provenance["settings"] = {
            benchmark: _all_rates([run for run in trained if run.config.benchmark == benchmark])
            for benchmark in experiment.all_benchmarks
        }
        rows.append(
            {
                "model": model,
                "best": min(tried, key=lambda rate: prod(tried[rate].values())),
                "validation": [{"rate": rate, **by_name} for rate, by_name in tried.items()],
                "provenance": provenance,
            }
        )
    return {**experiment.record(finished), "rows": rows}


def _all_rates(runs: list[Run]) -> Row:
    """The settings of one model on one benchmark, with all rates and seeds."""
    settings = provenance_of(runs)["settings"]
    for name in ("learning_rate", "muon_learning_rate", "seed"):
        settings["train"][name] = sorted({getattr(run.config.train, name) for run in runs})
    return dict(settings)


def settings_of(rate: float) -> dict[str, float]:
    """The settings of a training with this rate."""
    return {"learning_rate": rate, "muon_learning_rate": 2 * rate}


def page(results: Row) -> dict[str, Any]:
    """A line for each model and benchmark."""
    return {
        "rates": [f"{rate:g}" for rate in RATES],
        "rows": [
            [
                model_class(row["model"]).title,
                get_benchmark(benchmark).title,
                *(percent(tried[benchmark]) for tried in row["validation"]),
                f"{row['best']:g}",
            ]
            for row in results["rows"]
            for benchmark in list(row["validation"][0])[1:]
        ],
    }
