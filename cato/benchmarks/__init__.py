"""The benchmarks by name. To add one: a folder next to this file, and its name in `NAMES`."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from cato.benchmarks.contract import Benchmark, Bound
from cato.benchmarks.editor import Editor
from cato.benchmarks.view import View
from cato.errors import InputError
from cato.problem import Problem

NAMES = (
    "darcy",
    "navier_stokes",
    "airfoil",
    "pipe",
    "plasticity",
    "elasticity",
)
BENCHMARKS: dict[str, Benchmark[Any]] = {
    name: import_module(f"cato.benchmarks.{name}.benchmark").BENCHMARK for name in NAMES
}


def get_benchmark(name: str) -> Benchmark[Any]:
    """The benchmark of that name."""
    if name not in BENCHMARKS:
        raise InputError(f"no benchmark {name!r}; choose one of {', '.join(BENCHMARKS)}")
    return BENCHMARKS[name]


def view_of(problem: Problem) -> View:
    """The view of a benchmark's problem; the default view for other problems."""
    return BENCHMARKS[problem.name].view if problem.name in BENCHMARKS else View()


def bounds_of(problem: Problem) -> Mapping[str, Bound]:
    """Physical bounds of a benchmark's inputs and coordinates by name; none for other problems."""
    return BENCHMARKS[problem.name].bounds if problem.name in BENCHMARKS else {}


def headline_of(problem: Problem) -> dict[str, tuple[str, ...]]:
    """Name and outputs of the error that matters most; empty for all outputs jointly."""
    headline = BENCHMARKS[problem.name].headline if problem.name in BENCHMARKS else {}
    return {name: of for name, of in headline.items() if set(of) <= set(problem.outputs)}


def fields_of(problem: Problem) -> dict[str, list[int]]:
    """Channels of the fields whose errors are measured: the headline's, and every output."""
    fields = headline_of(problem) | {name: (name,) for name in problem.outputs}
    return {name: [problem.outputs.index(one) for one in of] for name, of in fields.items()}


def editor_for(problem: Problem, scale: str | None = None) -> Editor | None:
    """The editor for a benchmark's problem, at `scale` if possible; None for other problems."""
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
