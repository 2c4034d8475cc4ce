"""How the samples of a problem are looked at: all that the pictures know of single benchmarks.

A problem without a view of its own is drawn whole, and its frames are numbered.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cato.problem import Problem

DEFORMED = ("x", "y", "dx", "dy")
"""Outputs that are positions and displacements of the nodes: drawn as a deformed mesh."""

MARGIN = 0.02
"""Around all nodes, in parts of their extent."""


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
        """Width and height."""
        return self.right - self.left, self.top - self.bottom

    def contains(self, coords: np.ndarray) -> np.ndarray:
        """Which of the (N, D) nodes are inside, edges included."""
        x, y = coords[:, 0], coords[:, 1]
        return (self.left <= x) & (x <= self.right) & (self.bottom <= y) & (y <= self.top)


@dataclass(frozen=True)
class View:
    """How the samples of a problem are looked at.

    Attributes:
        window: Part of the plane to show; None shows all nodes.
        first_time: Of the first output frame.
        time_step: Between frames.
        time_unit: After every time.
        length_unit: Of positions and displacements.
        die_travel: The first input is the height of a die above the top row of the mesh, which
            comes down evenly by this much until the last frame; 0 where there is no die.
        names: What outputs are called in pictures, where their names in files are short.
    """

    window: Window | None = None
    first_time: float | None = None
    time_step: float = 1.0
    time_unit: str = ""
    length_unit: str = ""
    die_travel: float = 0.0
    names: Mapping[str, str] = field(default_factory=dict)

    def time(self, step: int) -> float:
        """Of the output frame number `step`, counted from 0; their number from 1 if unknown."""
        first = 1 if self.first_time is None else self.first_time
        return first + step * self.time_step

    def time_title(self, step: int) -> str:
        """The time in words."""
        name = "frame " if self.first_time is None else "t = "
        return f"{name}{self.time(step):.4g} {self.time_unit}".rstrip()

    @property
    def time_label(self) -> str:
        """Of an axis of times."""
        if self.first_time is None:
            return "frame"
        return f"t ({self.time_unit})" if self.time_unit else "t"


VIEWS = {
    # The C-grid reaches 40 chords; the foil is at 0 ≤ x ≤ 1, the supersonic pockets just around.
    "airfoil": View(window=Window(-0.5, 1.6, -0.8, 0.8), names={"mach": "Mach number"}),
    # Ten frames are given, at t = 1 … 10.
    "navier_stokes": View(first_time=11, names={"w": "vorticity"}),
    "pipe": View(names={"u_x": "$u_x$"}),
    # The die comes down at 3 m/s for 1 ms, in 20 frames after the start.
    "plasticity": View(
        first_time=0.05, time_step=0.05, time_unit="ms", length_unit="mm", die_travel=3.0
    ),
}


def view_of(problem: Problem) -> View:
    """The view of a problem."""
    return VIEWS.get(problem.name, View())


def names_of(problem: Problem) -> list[str]:
    """The outputs as pictures call them."""
    known = view_of(problem).names
    return [known.get(name, name) for name in problem.outputs]


def is_deformed(problem: Problem) -> bool:
    """Whether the outputs are a deformed plane mesh."""
    plane = problem.geometry != "cloud" and problem.dimension == 2
    return plane and set(DEFORMED) <= set(problem.outputs)


def window_of(problem: Problem, coords: np.ndarray) -> Window:
    """What is shown of the plane: the view's window, or all of the (N, D) nodes."""
    window = view_of(problem).window if problem.dimension == 2 else None
    return window or Window.around(coords)


def chosen(count: int, most: int) -> list[int]:
    """At most `most` of `count` numbers, evenly spread, both ends included."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist()
