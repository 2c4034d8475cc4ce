"""Learning rates: the same short sweep for every model, judged on validation.

Every model trains with each rate for the same time on each benchmark. Its rate is the one with the
lowest product of validation errors over the benchmarks; the `small` recipes take it from here, for
clouds too, where CATO-PC has the rate of CATO.
"""

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

from cato.benchmarks import get_benchmark
from cato.files import write_json
from cato.models.registry import model_entry
from cato.runs.settings import RunConfig
from reproduce.experiment import Setup
from reproduce.outcomes import outcome, percent
from reproduce.pages import save_page

RATES = (1e-3, 3e-3, 1e-2)
"""Of AdamW; Muon's is twice that, as in the defaults."""
TRIED_ON = ("darcy", "pipe")
"""Where the rates are tried."""


def rates(models: Sequence[str], setup: Setup) -> dict[str, Any]:
    """Train what is missing and write lr-sweep.json and lr-sweep.md.

    Args:
        models: Their names.
        setup: Of the trainings.

    Returns:
        The contents of lr-sweep.json.
    """
    jobs: dict[str, RunConfig] = {}
    keys: dict[tuple[str, float, str], list[str]] = {}
    for seed in setup.seeds:
        for model in models:
            for benchmark in TRIED_ON:
                for rate in RATES:
                    train = settings_of(rate) | {"seed": seed}
                    words = (benchmark, setup.scale, model, setup.budget, f"rate{rate:g}")
                    job = "-".join((*words, f"seed{seed}"))
                    jobs[job] = setup.config(benchmark, model, {"train": train})
                    keys.setdefault((model, rate, benchmark), []).append(job)
    finished = setup.train(jobs, "rates")
    errors: dict[str, dict[float, dict[str, float]]] = {}
    for (model, rate, benchmark), names in keys.items():
        found = outcome([finished[name] for name in names])["validation"]
        errors.setdefault(model, {}).setdefault(rate, {})[benchmark] = found
    results = {
        **setup.record(finished),
        "rows": [
            {
                "model": model,
                "best": min(tried, key=lambda rate: prod(tried[rate].values())),
                "validation": [{"rate": rate, **by_name} for rate, by_name in tried.items()],
            }
            for model, tried in errors.items()
        ],
    }
    write_json(setup.out / "lr-sweep.json", results)
    write_page(results, setup.out)
    return results


def settings_of(rate: float) -> dict[str, float]:
    """The settings of a training with this rate."""
    return {"learning_rate": rate, "muon_learning_rate": 2 * rate}


def write_page(results: dict[str, Any], out: Path) -> None:
    """lr-sweep.md, from the results alone."""
    settings = results["settings"]
    lines = [
        f"Scale `{settings['scale']}`, {settings['minutes']:g} minutes of training each on one "
        "thread. The lowest validation error with each learning rate (of AdamW; Muon's is twice "
        "that). The rate with the lowest product over the benchmarks is taken; the recipes of "
        "`small` have it.",
        "",
        "| model | benchmark | " + " | ".join(f"{rate:g}" for rate in RATES) + " | taken |",
        "|---" * (len(RATES) + 3) + "|",
    ]
    for row in results["rows"]:
        for benchmark in list(row["validation"][0])[1:]:
            cells = " | ".join(percent(tried[benchmark]) for tried in row["validation"])
            titles = f"{model_entry(row['model']).title} | {get_benchmark(benchmark).title}"
            lines.append(f"| {titles} | {cells} | {row['best']:g} |")
    save_page(out, "lr-sweep", "Learning rates", lines)
