"""How long the `small` recipes of CATO train on this machine, all its cores together.

    make bench        # writes benchmarks/results/recipes.json and docs/benchmarks/training.md

For each benchmark some steps and one validation of the real training are timed, by the same code
that fits a schedule to a time budget, and multiplied by what the recipe asks for.
"""

import math
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from cato.data.benchmarks import BENCHMARKS, get_benchmark
from cato.files import write_json
from cato.models.registry import default_model
from cato.progress import progress_bar
from cato.training.config import recipe
from cato.training.engine import make_fabric
from cato.training.loop import Training
from cato.training.run import create_run, environment
from cato.training.weights import load_splits

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "recipes.json"
PAGE = ROOT / "docs" / "benchmarks" / "training.md"
LIMIT_MINUTES, REPEATS = 10, 3


def measure(benchmark: str) -> dict[str, Any]:
    """Minutes that the recipe of a benchmark would take."""
    config = recipe(benchmark, "small", default_model(get_benchmark(benchmark).problem("small")))
    splits = load_splits(config)
    with tempfile.TemporaryDirectory() as folder:
        run = create_run(Path(folder) / "run", config, splits.problem)
        training = Training(run, splits, make_fabric(replace(config.train, accelerator="cpu")))
        per_step = median(training.seconds_per_step() for _ in range(REPEATS))
    num_steps = config.train.epochs * math.ceil(len(splits.train) / config.train.batch_size)
    return {
        "benchmark": benchmark,
        "model": config.model_name,
        "epochs": config.train.epochs,
        "steps": num_steps,
        "seconds_per_step": per_step,
        "minutes": num_steps * per_step / 60,
    }


def write_page(results: dict[str, Any]) -> None:
    """docs/benchmarks/training.md, from the results alone."""
    machine = results["environment"]
    lines = [
        "# How long the `small` recipes train",
        "",
        "<!-- written by `make bench` from benchmarks/results/recipes.json; do not edit -->",
        "",
        f"{machine['threads']} threads of {machine['processor']}. Steps are timed with their share "
        "of a validation per epoch and multiplied by their number; loading and checkpoints come on "
        "top.",
        "",
        "| benchmark | model | epochs | steps | ms per step | minutes |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| [{row['benchmark']}]({row['benchmark']}.md) | {row['model']} | {row['epochs']} "
        f"| {row['steps']} | {1000 * row['seconds_per_step']:.0f} | {row['minutes']:.1f} |"
        for row in results["rows"]
    ]
    verdict = all(row["minutes"] <= LIMIT_MINUTES for row in results["rows"])
    lines += [
        "",
        f"Required: at most {LIMIT_MINUTES} minutes each on two cores; "
        f"{'reached' if verdict else 'not reached'}.",
        "",
    ]
    PAGE.write_text("\n".join(lines))


def main() -> None:
    """Measure every recipe, then write results and page."""
    rows = []
    with progress_bar("recipes", len(BENCHMARKS)) as bar:
        for number, benchmark in enumerate(BENCHMARKS, start=1):
            rows.append(measure(benchmark))
            bar(number, f"{benchmark} {rows[-1]['minutes']:.1f} minutes")
    results = {"environment": environment(), "limit_minutes": LIMIT_MINUTES, "rows": rows}
    write_json(RESULTS, results)
    write_page(results)
    print(f"wrote {RESULTS.relative_to(ROOT)} and {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
