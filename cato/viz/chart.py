"""The learned chart of a model beside the physical grid."""

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cato.data.dataset import Dataset
from cato.problem import Problem
from cato.surrogate import Surrogate
from cato.viz.fields import draw_mesh, new_figure
from cato.viz.views import Window, window_of

COLOURS = ("tab:blue", "tab:orange")
"""Of the grid lines that are fixed in the first and in the second mesh index."""


def chart_figure(surrogate: Surrogate, data: Dataset, index: int = 0) -> Figure | None:
    """The physical grid of a sample beside the learned chart; None for models without a chart."""
    problem = data.problem
    chart = getattr(surrogate.model, "chart", None)
    if chart is None or problem.dimension != 2:
        return None
    batch = data.batch([index])
    with torch.no_grad():
        zeta = chart(surrogate.normaliser.encode_coords(batch.coords.to(surrogate.device)))[0]
    kept = slice(None) if batch.mask is None else batch.mask[0]
    nodes, charted = batch.coords[0, kept].numpy(), zeta.cpu()[kept].numpy()
    figure, axes = new_figure(1, 2, (8.0, 3.9))
    left, right = axes.flat
    _draw_grid(left, problem, nodes, nodes[:, 0])
    left.set(title="physical grid", xlabel="x", ylabel="y")
    _show(left, window_of(problem, nodes))
    _draw_grid(right, problem, charted, nodes[:, 0])
    right.set(title="learned chart", xlabel="ξ", ylabel="η")
    _show(right, Window.around(charted))
    return figure


def _draw_grid(axes: Axes, problem: Problem, nodes: np.ndarray, colour: np.ndarray) -> None:
    """Mesh lines; the points of a cloud, which has none, coloured alike in both pictures."""
    if problem.geometry == "cloud":
        axes.scatter(nodes[:, 0], nodes[:, 1], c=colour, s=5)
    else:
        draw_mesh(axes, nodes.reshape(*problem.shape, 2), COLOURS, width=0.6)


def _show(axes: Axes, window: Window) -> None:
    axes.set(xlim=(window.left, window.right), ylim=(window.bottom, window.top))
