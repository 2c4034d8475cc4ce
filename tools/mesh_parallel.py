"""Memory, bytes and time of a training step whose mesh is spread over processes.

    make bench-mesh-parallel               # writes tools/results/mesh_parallel.json and the pages
    python -m tools.mesh_parallel --trial  # one small mesh; writes nothing

Every process of a measurement is new and has one thread; they talk over loopback by gloo. All
numbers of processes are measured on one mesh in turn, a step of each per round, so that other work
on the machine slows all of them.

Memory is that of the tensors at the peak of a step, which is what it takes on a device, and the
largest resident memory of a process above what it had before its first step. Bytes are those that
the busiest process hands to all-to-all for the others. Processor seconds are those of the process
that takes most.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import prod
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor

from cato.config import to_dict
from cato.models.cato.grid import CatoConfig
from cato.models.registry import build_model
from cato.partition import Partition
from cato.physics.gradient import inverse_metric
from cato.physics.losses import LossConfig, PhysicalLoss
from cato.problem import Problem
from cato.processes import Worker
from reproduce.profiling import peak_memory, peak_of_tensors, resident_memory
from tools import mesh_parallel
from tools.pages import Pages, table, with_block, write_pages
from tools.results import ROOT, Row, has_results, machine, read_results, stamped, write_results

PAGE = ROOT / "docs" / "many-gpus.md"
FEATURES = ROOT / "docs" / "index.md"
CONFIG = CatoConfig(width=16, depth=2, heads=2)
LOSS = LossConfig(gradient=0.2, flux=0.2, consistency=0.05, gdl=0.1, gradient_scale="raw")
CASES = {512: (1, 2, 4), 1024: (1, 2)}
"""Numbers of processes by nodes per side; one sample."""
REPEATS = 3


def problem_of(size: int) -> Problem:
    """Darcy on a square grid."""
    return Problem("darcy", "grid", (size, size), ("a",), ("u",))


def bytes_per_step(shape: Sequence[int], num_slabs: int, config: CatoConfig = CONFIG) -> int:
    """What the busiest process sends in a step, by the formula of docs/many-gpus.md.

    Exact if P divides the sides: with N nodes, W channels, L blocks and heads of E channels,
    8 W L + 2 E numbers for every node that moves, N (P − 1) / P², and the rows of the halos: one
    of W channels for each block, two of the output for target and prediction, there and back.
    """
    if num_slabs == 1:
        return 0
    num_nodes, row = prod(shape), prod(shape[1:])
    moving = num_nodes * (num_slabs - 1) // num_slabs**2
    neighbours = min(2, num_slabs - 1)
    exchanged = (8 * config.width * config.depth + 2 * config.width // config.heads) * moving
    stencils = 2 * config.depth * (config.kernel // 2) * config.width * row
    gradients = 3 * 2 * row
    return 4 * (exchanged + neighbours * (stencils + gradients))


def exchanges_per_step(config: CatoConfig = CONFIG) -> int:
    """Number of all-to-alls in a step.

    In every block to columns, back, and to the neighbours; the rotations to columns; and the
    neighbours of prediction and target; all but the last again in the backward pass.
    """
    return 2 * (3 * config.depth + 1 + 1) + 1


def measure(size: int, counts: Sequence[int], repeats: int) -> list[Row]:
    """One mesh over each of these numbers of processes."""
    with ExitStack() as stack:
        groups = {count: stack.enter_context(started(size, count)) for count in counts}
        for group in groups.values():  # one after another: each counts what it allocates first
            together(group, first_steps)
        for _ in range(repeats):
            for group in groups.values():
                together(group, timed_step)
        found = {count: together(group, figures) for count, group in groups.items()}
    settings = {"model": to_dict(CONFIG), "loss": to_dict(LOSS), "batch": 1, "repeats": repeats}
    rows = []
    for count, parts in found.items():
        row = {
            "size": size,
            "processes": count,
            **{name: max(part[name] for part in parts) for name in parts[0]},
            "bytes_expected": bytes_per_step((size, size), count),
            "exchanges_expected": exchanges_per_step() if count > 1 else 0,
            "load": os.getloadavg()[0],
        }
        rows.append(stamped(row, settings))
    return rows


@contextmanager
def started(size: int, count: int) -> Iterator[list[Worker]]:
    """New processes that share a mesh."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        workers = [stack.enter_context(Worker()) for _ in range(count)]
        store = Path(folder) / "store"
        calls = [w.submit(start, rank, count, size, store) for rank, w in enumerate(workers)]
        for call in calls:
            call.result()
        yield workers


def together(workers: Sequence[Worker], function: Callable[[], Any]) -> list[Any]:
    """The results of a call in all processes at the same time."""
    return [call.result() for call in [worker.submit(function) for worker in workers]]


# In the processes.


class Subject:
    """Training of one process: forward, loss, backward, update."""

    def __init__(
        self,
        rank: int,
        count: int,
        problem: Problem,
        config: CatoConfig = CONFIG,
        remat: bool = False,
    ) -> None:
        torch.manual_seed(0)
        self.partition = Partition(problem.shape[0], rank, count)
        self.model = build_model("cato", config, problem)
        if count > 1:
            self.model.spread_over(self.partition)
        if remat:
            self.model.rematerialise()
        self.shape = self.partition.shape(problem.shape)
        self.loss = PhysicalLoss(LOSS, problem, partition=self.partition)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.data = slabs_of(problem, self.partition)
        self.figures: dict[str, float] = {}
        self.walls: list[float] = []
        self.cpus: list[float] = []

    def step(self) -> None:
        coords, features, target, metric = self.data
        values, flux = self.model(coords, features, shape=self.shape)
        total, _ = self.loss(values, target, flux=flux, metric=metric)
        total.backward()
        for weight in self.model.parameters():
            if not self.partition.is_whole:
                dist.all_reduce(weight.grad)
        self.optimizer.step()
        self.optimizer.zero_grad()


subject: Subject  # What this process measures.


def start(rank: int, count: int, size: int, store: Path) -> None:
    """Join the other processes."""
    global subject
    torch.set_num_threads(1)
    if count > 1:
        address = f"file://{store}"
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=count)
    subject = Subject(rank, count, problem_of(size))


def first_steps() -> None:
    """Memory and bytes; the first step also compiles."""
    before = resident_memory()
    with counted_bytes(subject.partition.rank) as sent, counted_sums() as sums:
        subject.step()
    subject.figures |= {"bytes_sent": sum(sent), "exchanges": len(sent), "sums": len(sums)}
    subject.figures["resident_gib"] = peak_memory() - before
    subject.figures["memory_gib"] = peak_of_tensors(subject.step)


def timed_step() -> None:
    """Time."""
    began = time.monotonic(), time.process_time()
    subject.step()
    subject.walls.append(time.monotonic() - began[0])
    subject.cpus.append(time.process_time() - began[1])


def figures() -> dict[str, float]:
    """What was measured."""
    seconds = {"wall_seconds": median(subject.walls), "processor_seconds": median(subject.cpus)}
    return subject.figures | seconds


def slabs_of(problem: Problem, partition: Partition) -> tuple[Tensor, ...]:
    """Coordinates, input, target and inverse metric of a slab; no more than it is kept."""
    axes = [torch.linspace(0, 1, n) for n in problem.shape]
    nodes = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2)
    metric = inverse_metric(nodes, problem.shape, problem.periodic, problem.period)
    fields = torch.randn(2, 1, problem.num_nodes, 1)
    parts = (nodes[None], *fields)
    return *(partition.slab(x).clone() for x in parts), partition.slab(metric, 1).clone()


@contextmanager
def counted_bytes(rank: int) -> Iterator[list[int]]:
    """The bytes of each all-to-all that are for other processes."""
    sent: list[int] = []
    original = dist.all_to_all_single

    def counting(out: Tensor, x: Tensor, sizes_out: Any, sizes: Any, **options: Any) -> Any:
        sent.append((x.numel() - sizes[rank]) * x.element_size())
        return original(out, x, sizes_out, sizes, **options)

    with patch.object(dist, "all_to_all_single", counting):
        yield sent


@contextmanager
def counted_sums() -> Iterator[list[int]]:
    """The bytes of each sum over the mesh, of which every process gets the parts of all."""
    found: list[int] = []
    original = dist.all_gather

    def counting(parts: list[Tensor], x: Tensor, **options: Any) -> Any:
        found.append(x.numel() * x.element_size())
        return original(parts, x, **options)

    with patch.object(dist, "all_gather", counting):
        yield found


def pages() -> Pages:
    """The table of docs/many-gpus.md, and the figures among the features of docs/index.md."""
    if not has_results("mesh_parallel"):
        return {}
    rows = read_results("mesh_parallel")["rows"]
    return {
        PAGE: with_block(PAGE, "mesh-parallel", block(rows)),
        FEATURES: with_block(FEATURES, "mesh-parallel", feature(rows)),
    }


def alone(row: Row, rows: list[Row]) -> Row:
    """The row of one process on the same mesh."""
    return next(one for one in rows if one["size"] == row["size"] and one["processes"] == 1)


def feature(rows: list[Row]) -> str:
    """What a mesh over two processes costs and saves, in one sentence."""
    row = next(row for row in rows[::-1] if row["processes"] == 2)
    one, mesh = alone(row, rows), f"{row['size']} × {row['size']}"
    memory, seconds = (row[key] / one[key] for key in ("memory_gib", "processor_seconds"))
    return (
        f"\n## Large problems\n\nA mesh can be spread over processes, with the "
        f"loss and gradients of one process to rounding. Two processes that share a mesh of {mesh} "
        f"nodes need {memory:.0%} of its memory and {seconds:.0%} of its processor time each, and "
        f"send {row['bytes_sent'] / 1e6:.0f} MB per step "
        f"([many GPUs](many-gpus.md#meshes-larger-than-one-device)).\n\n"
    )


def block(rows: list[Row]) -> str:
    """The table and what was measured."""
    header = (
        *("mesh", "processes", "memory of a step per process, GiB", "of one process"),
        *("resident, GiB", "MB sent per step", "formula"),
        *("processor s per step", "of one process", "wall s per step", "of one process"),
    )
    cells = []
    for row in rows:
        one = alone(row, rows)
        cells.append(
            (
                f"{row['size']} × {row['size']}",
                str(row["processes"]),
                f"{row['memory_gib']:.2f}",
                f"{row['memory_gib'] / one['memory_gib']:.0%}",
                f"{row['resident_gib']:.2f}",
                f"{row['bytes_sent'] / 1e6:.2f}",
                f"{row['bytes_expected'] / 1e6:.2f}",
                f"{row['processor_seconds']:.1f}",
                f"{row['processor_seconds'] / one['processor_seconds']:.0%}",
                f"{row['wall_seconds']:.1f}",
                f"{row['wall_seconds'] / one['wall_seconds']:.0%}",
            )
        )
    settings, cores = rows[0]["settings"], rows[0]["provenance"]["hardware"]["cores"]
    model = settings["model"]
    loads = [row["load"] for row in rows]
    return (
        f"\n{table(header, cells)}\n\n"
        f"A training step on one sample with width {model['width']}, depth {model['depth']} and "
        f"{model['heads']} heads, a small model so that one process can hold the mesh too; medians "
        f"of {settings['repeats']} rounds, in which all numbers of processes take a step in turn; "
        f"{machine(rows[0])} in each process. Memory is that of the tensors at the peak, as on a "
        f"device; a process on a CPU also keeps what its allocator does not give back. Processor "
        f"times are those of the process that takes most. The processes shared {cores} cores with "
        f"other work, load {min(loads):.0f} to {max(loads):.0f} meanwhile: the more there was of "
        f"it, the less the wall times say. Measured by `make bench-mesh-parallel`.\n\n"
    )


def main() -> None:
    """Measure every case, then write results and page."""
    parser = argparse.ArgumentParser(description="a training step on a mesh spread over processes")
    parser.add_argument("--trial", action="store_true", help="one small mesh; writes nothing")
    is_trial = parser.parse_args().trial
    torch.set_num_threads(1)  # as in the measured processes, for the record
    rows: list[Row] = []
    for size, counts in ({16: (1, 2)} if is_trial else CASES).items():
        rows += measure(size, counts, 1 if is_trial else REPEATS)
    print(json.dumps(rows, indent=1), flush=True)
    if not is_trial:
        write_results("mesh_parallel", {"rows": rows})
        write_pages(pages())


if __name__ == "__main__":
    # The module by its name: workers keep their state in it between two calls.
    mesh_parallel.main()
