"""How long the `small` recipes of CATO train on this machine, using all its cores.

    make bench                        # writes tools/results/recipes.json and docs/speed.md
    make bench-gpu                    # the same on a GPU, into recipes_gpu.json and the same page
    python -m tools.recipes --trial   # the smoke recipe of Darcy; writes nothing

For each benchmark some steps and one validation of the real training are timed, by the code that
fits a schedule to a time budget, and multiplied by the recipe's number of steps.
"""

import argparse
import json
import math

from cato.benchmarks import BENCHMARKS, get_benchmark
from cato.progress import progress_bar
from cato.runs.load import data_spec
from cato.runs.settings import build_settings
from reproduce.step_timing import seconds_per_step
from tools import speed_page
from tools.pages import write_pages
from tools.results import Row, results_name, stamped, write_results
from tools.speed import require_device

LIMIT_MINUTES = 10


def measure(benchmark: str, device: str, scale: str = "small") -> Row:
    """Minutes that the recipe of a benchmark would take."""
    config = build_settings(benchmark, scale, None, {"train": {"accelerator": device}})
    per_step = seconds_per_step(config)
    num_samples = get_benchmark(benchmark).scale(scale).train
    num_steps = config.train.epochs * math.ceil(num_samples / config.train.batch_size)
    row = {
        "benchmark": benchmark,
        "model": config.model_name,
        "epochs": config.train.epochs,
        "steps": num_steps,
        "seconds_per_step": per_step,
        "minutes": num_steps * per_step / 60,
    }
    settings = {"config": config.to_dict(), "limit_minutes": LIMIT_MINUTES}
    return stamped(row, settings, data_spec(config).key)


def main() -> None:
    """Measure every recipe, then write results and page."""
    parser = argparse.ArgumentParser(description="training time of the small recipes")
    parser.add_argument("--trial", action="store_true", help="one smoke recipe; writes nothing")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    require_device(options.device)
    if options.trial:
        print(json.dumps(measure("darcy", options.device, "smoke"), indent=1))
        return
    rows = []
    with progress_bar("recipes", len(BENCHMARKS)) as bar:
        for number, benchmark in enumerate(BENCHMARKS, start=1):
            rows.append(measure(benchmark, options.device))
            bar(number, f"{benchmark} {rows[-1]['minutes']:.1f} minutes")
    write_results(results_name("recipes", options.device), {"rows": rows})
    write_pages(speed_page.pages())


if __name__ == "__main__":
    main()
