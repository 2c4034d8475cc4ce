"""Strips of frames: pictures of problems in time."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.figure import Figure

from cato.benchmarks import view_of
from cato.viz.cases import Case
from cato.viz.fields import (
    colour_bar,
    draw_field,
    error_limits,
    hide_empty,
    new_figure,
    panel_height,
    value_limits,
)
from cato.viz.views import chosen, names_of

NUM_FRAMES = 5
"""Columns of a strip."""


def strip_sample(case: Case, title: str) -> Figure:
    """Rows of inputs, truth, prediction and error; columns of times."""
    problem, coords = case.problem, case.coords
    given, steps = chosen(problem.num_inputs, NUM_FRAMES), chosen(problem.num_steps, NUM_FRAMES)
    num_columns = max(len(given), len(steps))
    num_rows = 3 * problem.num_outputs + bool(given)
    height = panel_height(problem, coords, 1.9) + 0.2
    figure, axes = new_figure(num_rows, num_columns, (11.2, num_rows * height + 0.3), title)
    rows = list(axes)
    if given:
        panels = rows.pop(0)
        colour_bar(_draw_inputs(panels, case, given), list(panels[: len(given)]))
        panels[0].set_ylabel("input", fontsize=9)
    for channel in range(problem.num_outputs):
        truth, answer = case.truth[steps, :, channel], case.prediction[steps, :, channel]
        limits = _value_limits(case, channel)
        scale = error_limits(problem, coords, answer - truth)
        panels = rows.pop(0)
        _draw_frames(panels, case, truth, limits, "truth")
        _title_times(panels, case, steps, channel)
        _draw_frames(rows.pop(0), case, answer, limits, "prediction")
        _draw_frames(rows.pop(0), case, answer - truth, scale, "error")
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


def _draw_inputs(panels: np.ndarray, case: Case, given: list[int]) -> Collection | None:
    """Past frames in the colours of the frames to come; other inputs each in their own.

    Returns:
        What one colour bar for all would explain; None where each has its own.
    """
    problem = case.problem
    common: Collection | None = None
    for panel, channel in zip(panels[: len(given)], given, strict=True):
        values = case.inputs[:, channel]
        if problem.time == "rollout" and problem.num_outputs == 1:
            common = _draw_scaled(panel, case, values, **_value_limits(case, 0))
        else:
            limits = value_limits(problem, case.coords, values)
            colour_bar(_draw_scaled(panel, case, values, **limits), [panel])
        panel.set_title(f"input {problem.inputs[channel]}", fontsize=9)
    return common


def _draw_scaled(axes: Axes, case: Case, values: np.ndarray, **style: Any) -> Collection | None:
    """Draw a field; where it is a curve, the limits are those of its axis."""
    if case.problem.dimension == 1:
        pad = 0.05 * (style["vmax"] - style["vmin"])
        axes.set_ylim(style["vmin"] - pad, style["vmax"] + pad)
    return draw_field(axes, case.problem, case.coords, values, **style)


def _title_times(panels: np.ndarray, case: Case, steps: list[int], channel: int) -> None:
    for panel, step in zip(panels[: len(steps)], steps, strict=True):
        time = view_of(case.problem).time_title(step)
        panel.set_title(f"{names_of(case.problem)[channel]}, {time}", fontsize=9)


def _value_limits(case: Case, channel: int) -> dict[str, Any]:
    """Colour limits of an output channel in all frames, past ones included."""
    problem, frames = case.problem, case.truth[..., channel]
    if problem.time == "rollout":
        past = case.inputs[:, channel :: problem.num_outputs].T
        frames = np.concatenate((past, frames))
    return value_limits(problem, case.coords, frames)
