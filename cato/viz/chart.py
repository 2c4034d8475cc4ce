"""Figures of a model's chart next to the physical grid."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from cato.benchmarks.view import Window
from cato.data.dataset import Dataset
from cato.problem import Problem
from cato.surrogate import Surrogate
from cato.viz.fields import draw_mesh, new_figure, window_of

KINDS: dict[str, str] = {
    "learned": "which was trained with the rest of the model",
    "normalised": "each sample's bounding box scaled to [−1, 1]",
    "raw": "the coordinates as the model gets them",
}
"""Descriptions of the kinds of charts."""
COLOURS = ("tab:blue", "tab:orange")
"""Colours of the grid lines along which the first and the second mesh index is fixed."""


class Space(NamedTuple):
    """The nodes of a sample in one space, as one panel of a figure."""

    title: str
    nodes: np.ndarray  # (N, 2).
    window: Window
    symbols: tuple[str, str] = ("ξ", "η")
    segments: np.ndarray | None = None
    """Line segments to draw on top, such as principal axes, (K, 2 ends, 2)."""


def chart_figure(surrogate: Surrogate, data: Dataset, index: int = 0) -> Figure | None:
    """The nodes of a sample in the plane and in the chart; None for models without a chart."""
    problem = data.problem
    if surrogate.chart_kind is None or problem.dimension != 2:
        return None
    batch = data.batch([index])
    # Without padding: the normalised chart depends on all points it gets.
    coords = batch.coords if batch.mask is None else batch.coords[:, batch.mask[0]]
    zeta = surrogate.charted(coords.to(surrogate.device))
    assert zeta is not None
    nodes, charted = coords[0].numpy(), zeta[0].cpu().numpy()
    physical = "physical points" if problem.geometry == "cloud" else "physical grid"
    spaces = [
        Space(physical, nodes, window_of(problem, nodes), ("x", "y")),
        Space(f"{surrogate.chart_kind} chart", charted, Window.around(charted)),
    ]
    return spaces_figure(problem, spaces)


def describe_chart(surrogate: Surrogate) -> str:
    """A sentence on the kind of chart, and on its use in CATO (meshes) or CATO-PC (clouds)."""
    kind = surrogate.chart_kind
    assert kind is not None
    chart = f"the {kind} chart, {KINDS[kind]}"
    if surrogate.problem.geometry == "cloud":
        return (
            f"In addition to the coordinates, the lift and the messages between points use {chart}."
        )
    return f"Attention measures distance in {chart}."


def spaces_figure(
    problem: Problem,
    spaces: Sequence[Space],
    title: str = "",
    in_proportion: bool = False,
) -> Figure:
    """The same nodes in several spaces, one panel each; clouds are coloured by their first x.

    With `in_proportion` panels have true proportions, in squares around their windows.
    """
    figure, axes = new_figure(1, len(spaces), (4.0 * len(spaces), 4.5 if title else 3.9), title)
    for panel, space in zip(axes.flat, spaces, strict=True):
        _draw_grid(panel, problem, space.nodes, spaces[0].nodes[:, 0])
        if space.segments is not None:
            for width, colour in ((3.6, "white"), (1.8, "black")):
                lines = LineCollection(list(space.segments), colors=colour, linewidths=width)
                lines.set_zorder(5)
                panel.add_collection(lines)
        panel.set_title(space.title, fontsize=9)
        panel.set(xlabel=space.symbols[0], ylabel=space.symbols[1])
        _show(panel, _square(space.window) if in_proportion else space.window)
        panel.set_aspect("equal" if in_proportion else "auto")
    return figure


def _draw_grid(axes: Axes, problem: Problem, nodes: np.ndarray, colour: np.ndarray) -> None:
    """Mesh lines, or the points of a cloud with the same colours in all panels."""
    if problem.geometry == "cloud":
        axes.scatter(nodes[:, 0], nodes[:, 1], c=colour, s=5)
    else:
        draw_mesh(axes, nodes.reshape(*problem.shape, 2), COLOURS, width=0.6)


def _show(axes: Axes, window: Window) -> None:
    axes.set(xlim=(window.left, window.right), ylim=(window.bottom, window.top))


def _square(window: Window) -> Window:
    """The smallest square with the same centre that contains a window."""
    x, y, half = window.left + window.right, window.bottom + window.top, max(window.size) / 2
    return Window(x / 2 - half, x / 2 + half, y / 2 - half, y / 2 + half)
