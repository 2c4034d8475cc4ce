"""How the samples of a problem are drawn: the view of its benchmark, or all of it by default."""

import numpy as np

from cato.benchmarks import view_of
from cato.benchmarks.view import Window
from cato.problem import Problem


def names_of(problem: Problem) -> list[str]:
    """The names of the outputs in figures."""
    known = view_of(problem).names
    return [known.get(name, name) for name in problem.outputs]


def window_of(problem: Problem, coords: np.ndarray) -> Window:
    """The part of the plane to show: the view's window, or all of the (N, D) nodes."""
    window = view_of(problem).window if problem.dimension == 2 else None
    return window or Window.around(coords)


def chosen(count: int, most: int) -> list[int]:
    """At most `most` of `count` indices, evenly spread, both ends included."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist()
