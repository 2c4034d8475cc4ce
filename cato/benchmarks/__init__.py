"""The benchmarks by name. To add one: a folder next to this file, and its class in `BENCHMARKS`."""

from typing import Any

from cato.benchmarks.airfoil.benchmark import Airfoil
from cato.benchmarks.contract import SPLITS, Benchmark, Rejected, Sample, Scale
from cato.benchmarks.darcy.benchmark import Darcy
from cato.benchmarks.editor import Editor, ModelInputs
from cato.benchmarks.elasticity.benchmark import Elasticity
from cato.benchmarks.navier_stokes.benchmark import NavierStokes
from cato.benchmarks.pipe.benchmark import Pipe
from cato.benchmarks.plasticity.benchmark import Plasticity
from cato.benchmarks.view import View
from cato.errors import InputError
from cato.problem import Problem

BENCHMARKS: dict[str, Benchmark[Any]] = {
    benchmark.name: benchmark
    for benchmark in (Darcy(), NavierStokes(), Airfoil(), Pipe(), Plasticity(), Elasticity())
}

__all__ = [
    "BENCHMARKS",
    "SPLITS",
    "Benchmark",
    "Editor",
    "ModelInputs",
    "Rejected",
    "Sample",
    "Scale",
    "View",
    "editor_for",
    "get_benchmark",
    "view_of",
]


def get_benchmark(name: str) -> Benchmark[Any]:
    """The benchmark of that name."""
    if name not in BENCHMARKS:
        raise InputError(f"no benchmark {name!r}; choose one of {', '.join(BENCHMARKS)}")
    return BENCHMARKS[name]


def view_of(problem: Problem) -> View:
    """The view of a benchmark's problem; the default view for other problems."""
    return BENCHMARKS[problem.name].view if problem.name in BENCHMARKS else View()


def editor_for(problem: Problem, scale: str | None = None) -> Editor | None:
    """The editor for a benchmark's problem; None for other problems.

    Args:
        problem: The problem a model was trained on.
        scale: Preferred scale, if several have this problem.
    """
    benchmark = BENCHMARKS.get(problem.name)
    if benchmark is None or benchmark.editor is None:
        return None
    for name in sorted(benchmark.scales, key=lambda other: other != scale):
        for resolution in (None, problem.shape[0]):
            try:
                parameters = benchmark.parameters(name, resolution)
                found = benchmark.problem_for(parameters)
            except InputError:  # this benchmark has one mesh only
                continue
            same = ("geometry", "shape", "inputs", "outputs", "time", "num_steps")
            if all(getattr(found, key) == getattr(problem, key) for key in same):
                return benchmark.editor(benchmark, parameters)
    return None
