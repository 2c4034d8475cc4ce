"""Speed and memory of CATO at the paper's Darcy setting, compared with a matmul on the same core.

    make bench                      # writes tools/results/speed.json and docs/speed.md
    python -m tools.speed --trial   # one small mesh, one round; writes nothing

One thread, float32, the recipe's model. Times on shared machines are noisy: matmul, forward and
training step alternate, and figures are medians of ratios of neighbouring timings. FLOPs of a
forward are counted on the plain formulas, so extra work of an implementation does not count as
progress; a training step counts as three forwards. Each mesh has its own process, so that its peak
memory can be measured.
"""

import argparse
import json
import subprocess
import sys
from statistics import median

import torch

from cato.config import to_dict
from cato.models.registry import build_model
from cato.physics.gradient import inverse_metric
from cato.physics.losses import PhysicalLoss
from cato.problem import Problem
from cato.runs.settings import RunConfig, build_settings
from cato.training.optim import build_optimizers
from reproduce.flops import count_flops
from reproduce.profiling import MATMUL, in_matmuls, peak_memory
from tools import speed_page
from tools.pages import write_pages
from tools.results import ROOT, Row, stamped, write_results

SIZES = (43, 85, 170)
BATCH, REPEATS = 4, 7
TARGETS = {"forward": 0.40, "step": 0.30}
"""Required shares of the rate of a matmul at 85 × 85."""


def paper_recipe() -> RunConfig:
    """The paper's Darcy setting."""
    return build_settings("darcy", "paper", "cato")


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


def measure(size: int, repeats: int = REPEATS) -> Row:
    """Times and rates at one mesh size."""
    torch.set_num_threads(1)
    matrix = torch.randn(MATMUL, MATMUL)
    setting = Setting(size)
    flops = operations(setting)
    before = peak_memory()
    works = {"forward": setting.forward, "step": setting.step}
    seconds: dict[str, list[float]] = {"matmul": [], "forward": [], "step": []}
    shares: dict[str, list[float]] = {"forward": [], "step": []}
    for repeat in range(-1, repeats):  # the first round compiles and allocates
        for name, work in works.items():
            taken, matmuls = in_matmuls(work, matrix)
            if repeat >= 0:
                seconds["matmul"].append(taken / matmuls)
                seconds[name].append(taken)
                shares[name].append(flops[name] / (2 * MATMUL**3 * matmuls))
    row = {
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
    settings = {"benchmark": "darcy", "scale": "paper", "model": to_dict(paper_recipe().model)}
    timing = {"batch": BATCH, "repeats": repeats, "matmul": MATMUL, "targets": TARGETS}
    return stamped(row, settings | timing)  # in the measuring process, which has one thread


def main() -> None:
    """Measure every size in its own process, then write results and page."""
    parser = argparse.ArgumentParser(description="speed of CATO compared with a matmul")
    parser.add_argument("--trial", action="store_true", help="one small mesh; writes nothing")
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)  # one measurement
    parser.add_argument("--repeats", type=int, default=REPEATS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.size:
        print(json.dumps(measure(options.size, options.repeats)))
        return
    rows = []
    for size, repeats in [(16, 1)] if options.trial else [(size, REPEATS) for size in SIZES]:
        print(f"measuring {size} × {size} …", file=sys.stderr, flush=True)
        words = ["-m", "tools.speed", "--size", str(size), "--repeats", str(repeats)]
        done = subprocess.run(
            [sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
        )
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(json.dumps(rows[-1], indent=1))
    if not options.trial:
        write_results("speed", {"rows": rows})
        write_pages(speed_page.pages())


if __name__ == "__main__":
    main()
