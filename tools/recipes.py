"""How long the `small` recipes of CATO train on this machine, all its cores together.

    make bench        # writes tools/results/recipes.json and docs/benchmarks/training.md

For each benchmark some steps and one validation of the real training are timed, by the same code
that fits a schedule to a time budget, and multiplied by what the recipe asks for.
"""

import math
from pathlib import Path
from typing import Any

from cato.benchmarks import BENCHMARKS, get_benchmark
from cato.files import write_json
from cato.progress import progress_bar
from cato.runs.provenance import environment
from cato.runs.settings import recipe
from reproduce.step_timing import seconds_per_step

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "tools" / "results" / "recipes.json"
PAGE = ROOT / "docs" / "benchmarks" / "training.md"
LIMIT_MINUTES = 10


def measure(benchmark: str) -> dict[str, Any]:
    """Minutes that the recipe of a benchmark would take."""
    config = recipe(benchmark, "small")
    per_step = seconds_per_step(config)
    num_samples = get_benchmark(benchmark).scale("small").train
    num_steps = config.train.epochs * math.ceil(num_samples / config.train.batch_size)
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
        "<!-- written by `make bench` from tools/results/recipes.json; do not edit -->",
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
