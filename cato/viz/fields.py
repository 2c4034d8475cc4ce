"""Drawing a nodal field of any problem into an axes."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cato.problem import Problem

SEQUENTIAL, DIVERGING, ERROR = "viridis", "RdBu_r", "magma"
MAX_ASPECT = 3
"""Domains longer than this are stretched to the panel, or nothing would be seen across them."""


def draw_field(
    axes: Axes,
    problem: Problem,
    coords: np.ndarray,
    values: np.ndarray,
    title: str,
    **style: Any,
) -> None:
    """Draw one channel with a colour bar.

    Meshes of one axis are curves, clouds are points, and of three axes the middle slice is shown.

    Args:
        axes: Where to draw.
        problem: Gives geometry and mesh shape.
        coords: (N, D).
        values: (N,).
        title: Above the picture.
        style: `cmap`, `vmin`, `vmax`.
    """
    axes.set_title(title, fontsize=9)
    if problem.dimension == 1:
        axes.plot(coords[:, 0], values)
        return
    style.setdefault("cmap", SEQUENTIAL)
    if problem.geometry == "cloud":
        picture: Any = axes.scatter(coords[:, 0], coords[:, 1], c=values, s=6, **style)
    else:
        x, y, shown = (_plane(a, problem.shape) for a in (coords[:, 0], coords[:, 1], values))
        picture = axes.pcolormesh(x, y, shown, shading="gouraud", rasterized=True, **style)
    extent = np.ptp(coords[:, :2], axis=0)
    axes.set_aspect("equal" if extent.max() < MAX_ASPECT * extent.min() else "auto")
    axes.set_xticks([])
    axes.set_yticks([])
    figure = axes.figure
    assert isinstance(figure, Figure)
    bar = figure.colorbar(picture, ax=axes, fraction=0.046, pad=0.03)
    bar.ax.tick_params(labelsize=7)
    bar.formatter.set_powerlimits((-3, 4))  # type: ignore[attr-defined]
    bar.ax.yaxis.get_offset_text().set_fontsize(7)


def _plane(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """On the mesh; of a 3-D one the middle slice of the last axis."""
    on_mesh = values.reshape(shape)
    return on_mesh if on_mesh.ndim == 2 else on_mesh[..., on_mesh.shape[-1] // 2]
