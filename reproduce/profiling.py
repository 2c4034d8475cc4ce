"""The cost of one model: parameters, operations, time and memory.

One thread, float32. Times on shared machines are noisy: each is taken between two matmuls, and the
result is the median of their ratios, so a machine that slows down midway does no harm. Every
measurement runs in a process of its own, for its peak memory.
"""

import hashlib
import json
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from cato import memory
from cato.benchmarks import get_benchmark
from cato.errors import InputError
from cato.files import read_json, write_json
from cato.models.contract import Operator
from cato.models.registry import build_model
from cato.physics.gradient import inverse_metric
from cato.physics.losses import PhysicalLoss
from cato.problem import Problem
from cato.processes import Worker
from cato.runs.settings import RunConfig, build_settings
from cato.training.optim import build_optimizers
from reproduce.attention_variants import VARIANTS
from reproduce.flops import count_flops
from reproduce.provenance import provenance

BATCH, REPEATS, MATMUL = 4, 3, 2048
"""Samples of a training step, the same for all models; measurements of which the median is taken;
size of the matmuls that are the unit."""
LONGEST_FORWARD, LARGEST_FORWARD = 20.0, 6.0
"""Seconds and GiB from which on a forward is counted but not run."""
PATIENCE = 5.0
"""A forward of more seconds than this is timed once."""
NO_DATA = "none: random inputs"
"""Key of the data of a measurement without a dataset."""
GROWTH = "darcy"
"""The benchmark whose meshes grow."""


def measured(kind: str, folder: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a measurement: those kept in `folder`, or new ones from a new process.

    A measurement that fails says so under "failed" and is not kept.

    Args:
        kind: One of `KINDS`.
        folder: Where figures are kept.
        settings: The arguments of that function.
    """
    path = kept_at(kind, folder, settings)
    if path.exists():
        return read_json(path, "an earlier measurement")
    figures = _measure_apart(kind, settings)
    if "failed" not in figures:
        write_json(path, figures)
    return figures


def kept_at(kind: str, folder: Path, settings: Mapping[str, Any]) -> Path:
    """The file of a measurement; another recipe means another file."""
    words = ["_".join(map(str, v)) if isinstance(v, tuple) else str(v) for v in settings.values()]
    where = settings.get("benchmark", GROWTH), settings["scale"]
    config = recipe_of(*where, settings["model"]).to_dict()
    words.append(digest([config[group] for group in ("model", "loss", "train")]))
    return folder / f"{'-'.join((kind, *words))}.json"


def digest(values: Any) -> str:
    """A short name for JSON-ready values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]


def _measure_apart(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    try:
        with Worker() as worker:
            return worker.run(measure, kind, dict(settings))
    except (InputError, RuntimeError) as error:
        return {"failed": str(error).strip().splitlines()[-1]}


def measure(kind: str, settings: dict[str, Any]) -> dict[str, Any]:
    """One measurement in this process, with its provenance."""
    torch.set_num_threads(1)
    figures = KINDS[kind](**settings)
    recipe = recipe_of(settings.get("benchmark", GROWTH), settings["scale"], settings["model"])
    resolved = settings | {"recipe": recipe.to_dict()}
    return figures | {"provenance": {**provenance(), "settings": resolved, "data": NO_DATA}}


def training_step(
    benchmark: str, scale: str, model: str, device: str = "cpu"
) -> tuple[Operator, Callable[[], None]]:
    """A model by its recipe, and its training step: forward, loss, backward, update."""
    config, problem = recipe_of(benchmark, scale, model), get_benchmark(benchmark).problem(scale)
    operator = subject(model, scale, problem, benchmark)
    assert isinstance(operator, Operator)
    operator.to(device)
    coords, features = (x.to(device) for x in inputs_of(problem, BATCH))
    targets = torch.randn(BATCH, problem.num_nodes, problem.num_outputs, device=device)
    metric = inverse_metric(coords[0], problem.shape, problem.periodic, problem.period)
    unit = torch.ones(problem.num_outputs) if config.loss.needs_scale else None
    loss = PhysicalLoss(config.loss, problem, unit).to(device)
    optimizers = build_optimizers(operator, config.train)

    def step() -> None:
        values, flux = operator(coords, features)
        total, _ = loss(values, targets, flux=flux, metric=metric)
        total.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    return operator, step


def step_cost(benchmark: str, scale: str, model: str, repeats: int = REPEATS) -> dict[str, Any]:
    """Time and memory of a training step."""
    operator, step = training_step(benchmark, scale, model)
    before = peak_memory()
    seconds, matmuls = timed(step, repeats)
    return {
        "benchmark": benchmark,
        "model": model,
        "parameters": sum(p.numel() for p in operator.parameters()),
        "step_seconds_per_sample": seconds / BATCH,
        "step_in_matmuls": matmuls,
        "memory_gib": peak_memory() - before,
    }


def operations(benchmark: str, scale: str, model: str) -> dict[str, Any]:
    """GFLOP per sample of a model by its recipe: a forward, and a forward and backward."""
    problem = get_benchmark(benchmark).problem(scale)
    operator = build_model(model, build_settings(benchmark, scale, model).model, problem)

    def forward_and_backward() -> None:
        values, flux = operator(*inputs_of(problem))
        total = values.sum() if flux is None else values.sum() + flux.sum()
        total.backward()

    return {
        "gflop_forward": count_forward(operator, problem) / 1e9,
        "gflop_step": count_flops(forward_and_backward) / 1e9,
    }


def growth(model: str, scale: str, sizes: Sequence[int], repeats: int = REPEATS) -> dict[str, Any]:
    """Forward of one sample on square Darcy meshes of growing size, in ascending order.

    Operations are counted at all sizes; time and memory are measured while extrapolation from the
    previous size stays below `LONGEST_FORWARD` and `LARGEST_FORWARD`.
    """
    rows: list[dict[str, Any]] = []
    base = None
    for size in sizes:
        problem = replace(get_benchmark(GROWTH).problem(scale), shape=(size, size))
        operator = subject(model, scale, problem)
        row = {"size": size, "gflop": count_forward(operator, problem) / 1e9}
        base = base or peak_memory()
        if not rows or _is_affordable(row, rows[-1]):
            row |= _run_forward(operator, problem, repeats)
            row["memory_gib"] = peak_memory() - base
        rows.append(row)
    return {"model": model, "rows": rows}


def _run_forward(operator: nn.Module, problem: Problem, repeats: int) -> dict[str, float]:
    inputs = inputs_of(problem)
    with torch.no_grad():
        seconds, matmuls = timed(lambda: operator(*inputs), repeats, PATIENCE)
    return {"seconds": seconds, "matmuls": matmuls}


def _is_affordable(row: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether a size may be run, judged by the one before it."""
    if "seconds" not in before:
        return False
    seconds = before["seconds"] * row["gflop"] / before["gflop"]
    memory = before["memory_gib"] * (row["size"] / before["size"]) ** 2
    return seconds < LONGEST_FORWARD and memory < LARGEST_FORWARD


def subject(model: str, scale: str, problem: Problem, benchmark: str = GROWTH) -> nn.Module:
    """A model of the library by its recipe, or a variant of CATO by that of CATO."""
    config = recipe_of(benchmark, scale, model).model
    if model in VARIANTS:
        _, build = VARIANTS[model]
        return build(config, problem)
    return build_model(model, config, problem)


def recipe_of(benchmark: str, scale: str, model: str) -> RunConfig:
    """Recipe of a model of the library; variants of CATO have that of CATO."""
    return build_settings(benchmark, scale, "cato" if model in VARIANTS else model)


def count_forward(operator: nn.Module, problem: Problem) -> int:
    """Operations of a forward of one sample."""
    with torch.no_grad():
        return count_flops(lambda: operator(*inputs_of(problem)))


def inputs_of(
    problem: Problem, batch: int = 1
) -> tuple[Float[Tensor, "B N D"], Float[Tensor, "B N C_in"]]:
    """Coordinates on the unit square and random features."""
    axes = [torch.linspace(0, 1, n) for n in problem.shape]
    coords = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2)
    return coords.expand(batch, -1, -1), torch.randn(batch, problem.num_nodes, problem.num_inputs)


def timed(
    work: Callable[[], Any], repeats: int = REPEATS, patience: float = inf
) -> tuple[float, float]:
    """Median seconds of a call, and its median in matmuls of the same moment.

    The first call compiles and allocates and does not count; one that takes longer than `patience`
    is the last.
    """
    matrix = torch.randn(MATMUL, MATMUL)
    work()
    seconds: list[float] = []
    ratios: list[float] = []
    while len(seconds) < repeats:
        taken, matmuls = in_matmuls(work, matrix)
        seconds.append(taken)
        ratios.append(matmuls)
        if taken > patience:
            break
    return median(seconds), median(ratios)


def in_matmuls(
    work: Callable[[], Any],
    matrix: Float[Tensor, "N N"],
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, float]:
    """Seconds of one call, and the same in squarings of the matrix before and after it."""
    before = seconds_of(lambda: matrix @ matrix, clock)
    taken = seconds_of(work, clock)
    return taken, 2 * taken / (before + seconds_of(lambda: matrix @ matrix, clock))


def seconds_of(work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """Time of one call, wall time by default."""
    began = clock()
    work()
    return clock() - began


def clock_of(device: str) -> Callable[[], float]:
    """A clock for work on a device: processor time on CPUs, elsewhere wall time after all work."""
    if device == "cpu":
        return time.process_time

    def after_all_work() -> float:
        torch.accelerator.synchronize()
        return time.perf_counter()

    return after_all_work


def peak_memory(device: str = "cpu") -> float:
    """Largest resident memory of this process so far, or allocated on its device, in GiB."""
    if device == "cuda":
        return torch.cuda.max_memory_reserved() / 2**30
    return memory.peak_memory() / 2**30


def resident_memory(device: str = "cpu") -> float:
    """Resident memory of this process now, or allocated on its device, in GiB."""
    if device == "cuda":
        return torch.cuda.memory_reserved() / 2**30
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**30


def peak_of_tensors(work: Callable[[], None], device: str = "cpu") -> float:
    """Most memory, in GiB, of the tensors that a call allocates and has not freed yet."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        return (torch.cuda.max_memory_allocated() - before) / 2**30
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        work()
    profiler: Any = record.profiler
    events = profiler.kineto_results.events()
    changes = (event.nbytes() for event in events if event.name() == "[memory]")
    return max(accumulate(changes)) / 2**30


KINDS: dict[str, Callable[..., dict[str, Any]]] = {
    "step": step_cost,
    "operations": operations,
    "growth": growth,
}
"""The measurements by name."""
