"""What a benchmark is: a distribution of problems, their solver, and the sizes it comes in."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Generic, TypeVar, final

import numpy as np

from cato.errors import InputError
from cato.problem import Problem

SPLITS = ("train", "validation", "test")

Parameters = TypeVar("Parameters")
"""A frozen dataclass with the numerical parameters of one benchmark, JSON-ready."""


@dataclass(frozen=True)
class Sample:
    """One solved problem: float32 arrays on the mesh, channels last.

    Attributes:
        inputs: (*shape, C_in).
        targets: (*shape, C_out); with time (T, *shape, C_out).
        coords: (*shape, D), or None where all samples share `Benchmark.coords`.
        diagnostics: How well it was solved, such as the residual; the same keys in every sample.
    """

    inputs: np.ndarray
    targets: np.ndarray
    coords: np.ndarray | None = None
    diagnostics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Scale(Generic[Parameters]):
    """One size of a benchmark: its numerical parameters and the number of samples per split."""

    parameters: Parameters
    train: int
    validation: int
    test: int


class Benchmark(ABC, Generic[Parameters]):
    """A benchmark. Subclasses are final; each is one file of this folder.

    Attributes:
        name: In commands and file names.
        title: In reports.
        description: One paragraph: equation, what varies, what is learnt.
        scales: `paper`, `small` and `smoke`.
        revision: Raise it whenever the same seed would give other samples than before, so that
            old and new ones are never mixed.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    description: ClassVar[str]
    scales: ClassVar[Mapping[str, Scale[Any]]]
    revision: ClassVar[int] = 1

    @abstractmethod
    def problem_for(self, parameters: Parameters) -> Problem:
        """What is learnt at these parameters."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, parameters: Parameters) -> Sample:
        """Draw and solve one problem; raises `cato.benchmarks.rejected.Rejected` to be redrawn."""

    def coords(self, parameters: Parameters) -> np.ndarray | None:
        """Coordinates (*shape, D) that all samples share; None where each has its own."""
        return None

    def at_resolution(self, parameters: Parameters, resolution: int) -> Parameters:
        """The parameters at another number of nodes per side."""
        if "resolution" not in {f.name for f in fields(parameters)}:  # type: ignore[arg-type]
            raise InputError(f"{self.name} has one mesh only; leave the resolution out")
        return replace(parameters, resolution=resolution)  # type: ignore[type-var]

    @final
    def scale(self, name: str) -> Scale[Parameters]:
        """The scale of that name."""
        if name not in self.scales:
            raise InputError(
                f"{self.name} has no scale {name!r}; choose one of {', '.join(self.scales)}"
            )
        return self.scales[name]

    @final
    def parameters(self, scale: str, resolution: int | None = None) -> Parameters:
        """The parameters of a scale, at another resolution if one is given."""
        parameters = self.scale(scale).parameters
        return parameters if resolution is None else self.at_resolution(parameters, resolution)

    @final
    def problem(self, scale: str, resolution: int | None = None) -> Problem:
        """What is learnt at a scale."""
        return self.problem_for(self.parameters(scale, resolution))
