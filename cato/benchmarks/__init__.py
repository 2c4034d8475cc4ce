"""The benchmarks by name. To add one: a file in this folder, and its class in `BENCHMARKS`."""

from typing import Any

from cato.benchmarks.airfoil.benchmark import Airfoil
from cato.benchmarks.contract import SPLITS, Benchmark, Sample, Scale
from cato.benchmarks.darcy.benchmark import Darcy
from cato.benchmarks.elasticity.benchmark import Elasticity
from cato.benchmarks.navier_stokes.benchmark import NavierStokes
from cato.benchmarks.pipe.benchmark import Pipe
from cato.benchmarks.plasticity.benchmark import Plasticity
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
