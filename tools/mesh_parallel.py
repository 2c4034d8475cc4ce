"""Memory, bytes and time of a training step whose mesh is spread over processes.

    make bench-mesh-parallel               # writes tools/results/mesh_parallel.json and the page
    python -m tools.mesh_parallel --trial  # one small mesh; writes nothing

Every process of a measurement is new and has one thread; they talk over loopback by gloo. Memory is
the largest resident memory of a process above what it had before its first step. Bytes are those
that the busiest process hands to all-to-all for the others. Processor seconds are those of the
process that takes most, wall seconds depend on what else the machine does.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
from reproduce.profiling import peak_memory, resident_memory
from tools.pages import Pages, table, with_block, write_pages
from tools.results import ROOT, Row, has_results, machine, read_results, stamped, write_results

PAGE = ROOT / "docs" / "many-gpus.md"
CONFIG = CatoConfig(width=16, depth=2, heads=2)
LOSS = LossConfig(gradient=0.2, flux=0.2, consistency=0.05, gdl=0.1, gradient_scale="raw")
CASES = ((512, 1), (512, 2), (512, 4), (1024, 1), (1024, 2))
"""Nodes per side and processes; one sample."""
REPEATS = 3


def problem_of(size: int) -> Problem:
    """Darcy on a square grid."""
    return Problem("darcy", "grid", (size, size), ("a",), ("u",))


def bytes_per_step(size: int, num_slabs: int, config: CatoConfig = CONFIG) -> int:
    """What the busiest process sends in a step, by the formula of docs/many-gpus.md.

    Exact if P divides the sides: with N nodes, W channels, L blocks and heads of E channels,
    8 W L + 2 E numbers for every node that moves, N (P − 1) / P², and the rows of the halos: one
    of W channels for each block, two of the output for target and prediction, there and back.
    """
    if num_slabs == 1:
        return 0
    moving = size**2 * (num_slabs - 1) // num_slabs**2
    neighbours = min(2, num_slabs - 1)
    exchanged = (8 * config.width * config.depth + 2 * config.width // config.heads) * moving
    stencils = 2 * config.depth * (config.kernel // 2) * config.width * size
    gradients = 3 * 2 * size
    return 4 * (exchanged + neighbours * (stencils + gradients))


def measure(size: int, num_slabs: int, repeats: int) -> Row:
    """One mesh over some processes."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(num_slabs) as threads:
        store = Path(folder) / "store"
        calls = [
            threads.submit(_in_new_process, rank, num_slabs, size, repeats, store)
            for rank in range(num_slabs)
        ]
        parts = [call.result() for call in calls]
    row = {
        "size": size,
        "processes": num_slabs,
        "memory_gib": max(part["memory_gib"] for part in parts),
        "bytes_sent": max(part["bytes_sent"] for part in parts),
        "bytes_expected": bytes_per_step(size, num_slabs),
        "wall_seconds": max(part["wall_seconds"] for part in parts),
        "processor_seconds": max(part["processor_seconds"] for part in parts),
        "load": os.getloadavg()[0],
    }
    settings = {"model": to_dict(CONFIG), "loss": to_dict(LOSS), "batch": 1, "repeats": repeats}
    return stamped(row, settings)


def _in_new_process(*arguments: Any) -> dict[str, float]:
    with Worker() as worker:
        return worker.run(steps_of_one, *arguments)


def steps_of_one(
    rank: int, num_slabs: int, size: int, repeats: int, store: Path
) -> dict[str, float]:
    """Training steps of one process: forward, loss, backward, update."""
    torch.set_num_threads(1)
    if num_slabs > 1:
        address = f"file://{store}"
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=num_slabs)
    torch.manual_seed(0)
    problem, partition = problem_of(size), Partition(size, rank, num_slabs)
    model = build_model("cato", CONFIG, problem)
    if num_slabs > 1:
        model.spread_over(partition)
    loss = PhysicalLoss(LOSS, problem, partition=partition)
    optimizer = torch.optim.AdamW(model.parameters())
    coords, features, target, metric = slabs_of(problem, partition)

    def step() -> None:
        values, flux = model(coords, features, shape=partition.shape(problem.shape))
        total, _ = loss(values, target, flux=flux, metric=metric)
        total.backward()
        for weight in model.parameters():
            if num_slabs > 1:
                dist.all_reduce(weight.grad)
        optimizer.step()
        optimizer.zero_grad()

    before, walls, cpus = resident_memory(), [], []
    for _ in range(repeats + 1):  # the first compiles and allocates
        began = time.monotonic(), time.process_time()
        with counted_bytes(rank) as sent:
            step()
        walls.append(time.monotonic() - began[0])
        cpus.append(time.process_time() - began[1])
    if num_slabs > 1:
        dist.destroy_process_group()
    return {
        "memory_gib": peak_memory() - before,
        "bytes_sent": sum(sent),
        "wall_seconds": median(walls[1:]),
        "processor_seconds": median(cpus[1:]),
    }


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


def pages() -> Pages:
    """The page with its table."""
    if not has_results("mesh_parallel"):
        return {}
    return {PAGE: with_block(PAGE, "mesh-parallel", block(read_results("mesh_parallel")["rows"]))}


def block(rows: list[Row]) -> str:
    """The table and what was measured."""
    header = (
        *("mesh", "processes", "memory of a step per process, GiB", "of one process"),
        *("MB sent per step", "formula", "processor s per step", "wall s per step"),
    )
    alone = {row["size"]: row["memory_gib"] for row in rows if row["processes"] == 1}
    cells = [
        (
            f"{row['size']} × {row['size']}",
            str(row["processes"]),
            f"{row['memory_gib']:.2f}",
            f"{row['memory_gib'] / alone[row['size']]:.0%}",
            f"{row['bytes_sent'] / 1e6:.2f}",
            f"{row['bytes_expected'] / 1e6:.2f}",
            f"{row['processor_seconds']:.1f}",
            f"{row['wall_seconds']:.1f}",
        )
        for row in rows
    ]
    settings, cores = rows[0]["settings"], rows[0]["provenance"]["hardware"]["cores"]
    model = settings["model"]
    loads = [row["load"] for row in rows]
    return (
        f"\n{table(header, cells)}\n\n"
        f"A training step on one sample with width {model['width']}, depth {model['depth']} and "
        f"{model['heads']} heads, a small model so that one process can hold the mesh too; medians "
        f"of {settings['repeats']} steps; {machine(rows[0])} in each process. The processes share "
        f"{cores} cores with other work (load {min(loads):.0f} to {max(loads):.0f} meanwhile), so "
        f"wall times say little; processor times are those of the process that takes most. "
        f"Measured by `make bench-mesh-parallel`.\n\n"
    )


def main() -> None:
    """Measure every case, then write results and page."""
    parser = argparse.ArgumentParser(description="a training step on a mesh spread over processes")
    parser.add_argument("--trial", action="store_true", help="one small mesh; writes nothing")
    is_trial = parser.parse_args().trial
    rows = []
    for size, num_slabs in ((16, 2),) if is_trial else CASES:
        rows.append(measure(size, num_slabs, 1 if is_trial else REPEATS))
        print(json.dumps(rows[-1], indent=1), flush=True)
    if not is_trial:
        write_results("mesh_parallel", {"rows": rows})
        write_pages(pages())


if __name__ == "__main__":
    main()
