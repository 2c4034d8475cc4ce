"""Pictures of samples with a surrogate's answer.

What is drawn follows from the problem. Steady ones: input, truth, prediction and error of every
output, here. Problems in time: strips of frames, in `cato.viz.strips`. Outputs that are positions
and displacements: deformed meshes, in `cato.viz.deformed`.
"""

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cato.benchmarks.view import is_deformed
from cato.data.dataset import Dataset
from cato.surrogate import Surrogate
from cato.viz.cases import Case, case_of
from cato.viz.deformed import deformed_sample
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
from cato.viz.strips import strip_sample
from cato.viz.views import names_of

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


class Row(NamedTuple):
    """A field (N,) and its prediction, side by side."""

    name: str
    answer_name: str
    truth: np.ndarray
    answer: np.ndarray
    cmap: str = SEQUENTIAL
    difference: str = "error"


def _steady_sample(case: Case, title: str) -> Figure:
    """Left the inputs; right a row of truth, prediction and error for each output."""
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
    """All outputs, and after the first one, on meshes, the size of its gradient."""
    outputs = names_of(case.problem)
    rows = [
        Row(f"{name}, truth", f"{name}, prediction", truth, answer)
        for name, truth, answer in zip(outputs, case.truth[0].T, case.prediction[0].T, strict=True)
    ]
    if case.slopes is not None:
        name, slopes = f"|∇ {outputs[0]}|", case.slopes
        answer, difference = f"{name}, prediction", "error"
        if slopes.is_flux:
            answer, difference = "|q|, flux head", f"|q| − {name}"
        truth = f"{name}, truth"
        rows.insert(1, Row(truth, answer, slopes.truth, slopes.prediction, ERROR, difference))
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
    colour_bar(draw_field(right, problem, coords, error, row.difference, **scale), [right])


def draw_input(axes: Axes, case: Case, channel: int = 0) -> None:
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
