"""The benchmarks by name. To add one: a file in this folder, and its class in `BENCHMARKS`."""

from typing import Any

from cato.data.benchmarks.airfoil import Airfoil
from cato.data.benchmarks.base import SPLITS, Benchmark, Sample, Scale
from cato.data.benchmarks.darcy import Darcy
from cato.data.benchmarks.elasticity import Elasticity
from cato.data.benchmarks.navier_stokes import NavierStokes
from cato.data.benchmarks.pipe import Pipe
from cato.data.benchmarks.plasticity import Plasticity
from cato.errors import InputError

BENCHMARKS: dict[str, Benchmark[Any]] = {
    benchmark.name: benchmark
    for benchmark in (Darcy(), NavierStokes(), Airfoil(), Pipe(), Plasticity(), Elasticity())
}

__all__ = ["BENCHMARKS", "SPLITS", "Benchmark", "Sample", "Scale", "get_benchmark"]


def get_benchmark(name: str) -> Benchmark[Any]:
    """The benchmark of that name."""
    if name not in BENCHMARKS:
        raise InputError(f"no benchmark {name!r}; choose one of {', '.join(BENCHMARKS)}")
    return BENCHMARKS[name]
