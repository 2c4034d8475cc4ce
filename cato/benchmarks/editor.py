"""What a hand can change of a benchmark's input, and the arrays that a model is given for it.

An `Editor` stands between the explorer page and a benchmark: its *values* are the few numbers (or
the painted medium) that the page shows and sends, and are what the benchmark itself draws, so that
the values of a drawn sample give that very sample. `input_fields` and `input_shapes` have one
editor per benchmark, `editors` finds that of a model. Where the numbers are the places of points, a
`Control` says where each point is and which way it moves.

Only NumPy and the meshing of a solver run here, except where `needs_solver` says otherwise.
"""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from cato.benchmarks import Sample, get_benchmark
from cato.errors import InputError
from cato.problem import Problem

Box = tuple[float, float, float, float]
"""Left, right, bottom and top of a part of the plane."""


class Given(NamedTuple):
    """What a model is asked: float32, one sample."""

    inputs: np.ndarray
    coords: np.ndarray


@dataclass(frozen=True)
class Control:
    """One number of a hand's.

    Attributes:
        label: What it is, in words.
        low: Smallest value: the range is that of the training data.
        high: Largest value.
        step: Of one press of an arrow key.
        unit: After the value.
        anchor: Place of its point at value 0; None for a slider.
        along: Movement of the point for an increase by 1.
        follows: Number of the control whose movement this point shares.
    """

    label: str
    low: float
    high: float
    step: float
    unit: str = ""
    anchor: tuple[float, float] | None = None
    along: tuple[float, float] = (0.0, 1.0)
    follows: int | None = None


class Editor(ABC):
    """The input of one benchmark on one mesh, as a hand changes it. Subclasses are final.

    Attributes:
        name: Of the benchmark.
        kind: How the page edits it.
        hint: What to do, for the visitor.
        label: What the model predicts.
        unit: Of that.
        is_signed: Whether zero is the middle of the colours.
        box: Part of the plane where the input is edited.
        view: Part of the plane where fields are shown.
        needs_solver: Whether `given` takes long and belongs into another process.
    """

    name: ClassVar[str]
    kind: ClassVar[Literal["paint", "points", "void", "sliders"]]
    hint: ClassVar[str]
    label: ClassVar[str]
    unit: ClassVar[str] = ""
    is_signed: ClassVar[bool] = False
    box: ClassVar[Box] = (0.0, 1.0, 0.0, 1.0)
    view: ClassVar[Box] = (0.0, 1.0, 0.0, 1.0)
    needs_solver: ClassVar[bool] = False

    def __init__(self, parameters: Any) -> None:
        self.parameters = parameters
        self.benchmark: Any = get_benchmark(self.name)
        self.problem: Problem = self.benchmark.problem_for(parameters)

    @abstractmethod
    def controls(self) -> list[Control]:
        """What can be changed; empty where the input is painted."""

    @abstractmethod
    def neutral(self) -> np.ndarray:
        """The values of the plainest input."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """The values of a random input, as the benchmark draws it."""

    def physical(self, values: np.ndarray) -> np.ndarray:
        """What the benchmark's solver takes; the values themselves unless an editor says more."""
        return values

    @abstractmethod
    def given(self, values: np.ndarray) -> Given:
        """What the model takes: exactly the arrays of the sample with these values."""

    def solve(self, values: np.ndarray) -> Sample:
        """The true solution; raises `cato.benchmarks.rejected.Rejected` where there is none."""
        sample: Sample = self.benchmark.solve(self.physical(values), self.parameters)
        return sample

    def check(self, values: np.ndarray) -> np.ndarray:
        """Values that came from outside, refused if they are not of this input."""
        controls = self.controls()
        if values.shape != (len(controls),):
            raise InputError(
                f"{self.name} has {len(controls)} values; got shape {list(values.shape)}"
            )
        values = values.astype(np.float64)
        for control, value in zip(controls, values, strict=True):
            if not control.low <= value <= control.high:  # NaN is refused too
                raise InputError(
                    f"{self.name}: {control.label} must be from {control.low:g} to "
                    f"{control.high:g}; got {value:g}"
                )
        return values

    def triangles(self) -> np.ndarray | None:
        """Corners (K, 3) of triangles between the points of a cloud, to draw it."""
        return None

    def describe(self) -> dict[str, Any]:
        """All that the page needs to know, JSON-ready."""
        return {
            "kind": self.kind,
            "hint": self.hint,
            "label": self.label,
            "unit": self.unit,
            "signed": self.is_signed,
            "box": self.box,
            "view": self.view,
            "controls": [asdict(control) for control in self.controls()],
            "shape": list(self.problem.shape),
            "outputs": list(self.problem.outputs),
            "geometry": self.problem.geometry,
            "periodic": any(self.problem.periodic),
            "time": self.problem.time,
            "numSteps": self.problem.num_steps,
            "needsSolver": self.needs_solver,
        }

    def _no_inputs(self, coords: np.ndarray) -> Given:
        return Given(np.zeros((*coords.shape[:-1], 0), np.float32), coords.astype(np.float32))
