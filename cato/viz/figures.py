"""Figures of one sample: with the surrogate's prediction, and in the surrogate's chart.

The layout of predictions depends on the problem. Steady: the inputs, and truth, prediction and
error of every output. In time: rows of truth, prediction and error, columns of times. Outputs that
are positions and displacements: the deformed mesh at some times.
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
from cato.physics.gradient import gradient, inverse_metric
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
    window_of,
)

MAX_INPUTS = 4  # Input channels shown of a steady problem.
NUM_FRAMES, NUM_DEFORMED = 5, 4  # Frames shown of problems in time, and of deformed meshes.
CHARTS: dict[str, str] = {
    "learned": "which was trained with the rest of the model",
    "normalised": "each sample's bounding box scaled to [−1, 1]",
    "raw": "the coordinates as the model gets them",
}
"""Descriptions of the kinds of charts."""
AT_REST = -1  # The step before the first frame.


class Row(NamedTuple):
    """A field (N,) and its prediction, side by side."""

    name: str
    predicted_name: str
    truth: np.ndarray
    prediction: np.ndarray
    cmap: str = SEQUENTIAL
    difference: str = "error"


@dataclass(frozen=True)
class Case:
    """One sample and its prediction, without padding; a steady problem has one frame."""

    problem: Problem
    coords: np.ndarray  # (N, D)
    inputs: np.ndarray  # (N, C_in)
    truth: np.ndarray  # (T, N, C_out)
    prediction: np.ndarray  # As `truth`.
    slopes: Row | None = None  # Gradient norms of the first output, on steady meshes only.


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
    coords, inputs = batch.coords[0, kept].numpy(), batch.inputs[0, kept].numpy()
    if problem.mask:  # not what they were filled with
        inputs = np.where(inputs[:, :1] == 0, np.nan, inputs)
        inputs[:, 0] = np.isfinite(inputs[:, 0])
    truth, prediction = frames(batch.targets[0]), frames(solution)
    if problem.has_gaps:
        prediction = np.where(np.isnan(truth), np.nan, prediction)
    return Case(problem, coords, inputs, truth, prediction, slopes)


@torch.no_grad()
def _slopes(surrogate: Surrogate, problem: Problem, batch: Batch, solution: torch.Tensor) -> Row:
    """Gradient norms; the prediction is the model's flux head, if it has one."""
    metric = inverse_metric(batch.coords[0], problem.shape, problem.periodic, problem.period)

    def norm(values: torch.Tensor) -> np.ndarray:
        slope = gradient(values, metric, problem.shape, problem.periodic)
        return slope[0, :, 0].norm(dim=-1).numpy()

    truth, name = norm(batch.targets), f"|∇ {output_names(problem)[0]}|"
    device = surrogate.device
    flux = surrogate(batch.coords.to(device), batch.inputs.to(device), shape=problem.shape).flux
    if flux is None:
        predicted = norm(torch.where(batch.targets.isnan(), torch.nan, solution[None]))
        return Row(f"{name}, truth", f"{name}, prediction", truth, predicted, ERROR)
    predicted = flux[0, :, 0].norm(dim=-1).float().cpu().numpy()
    predicted = np.where(np.isnan(truth), np.nan, predicted)
    return Row(f"{name}, truth", "|q|, flux head", truth, predicted, ERROR, f"|q| − {name}")


def sample_figure(surrogate: Surrogate, data: Dataset, index: int, title: str = "") -> Figure:
    """One sample: inputs, and truth, prediction and error of every output."""
    case = case_of(data, index, surrogate)
    if is_deformed(case.problem):
        return _deformed_figure(case, title)
    return _steady_figure(case, title) if case.problem.time == "steady" else _strips(case, title)


# Steady problems.


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
    fields = zip(output_names(case.problem), case.truth[0].T, case.prediction[0].T, strict=True)
    rows = [Row(f"{name}, truth", f"{name}, prediction", u, guess) for name, u, guess in fields]
    return rows if case.slopes is None else [rows[0], case.slopes, *rows[1:]]


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
    """The frames of a deforming mesh."""

    def __init__(self, case: Case, outputs: np.ndarray) -> None:
        channels = [case.problem.outputs.index(name) for name in DEFORMED]
        x, y, dx, dy = np.moveaxis(outputs[..., channels], -1, 0).reshape(
            4, -1, *case.problem.shape
        )
        self.positions = np.stack([x, y], axis=-1)  # (T, H, W, 2)
        self.moved = np.hypot(dx, dy)  # Length of the displacements, (T, H, W).
        self.rest = np.stack([x[0] - dx[0], y[0] - dy[0]], axis=-1)  # Before the first frame.


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
    draw_rest(axes[0, 0], case, window, fontsize=9)
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


def draw_rest(axes: Axes, case: Case, window: Window, fontsize: float) -> None:
    """The inputs: the undeformed mesh, and the die if there is one."""
    show_window(axes, window)
    draw_mesh(axes, Deformation(case, case.truth).rest)
    _draw_die(axes, case, window, AT_REST)
    axes.set_title("input: " + " and ".join((*case.problem.inputs, "mesh at rest")), size=fontsize)


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


# Charts.


def chart_figure(surrogate: Surrogate, data: Dataset, index: int = 0) -> Figure | None:
    """The nodes of a sample in the plane and in the chart; None for models without a chart."""
    problem, kind = data.problem, surrogate.model.chart_kind
    if kind is None or problem.dimension != 2:
        return None
    batch = data.batch([index])
    # Without padding: the normalised chart depends on all points it gets.
    coords = batch.coords if batch.mask is None else batch.coords[:, batch.mask[0]]
    zeta = surrogate.charted(coords.to(surrogate.device))
    assert zeta is not None
    nodes, charted = coords[0].numpy(), zeta[0].cpu().numpy()
    figure, axes = new_figure(1, 2, (8.0, 3.9))
    physical = "physical points" if problem.geometry == "cloud" else "physical grid"
    for panel, title, places, window, (x, y) in (
        (axes[0, 0], physical, nodes, window_of(problem, nodes), "xy"),
        (axes[0, 1], f"{kind} chart", charted, Window.around(charted), "ξη"),
    ):
        draw_grid(panel, problem, places, nodes[:, 0])
        panel.set_title(title, fontsize=9)
        limits = {"xlim": (window.left, window.right), "ylim": (window.bottom, window.top)}
        panel.set(xlabel=x, ylabel=y, **limits)
    return figure


def draw_grid(axes: Axes, problem: Problem, nodes: np.ndarray, colour: np.ndarray) -> None:
    """Mesh lines, or the points of a cloud coloured by (N,) values."""
    if problem.geometry == "cloud":
        axes.scatter(nodes[:, 0], nodes[:, 1], c=colour, s=5)
    else:
        draw_mesh(axes, nodes.reshape(*problem.shape, 2), ("tab:blue", "tab:orange"), width=0.6)


def describe_chart(surrogate: Surrogate) -> str:
    """A sentence on the kind of chart, and on its use in CATO (meshes) or CATO-PC (clouds)."""
    kind = surrogate.model.chart_kind
    assert kind is not None
    chart = f"the {kind} chart, {CHARTS[kind]}"
    if surrogate.problem.geometry == "cloud":
        return (
            f"In addition to the coordinates, the lift and the messages between points use {chart}."
        )
    return f"Attention measures distance in {chart}."
