"""What a visitor of the explorer can edit of a benchmark's input.

An `Editor` connects the explorer page with a benchmark. Its *values* are what the page shows and
sends: a few numbers, or a painted medium. They are equivalent to what the benchmark draws, so the
values of a drawn sample give exactly that sample. If a value is the position of a point, its
`Control` says where the point is and in which direction it moves. The page takes every constant
that it needs from `Editor.describe`.

Only NumPy and the meshing of a solver run here, unless `needs_solver` is set.
"""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from cato.benchmarks.view import is_deformed
from cato.errors import InputError
from cato.problem import Problem

if TYPE_CHECKING:
    from cato.benchmarks.contract import Benchmark, Sample

FIRST_SEED = 4

Box = tuple[float, float, float, float]  # Left, right, bottom and top of a part of the plane.


class ModelInputs(NamedTuple):
    """Inputs and node positions of one sample, float32, as a model takes them."""

    inputs: np.ndarray
    coords: np.ndarray

    @classmethod
    def of_mesh(cls, coords: np.ndarray) -> "ModelInputs":
        """A mesh (*shape, D) as the only input."""
        return cls(np.zeros((*coords.shape[:-1], 0), np.float32), coords.astype(np.float32))


@dataclass(frozen=True)
class Control:
    """One editable number."""

    label: str  # Its name.
    low: float  # Smallest value; the range is that of the training data.
    high: float  # Largest value.
    step: float  # Change per press of an arrow key.
    unit: str = ""  # Shown after the value.
    anchor: tuple[float, float] | None = None  # Position of its point at value 0; None for a slider
    along: tuple[float, float] = (0.0, 1.0)  # Movement of the point if the value increases by 1.
    follows: int | None = None  # Index of the control whose movement this point shares.
    is_small: bool = False  # Whether the point is a small one, connected to the point it follows.


class Editor(ABC):
    """The editable input of one benchmark on one mesh. Subclasses are final."""

    kind: ClassVar[Literal["paint", "points", "void", "sliders"]]  # How the page edits it.
    hint: ClassVar[str]  # Instruction for the visitor.
    box: ClassVar[Box] = (0.0, 1.0, 0.0, 1.0)  # Part of the plane where the input is edited.
    window: ClassVar[Box] = (0.0, 1.0, 0.0, 1.0)  # Part of the plane where fields are shown.
    # Whether `model_inputs` takes long and belongs into another process.
    needs_solver: ClassVar[bool] = False

    def __init__(self, benchmark: "Benchmark[Any]", parameters: Any) -> None:
        self.benchmark = benchmark
        self.parameters = parameters
        self.problem: Problem = benchmark.problem_for(parameters)

    def shared_coords(self) -> np.ndarray:
        coords = self.benchmark.coords(self.parameters)
        assert coords is not None
        return coords

    def controls(self) -> list[Control]:
        """The editable numbers; none if the input is painted."""
        return []

    def first(self) -> np.ndarray:
        """The values that are shown first and after a reset: always the same random input.

        The plainest input, such as a straight pipe, is unlike all training inputs.
        """
        return self.draw(np.random.default_rng(FIRST_SEED))

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """The values of a random input, as the benchmark draws it."""
        return self.encode(self.benchmark.draw(rng, self.parameters))

    def encode(self, drawn: np.ndarray) -> np.ndarray:
        """The values of what the benchmark has drawn."""
        return drawn.ravel()

    def decode(self, values: np.ndarray) -> np.ndarray:
        """What the benchmark's solver takes; inverse of `encode`."""
        return values

    @abstractmethod
    def model_inputs(self, values: np.ndarray) -> ModelInputs:
        """Exactly the inputs and coordinates of the sample with these values."""

    def solve(self, values: np.ndarray) -> tuple["Sample", float]:
        """The true solution and the solver's seconds; raises `Rejected` if there is none."""
        return self.benchmark.timed_solve(self.decode(values), self.parameters)

    def check(self, values: np.ndarray) -> np.ndarray:
        """Validate values that came from outside; returns them as float64."""
        name, controls = self.benchmark.name, self.controls()
        if values.shape != (len(controls),):
            raise InputError(f"{name} has {len(controls)} values; got shape {list(values.shape)}")
        values = values.astype(np.float64)
        for control, value in zip(controls, values, strict=True):
            if not control.low <= value <= control.high:  # NaN is refused too
                raise InputError(
                    f"{name}: {control.label} must be from {control.low:g} to "
                    f"{control.high:g}; got {value:g}"
                )
        return values

    def triangles(self) -> np.ndarray | None:
        """Corners (K, 3) of triangles between the points of a cloud, to draw it."""
        return None

    def describe(self) -> dict[str, Any]:
        """Everything that the page needs to know, JSON-ready."""
        problem, view = self.problem, self.benchmark.view
        num_past = problem.num_inputs if problem.time == "rollout" else 0
        return {
            "kind": self.kind,
            "hint": self.hint,
            "label": view.label,
            "unit": view.unit,
            "signed": view.is_signed,
            "box": self.box,
            "view": self.window,
            "controls": [asdict(control) for control in self.controls()],
            "shape": list(problem.shape),
            "outputs": list(problem.outputs),
            "headline": {name: list(of) for name, of in self.benchmark.headline.items()},
            "geometry": problem.geometry,
            "deformed": is_deformed(problem),
            "periodic": any(problem.periodic),
            "time": problem.time,
            "numSteps": problem.num_steps,
            "times": [view.time_title(k) for k in range(-num_past, problem.num_steps)],
            "needsSolver": self.needs_solver,
        }
