"""Figures of one sample with the surrogate's prediction.

The layout depends on the problem. Steady: the inputs, and truth, prediction and error of every
output. In time: rows of truth, prediction and error, columns of times. Outputs that are positions
and displacements: the deformed mesh at some times.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import Collection, QuadMesh
from matplotlib.figure import Figure

from cato.benchmarks import view_of
from cato.benchmarks.view import DEFORMED, Window, is_deformed
from cato.data.dataset import Batch, Dataset
from cato.errors import InputError
from cato.inference.evaluate import solve_all
from cato.physics import gradient, inverse_metric
from cato.problem import Problem
from cato.surrogate import Surrogate
from cato.viz.fields import (
    ERROR,
    SEQUENTIAL,
    colour_bar,
    draw_field,
    draw_mesh,
    draw_nodes,
    error_limits,
    evenly_spread,
    hide_empty,
    new_figure,
    output_names,
    panel_height,
    show_window,
    value_limits,
)

MAX_INPUTS = 4
"""Input channels shown of a steady problem."""
NUM_FRAMES, NUM_DEFORMED = 5, 4
"""Frames shown of problems in time, and of deformed meshes."""
AT_REST = -1
"""The step before the first frame."""


class Slopes(NamedTuple):
    """Norm (N,) of the gradient of the first output, and of its prediction."""

    truth: np.ndarray
    prediction: np.ndarray
    is_flux: bool
    """Whether the prediction is the model's flux head, not the gradient of its output."""


@dataclass(frozen=True)
class Case:
    """One sample and its prediction, without padding; a steady problem has one frame.

    Attributes:
        problem: The problem it is a sample of.
        coords: (N, D).
        inputs: (N, C_in).
        truth: (T, N, C_out).
        prediction: As `truth`.
        slopes: Of the first output, on steady meshes only.
    """

    problem: Problem
    coords: np.ndarray
    inputs: np.ndarray
    truth: np.ndarray
    prediction: np.ndarray
    slopes: Slopes | None = None


def case_of(data: Dataset, index: int, surrogate: Surrogate) -> Case:
    """Sample number `index` and the surrogate's prediction."""
    problem = data.problem
    batch = data.batch([index])
    kept = slice(None) if batch.mask is None else batch.mask[0]

    def frames(values: torch.Tensor) -> np.ndarray:
        in_time = values[None] if problem.time == "steady" else values
        return in_time[:, kept].numpy()

    solution = solve_all(surrogate, data.subset([index]))[0]
    slopes = None
    if problem.time == "steady" and problem.geometry != "cloud":
        with suppress(InputError):  # a folded mesh has no gradients
            slopes = _slopes(surrogate, problem, batch, solution)
    return Case(
        problem,
        batch.coords[0, kept].numpy(),
        batch.inputs[0, kept].numpy(),
        frames(batch.targets[0]),
        frames(solution),
        slopes,
    )


@torch.no_grad()
def _slopes(surrogate: Surrogate, problem: Problem, batch: Batch, solution: torch.Tensor) -> Slopes:
    metric = inverse_metric(batch.coords[0], problem.shape, problem.periodic, problem.period)

    def norm(values: torch.Tensor) -> np.ndarray:
        slope = gradient(values, metric, problem.shape, problem.periodic)
        return slope[0, :, 0].norm(dim=-1).numpy()

    truth = norm(batch.targets)
    device = surrogate.device
    flux = surrogate(batch.coords.to(device), batch.inputs.to(device), shape=problem.shape).flux
    if flux is None:
        return Slopes(truth, norm(solution[None]), is_flux=False)
    return Slopes(truth, flux[0, :, 0].norm(dim=-1).float().cpu().numpy(), is_flux=True)


def sample_figure(surrogate: Surrogate, data: Dataset, index: int, title: str = "") -> Figure:
    """One sample: inputs, and truth, prediction and error of every output."""
    return draw_case(case_of(data, index, surrogate), title)


def draw_case(case: Case, title: str = "") -> Figure:
    """The figure of a sample that is already predicted."""
    if is_deformed(case.problem):
        return _deformed_figure(case, title)
    return _steady_figure(case, title) if case.problem.time == "steady" else _strips(case, title)


# Steady problems.


class Row(NamedTuple):
    """A field (N,) and its prediction, side by side."""

    name: str
    predicted_name: str
    truth: np.ndarray
    prediction: np.ndarray
    cmap: str = SEQUENTIAL
    difference: str = "error"


def _steady_figure(case: Case, title: str) -> Figure:
    """The inputs on the left; a row of truth, prediction and error for each output."""
    problem = case.problem
    rows = _steady_rows(case)
    num_inputs = max(1, min(problem.num_inputs, MAX_INPUTS))
    num_rows = max(len(rows), num_inputs)
    height = panel_height(problem, case.coords, 2.45) + 0.35
    figure, axes = new_figure(num_rows, 4, (11.6, num_rows * height + 0.3), title)
    for channel in range(num_inputs):
        draw_input(axes[channel, 0], case, channel)
    for panels, row in zip(axes[: len(rows), 1:], rows, strict=True):
        _draw_row(panels, case, row)
    hide_empty(axes)
    return figure


def _steady_rows(case: Case) -> list[Row]:
    """All outputs and, on meshes, the gradient norm after the first one."""
    outputs = output_names(case.problem)
    rows = [
        Row(f"{name}, truth", f"{name}, prediction", truth, prediction)
        for name, truth, prediction in zip(
            outputs, case.truth[0].T, case.prediction[0].T, strict=True
        )
    ]
    if case.slopes is not None:
        name, slopes = f"|∇ {outputs[0]}|", case.slopes
        predicted, difference = f"{name}, prediction", "error"
        if slopes.is_flux:
            predicted, difference = "|q|, flux head", f"|q| − {name}"
        truth = f"{name}, truth"
        rows.insert(1, Row(truth, predicted, slopes.truth, slopes.prediction, ERROR, difference))
    return rows


def _draw_row(panels: np.ndarray, case: Case, row: Row) -> None:
    """Truth and prediction on one scale, and the error."""
    problem, coords = case.problem, case.coords
    left, middle, right = panels
    if problem.dimension == 1:
        middle.sharey(left)
    limits = value_limits(problem, coords, row.truth) | {"cmap": row.cmap}
    draw_field(left, problem, coords, row.truth, row.name, **limits)
    picture = draw_field(middle, problem, coords, row.prediction, row.predicted_name, **limits)
    colour_bar(picture, [left, middle])
    error = row.prediction - row.truth
    scale = error_limits(problem, coords, error)
    colour_bar(draw_field(right, problem, coords, error, row.difference, **scale), [right])


def draw_input(axes: Axes, case: Case, channel: int = 0) -> None:
    """An input channel, or the nodes if there is none."""
    problem = case.problem
    if not problem.num_inputs:
        name = "points" if problem.geometry == "cloud" else "mesh"
        draw_nodes(axes, problem, case.coords, f"input: {name}")
        return
    values = case.inputs[:, channel]
    limits = value_limits(problem, case.coords, values)
    title = f"input {problem.inputs[channel]}"
    colour_bar(draw_field(axes, problem, case.coords, values, title, **limits), [axes])


# Problems in time.


def _strips(case: Case, title: str) -> Figure:
    """Rows of inputs, truth, prediction and error; columns of times."""
    problem, coords = case.problem, case.coords
    inputs = evenly_spread(problem.num_inputs, NUM_FRAMES)
    steps = evenly_spread(problem.num_steps, NUM_FRAMES)
    num_columns = max(len(inputs), len(steps))
    num_rows = 3 * problem.num_outputs + bool(inputs)
    height = panel_height(problem, coords, 1.9) + 0.2
    figure, axes = new_figure(num_rows, num_columns, (11.2, num_rows * height + 0.3), title)
    rows = iter(axes)
    if inputs:
        _draw_inputs(next(rows), case, inputs)
    for channel, name in enumerate(output_names(problem)):
        truth, prediction = case.truth[steps, :, channel], case.prediction[steps, :, channel]
        limits = _frame_limits(case, channel)
        scale = error_limits(problem, coords, prediction - truth)
        panels = next(rows)
        _draw_frames(panels, case, truth, limits, "truth")
        for panel, step in zip(panels[: len(steps)], steps, strict=True):
            panel.set_title(f"{name}, {view_of(problem).time_title(step)}", fontsize=9)
        _draw_frames(next(rows), case, prediction, limits, "prediction")
        _draw_frames(next(rows), case, prediction - truth, scale, "error")
    hide_empty(axes)
    return figure


def _draw_frames(
    panels: np.ndarray, case: Case, frames: np.ndarray, style: dict[str, Any], label: str
) -> None:
    """A row of (T, N) frames with one colour bar."""
    drawn: list[Axes] = list(panels[: len(frames)])
    for panel, frame in zip(drawn, frames, strict=True):
        picture = _draw_scaled(panel, case, frame, **style)
    drawn[0].set_ylabel(label, fontsize=9)
    colour_bar(picture, drawn)


def _draw_inputs(panels: np.ndarray, case: Case, channels: list[int]) -> None:
    """Past frames in the colours of the predicted ones; other inputs with a colour bar each."""
    problem = case.problem
    shared: Collection | None = None
    for panel, channel in zip(panels[: len(channels)], channels, strict=True):
        values = case.inputs[:, channel]
        if problem.time == "rollout" and problem.num_outputs == 1:
            shared = _draw_scaled(panel, case, values, **_frame_limits(case, 0))
        else:
            limits = value_limits(problem, case.coords, values)
            colour_bar(_draw_scaled(panel, case, values, **limits), [panel])
        panel.set_title(f"input {problem.inputs[channel]}", fontsize=9)
    colour_bar(shared, list(panels[: len(channels)]))
    panels[0].set_ylabel("input", fontsize=9)


def _draw_scaled(axes: Axes, case: Case, values: np.ndarray, **style: Any) -> Collection | None:
    """Draw a field; if it is a curve, the limits are those of its axis."""
    if case.problem.dimension == 1:
        pad = 0.05 * (style["vmax"] - style["vmin"])
        axes.set_ylim(style["vmin"] - pad, style["vmax"] + pad)
    return draw_field(axes, case.problem, case.coords, values, **style)


def _frame_limits(case: Case, channel: int) -> dict[str, Any]:
    """Colour limits of an output channel over all frames, including past ones."""
    problem, frames = case.problem, case.truth[..., channel]
    if problem.time == "rollout":
        past = case.inputs[:, channel :: problem.num_outputs].T
        frames = np.concatenate((past, frames))
    return value_limits(problem, case.coords, frames)


# Deformed meshes.


class Deformation:
    """The frames of a deforming mesh.

    Attributes:
        positions: Positions of the nodes, (T, H, W, 2).
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


def _deformed_figure(case: Case, title: str) -> Figure:
    """The mesh at rest; then for some times truth, prediction and the distance of their nodes."""
    view = view_of(case.problem)
    truth, predicted = Deformation(case, case.truth), Deformation(case, case.prediction)
    window = deformed_window(case)
    distance = np.linalg.norm(predicted.positions - truth.positions, axis=-1)
    limits = {"vmin": 0.0, "vmax": float(truth.moved.max())}
    scale = {"vmin": 0.0, "vmax": float(distance.max()), "cmap": ERROR}
    steps = evenly_spread(len(truth.moved), NUM_DEFORMED)
    size = (10.6, (len(steps) + 1) * deformed_height(window, 3.1) + 0.5)
    figure, axes = new_figure(len(steps) + 1, 3, size, title)
    draw_rest(axes[0, 0], case, window)
    axes[0, 0].set_title(rest_title(case), fontsize=9)
    for step, (left, middle, right) in zip(steps, axes[1:], strict=True):
        nodes = truth.positions[step]
        draw_mesh_at(left, case, window, step, nodes, truth.moved[step], **limits)
        moved = draw_mesh_at(
            middle, case, window, step, predicted.positions[step], predicted.moved[step], **limits
        )
        apart = draw_mesh_at(right, case, window, step, nodes, distance[step], **scale)
        left.set_ylabel(view.time_title(step), fontsize=9)
    for panel, label in zip(axes[1], ("truth", "prediction", "error"), strict=True):
        panel.set_title(label, fontsize=9)
    colour_bar(moved, list(axes[1:, :2].flat), with_unit(case, "displacement"), len(steps))
    colour_bar(apart, list(axes[1:, 2]), with_unit(case, "distance of nodes"), len(steps))
    hide_empty(axes)
    return figure


def draw_rest(axes: Axes, case: Case, window: Window) -> None:
    """The inputs: the undeformed mesh, and the die if there is one."""
    show_window(axes, window)
    draw_mesh(axes, Deformation(case, case.truth).rest)
    _draw_die(axes, case, window, AT_REST)


def rest_title(case: Case) -> str:
    """Title of the picture of the inputs."""
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
    show_window(axes, window)
    picture = axes.pcolormesh(
        nodes[..., 0], nodes[..., 1], values, shading="gouraud", rasterized=True, **style
    )
    draw_mesh(axes, nodes, ("white", "white"), width=0.15)
    _draw_die(axes, case, window, step)
    return picture


def _draw_die(axes: Axes, case: Case, window: Window, step: int) -> None:
    if not view_of(case.problem).die_travel:
        return
    x, y = die_contour(case, step)
    x, y = np.r_[window.left, x, window.right], np.r_[y[0], y, y[-1]]
    axes.fill_between(x, y, window.top, facecolor="0.85", edgecolor="0.3", linewidth=0.6)


def die_contour(case: Case, step: int) -> tuple[np.ndarray, np.ndarray]:
    """The lower side of the die in frame `step`, above the columns of the mesh."""
    travel = view_of(case.problem).die_travel
    top = Deformation(case, case.truth).rest[:, -1]
    above = case.inputs[:, 0].reshape(case.problem.shape)[:, -1]
    return top[:, 0], top[:, 1] + above - travel * (step + 1) / case.problem.num_steps


def deformed_window(case: Case) -> Window:
    """A window around all frames and the die at rest."""
    points = [Deformation(case, case.truth).positions.reshape(-1, 2)]
    if view_of(case.problem).die_travel:
        points.append(np.stack(die_contour(case, AT_REST), axis=-1))
    return Window.around(np.concatenate(points))


def deformed_height(window: Window, width: float) -> float:
    """Height of a panel of the given width, including its title."""
    across, up = window.size
    return width * up / across + 0.15


def with_unit(case: Case, label: str) -> str:
    """The label with the unit of length, if there is one."""
    unit = view_of(case.problem).unit
    return f"{label} ({unit})" if unit else label
