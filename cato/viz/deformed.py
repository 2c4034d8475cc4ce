"""Deformed meshes: pictures of problems whose outputs are positions and displacements of nodes."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from cato.benchmarks import view_of
from cato.benchmarks.view import DEFORMED, Window
from cato.viz.cases import Case
from cato.viz.fields import ERROR, colour_bar, draw_mesh, hide_empty, new_figure
from cato.viz.views import chosen

NUM_FRAMES = 4
AT_REST = -1
"""The step before the first frame."""


class Deformation:
    """The frames of a deforming mesh.

    Attributes:
        positions: Of the nodes, (T, H, W, 2).
        moved: Length of their displacements, (T, H, W).
        rest: Positions before the first frame, (H, W, 2).
    """

    def __init__(self, case: Case, outputs: np.ndarray) -> None:
        channels = [case.problem.outputs.index(name) for name in DEFORMED]
        x, y, dx, dy = np.moveaxis(outputs[..., channels], -1, 0).reshape(
            4, -1, *case.problem.shape
        )
        self.positions = np.stack([x, y], axis=-1)
        self.moved = np.hypot(dx, dy)
        self.rest = np.stack([x[0] - dx[0], y[0] - dy[0]], axis=-1)


def deformed_sample(case: Case, title: str) -> Figure:
    """The mesh at rest; then for some times truth, prediction and the distance of their nodes."""
    view = view_of(case.problem)
    truth, answer = Deformation(case, case.truth), Deformation(case, case.prediction)
    window = deformed_window(case)
    distance = np.linalg.norm(answer.positions - truth.positions, axis=-1)
    limits = {"vmin": 0.0, "vmax": float(truth.moved.max())}
    scale = {"vmin": 0.0, "vmax": float(distance.max()), "cmap": ERROR}
    steps = chosen(len(truth.moved), NUM_FRAMES)
    height = deformed_height(window, 3.1)
    size = (10.6, (len(steps) + 1) * height + 0.5)
    figure, axes = new_figure(len(steps) + 1, 3, size, title)
    draw_rest(axes[0, 0], case, window)
    axes[0, 0].set_title(rest_title(case), fontsize=9)
    for step, (left, middle, right) in zip(steps, axes[1:], strict=True):
        nodes = truth.positions[step]
        draw_mesh_at(left, case, window, step, nodes, truth.moved[step], **limits)
        moved = draw_mesh_at(
            middle, case, window, step, answer.positions[step], answer.moved[step], **limits
        )
        apart = draw_mesh_at(right, case, window, step, nodes, distance[step], **scale)
        left.set_ylabel(view.time_title(step), fontsize=9)
    for panel, words in zip(axes[1], ("truth", "prediction", "error"), strict=True):
        panel.set_title(words, fontsize=9)
    num_rows = len(steps)
    colour_bar(moved, list(axes[1:, :2].flat), with_unit(case, "displacement"), num_rows)
    colour_bar(apart, list(axes[1:, 2]), with_unit(case, "distance of nodes"), num_rows)
    hide_empty(axes)
    return figure


def draw_rest(axes: Axes, case: Case, window: Window) -> None:
    """What is given: the undeformed mesh, and the die if there is one."""
    _frame(axes, window)
    draw_mesh(axes, Deformation(case, case.truth).rest)
    _draw_die(axes, case, window, AT_REST)


def rest_title(case: Case) -> str:
    """Above the picture of the inputs."""
    return "input: " + " and ".join((*case.problem.inputs, "mesh at rest"))


def draw_mesh_at(
    axes: Axes,
    case: Case,
    window: Window,
    step: int,
    nodes: np.ndarray,
    values: np.ndarray,
    **style: Any,
) -> QuadMesh:
    """A mesh of (H, W, 2) nodes coloured by (H, W) values, and the die above it."""
    _frame(axes, window)
    picture = axes.pcolormesh(
        nodes[..., 0], nodes[..., 1], values, shading="gouraud", rasterized=True, **style
    )
    draw_mesh(axes, nodes, ("white", "white"), width=0.15)
    _draw_die(axes, case, window, step)
    return picture


def _draw_die(axes: Axes, case: Case, window: Window, step: int) -> None:
    travel = view_of(case.problem).die_travel
    if not travel:
        return
    x, y = die_contour(case, step)
    x, y = np.r_[window.left, x, window.right], np.r_[y[0], y, y[-1]]
    axes.fill_between(x, y, window.top, facecolor="0.85", edgecolor="0.3", linewidth=0.6)


def die_contour(case: Case, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the lower side of the die is in frame `step`, above the columns of the mesh."""
    travel = view_of(case.problem).die_travel
    top = Deformation(case, case.truth).rest[:, -1]
    above = case.inputs[:, 0].reshape(case.problem.shape)[:, -1]
    return top[:, 0], top[:, 1] + above - travel * (step + 1) / case.problem.num_steps


def deformed_window(case: Case) -> Window:
    """What holds all frames, and the die at rest."""
    parts = [Deformation(case, case.truth).positions.reshape(-1, 2)]
    if view_of(case.problem).die_travel:
        parts.append(np.stack(die_contour(case, AT_REST), axis=-1))
    return Window.around(np.concatenate(parts))


def deformed_height(window: Window, width: float) -> float:
    """Height of a panel of the given width, its title included."""
    across, up = window.size
    return width * up / across + 0.15


def _frame(axes: Axes, window: Window) -> None:
    axes.set(xlim=(window.left, window.right), ylim=(window.bottom, window.top), aspect="equal")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_linewidth(0.4)


def with_unit(case: Case, words: str) -> str:
    """Words, and the unit of length where there is one."""
    unit = view_of(case.problem).unit
    return f"{words} ({unit})" if unit else words
