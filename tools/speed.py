"""Speed and memory of CATO at the paper's Darcy setting, against a matmul on the same core.

    make bench        # writes tools/results/speed.json and docs/speed.md

One thread, float32, the recipe's model. Times on shared machines are noisy: matmul, forward and
training step alternate, and figures are medians of ratios side by side. FLOPs of a forward are
counted on the plain formulas, so work that an implementation adds does not count as progress; a
training step counts as three forwards. Each mesh runs in a process of its own, for its memory.
"""

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import torch

from cato.files import write_json
from cato.models.registry import build_model
from cato.physics import PhysicalLoss, inverse_metric
from cato.problem import Problem
from cato.runs.provenance import environment
from cato.runs.settings import RunConfig, recipe
from cato.training.optim import build_optimizers
from reproduce.flops import count_flops
from reproduce.profiling import MATMUL, in_matmuls, peak_memory

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "tools" / "results" / "speed.json", ROOT / "docs" / "speed.md"
SIZES = (43, 85, 170)
BATCH, REPEATS = 4, 7
TARGETS = {"forward": 0.40, "step": 0.30}
"""Shares of the matmul rate that must be reached at 85 × 85."""


def paper_recipe() -> RunConfig:
    """The paper's Darcy setting."""
    return recipe("darcy", "paper", "cato")


def problem_of(size: int) -> Problem:
    """Darcy on a grid of that many nodes per side."""
    return Problem("darcy", "grid", (size, size), ("a",), ("u",))


class Setting:
    """Model, data, loss and optimiser of the paper's Darcy configuration at one mesh size."""

    def __init__(self, size: int) -> None:
        config = paper_recipe()
        self.problem = problem_of(size)
        self.model = build_model("cato", config.model, self.problem)
        axis = torch.linspace(0, 1, size)
        coords = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).flatten(0, 1)
        self.coords = coords.expand(BATCH, -1, -1)
        self.features = torch.randn(BATCH, size**2, 1)
        self.targets = torch.randn(BATCH, size**2, 1)
        self.metric = inverse_metric(coords, self.problem.shape, (False, False), (None, None))
        self.loss = PhysicalLoss(config.loss, self.problem, torch.ones(1))
        self.optimizers = build_optimizers(self.model, config.train)

    def forward(self) -> None:
        """Inference."""
        with torch.no_grad():
            self.model(self.coords, self.features)

    def step(self) -> None:
        """Forward, loss, backward, update."""
        values, flux = self.model(self.coords, self.features)
        total, _ = self.loss(values, self.targets, flux=flux, metric=self.metric)
        total.backward()
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()


def operations(setting: Setting) -> dict[str, int]:
    """Floating-point operations of a batch; a step is counted as three forwards."""
    forward = count_flops(setting.forward)
    return {"forward": forward, "step": 3 * forward}


def measure(size: int) -> dict[str, Any]:
    """Times and rates at one mesh size."""
    torch.set_num_threads(1)
    matrix = torch.randn(MATMUL, MATMUL)
    setting = Setting(size)
    flops = operations(setting)
    before = peak_memory()
    works = {"forward": setting.forward, "step": setting.step}
    seconds: dict[str, list[float]] = {"matmul": [], "forward": [], "step": []}
    shares: dict[str, list[float]] = {"forward": [], "step": []}
    for repeat in range(-1, REPEATS):  # the first round compiles and allocates
        for name, work in works.items():
            taken, matmuls = in_matmuls(work, matrix)
            if repeat >= 0:
                seconds["matmul"].append(taken / matmuls)
                seconds[name].append(taken)
                shares[name].append(flops[name] / (2 * MATMUL**3 * matmuls))
    return {
        "size": size,
        "parameters": sum(p.numel() for p in setting.model.parameters()),
        "gflop_per_sample": flops["forward"] / BATCH / 1e9,
        "matmul_gflops": 2 * MATMUL**3 / median(seconds["matmul"]) / 1e9,
        "forward_seconds": median(seconds["forward"]),
        "step_seconds": median(seconds["step"]),
        "forward_share": median(shares["forward"]),
        "step_share": median(shares["step"]),
        "step_memory_gib": peak_memory() - before,
    }


def write_page(results: dict[str, Any]) -> None:
    """docs/speed.md, from the results and the recipe."""
    rows, model = results["sizes"], paper_recipe().model
    lines = [
        "# Speed",
        "",
        "<!-- written by `make bench` from tools/results/speed.json; do not edit -->",
        "",
        f"CATO at the paper's Darcy setting (width {model.width}, depth {model.depth}, "
        f"{model.heads} heads, batch {results['batch']}, float32),",
        f"one thread of {results['environment']['processor']},",
        f"PyTorch {results['environment']['torch']}. Shares are of the rate of a matmul of",
        f"{MATMUL} × {MATMUL} matrices measured side by side; medians of {REPEATS} rounds.",
        "",
        "| mesh | GFLOP/sample | forward, ms/sample | share of matmul | training step, ms/sample "
        "| share of matmul | memory of a step, GiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['size']} × {row['size']} | {row['gflop_per_sample']:.2f} "
            f"| {1000 * row['forward_seconds'] / BATCH:.0f} | {row['forward_share']:.0%} "
            f"| {1000 * row['step_seconds'] / BATCH:.0f} | {row['step_share']:.0%} "
            f"| {row['step_memory_gib']:.2f} |"
        )
    first, last = rows[0], rows[-1]
    growth = last["gflop_per_sample"] / first["gflop_per_sample"]
    longer = last["step_seconds"] / first["step_seconds"]
    nodes = (last["size"] / first["size"]) ** 2
    lines += [
        "",
        f"From {first['size']}² to {last['size']}² nodes ({nodes:.1f} times as many) a training",
        f"step takes {longer:.1f} times as long and counts {growth:.1f} times the operations:",
        "axial attention costs O(HW(H + W)), everything else O(HW).",
        "",
        f"Required at 85 × 85: forward {TARGETS['forward']:.0%}, step {TARGETS['step']:.0%} — "
        f"{'reached' if reached(results) else 'not reached'}.",
        "",
    ]
    PAGE.write_text("\n".join(lines))


def reached(results: dict[str, Any]) -> bool:
    """Whether the required shares hold at the paper's mesh."""
    row = next(row for row in results["sizes"] if row["size"] == 85)
    return all(row[f"{name}_share"] >= share for name, share in TARGETS.items())


def main() -> None:
    """Measure every size in a process of its own, then write results and page."""
    if len(sys.argv) > 1:
        print(json.dumps(measure(int(sys.argv[1]))))
        return
    rows = []
    for size in SIZES:
        print(f"measuring {size} × {size} …", file=sys.stderr, flush=True)
        done = subprocess.run(
            [sys.executable, __file__, str(size)], stdout=subprocess.PIPE, text=True, check=True
        )
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(json.dumps(rows[-1], indent=1))
    results = {"environment": environment(), "batch": BATCH, "targets": TARGETS, "sizes": rows}
    write_json(RESULTS, results)
    write_page(results)
    print(f"wrote {RESULTS.relative_to(ROOT)} and {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
