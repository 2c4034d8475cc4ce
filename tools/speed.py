"""Speed and memory of CATO at the paper's Darcy setting, compared with a matmul on the same core.

    make bench                      # writes tools/results/speed.json and docs/speed.md
    python -m tools.speed --trial   # one small mesh, one round; writes nothing

One thread, the recipe's model; processor seconds, which other processes change less than wall time.
Shared machines are still noisy: matmul, forward and training steps in float32 and bf16 alternate,
and figures are medians of ratios of neighbouring timings. FLOPs of a forward are counted on the
plain formulas, so extra work of an implementation does not count as progress; a training step
counts as three forwards. The matmul is PyTorch's own in float32, which is not the fastest that a
processor can do (see `cato.kernels.linear`): shares above 1 are possible.

CATO without compiled loops is compared with Transolver. Each mesh, and this comparison, has its own
process, so that its peak memory can be measured.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from time import process_time

import torch

from cato.config import to_dict
from cato.models.registry import build_model
from cato.physics.gradient import inverse_metric
from cato.physics.losses import PhysicalLoss
from cato.problem import Problem
from cato.runs.settings import RunConfig, build_settings
from cato.training.optim import build_optimizers
from reproduce.flops import count_flops
from reproduce.profiling import (
    MATMUL,
    in_matmuls,
    peak_memory,
    peak_of_tensors,
    resident_memory,
    training_step,
)
from tools import speed_page
from tools.pages import write_pages
from tools.results import ROOT, Row, read_results, stamped, write_results

SIZES = (43, 85, 170)
BATCH, REPEATS = 4, 7
TARGETS: dict[int, dict[str, float]] = {
    85: {"forward_share": 0.65, "step_share": 0.62, "bf16_gain": 1.3},
    170: {"forward_share": 0.55, "step_share": 0.50},
}
"""Required shares of the rate of a matmul, and how much faster a step must be in bf16, by mesh."""
PLAIN_TARGET = 1.0
"""Longest step of CATO without compiled loops, in steps of Transolver."""
RETURN_FREED = {"MALLOC_MMAP_THRESHOLD_": "1000000"}
"""Environment in which glibc gives freed tensors back to the system at once."""
REMAT_SIZE, REMAT_TARGETS = 85, {"memory_share": 0.45, "time_ratio": 1.35}
"""Most memory and time of a step that recomputes its blocks, in those of a step that does not."""


def paper_recipe() -> RunConfig:
    """The paper's Darcy setting."""
    return build_settings("darcy", "paper", "cato")


def problem_of(size: int) -> Problem:
    """Darcy on a grid of that many nodes per side."""
    return Problem("darcy", "grid", (size, size), ("a",), ("u",))


class Setting:
    """Model, data, loss and optimiser of the paper's Darcy configuration at one mesh size."""

    def __init__(self, size: int, remat: bool = False) -> None:
        torch.manual_seed(0)
        config = paper_recipe()
        self.problem = problem_of(size)
        self.model = build_model("cato", config.model, self.problem)
        if remat:
            self.model.rematerialise()
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

    def step(self, bf16: bool = False) -> None:
        """Forward, loss, backward, update."""
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
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
    setting = Setting(size)
    flops = operations(setting)
    before = peak_memory()
    works: dict[str, Callable[[], None]] = {
        "forward": setting.forward,
        "step": setting.step,
        "bf16_step": partial(setting.step, bf16=True),
    }
    seconds, matmuls = alternate(works, repeats)
    unit = [t / m for name in works for t, m in zip(seconds[name], matmuls[name], strict=True)]
    rates = {name: [flops[name] / (2 * MATMUL**3 * m) for m in matmuls[name]] for name in flops}
    gains = [a / b for a, b in zip(matmuls["step"], matmuls["bf16_step"], strict=True)]
    row = {
        "size": size,
        "parameters": sum(p.numel() for p in setting.model.parameters()),
        "gflop_per_sample": flops["forward"] / BATCH / 1e9,
        "matmul_gflops": 2 * MATMUL**3 / median(unit) / 1e9,
        "forward_seconds": median(seconds["forward"]),
        "step_seconds": median(seconds["step"]),
        "bf16_step_seconds": median(seconds["bf16_step"]),
        "forward_share": median(rates["forward"]),
        "step_share": median(rates["step"]),
        "bf16_gain": median(gains),
        "step_memory_gib": peak_memory() - before,
    }
    settings = {"benchmark": "darcy", "scale": "paper", "model": to_dict(paper_recipe().model)}
    targets = TARGETS.get(size, {})
    timing = {"batch": BATCH, "repeats": repeats, "matmul": MATMUL, "targets": targets}
    return stamped(row, settings | timing)  # in the measuring process, which has one thread


def alternate(
    works: Mapping[str, Callable[[], None]], repeats: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of every call, and the same in matmuls before and after it."""
    matrix = torch.randn(MATMUL, MATMUL)
    seconds: dict[str, list[float]] = {name: [] for name in works}
    matmuls: dict[str, list[float]] = {name: [] for name in works}
    for repeat in range(-1, repeats):  # the first round compiles and allocates
        for name, work in works.items():
            taken, ratio = in_matmuls(work, matrix, process_time)
            if repeat >= 0:
                seconds[name].append(taken)
                matmuls[name].append(ratio)
    return seconds, matmuls


def compare_remat(size: int, repeats: int) -> Row:
    """A training step that recomputes its blocks against one that keeps everything.

    Memory is that of the tensors at the peak of a step, which is what it takes on a device. The
    resident memory of a process on a CPU is larger: the allocator keeps some of what is freed.
    """
    torch.set_num_threads(1)
    Setting(SIZES[0]).step()  # compiles the loops
    before, works = resident_memory(), {}
    row: Row = {"size": size}
    for name in ("remat", "plain"):  # the one that needs less memory first
        setting = Setting(size, remat=name == "remat")
        works[name] = setting.step
        setting.step()
        row[f"{name}_resident_gib"] = peak_memory() - before
        row[f"{name}_memory_gib"] = peak_of_tensors(setting.step)
    seconds, matmuls = alternate(works, repeats)
    pairs = zip(matmuls["remat"], matmuls["plain"], strict=True)
    row |= {f"{name}_seconds": median(values) for name, values in seconds.items()}
    row["time_ratio"] = median(a / b for a, b in pairs)
    row["memory_share"] = row["remat_memory_gib"] / row["plain_memory_gib"]
    row["resident_share"] = row["remat_resident_gib"] / row["plain_resident_gib"]
    row["malloc"] = {k: v for k, v in os.environ.items() if k in RETURN_FREED}
    settings = {"benchmark": "darcy", "scale": "paper", "model": to_dict(paper_recipe().model)}
    timing = {"batch": BATCH, "repeats": repeats, "matmul": MATMUL, "targets": REMAT_TARGETS}
    return stamped(row, settings | timing)


def compare_without_loops(scale: str, repeats: int) -> Row:
    """A training step of CATO without compiled loops against one of Transolver on Darcy."""
    torch.set_num_threads(1)
    names = {"cato": "plain_cato", "transolver": "transolver"}
    steps = {key: training_step("darcy", scale, model)[1] for key, model in names.items()}
    _, matmuls = alternate(steps, repeats)
    row = {f"{name}_step_in_matmuls": median(values) for name, values in matmuls.items()}
    pairs = zip(matmuls["cato"], matmuls["transolver"], strict=True)
    row["ratio"] = median(a / b for a, b in pairs)
    settings = {"benchmark": "darcy", "scale": scale, "batch": BATCH, "repeats": repeats}
    return stamped(row, settings | {"matmul": MATMUL, "target": PLAIN_TARGET})


def main() -> None:
    """Measure every size in its own process, then write results and page."""
    parser = argparse.ArgumentParser(description="speed of CATO compared with a matmul")
    parser.add_argument("--trial", action="store_true", help="one small mesh; writes nothing")
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)  # one measurement
    parser.add_argument("--plain", help=argparse.SUPPRESS)  # the comparison, at this scale
    parser.add_argument("--remat", type=int, help=argparse.SUPPRESS)  # the comparison, at this size
    parser.add_argument("--only-remat", action="store_true", help="measure --train.remat only")
    parser.add_argument("--repeats", type=int, default=REPEATS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.size:
        print(json.dumps(measure(options.size, options.repeats)))
        return
    if options.plain:
        print(json.dumps(compare_without_loops(options.plain, options.repeats)))
        return
    if options.remat:
        print(json.dumps(compare_remat(options.remat, options.repeats)))
        return
    sizes: tuple[int, ...] = (16,) if options.trial else SIZES
    scale, repeats = ("smoke", 1) if options.trial else ("paper", options.repeats)
    remat_size = sizes[0] if options.trial else REMAT_SIZE
    results = {
        "remat": [
            measure_apart("--remat", str(remat_size), repeats, env) for env in ({}, RETURN_FREED)
        ]
    }
    if not options.only_remat:
        results["rows"] = [measure_apart("--size", str(size), repeats) for size in sizes]
        results["plain"] = [measure_apart("--plain", scale, repeats)]
    if not options.trial:
        write_results("speed", read_results("speed") | results)
        write_pages(speed_page.pages())


def measure_apart(
    option: str, value: str, repeats: int, environment: Mapping[str, str] | None = None
) -> Row:
    """One measurement in a process of its own, with these variables in its environment."""
    print(f"measuring {option.strip('-')} {value} …", file=sys.stderr, flush=True)
    words = ["-m", "tools.speed", option, value, "--repeats", str(repeats)]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | dict(environment or {}),
    )
    row = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps(row, indent=1))
    return row


if __name__ == "__main__":
    main()
