"""Drawing the nodes of any problem, and a nodal field on them, into an axes."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import Collection, LineCollection
from matplotlib.figure import Figure

from cato.benchmarks.view import Window
from cato.problem import Problem
from cato.viz.views import window_of

SEQUENTIAL, DIVERGING, ERROR = "viridis", "RdBu_r", "magma"
DPI = 110
"""Of the pictures that studies write."""
MAX_ASPECT = 3
"""Domains longer than this are stretched to the panel, or nothing would be seen across them."""
MAX_LINES = 56
"""Mesh lines drawn along each axis: more would merge into a blot."""
POINTS_AREA = 1.4e4
"""What all points of a cloud cover together, in square points of print: half a panel."""


def draw_field(
    axes: Axes,
    problem: Problem,
    coords: np.ndarray,
    values: np.ndarray,
    title: str = "",
    **style: Any,
) -> Collection | None:
    """Draw one channel.

    Meshes of one axis are curves, clouds are points, and of three axes the middle slice is shown.

    Args:
        axes: Where to draw.
        problem: Gives geometry, mesh shape and window.
        coords: (N, D).
        values: (N,).
        title: Above the picture.
        style: `cmap`, `vmin`, `vmax`.

    Returns:
        What a colour bar explains; None for curves.
    """
    axes.set_title(title, fontsize=9)
    if problem.dimension == 1:
        order = coords[:, 0].argsort()
        axes.plot(coords[order, 0], values[order], linewidth=1)
        axes.tick_params(labelsize=7)
        return None
    style.setdefault("cmap", SEQUENTIAL)
    frame_axes(axes, window_of(problem, coords))
    if problem.geometry == "cloud":
        size = np.clip(POINTS_AREA / len(coords), 0.5, 40)
        # An edge, or small errors would be white on white.
        edge: dict[str, Any] = {"edgecolors": "0.4", "linewidths": 0.15}
        return axes.scatter(coords[:, 0], coords[:, 1], c=values, s=size, **edge, **style)
    x, y, shown = (plane(a, problem.shape) for a in (coords[:, 0], coords[:, 1], values))
    # Cells show how coarse a grid is; those of a curved mesh would not end at its boundary.
    shading: Any = "nearest" if problem.geometry == "grid" else "gouraud"
    return axes.pcolormesh(x, y, shown, shading=shading, rasterized=True, **style)


def draw_nodes(axes: Axes, problem: Problem, coords: np.ndarray, title: str = "") -> None:
    """Draw the mesh or the points alone: the input of problems without input channels."""
    axes.set_title(title, fontsize=9)
    if problem.dimension == 1:
        axes.plot(coords[:, 0], np.zeros(len(coords)), "|", color="black")
        axes.set_yticks([])
        return
    frame_axes(axes, window_of(problem, coords))
    if problem.geometry == "cloud":
        size = np.clip(POINTS_AREA / len(coords), 0.5, 40) / 3
        axes.scatter(coords[:, 0], coords[:, 1], color="0.35", s=size, linewidths=0)
    else:
        draw_mesh(axes, np.stack([plane(c, problem.shape) for c in coords[:, :2].T], axis=-1))


def draw_mesh(
    axes: Axes, nodes: np.ndarray, colours: tuple[str, str] = ("0.35", "0.35"), width: float = 0.35
) -> None:
    """Draw the lines of a plane mesh, or some of them where there are many.

    Args:
        axes: Where to draw.
        nodes: (H, W, 2).
        colours: Of the lines that are fixed in the first and in the second mesh index.
        width: Of the lines.
    """
    for axis, colour in enumerate(colours):
        lines = np.moveaxis(nodes, axis, 0)
        stride = -(-(len(lines) - 1) // (MAX_LINES - 1))
        some = [*lines[:-1:stride], lines[-1]]
        axes.add_collection(LineCollection(some, colors=colour, linewidths=width))


def frame_axes(axes: Axes, window: Window) -> None:
    """Show a window of the plane, without ticks, and in true proportions unless it is long."""
    width, height = window.size
    is_long = max(width, height) > MAX_ASPECT * min(width, height)
    axes.set(xlim=(window.left, window.right), ylim=(window.bottom, window.top))
    axes.set(xticks=[], yticks=[], aspect="auto" if is_long else "equal")
    axes.spines[:].set_linewidth(0.4)


def panel_height(problem: Problem, coords: np.ndarray, width: float) -> float:
    """Height that suits a picture of the given width."""
    if problem.dimension == 1:
        return 0.75 * width
    across, up = window_of(problem, coords).size
    return width * float(np.clip(up / across, 0.5, 1.6))


def value_limits(problem: Problem, coords: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    """Colour limits of (…, N) values, of which only those in the window count."""
    shown = _shown(problem, coords, values)
    return {"vmin": float(shown.min()), "vmax": float(shown.max())}


def error_limits(problem: Problem, coords: np.ndarray, errors: np.ndarray) -> dict[str, Any]:
    """A diverging scale, symmetric about 0, for (…, N) errors."""
    size = float(np.abs(_shown(problem, coords, errors)).max()) or 1.0
    return {"vmin": -size, "vmax": size, "cmap": DIVERGING}


def _shown(problem: Problem, coords: np.ndarray, values: np.ndarray) -> np.ndarray:
    if problem.dimension == 1:
        return values
    return values[..., window_of(problem, coords).contains(coords)]


def colour_bar(
    picture: Collection | None, axes: list[Axes], label: str = "", num_rows: int = 1
) -> None:
    """One colour bar for all of `axes`, in so many rows; nothing for curves, which have scales."""
    if picture is None:
        return
    figure = axes[0].figure
    assert isinstance(figure, Figure)
    bar = figure.colorbar(picture, ax=axes, fraction=0.05, pad=0.02, aspect=22 * num_rows)
    bar.set_label(label, fontsize=8)
    bar.outline.set_linewidth(0.4)
    bar.ax.tick_params(labelsize=7, width=0.4)
    bar.formatter.set_powerlimits((-3, 4))  # type: ignore[attr-defined]
    bar.ax.yaxis.get_offset_text().set_fontsize(7)


def plane(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """On the mesh; of a 3-D one the middle slice of the last axis."""
    on_mesh = values.reshape(shape)
    return on_mesh if on_mesh.ndim == 2 else on_mesh[..., on_mesh.shape[-1] // 2]


def new_figure(
    rows: int, columns: int, size: tuple[float, float], title: str = ""
) -> tuple[Figure, np.ndarray]:
    """A figure and its (rows, columns) axes."""
    # Not through pyplot, which keeps every figure alive.
    figure = Figure(figsize=size, layout="constrained")
    if title:
        figure.suptitle(title, fontsize=10)
    return figure, figure.subplots(rows, columns, squeeze=False)


def hide_empty(axes: np.ndarray) -> None:
    """Leave axes without a drawing blank."""
    for panel in axes.flat:
        if not panel.has_data():
            panel.set_axis_off()
