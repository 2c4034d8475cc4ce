"""How large CATO can grow: a cost model fitted to measurements here, and what it predicts for GPUs.

    make bench-scale               # writes tools/results/scale.json and docs/scale.md
    python -m tools.scale --trial  # tiny meshes; writes nothing

Measured are training steps of one process with one thread (processor seconds, memory of tensors,
counted operations), all-to-alls of two processes over loopback, and on the same core a matmul and a
copy, the units in which a step is expressed. `tools.mesh_parallel` measures what the fit has not
seen.

The model of a step on a mesh of N nodes, with F operations in a forward pass, W channels and L
blocks, spread over P processes:

    F = N W (o₀ W L + o₁ L kᴰ + o₂ L Σ nₐ + o₃)       nₐ: nodes along axis a, kᴰ: of a stencil
    seconds = 3 F / (P s R) + b N W / (P C) + bytes sent / B + messages · latency
    memory = (m₁ N W L + m₂ N W) / P

R and C are the rates of matmul and copy; s, b, m₁ and m₂ are fitted, may not be negative, and s
not above 1. (Times of linear maps and of b N W L can hardly be told apart, hence no L.)
"""

import argparse
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from scipy.optimize import lsq_linear

from cato.config import to_dict
from cato.memory import readable_size
from cato.models.cato.grid import CatoConfig
from cato.problem import Problem
from cato.processes import Worker
from cato.runs.settings import build_settings
from reproduce.flops import count_flops
from reproduce.profiling import peak_of_tensors
from tools.mesh_parallel import Subject, bytes_per_step, exchanges_per_step
from tools.pages import Pages, render, table
from tools.results import ROOT, Row, has_results, machine, read_results, stamped, write_results

PAGE = ROOT / "docs" / "scale.md"
Shape = tuple[int, ...]

CASES: tuple[tuple[Shape, int, int, int], ...] = (
    *(((n, n), 16, 2, 2) for n in (128, 256, 512)),
    ((64, 64), 32, 4, 4),
    ((128, 128), 32, 4, 4),
    ((43, 43), 96, 8, 8),
    ((85, 85), 96, 8, 8),
    ((32, 32, 32), 16, 2, 2),
    ((24, 24, 24), 32, 4, 4),
)
"""Mesh, width, depth and heads of the measured steps."""
SENT = tuple(2**k for k in (10, 14, 18, 20, 22, 24, 26))
"""Bytes of the measured all-to-alls that go to the other process."""
REPEATS = 3
MATMUL, COPIED = 1024, 2**26  # Rows of the matrices; numbers that are copied.
SUMS = 12
"""Sums over the mesh in a step: norms and terms of the loss."""
MAX_SHARE = 0.5
"""Share of a step's time from which on the network counts as the limit."""


class Device(NamedTuple):
    """A GPU and its network, by data sheets; assumed, not measured."""

    name: str
    flops: float  # Dense bf16.
    memory: float  # Bytes,
    bandwidth: float  # and bytes per second.
    host_memory: float  # Bytes of its node, per GPU.
    num_per_node: int
    inside: float  # Bytes per second to the GPUs of its node,
    outside: float  # and to those of other nodes.
    latency: float  # Seconds of a message.


A100 = Device("A100", 312e12, 80e9, 2.0e12, 128e9, 8, 300e9, 25e9, 20e-6)

PLANS: tuple[tuple[Shape, int], ...] = (
    *(((1024, 1024), p) for p in (1, 8, 64)),
    *(((4096, 4096), p) for p in (1, 8, 64)),
    *(((256, 256, 256), p) for p in (1, 8, 64)),
    *(((1024, 1024, 1024), p) for p in (8, 64, 1024)),
)
"""Meshes and numbers of GPUs that are predicted for."""


def problem_of(shape: Shape) -> Problem:
    """Darcy on a grid."""
    return Problem("darcy", "grid", shape, ("a",), ("u",), dimension=len(shape))


# -- measurements ---------------------------------------------------------------------------------


def measure_step(shape: Shape, width: int, depth: int, heads: int, repeats: int) -> Row:
    """One step without and with recomputed blocks."""
    torch.set_num_threads(1)
    config = CatoConfig(width=width, depth=depth, heads=heads)
    row: Row = {"shape": list(shape), "width": width, "depth": depth}
    for name, remat in (("", False), ("remat_", True)):
        subject = Subject(0, 1, problem_of(shape), config, remat)
        subject.step()  # compiles the loops
        if not remat:
            coords, features, *_ = subject.data
            with torch.no_grad():
                row["flops"] = count_flops(lambda: subject.model(coords, features))  # noqa: B023
        row[f"{name}memory"] = peak_of_tensors(subject.step) * 2**30
        row[f"{name}seconds"] = _processor_seconds(subject.step, repeats)
    settings = {"model": to_dict(config), "batch": 1, "repeats": repeats}
    return stamped(row, settings)


def measure_units(repeats: int) -> Row:
    """Operations per second of a matmul, and bytes per second of a copy, read and written."""
    torch.set_num_threads(1)
    a, b = torch.randn(2, MATMUL, MATMUL)
    x, y = torch.randn(2, COPIED)
    matmul = _processor_seconds(lambda: a @ b, 5 * repeats)
    copy = _processor_seconds(lambda: y.copy_(x), 2 * repeats)
    row = {"flops_per_second": 2 * MATMUL**3 / matmul, "bytes_per_second": 8 * COPIED / copy}
    return stamped(row, {"matmul": MATMUL, "copied": COPIED, "repeats": repeats})


def _processor_seconds(work: Any, repeats: int) -> float:
    found = []
    for repeat in range(-1, repeats):
        began = time.process_time()
        work()
        if repeat >= 0:
            found.append(time.process_time() - began)
    return median(found)


def measure_exchanges(sizes: Sequence[int], repeats: int) -> list[Row]:
    """Wall seconds of an all-to-all of two processes."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        workers = [stack.enter_context(Worker()) for _ in range(2)]
        joining = [w.submit(_join, k, Path(folder) / "store") for k, w in enumerate(workers)]
        for start in joining:
            start.result()
        rows = []
        for size in sizes:
            calls = [worker.submit(_exchange, size, repeats) for worker in workers]
            parts = [call.result() for call in calls]
            rows.append(stamped({"bytes": size, "seconds": max(parts)}, {"repeats": repeats}))
    return rows


def _join(rank: int, store: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)


def _exchange(num_bytes: int, repeats: int) -> float:
    sent = torch.zeros(2 * num_bytes // 4)
    received, found = torch.empty_like(sent), []
    for _ in range(5 * repeats):
        dist.barrier()
        began = time.perf_counter()
        dist.all_to_all_single(received, sent)
        found.append(time.perf_counter() - began)
    return median(found)


def main() -> None:
    """Measure, then write results and page."""
    parser = argparse.ArgumentParser(description="a cost model of CATO, and what it predicts")
    parser.add_argument("--trial", action="store_true", help="tiny meshes; writes nothing")
    is_trial = parser.parse_args().trial
    cases = tuple((tuple(max(4, n // 8) for n in c[0]), *c[1:]) for c in CASES)
    cases, sent, repeats = (cases, SENT[:3], 1) if is_trial else (CASES, SENT, REPEATS)
    torch.set_num_threads(1)
    with Worker() as worker:
        results = {
            "units": [worker.run(measure_units, repeats)],
            "steps": [worker.run(measure_step, *case, repeats) for case in cases],
        }
    results["exchanges"] = measure_exchanges(sent, repeats)
    if is_trial:
        print(Model.fitted(results))
        return
    write_results("scale", results)
    from tools.pages import write_pages

    write_pages(pages())


# -- the model ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """The fitted cost of a step, and its largest error on the measurements that it is fitted to."""

    operations: np.ndarray  # o₀ to o₃.
    share: float  # s
    traffic: float  # b
    memory: tuple[float, float]  # m₁ and m₂,
    remat_memory: tuple[float, float]  # and with recomputed blocks.
    remat_time: float  # Time of a step with recomputed blocks, in units of one without.
    latency: float
    bandwidth: float
    errors: dict[str, float]

    @classmethod
    def fitted(cls, results: dict[str, list[Row]]) -> "Model":
        """From the rows of the results file."""
        steps, (units,) = results["steps"], results["units"]
        shapes = [tuple(row["shape"]) for row in steps]
        nodes = np.array([prod(shape) for shape in shapes], float)
        width, depth = (np.array([row[k] for row in steps], float) for k in ("width", "depth"))
        flops = np.array([row["flops"] for row in steps], float)
        seconds = np.array([row["seconds"] for row in steps])
        errors: dict[str, float] = {}

        def fit(
            what: str,
            terms: Sequence[np.ndarray],
            values: np.ndarray,
            least: Sequence[float] | None = None,
        ) -> np.ndarray:
            matrix = np.stack(terms, -1) / values[:, None]
            scale = np.abs(matrix).max(0)
            bounds = (np.zeros(len(terms)) if least is None else np.array(least)) * scale
            found = lsq_linear(matrix / scale, np.ones(len(values)), (bounds, np.inf)).x / scale
            errors[what] = float(np.abs(matrix @ found - 1).max())
            return found

        counts = [nodes * w for w in _operation_terms(shapes, width, depth)]
        operations = fit("operations", counts, flops)
        rate, copy = units["flops_per_second"], units["bytes_per_second"]
        size = nodes * width * depth
        terms = [3 * flops / rate, nodes * width / copy]
        inverse, traffic = fit("seconds", terms, seconds, [1, 0])
        memory, remat_memory = (
            fit(what, [size, nodes * width], np.array([row[what] for row in steps]))
            for what in ("memory", "remat_memory")
        )
        sent, taken = (
            np.array([row[key] for row in results["exchanges"]], float)
            for key in ("bytes", "seconds")
        )
        latency, per_byte = fit("exchanges", [np.ones(len(sent)), sent], taken)
        ratio = median(row["remat_seconds"] / row["seconds"] for row in steps)
        return cls(
            operations,
            1 / inverse,
            traffic,
            (memory[0], memory[1]),
            (remat_memory[0], remat_memory[1]),
            ratio,
            latency,
            1 / per_byte,
            errors,
        )

    def flops(self, shape: Shape, config: CatoConfig) -> float:
        """Operations of a forward pass."""
        terms = _operation_terms([shape], np.array([config.width]), np.array([config.depth]))
        counts = zip(self.operations, terms, strict=True)
        return float(prod(shape) * sum(weight * term[0] for weight, term in counts))

    def bytes_per_process(
        self, shape: Shape, num_slabs: int, config: CatoConfig, remat: bool = False
    ) -> float:
        """Memory of the tensors of a step."""
        blocks, rest = self.remat_memory if remat else self.memory
        return prod(shape) * config.width * (blocks * config.depth + rest) / num_slabs

    def seconds(
        self, shape: Shape, num_slabs: int, config: CatoConfig, rate: float, copy: float
    ) -> tuple[float, float]:
        """Of matmuls and of memory traffic, in a process."""
        work = 3 * self.flops(shape, config) / (self.share * rate * num_slabs)
        size = prod(shape) * config.width / num_slabs
        return work, self.traffic * size / copy


def _operation_terms(
    shapes: Sequence[Shape], width: np.ndarray, depth: np.ndarray
) -> list[np.ndarray]:
    lines = np.array([sum(shape) for shape in shapes], float)
    stencil = np.array([CatoConfig().kernel ** len(shape) for shape in shapes], float)
    size = width * depth
    return [size * width, size * stencil, size * lines, width]


@dataclass(frozen=True)
class Prediction:
    """A step on GPUs, with recomputed blocks."""

    shape: Shape
    num_gpus: int
    memory: float
    host_memory: float
    compute: float
    sent: float
    messages: int
    network: float

    @classmethod
    def of(cls, model: Model, shape: Shape, num_gpus: int, device: Device) -> "Prediction":
        """For the paper's Darcy model."""
        config = paper_config()
        per_node = min(num_gpus, device.num_per_node)
        compute = sum(model.seconds(shape, num_gpus, config, device.flops, device.bandwidth))
        sent = bytes_per_step(shape, num_gpus, config)
        # Of the other GPUs, most are in other nodes.
        outside = (num_gpus - per_node) / max(1, num_gpus - 1)
        messages = (exchanges_per_step(config) + SUMS) * (num_gpus - 1)
        network = sent * (outside / device.outside + (1 - outside) / device.inside)
        # Nodes, input, target and inverse metric, which every process reads or computes whole.
        whole = prod(shape) * 4 * (len(shape) + 2 + len(shape) ** 2)
        return cls(
            shape,
            num_gpus,
            model.bytes_per_process(shape, num_gpus, config, remat=True),
            float(whole),
            model.remat_time * compute,
            float(sent),
            messages,
            network + messages * device.latency,
        )

    @property
    def seconds(self) -> float:
        return self.compute + self.network

    def limits(self, device: Device) -> list[str]:
        """What does not hold, the worst first."""
        found = {
            "memory of the GPU": self.memory / device.memory,
            "memory of the host": self.host_memory / device.host_memory,
            "fewer rows than GPUs": self.num_gpus / min(self.shape[:2]),
            "network": self.network / self.seconds / MAX_SHARE,
        }
        return [name for name, x in sorted(found.items(), key=lambda item: -item[1]) if x > 1]


def paper_config() -> CatoConfig:
    """The paper's Darcy model."""
    model = build_settings("darcy", "paper", "cato").model
    assert isinstance(model, CatoConfig)
    return model


# -- the page -------------------------------------------------------------------------------------


def pages() -> Pages:
    """docs/scale.md."""
    if not has_results("scale"):
        return {}
    results = read_results("scale")
    model = Model.fitted(results)
    device, config = A100, paper_config()
    plans = [Prediction.of(model, shape, p, device) for shape, p in PLANS]
    cube = (1024, 1024, 1024)
    text = render(
        "scale.md",
        model=model,
        device=device,
        config=config,
        units=results["units"][0],
        machine=machine,
        size=readable_size,
        steps_table=steps_table(results["steps"], model, results["units"][0]),
        check_table=check_table(model, results["units"][0]),
        plans_table=plans_table(plans, device),
        one=Prediction.of(model, cube, 64, device),
        breaks={(plan.shape, plan.num_gpus): plan.limits(device) for plan in plans},
        largest={p: largest_cube(model, p, device) for p in (1, 8, 64)},
        num_needed=num_needed(model, cube, device),
        max_share=MAX_SHARE,
    )
    return {PAGE: text}


def largest_cube(model: Model, num_gpus: int, device: Device) -> int:
    """Nodes per side of the largest cube whose step fits the memory of GPUs and hosts."""
    side = 1
    while True:
        plan = Prediction.of(model, (side + 1,) * 3, num_gpus, device)
        if plan.memory > device.memory or plan.host_memory > device.host_memory:
            return side
        side += 1


def num_needed(model: Model, shape: Shape, device: Device) -> int:
    """GPUs whose memory holds a step."""
    return int(np.ceil(Prediction.of(model, shape, 1, device).memory / device.memory))


def steps_table(rows: Sequence[Row], model: Model, units: Row) -> str:
    """What was fitted, and what the model says."""
    header = (
        *("mesh", "width", "depth", "GFLOP", "model", "seconds", "model", "memory", "model"),
        *("with `--train.remat`", "model"),
    )
    rates = units["flops_per_second"], units["bytes_per_second"]
    cells = []
    for row in rows:
        shape = tuple(row["shape"])
        config = CatoConfig(width=row["width"], depth=row["depth"])
        seconds = model.seconds(shape, 1, config, *rates)
        cells.append(
            (
                " × ".join(map(str, shape)),
                str(row["width"]),
                str(row["depth"]),
                f"{row['flops'] / 1e9:.2f}",
                f"{model.flops(shape, config) / 1e9:.2f}",
                f"{row['seconds']:.2f}",
                f"{sum(seconds):.2f}",
                readable_size(row["memory"]),
                readable_size(model.bytes_per_process(shape, 1, config)),
                readable_size(row["remat_memory"]),
                readable_size(model.bytes_per_process(shape, 1, config, remat=True)),
            )
        )
    return table(header, cells)


def check_table(model: Model, units: Row) -> str:
    """Steps spread over processes, which the model was not fitted to."""
    header = ("mesh", "processes", "processor seconds", "model", "memory", "model")
    rates = units["flops_per_second"], units["bytes_per_second"]
    cells = []
    for row in read_results("mesh_parallel")["rows"]:
        shape, count = (row["size"], row["size"]), row["processes"]
        about = row["settings"]["model"]
        config = CatoConfig(width=about["width"], depth=about["depth"], heads=about["heads"])
        seconds = model.seconds(shape, count, config, *rates)
        cells.append(
            (
                f"{row['size']} × {row['size']}",
                str(count),
                f"{row['processor_seconds']:.2f}",
                f"{sum(seconds):.2f}",
                readable_size(row["memory_gib"] * 2**30),
                readable_size(model.bytes_per_process(shape, count, config)),
            )
        )
    return table(header, cells)


def plans_table(plans: Sequence[Prediction], device: Device) -> str:
    """Predictions."""
    header = (
        *("mesh", "GPUs", "memory per GPU", "sent per GPU", "messages", "computing, s"),
        *("network, s", "step, s", "does not hold"),
    )
    cells = [
        (
            " × ".join(map(str, plan.shape)),
            str(plan.num_gpus),
            readable_size(plan.memory),
            readable_size(plan.sent),
            str(plan.messages),
            f"{plan.compute:.3g}",
            f"{plan.network:.3g}",
            f"{plan.seconds:.3g}",
            ", ".join(plan.limits(device)),
        )
        for plan in plans
    ]
    return table(header, cells)


if __name__ == "__main__":
    # The module by its name: workers keep their state in it between two calls.
    from tools import scale

    scale.main()
