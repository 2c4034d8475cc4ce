"""Speed and memory of CATO at the paper's Darcy setting, compared with a matmul on the same core.

    make bench                      # writes tools/results/speed.json and docs/speed.md
    make bench-gpu                  # the same on a GPU, into speed_gpu.json and the same page
    python -m tools.speed --trial   # one small mesh, one round; writes nothing

One thread, the recipe's model; processor seconds, which other processes change less than wall time.
On a GPU, wall seconds from an idle device to an idle device, of the compiled model that a training
has there. Shared machines are still noisy: matmul, forward and training steps in float32 and bf16
alternate, and figures are medians of ratios of neighbouring timings. FLOPs of a forward are counted
on the plain formulas, so extra work of an implementation does not count as progress; a training
step counts as three forwards. The matmul is PyTorch's own in float32, which is not the fastest that
a processor can do (see `cato.kernels.linear`): shares above 1 are possible.

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

import torch

from cato.config import to_dict
from cato.models.registry import build_model
from cato.physics.gradient import inverse_metric
from cato.physics.losses import PhysicalLoss
from cato.problem import Problem
from cato.runs.settings import RunConfig, build_settings
from cato.training.devices import is_compiled
from cato.training.optim import build_optimizers
from reproduce.flops import count_flops
from reproduce.profiling import (
    MATMUL,
    clock_of,
    in_matmuls,
    peak_memory,
    peak_of_tensors,
    resident_memory,
    training_step,
)
from tools import speed_page
from tools.pages import write_pages
from tools.results import ROOT, Row, has_results, read_results, results_name, stamped, write_results

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

    def __init__(self, size: int, device: str = "cpu", remat: bool = False) -> None:
        torch.manual_seed(0)
        self.device = device
        config = paper_recipe()
        self.problem = problem_of(size)
        self.model = build_model("cato", config.model, self.problem)
        if remat:
            self.model.rematerialise()
        self.model.to(device)
        compiled = is_compiled(config.train, device)
        self.module: Any = torch.compile(self.model) if compiled else self.model
        axis = torch.linspace(0, 1, size)
        coords = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).flatten(0, 1)
        self.coords = coords.expand(BATCH, -1, -1).to(device)
        self.features = torch.randn(BATCH, size**2, 1, device=device)
        self.targets = torch.randn(BATCH, size**2, 1, device=device)
        metric = inverse_metric(coords, self.problem.shape, (False, False), (None, None))
        self.metric = metric.to(device)
        self.loss = PhysicalLoss(config.loss, self.problem, torch.ones(1)).to(device)
        self.optimizers = build_optimizers(self.model, config.train)

    def forward(self) -> None:
        """Inference."""
        with torch.no_grad():
            self.module(self.coords, self.features)

    def step(self, bf16: bool = False) -> None:
        """Forward, loss, backward, update."""
        with torch.autocast(self.device, torch.bfloat16, enabled=bf16):
            values, flux = self.module(self.coords, self.features)
        total, _ = self.loss(values, self.targets, flux=flux, metric=self.metric)
        total.backward()
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()


def operations(setting: Setting) -> dict[str, int]:
    """Floating-point operations of a batch; a step is counted as three forwards."""
    with torch.no_grad():
        forward = count_flops(lambda: setting.model(setting.coords, setting.features))
    return {"forward": forward, "step": 3 * forward}


def measure(size: int, device: str, repeats: int = REPEATS) -> Row:
    """Times and rates at one mesh size."""
    torch.set_num_threads(1)
    setting = Setting(size, device)
    flops = operations(setting)
    before = peak_memory(device)
    works: dict[str, Callable[[], None]] = {
        "forward": setting.forward,
        "step": setting.step,
        "bf16_step": partial(setting.step, bf16=True),
    }
    seconds, matmuls = alternate(works, device, repeats)
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
        "step_memory_gib": peak_memory(device) - before,
    }
    settings = {"benchmark": "darcy", "scale": "paper", "model": to_dict(paper_recipe().model)}
    targets = TARGETS.get(size, {})
    timing = {"batch": BATCH, "repeats": repeats, "matmul": MATMUL, "targets": targets}
    return stamped(row, settings | timing)  # in the measuring process, which has one thread


def alternate(
    works: Mapping[str, Callable[[], None]], device: str, repeats: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of every call, and the same in matmuls before and after it."""
    matrix, clock = torch.randn(MATMUL, MATMUL, device=device), clock_of(device)
    seconds: dict[str, list[float]] = {name: [] for name in works}
    matmuls: dict[str, list[float]] = {name: [] for name in works}
    for repeat in range(-1, repeats):  # the first round compiles and allocates
        for name, work in works.items():
            taken, ratio = in_matmuls(work, matrix, clock)
            if repeat >= 0:
                seconds[name].append(taken)
                matmuls[name].append(ratio)
    return seconds, matmuls


def compare_remat(size: int, device: str, repeats: int) -> Row:
    """A training step that recomputes its blocks against one that keeps everything.

    Memory is that of the tensors at the peak of a step, which is what it takes on a device. The
    resident memory of a process on a CPU is larger: the allocator keeps some of what is freed.
    """
    torch.set_num_threads(1)
    Setting(SIZES[0], device).step()  # compiles the loops
    before, works = resident_memory(device), {}
    row: Row = {"size": size}
    for name in ("remat", "plain"):  # the one that needs less memory first
        setting = Setting(size, device, remat=name == "remat")
        works[name] = setting.step
        setting.step()
        row[f"{name}_resident_gib"] = peak_memory(device) - before
        row[f"{name}_memory_gib"] = peak_of_tensors(setting.step, device)
    seconds, matmuls = alternate(works, device, repeats)
    pairs = zip(matmuls["remat"], matmuls["plain"], strict=True)
    row |= {f"{name}_seconds": median(values) for name, values in seconds.items()}
    row["time_ratio"] = median(a / b for a, b in pairs)
    row["memory_share"] = row["remat_memory_gib"] / row["plain_memory_gib"]
    row["resident_share"] = row["remat_resident_gib"] / row["plain_resident_gib"]
    row["malloc"] = {k: v for k, v in os.environ.items() if k in RETURN_FREED}
    settings = {"benchmark": "darcy", "scale": "paper", "model": to_dict(paper_recipe().model)}
    timing = {"batch": BATCH, "repeats": repeats, "matmul": MATMUL, "targets": REMAT_TARGETS}
    return stamped(row, settings | timing)


def compare_without_loops(scale: str, device: str, repeats: int) -> Row:
    """A training step of CATO without compiled loops against one of Transolver on Darcy."""
    torch.set_num_threads(1)
    names = {"cato": "plain_cato", "transolver": "transolver"}
    steps = {key: training_step("darcy", scale, model, device)[1] for key, model in names.items()}
    _, matmuls = alternate(steps, device, repeats)
    row = {f"{name}_step_in_matmuls": median(values) for name, values in matmuls.items()}
    pairs = zip(matmuls["cato"], matmuls["transolver"], strict=True)
    row["ratio"] = median(a / b for a, b in pairs)
    settings = {"benchmark": "darcy", "scale": scale, "batch": BATCH, "repeats": repeats}
    return stamped(row, settings | {"matmul": MATMUL, "target": PLAIN_TARGET})


def main() -> None:
    """Measure every size in its own process, then write results and page."""
    parser = argparse.ArgumentParser(description="speed of CATO compared with a matmul")
    parser.add_argument("--trial", action="store_true", help="one small mesh; writes nothing")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)  # one measurement
    parser.add_argument("--plain", help=argparse.SUPPRESS)  # the comparison, at this scale
    parser.add_argument("--remat", type=int, help=argparse.SUPPRESS)  # the comparison, at this size
    parser.add_argument("--only-remat", action="store_true", help="measure --train.remat only")
    parser.add_argument("--repeats", type=int, default=REPEATS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    device, repeats = options.device, options.repeats
    require_device(device)
    if options.size:
        print(json.dumps(measure(options.size, device, repeats)))
        return
    if options.plain:
        print(json.dumps(compare_without_loops(options.plain, device, repeats)))
        return
    if options.remat:
        print(json.dumps(compare_remat(options.remat, device, repeats)))
        return
    sizes: tuple[int, ...] = (16,) if options.trial else SIZES
    scale, repeats = ("smoke", 1) if options.trial else ("paper", repeats)
    remat_size = sizes[0] if options.trial else REMAT_SIZE
    environments = ({}, RETURN_FREED) if device == "cpu" else ({},)
    results = {
        "remat": [
            measure_apart("--remat", str(remat_size), device, repeats, env) for env in environments
        ]
    }
    if not options.only_remat:
        results["rows"] = [measure_apart("--size", str(size), device, repeats) for size in sizes]
        results["plain"] = [measure_apart("--plain", scale, device, repeats)]
    if not options.trial:
        name = results_name("speed", device)
        write_results(name, (read_results(name) if has_results(name) else {}) | results)
        write_pages(speed_page.pages())


def require_device(device: str) -> None:
    """End with one line on a machine without this device."""
    if device == "cuda" and not torch.cuda.is_available():
        print(
            "this machine has no GPU that PyTorch can use, so nothing was measured; run "
            "`make bench-gpu` on one that has (`make bench` measures the processor)",
            file=sys.stderr,
        )
        sys.exit(2)


def measure_apart(
    option: str,
    value: str,
    device: str,
    repeats: int,
    environment: Mapping[str, str] | None = None,
) -> Row:
    """One measurement in a process of its own, with these variables in its environment."""
    print(f"measuring {option.strip('-')} {value} …", file=sys.stderr, flush=True)
    words = [option, value, "--device", device, "--repeats", str(repeats)]
    done = subprocess.run(
        [sys.executable, "-m", "tools.speed", *words],
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
