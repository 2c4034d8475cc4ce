"""Several models on one sample (paper, figure "Visual comparison"), all on the same colour scales.

Steady problems: truth and predictions above, errors below. Problems in time: a row for the truth
and for each model, then one for each error. Deformed meshes: as steady ones, at two times. What
rolls out also moves, in a GIF.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.animation import PillowWriter
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.figure import Figure

from cato.benchmarks import view_of
from cato.benchmarks.view import is_deformed
from cato.files import atomic_write
from cato.inference.evaluate import NOT_LEARNT
from cato.viz.fields import (
    ERROR,
    colour_bar,
    draw_field,
    error_limits,
    evenly_spread,
    hide_empty,
    new_figure,
    output_names,
    panel_height,
    value_limits,
)
from cato.viz.figures import (
    Case,
    Deformation,
    deformed_height,
    deformed_window,
    draw_input,
    draw_mesh_at,
    draw_rest,
    with_unit,
)

NUM_TIMES = 5
"""Columns of a strip."""
NUM_DEFORMED = 2
"""Times at which deformed meshes are shown, the last included."""
FRAMES_PER_SECOND = 2
ANIMATION_DPI = 80


class Answer(NamedTuple):
    """What a model makes of the sample that all models are shown on."""

    name: str
    case: Case
    error: float
    """Relative L2 error."""
    is_learnt: bool = True
    """Whether the model is better than the training mean."""

    @property
    def title(self) -> str:
        """Name and error, and whether it says anything."""
        return f"{self.name}, error {self.error:.2%}{self.remark}"

    @property
    def remark(self) -> str:
        return "" if self.is_learnt else f"\n{NOT_LEARNT}"

    @property
    def frame_errors(self) -> np.ndarray:
        """Relative L2 error of every frame."""
        axes = (1, 2)
        apart = np.sqrt(np.square(self.case.prediction - self.case.truth).sum(axes))
        return apart / np.sqrt(np.square(self.case.truth).sum(axes))


def gallery_figure(answers: Sequence[Answer], title: str = "") -> Figure:
    """The answers of several models to one sample of a plane problem."""
    problem = answers[0].case.problem
    assert problem.dimension == 2
    if is_deformed(problem):
        return _deformed(answers, title)
    if problem.time != "steady":
        return _strips(answers, title)
    return _steady(answers, title)


def _steady(answers: Sequence[Answer], title: str) -> Figure:
    """For each output, a row of values and one of errors; the input where there is room."""
    case = answers[0].case
    problem, coords = case.problem, case.coords
    num_columns, num_rows = len(answers) + 1, 2 * problem.num_outputs
    height = panel_height(problem, coords, 9.8 / num_columns) + 0.3
    figure, axes = new_figure(num_rows, num_columns, (11.6, num_rows * height + 0.3), title)
    for channel, name in enumerate(output_names(problem)):
        values, errors = axes[2 * channel], axes[2 * channel + 1]
        drawn, apart = _draw_frame(values, errors[1:], answers, 0, channel)
        colour_bar(drawn[0], list(values), name)
        colour_bar(apart[0], list(errors[1:]), f"error of {name}")
        values[0].set_title("truth", fontsize=9)
        for panel, answer in zip(values[1:], answers, strict=True):
            panel.set_title(answer.title, fontsize=9)
    draw_input(axes[1, 0], case)
    hide_empty(axes)
    return figure


def _draw_frame(
    values: np.ndarray, errors: np.ndarray, answers: Sequence[Answer], step: int, channel: int
) -> tuple[list[Collection | None], list[Collection | None]]:
    """Truth and predictions of one frame, and their errors, in the colours of all frames."""
    case = answers[0].case
    limits, scale = _limits(answers, channel), _error_limits(answers, channel)

    def draw(panel: Axes, field: np.ndarray, style: dict[str, Any]) -> Collection | None:
        return draw_field(panel, case.problem, case.coords, field[step, :, channel], **style)

    fields = [case.truth, *(answer.case.prediction for answer in answers)]
    apart = [answer.case.prediction - case.truth for answer in answers]
    return (
        [draw(panel, field, limits) for panel, field in zip(values, fields, strict=True)],
        [draw(panel, field, scale) for panel, field in zip(errors, apart, strict=True)],
    )


def _strips(answers: Sequence[Answer], title: str) -> Figure:
    """Columns of times; the error of each frame stands above its error map."""
    case = answers[0].case
    problem = case.problem
    steps = evenly_spread(problem.num_steps, NUM_TIMES)
    num_values, num_rows = len(answers) + 1, 2 * len(answers) + 1
    height = panel_height(problem, case.coords, 1.5) + 0.2
    num_all = num_rows * problem.num_outputs
    figure, axes = new_figure(num_all, len(steps), (9.4, num_all * height + 0.4), title)
    for channel, name in enumerate(output_names(problem)):
        rows = axes[channel * num_rows : (channel + 1) * num_rows]
        values, errors = rows[:num_values], rows[num_values:]
        for column, step in enumerate(steps):
            drawn, apart = _draw_frame(values[:, column], errors[:, column], answers, step, channel)
            time = view_of(problem).time_title(step)
            values[0, column].set_title(f"{name}, {time}", fontsize=9)
            for panel, answer in zip(errors[:, column], answers, strict=True):
                panel.set_title(f"{answer.frame_errors[step]:.2%}", fontsize=8)
        colour_bar(drawn[0], list(values.flat), name, num_values)
        colour_bar(apart[0], list(errors.flat), f"error of {name}", len(answers))
        values[0, 0].set_ylabel("truth", fontsize=9)
        for answer, above, below in zip(answers, values[1:, 0], errors[:, 0], strict=True):
            above.set_ylabel(answer.name, fontsize=9)
            below.set_ylabel(f"{answer.name}\nerror {answer.error:.2%}{answer.remark}", fontsize=9)
    return figure


def _deformed(answers: Sequence[Answer], title: str) -> Figure:
    """At some times the deformed meshes, below them how far nodes are from where they should be."""
    case = answers[0].case
    truth = Deformation(case, case.truth)
    moves = [truth, *(Deformation(case, answer.case.prediction) for answer in answers)]
    distances = [np.linalg.norm(move.positions - truth.positions, axis=-1) for move in moves[1:]]
    window = deformed_window(case)
    limits = {"vmin": 0.0, "vmax": float(truth.moved.max())}
    scale = {"vmin": 0.0, "vmax": float(np.max(distances)) or 1.0, "cmap": ERROR}
    steps = evenly_spread(case.problem.num_steps, NUM_DEFORMED + 1)[-NUM_DEFORMED:]
    num_columns = len(moves)
    size = (11.6, 2 * len(steps) * (deformed_height(window, 10.4 / num_columns) + 0.12) + 0.5)
    figure, axes = new_figure(2 * len(steps), num_columns, size, title)
    for step, values, errors in zip(steps, axes[::2], axes[1::2], strict=True):
        for panel, move in zip(values, moves, strict=True):
            nodes, moved = move.positions[step], move.moved[step]
            drawn = draw_mesh_at(panel, case, window, step, nodes, moved, **limits)
        for panel, distance in zip(errors[1:], distances, strict=True):
            nodes = truth.positions[step]
            apart = draw_mesh_at(panel, case, window, step, nodes, distance[step], **scale)
        values[0].set_ylabel(view_of(case.problem).time_title(step), fontsize=9)
        colour_bar(drawn, list(values), with_unit(case, "moved"))
        colour_bar(apart, list(errors[1:]), with_unit(case, "off by"))
    draw_rest(axes[1, 0], case, window, fontsize=8)
    axes[0, 0].set_title("truth", fontsize=9)
    for panel, answer in zip(axes[0, 1:], answers, strict=True):
        panel.set_title(answer.title, fontsize=9)
    hide_empty(axes)
    return figure


def gallery_animation(answers: Sequence[Answer], path: Path, title: str = "") -> None:
    """A GIF of the first output, a frame for each step: as `_steady`, with the errors in time."""
    case = answers[0].case
    problem, view = case.problem, view_of(case.problem)
    assert problem.dimension == 2
    height = 2 * panel_height(problem, case.coords, 8.2 / (len(answers) + 1)) + 1.1
    figure, axes = new_figure(2, len(answers) + 1, (9.6, height), title)
    drawn, apart = _draw_frame(axes[0], axes[1, 1:], answers, 0, 0)
    colour_bar(drawn[0], list(axes[0]), output_names(problem)[0])
    colour_bar(apart[0], list(axes[1, 1:]), "error")
    times = np.array([view.time(step) for step in range(problem.num_steps)])
    for answer, panel in zip(answers, axes[0, 1:], strict=True):
        panel.set_title(answer.title, fontsize=9)
        axes[1, 0].plot(times, 100 * answer.frame_errors, label=answer.name)
    axes[1, 0].set_xlabel(view.time_label, fontsize=8)
    axes[1, 0].set_ylabel("error of the frame (%)", fontsize=8)
    axes[1, 0].tick_params(labelsize=7)
    axes[1, 0].legend(fontsize=7, frameon=False)
    now = axes[1, 0].axvline(times[0], color="0.5", linewidth=0.8)
    axes[0, 0].set_title(f"truth, {view.time_title(problem.num_steps - 1)}", fontsize=9)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # or the panels would tremble
    fields = [case.truth, *(answer.case.prediction for answer in answers)]
    fields += [answer.case.prediction - case.truth for answer in answers]
    with atomic_write(path) as temporary:
        writer = PillowWriter(FRAMES_PER_SECOND)
        # Pillow tells the format by the name, which a temporary file does not have.
        moving = temporary.with_suffix(".gif")
        with writer.saving(figure, moving, ANIMATION_DPI):
            for step, time in enumerate(times):
                for picture, field in zip([*drawn, *apart], fields, strict=True):
                    assert picture is not None
                    shown = picture.get_array()
                    assert shown is not None
                    picture.set_array(field[step, :, 0].reshape(shown.shape))
                now.set_xdata([time, time])
                axes[0, 0].set_title(f"truth, {view.time_title(step)}", fontsize=9)
                writer.grab_frame()
        moving.replace(temporary)


def _limits(answers: Sequence[Answer], channel: int) -> dict[str, Any]:
    """Colours of the truth in all frames; predictions are drawn in the same."""
    case = answers[0].case
    return value_limits(case.problem, case.coords, case.truth[..., channel])


def _error_limits(answers: Sequence[Answer], channel: int) -> dict[str, Any]:
    """Colours for the errors of all models in all frames."""
    case = answers[0].case
    apart = np.stack([(answer.case.prediction - case.truth)[..., channel] for answer in answers])
    return error_limits(case.problem, case.coords, apart)
