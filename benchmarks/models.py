"""Training step and memory of every model at the paper's Darcy and Pipe settings, in one table.

    make bench        # writes benchmarks/results/models.json and docs/models/speed.md

One thread, float32, the published width and depth of each model, the same batch for all. Every
model runs in a process of its own, for its memory; a step (forward, the recipe's loss, backward,
AdamW) is timed between two matmuls, and the figure is the median of their ratios, so that a machine
that slows down half-way does no harm.
"""

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import torch
from speed import MATMUL, peak_memory, seconds_of

from cato.data.benchmarks import get_benchmark
from cato.files import write_json
from cato.models.registry import MODELS, build_model, model_entry
from cato.physics import PhysicalLoss, inverse_metric
from cato.progress import progress_bar
from cato.training.config import recipe
from cato.training.optim import build_optimizers
from cato.training.run import environment

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "models.json", ROOT / "docs/models/speed.md"
BENCHMARKS = ("darcy", "pipe")
BATCH, REPEATS = 4, 3
TARGET = 1.5
"""How many times faster than Transolver's a training step of CATO must be."""


def measure(benchmark: str, name: str) -> dict[str, Any]:
    """Step time of one model, as a ratio to a matmul side by side, and its memory."""
    torch.set_num_threads(1)
    config, problem = recipe(benchmark, "paper", name), get_benchmark(benchmark).problem("paper")
    model = build_model(name, config.model, problem)
    axes = [torch.linspace(0, 1, n) for n in problem.shape]
    coords = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, 1)
    metric = inverse_metric(coords, problem.shape, problem.periodic, problem.period)
    coords = coords.expand(BATCH, -1, -1)
    features, targets = (torch.randn(BATCH, coords.shape[1], n) for n in (problem.num_inputs, 1))
    loss = PhysicalLoss(config.loss, problem, torch.ones(1) if config.loss.needs_scale else None)
    optimizers = build_optimizers(model, config.train)

    def step() -> None:
        values, flux = model(coords, features)
        total, _ = loss(values, targets, flux=flux, metric=metric)
        total.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    before = peak_memory()
    matrix = torch.randn(MATMUL, MATMUL)
    seconds, ratios = [], []
    for repeat in range(-1, REPEATS):  # the first compiles and allocates
        around = seconds_of(lambda: matrix @ matrix)
        taken = seconds_of(step)
        around = (around + seconds_of(lambda: matrix @ matrix)) / 2
        if repeat >= 0:
            seconds.append(taken)
            ratios.append(taken / around)
    return {
        "benchmark": benchmark,
        "model": name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "step_seconds_per_sample": median(seconds) / BATCH,
        "step_in_matmuls": median(ratios),
        "memory_gib": peak_memory() - before,
    }


def speed_up(rows: list[dict[str, Any]], benchmark: str) -> float:
    """Transolver's step time over that of CATO, both in matmuls."""
    steps = {row["model"]: row["step_in_matmuls"] for row in rows if row["benchmark"] == benchmark}
    return steps["transolver"] / steps["cato"]


def write_page(results: dict[str, Any]) -> None:
    """docs/models/speed.md, from the results alone."""
    lines = [
        "# Speed of the models",
        "",
        "<!-- written by `make bench` from benchmarks/results/models.json; do not edit -->",
        "",
        f"A training step at the published settings, batch {BATCH} for all, float32, one thread of "
        f"{results['environment']['processor']}, PyTorch {results['environment']['torch']}.",
        f"*Matmuls*: the step in units of a matmul of {MATMUL} × {MATMUL} matrices timed just "
        f"before and after it, median of {REPEATS}; the table is sorted by it.",
    ]
    for benchmark in BENCHMARKS:
        rows = [row for row in results["rows"] if row["benchmark"] == benchmark]
        rows.sort(key=lambda row: row["step_in_matmuls"])
        lines += [
            "",
            f"## {get_benchmark(benchmark).title}",
            "",
            "| model | matmuls | ms per sample | memory of a step, GiB | parameters |",
            "|---|---|---|---|---|",
        ]
        for row in rows:
            lines.append(
                f"| {model_entry(row['model']).title} | {row['step_in_matmuls']:.1f} "
                f"| {1000 * row['step_seconds_per_sample']:.0f} | {row['memory_gib']:.2f} "
                f"| {row['parameters']:,} |"
            )
        ratio = speed_up(rows, benchmark)
        verdict = "reached" if ratio >= TARGET else "not reached"
        lines += [
            "",
            f"CATO's step is {ratio:.2f} times as fast as Transolver's; required {TARGET}, "
            f"{verdict}.",
        ]
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("\n".join([*lines, ""]))


def main() -> None:
    """Measure every model in a process of its own, then write results and page."""
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1], sys.argv[2])))
        return
    names = [name for name, entry in MODELS.items() if "grid" in entry.operator.geometries]
    jobs = [(benchmark, name) for benchmark in BENCHMARKS for name in names]
    rows = []
    with progress_bar("models", len(jobs)) as bar:
        for number, job in enumerate(jobs, start=1):
            done = subprocess.run(
                [sys.executable, __file__, *job], stdout=subprocess.PIPE, text=True, check=True
            )
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            bar(number, f"{job[1]} {rows[-1]['step_in_matmuls']:.1f} matmuls")
    results = {"environment": environment(), "batch": BATCH, "target": TARGET, "rows": rows}
    write_json(RESULTS, results)
    write_page(results)
    print(f"wrote {RESULTS.relative_to(ROOT)} and {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
