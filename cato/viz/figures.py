"""Pictures of samples: `sample_figure` with a surrogate's answer, `data_figure` without.

What is drawn follows from the problem. Steady ones: input, truth, prediction and error of every
output, here. Problems in time: strips of frames, in `cato.viz.strips`. Outputs that are positions
and displacements: deformed meshes, in `cato.viz.deformed`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cato.data.dataset import Dataset
from cato.surrogate import Surrogate
from cato.viz.cases import Case, case_of
from cato.viz.chart import chart_figure
from cato.viz.curves import error_histogram, frame_error_curve, training_curve
from cato.viz.deformed import deformed_data, deformed_sample
from cato.viz.fields import (
    ERROR,
    SEQUENTIAL,
    colour_bar,
    draw_field,
    draw_nodes,
    error_limits,
    hide_empty,
    new_figure,
    panel_height,
    value_limits,
)
from cato.viz.strips import strip_data, strip_sample
from cato.viz.views import is_deformed

__all__ = [
    "chart_figure",
    "data_figure",
    "error_histogram",
    "frame_error_curve",
    "sample_figure",
    "training_curve",
]

MAX_INPUTS = 4
"""Input channels shown."""


def sample_figure(surrogate: Surrogate, data: Dataset, index: int, title: str = "") -> Figure:
    """One sample: inputs, and truth, prediction and error of every output."""
    case = case_of(data, index, surrogate)
    if is_deformed(data.problem):
        return deformed_sample(case, title)
    if data.problem.time != "steady":
        return strip_sample(case, title)
    return _steady_sample(case, title)


def data_figure(data: Dataset, indices: Sequence[int] = (0, 1, 2), title: str = "") -> Figure:
    """Some samples of a data set, inputs and outputs, without any surrogate.

    Steady samples stand side by side, those in time below each other.
    """
    cases = [case_of(data, index) for index in indices]
    if is_deformed(data.problem):
        return deformed_data(cases, title)
    if data.problem.time != "steady":
        return strip_data(cases, title)
    return _steady_data(cases, title)


class Row(NamedTuple):
    """A field (N,) and its prediction, side by side."""

    name: str
    answer_name: str
    truth: np.ndarray
    answer: np.ndarray
    cmap: str = SEQUENTIAL


def _steady_sample(case: Case, title: str) -> Figure:
    """Left the inputs; right a row of truth, prediction and error for each output."""
    problem = case.problem
    rows = _steady_rows(case)
    num_inputs = max(1, min(problem.num_inputs, MAX_INPUTS))
    num_rows = max(len(rows), num_inputs)
    height = panel_height(problem, case.coords, 2.45) + 0.35
    figure, axes = new_figure(num_rows, 4, (11.6, num_rows * height + 0.3), title)
    for channel in range(num_inputs):
        _draw_input(axes[channel, 0], case, channel)
    for panels, row in zip(axes[: len(rows), 1:], rows, strict=True):
        _draw_row(panels, case, row)
    hide_empty(axes)
    return figure


def _steady_rows(case: Case) -> list[Row]:
    """All outputs, and after the first one, on meshes, the size of its gradient."""
    assert case.prediction is not None
    outputs = case.problem.outputs
    rows = [
        Row(f"{name}, truth", f"{name}, prediction", truth, answer)
        for name, truth, answer in zip(outputs, case.truth[0].T, case.prediction[0].T, strict=True)
    ]
    if case.slopes is not None:
        name = f"|∇{outputs[0]}|"
        answer = "|q|, flux head" if case.slopes.is_flux else f"{name}, prediction"
        rows.insert(
            1, Row(f"{name}, truth", answer, case.slopes.truth, case.slopes.prediction, ERROR)
        )
    return rows


def _draw_row(panels: np.ndarray, case: Case, row: Row) -> None:
    """Truth and prediction on one scale, and the error."""
    problem, coords = case.problem, case.coords
    left, middle, right = panels
    if problem.dimension == 1:
        middle.sharey(left)
    limits = value_limits(problem, coords, row.truth) | {"cmap": row.cmap}
    draw_field(left, problem, coords, row.truth, row.name, **limits)
    picture = draw_field(middle, problem, coords, row.answer, row.answer_name, **limits)
    colour_bar(picture, [left, middle])
    error = row.answer - row.truth
    scale = error_limits(problem, coords, error)
    colour_bar(draw_field(right, problem, coords, error, "error", **scale), [right])


def _draw_input(axes: Axes, case: Case, channel: int) -> None:
    """An input channel, or the nodes where there is none."""
    problem = case.problem
    if not problem.num_inputs:
        name = "points" if problem.geometry == "cloud" else "mesh"
        draw_nodes(axes, problem, case.coords, f"input: {name}")
        return
    values = case.inputs[:, channel]
    limits = value_limits(problem, case.coords, values)
    title = f"input {problem.inputs[channel]}"
    colour_bar(draw_field(axes, problem, case.coords, values, title, **limits), [axes])


def _steady_data(cases: list[Case], title: str) -> Figure:
    """A column for each sample, a row for each channel with one colour scale."""
    problem = cases[0].problem
    num_inputs = max(1, min(problem.num_inputs, MAX_INPUTS))
    num_rows = num_inputs + problem.num_outputs
    width = min(2.8, 11.4 / len(cases))
    height = panel_height(problem, cases[0].coords, width - 0.3) + 0.2
    size = (width * len(cases) + 0.6, num_rows * height + 0.3)
    figure, axes = new_figure(num_rows, len(cases), size, title)
    channels = [(name, [c.inputs[:, i] for c in cases]) for i, name in enumerate(problem.inputs)]
    channels = channels[:num_inputs]
    channels += [(n, [c.truth[0, :, i] for c in cases]) for i, n in enumerate(problem.outputs)]
    for panels, (name, fields) in zip(axes[-len(channels) :], channels, strict=True):
        limits = _common_limits(cases, fields)
        for panel, case, field in zip(panels, cases, fields, strict=True):
            picture = draw_field(panel, problem, case.coords, field, **limits)
        colour_bar(picture, list(panels))
        panels[0].set_ylabel(name, fontsize=9)
    if not problem.num_inputs:
        for panel, case in zip(axes[0], cases, strict=True):
            draw_nodes(panel, problem, case.coords)
        axes[0, 0].set_ylabel("points" if problem.geometry == "cloud" else "mesh", fontsize=9)
    return figure


def _common_limits(cases: list[Case], fields: list[np.ndarray]) -> dict[str, Any]:
    """Colour limits that hold for a field of every case."""
    each = [value_limits(c.problem, c.coords, f) for c, f in zip(cases, fields, strict=True)]
    return {"vmin": min(e["vmin"] for e in each), "vmax": max(e["vmax"] for e in each)}
