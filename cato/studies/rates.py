"""Learning rates: the same short sweep for every model, judged on validation.

Every model trains with each rate for the same time on each benchmark. Its rate is the one with the
lowest product of validation errors over the benchmarks; the `small` recipes take it from here.
"""

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

from cato.data.benchmarks import get_benchmark
from cato.files import write_json
from cato.models.registry import model_entry
from cato.studies.jobs import run_jobs
from cato.studies.speeds import in_equal_time
from cato.studies.variants import data_in, outcome, percent, provide_data, varied
from cato.training.config import RunConfig
from cato.training.run import environment

RATES = (3e-4, 1e-3, 3e-3)
"""Of AdamW; Muon's is twice that, as in the defaults."""
CLOUD = "elasticity"
"""Where models are swept that can do clouds only."""


def rates(
    models: Sequence[str],
    benchmarks: Sequence[str] = ("darcy", "pipe"),
    *,
    minutes: float = 1.0,
    scale: str = "small",
    seeds: Sequence[int] = (0,),
    data: Path = Path("data"),
    runs: Path = Path("runs/rates"),
    out: Path = Path("results/rates"),
    workers: int | None = None,
) -> dict[str, Any]:
    """Train what is missing and write rates.json and rates.md.

    Args:
        models: Their names.
        benchmarks: Where to try the rates.
        minutes: Training time of each on one thread.
        scale: Of data and recipes.
        seeds: Of the trainings.
        data: Folder of the data files.
        runs: Folder of the run folders.
        out: Folder of the results.
        workers: Trainings at a time, one thread each; one per core by default.

    Returns:
        The contents of rates.json.
    """
    jobs: dict[str, RunConfig] = {}
    keys: dict[tuple[str, float, str], list[str]] = {}
    for seed in seeds:
        for model in models:
            for benchmark in _benchmarks_of(model, benchmarks, scale):
                for rate in RATES:
                    train = settings_of(rate) | {"seed": seed}
                    job = f"{benchmark}-{scale}-{model}-{minutes:g}min-rate{rate:g}-seed{seed}"
                    jobs[job] = varied(benchmark, scale, model, {"train": train}, data_in(data))
                    keys.setdefault((model, rate, benchmark), []).append(job)
    provide_data(jobs.values(), data, workers)
    jobs = in_equal_time(jobs, minutes, runs, workers)
    finished = run_jobs(jobs, runs, workers, "rates")
    errors: dict[str, dict[float, dict[str, float]]] = {}
    for (model, rate, benchmark), names in keys.items():
        found = outcome([finished[name] for name in names])["validation"]
        errors.setdefault(model, {}).setdefault(rate, {})[benchmark] = found
    results = {
        "settings": {"scale": scale, "minutes": minutes, "seeds": list(seeds), "threads": 1},
        "environment": environment(),
        "rows": [
            {
                "model": model,
                "best": min(tried, key=lambda rate: prod(tried[rate].values())),
                "validation": [{"rate": rate, **by_name} for rate, by_name in tried.items()],
            }
            for model, tried in errors.items()
        ],
    }
    write_json(out / "rates.json", results)
    write_page(results, out)
    return results


def settings_of(rate: float) -> dict[str, float]:
    """The settings of a training with this rate."""
    return {"learning_rate": rate, "muon_learning_rate": 2 * rate}


def _benchmarks_of(model: str, benchmarks: Sequence[str], scale: str) -> list[str]:
    can = model_entry(model).operator.geometries
    able = [name for name in benchmarks if get_benchmark(name).problem(scale).geometry in can]
    return able or [CLOUD]


def write_page(results: dict[str, Any], out: Path) -> None:
    """rates.md, from the results alone."""
    settings = results["settings"]
    lines = [
        "# Learning rates",
        "",
        "<!-- written by `cato study rates` from rates.json; do not edit -->",
        "",
        f"Scale `{settings['scale']}`, {settings['minutes']:g} minutes of training each on one "
        "thread. The lowest validation error with each learning rate (of AdamW; Muon's is twice "
        "that). The rate with the lowest product over the benchmarks is the model's in the "
        f"`{settings['scale']}` recipes.",
        "",
        "| model | benchmark | " + " | ".join(f"{rate:g}" for rate in RATES) + " | taken |",
        "|---" * (len(RATES) + 3) + "|",
    ]
    for row in results["rows"]:
        for benchmark in list(row["validation"][0])[1:]:
            cells = " | ".join(percent(tried[benchmark]) for tried in row["validation"])
            titles = f"{model_entry(row['model']).title} | {get_benchmark(benchmark).title}"
            lines.append(f"| {titles} | {cells} | {row['best']:g} |")
    out.mkdir(parents=True, exist_ok=True)
    (out / "rates.md").write_text("\n".join([*lines, ""]))
