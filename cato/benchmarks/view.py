"""How a benchmark is shown, in figures and in the explorer: window, names, units, times."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cato.problem import Problem

# Outputs that are positions and displacements of the nodes: drawn as a deformed mesh.
DEFORMED = ("x", "y", "dx", "dy")
MARGIN = 0.02  # Margin around all nodes, as a fraction of their extent.


@dataclass(frozen=True)
class Window:
    """A rectangle of the plane."""

    left: float
    right: float
    bottom: float
    top: float

    @classmethod
    def around(cls, nodes: np.ndarray) -> "Window":
        """The rectangle around (N, D) nodes, with a narrow margin."""
        (left, bottom), (right, top) = nodes[:, :2].min(0), nodes[:, :2].max(0)
        margin = MARGIN * (max(right - left, top - bottom) or 1.0)
        return cls(left - margin, right + margin, bottom - margin, top + margin)

    @property
    def size(self) -> tuple[float, float]:
        return self.right - self.left, self.top - self.bottom

    def contains(self, coords: np.ndarray) -> np.ndarray:
        """Which of the (N, D) nodes are inside, edges included."""
        x, y = coords[:, 0], coords[:, 1]
        return (self.left <= x) & (x <= self.right) & (self.bottom <= y) & (y <= self.top)


@dataclass(frozen=True)
class View:
    """How samples are shown. The default shows all nodes and numbers the frames."""

    label: str = ""  # The predicted quantity, in words.
    unit: str = ""  # Unit of the outputs.
    is_signed: bool = False  # Whether the colours are centred at zero.
    names: Mapping[str, str] = field(default_factory=dict)  # Names of channels, if others.
    window: Window | None = None  # Part of the plane to show in figures; None shows all nodes.
    first_time: float | None = None  # Time of the first output frame.
    time_step: float = 1.0  # Time between frames.
    time_unit: str = ""  # Unit of the times.
    # If not 0, the first input is the height of a die above the top row of the mesh, which moves
    # down at constant speed by this distance until the last frame.
    die_travel: float = 0.0

    def time(self, step: int) -> float:
        """Time of output frame `step`, counted from 0; the frame's number if times are unknown."""
        first = 1 if self.first_time is None else self.first_time
        return first + step * self.time_step

    def time_title(self, step: int) -> str:
        name = "frame " if self.first_time is None else "t = "
        return f"{name}{self.time(step):.4g} {self.time_unit}".rstrip()

    @property
    def time_label(self) -> str:
        if self.first_time is None:
            return "frame"
        return f"t ({self.time_unit})" if self.time_unit else "t"


def is_deformed(problem: Problem) -> bool:
    """Whether the outputs are a deformed plane mesh."""
    plane = problem.geometry != "cloud" and problem.dimension == 2
    return plane and set(DEFORMED) <= set(problem.outputs)
