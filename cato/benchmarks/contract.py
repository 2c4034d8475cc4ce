"""The contract of a benchmark: a distribution of PDE problems, their solver, and how to show them.

A benchmark is a folder with `benchmark.py`, which ends in `BENCHMARK`, an instance of a subclass of
`Benchmark`; `solver.py`, which only processes that solve import; and `recipe.toml`, the training
settings.
"""

import time
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.resources import files
from math import inf, isfinite
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar, final

import numpy as np

from cato.benchmarks.editor import Editor
from cato.benchmarks.view import View
from cato.errors import InputError
from cato.problem import Problem

SPLITS = ("train", "validation", "test")

# Coordinates (None if shared), inputs (None if the mesh is the input) and targets.
Fields = tuple[np.ndarray | None, np.ndarray | None, np.ndarray]

# A frozen dataclass with the numerical parameters of one benchmark, JSON-ready.
Parameters = TypeVar("Parameters")


class Rejected(RuntimeError):
    """The solution did not converge or left its range of validity; draw other parameters.

    The caller redraws with the next attempt number in the seed, so that rejection is as
    reproducible as the samples themselves.
    """


@dataclass(frozen=True)
class Sample:
    """One solved problem: float32 arrays on the mesh, channels last."""

    inputs: np.ndarray  # (*shape, C_in).
    targets: np.ndarray  # (*shape, C_out); with time (T, *shape, C_out).
    coords: np.ndarray | None = None  # (*shape, D); None where all samples share them.
    # Quality of the solution, such as the residual; the same keys in every sample.
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    # Time of the solver from the inputs of a model to the targets, if `Benchmark.solve` computes
    # the inputs too; None if all of its time counts.
    seconds: float | None = None

    @classmethod
    def on_mesh(
        cls, coords: np.ndarray, target: np.ndarray, diagnostics: Mapping[str, float]
    ) -> "Sample":
        """One field (*shape) on a mesh that is the only input."""
        inputs = np.zeros((*target.shape, 0), np.float32)
        targets = target[..., None].astype(np.float32)
        return cls(inputs, targets, coords.astype(np.float32), diagnostics)


@dataclass(frozen=True)
class Scale(Generic[Parameters]):
    """One size of a benchmark: its numerical parameters and the number of samples per split."""

    parameters: Parameters
    train: int
    validation: int
    test: int


@dataclass(frozen=True)
class Bound:
    """The values that are physically possible."""

    low: float = -inf
    high: float = inf
    excludes_low: bool = False  # Whether `low` itself is impossible.

    def contains(self, value: float) -> bool:
        """Whether a float32 value is possible, up to rounding."""
        if self.excludes_low and value <= self.low:
            return False
        rounding = 1e-6 * max(1.0, *(abs(end) for end in (self.low, self.high) if isfinite(end)))
        return self.low - rounding <= value <= self.high + rounding

    def __str__(self) -> str:
        words = {
            (True, True): f"from {self.low:g} to {self.high:g}",
            (True, False): f"{'more than' if self.excludes_low else 'at least'} {self.low:g}",
            (False, True): f"at most {self.high:g}",
        }
        return words[isfinite(self.low), isfinite(self.high)]


# Layout of the files that the authors of a benchmark published; `cato.data.published` reads them.
# The published test set is the test set here too. The published codes have no validation set: ours
# is the last samples of their training set, as many as the generated benchmark has.


@dataclass(frozen=True)
class Layout:
    """One array of a published file, and the part of it that is used."""

    file: str  # File name.
    shape: tuple[int | None, ...]  # Shape of the array, with None for the axis of samples.
    # Which samples are the published training and test sets, or one of these.
    samples: Mapping[str, slice]
    name: str = ""  # Name of the variable in a MATLAB file; empty for a .npy file.
    at_least: int = 1200  # Smallest number of samples the file must have.
    # Index of the part that is used, axis by axis; everything by default.
    pick: tuple[slice | int, ...] = ()

    @property
    def expected(self) -> str:
        sizes = ", ".join(f"≥ {self.at_least}" if n is None else str(n) for n in self.shape)
        variable = f"the variable {self.name!r}, " if self.name else ""
        return f"{variable}real numbers of shape ({sizes})"


@dataclass(frozen=True)
class Published:
    """The published files of one benchmark."""

    layouts: tuple[Layout, ...]  # The arrays.
    # Makes fields of the arrays of one split, given in the order of `layouts`, samples first.
    assemble: Callable[..., Fields]
    # As in `Problem`, where it differs from the generated benchmark.
    normalise: tuple[str, ...] | None = None


def flow_on_mesh(prefix: str, mesh: tuple[int, int], num_channels: int, channel: int) -> Published:
    """Files PREFIX_X, PREFIX_Y with the nodes and PREFIX_Q with a flow, one channel of it used."""
    # Other readers disagree on the test set of the pipe: ours is not the end of the file.
    samples = {"train": slice(0, 1000), "test": slice(1000, 1200)}
    x = Layout(f"{prefix}_X.npy", (None, *mesh), samples)
    q = Layout(f"{prefix}_Q.npy", (None, num_channels, *mesh), samples, pick=np.s_[:, channel])
    return Published(
        (x, replace(x, file=f"{prefix}_Y.npy"), q),
        lambda x, y, q: (np.stack([x, y], axis=-1), None, q[..., None]),
    )


class Benchmark(ABC, Generic[Parameters]):
    """A benchmark. Subclasses are final."""

    name: ClassVar[str]  # Name in commands and file names, and of the benchmark's folder.
    title: ClassVar[str]  # Name in reports.
    description: ClassVar[str]  # One paragraph: equation, what varies, what is learnt.
    scales: ClassVar[Mapping[str, Scale[Any]]]  # `paper`, `small` and `smoke`.
    # Bump it whenever the same seed would give other samples than before, so that old and new ones
    # are never mixed.
    revision: ClassVar[int] = 1
    # The error that matters most, as a name and its outputs; all outputs jointly if empty.
    headline: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({})
    # Physical bounds of inputs, and of coordinates x1, x2, … by name.
    bounds: ClassVar[Mapping[str, Bound]] = MappingProxyType({})
    view: ClassVar[View] = View()  # How samples are shown.
    # What the explorer lets a visitor edit; None keeps the benchmark out of it.
    editor: ClassVar[type[Editor] | None] = None
    # Layout of the published files; None if there are none.
    published: ClassVar[Published | None] = None

    @abstractmethod
    def problem_for(self, parameters: Parameters) -> Problem:
        """The learning problem at these parameters."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, parameters: Parameters) -> np.ndarray:
        """Draw what varies from sample to sample, such as a medium or a shape."""

    @abstractmethod
    def solve(self, drawn: np.ndarray, parameters: Parameters) -> Sample:
        """Solve for what `draw` returned; raises `Rejected` if there is no valid solution."""

    @final
    def timed_solve(self, drawn: np.ndarray, parameters: Parameters) -> tuple[Sample, float]:
        """The solution, and the solver's seconds for the job that a model does."""
        began = time.perf_counter()
        sample = self.solve(drawn, parameters)
        seconds = time.perf_counter() - began
        return sample, seconds if sample.seconds is None else sample.seconds

    @final
    def sample(self, rng: np.random.Generator, parameters: Parameters) -> Sample:
        """Draw and solve one problem; raises `Rejected` if it should be drawn again."""
        return self.solve(self.draw(rng, parameters), parameters)

    def coords(self, parameters: Parameters) -> np.ndarray | None:
        """Coordinates (*shape, D) that all samples share; None where each has its own."""
        return None

    @final
    def scale(self, name: str) -> Scale[Parameters]:
        if name not in self.scales:
            raise InputError(
                f"{self.name} has no scale {name!r}; choose one of {', '.join(self.scales)}"
            )
        return self.scales[name]

    @final
    def parameters(self, scale: str, resolution: int | None = None) -> Parameters:
        """The parameters of a scale, perhaps with another number of nodes per side."""
        parameters: Any = self.scale(scale).parameters
        if resolution is None:
            return parameters
        if not hasattr(parameters, "resolution"):
            raise InputError(f"{self.name} has one mesh only; leave the resolution out")
        return replace(parameters, resolution=resolution)

    @final
    def problem(self, scale: str, resolution: int | None = None) -> Problem:
        return self.problem_for(self.parameters(scale, resolution))

    @property
    @final
    def folder(self) -> str:
        return type(self).__module__.rpartition(".")[0]

    @property
    @final
    def solver(self) -> Any:
        """The module solver.py; importing it is slow, and only processes that solve pay for it."""
        return import_module(f"{self.folder}.solver")

    @property
    @final
    def recipe(self) -> dict[str, Any]:
        """Training settings by scale and model, from recipe.toml."""
        return tomllib.loads((files(self.folder) / "recipe.toml").read_text(encoding="utf-8"))


def plane_grid(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Coordinates (H, W, 2) of a grid with the nodes x along the first axis, y along the second."""
    return np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).astype(np.float32)
