"""Drawing the nodes of any problem, and a nodal field on them, into an axes."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import Collection, LineCollection
from matplotlib.figure import Figure

from cato.benchmarks import view_of
from cato.benchmarks.view import Window
from cato.problem import Problem

SEQUENTIAL, DIVERGING, ERROR = "viridis", "RdBu_r", "magma"
NOTHING = "0.85"  # Colour of nodes without values.
MAX_ASPECT = 3  # Domains longer than this are stretched to the panel.
MAX_LINES = 56  # Mesh lines drawn along each axis: more would merge.
POINTS_AREA = 1.4e4  # Area of all points of a cloud together, in square points: half a panel.


def output_names(problem: Problem) -> list[str]:
    """The names of the outputs in figures."""
    known = view_of(problem).names
    return [known.get(name, name) for name in problem.outputs]


def window_of(problem: Problem, coords: np.ndarray) -> Window:
    """The part of the plane to show: the window of the view, or all of the (N, D) nodes."""
    window = view_of(problem).window if problem.dimension == 2 else None
    return window or Window.around(coords)


def evenly_spread(count: int, most: int) -> list[int]:
    """At most `most` of `count` indices, evenly spread, including both ends."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist()


def draw_field(
    axes: Axes,
    problem: Problem,
    coords: np.ndarray,
    values: np.ndarray,
    title: str = "",
    **style: Any,
) -> Collection | None:
    """Draw (N,) values at (N, D) nodes, `style` being `cmap`, `vmin` and `vmax`.

    Meshes of one axis are drawn as curves, clouds as points, of three axes as the middle slice.
    Returns the picture to attach a colour bar to; None for curves.
    """
    axes.set_title(title, fontsize=9)
    if problem.dimension == 1:
        order = coords[:, 0].argsort()
        axes.plot(coords[order, 0], values[order], linewidth=1)
        axes.tick_params(labelsize=7)
        return None
    style.setdefault("cmap", SEQUENTIAL)
    _show_domain(axes, problem, coords)
    if np.isnan(values).any():
        axes.set_facecolor(NOTHING)
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
    """Draw the mesh or the points: the input of problems without input channels."""
    axes.set_title(title, fontsize=9)
    if problem.dimension == 1:
        axes.plot(coords[:, 0], np.zeros(len(coords)), "|", color="black")
        axes.set_yticks([])
        return
    _show_domain(axes, problem, coords)
    if problem.geometry == "cloud":
        size = np.clip(POINTS_AREA / len(coords), 0.5, 40) / 3
        axes.scatter(coords[:, 0], coords[:, 1], color="0.35", s=size, linewidths=0)
    else:
        draw_mesh(axes, np.stack([plane(c, problem.shape) for c in coords[:, :2].T], axis=-1))


def draw_mesh(
    axes: Axes, nodes: np.ndarray, colours: tuple[str, str] = ("0.35", "0.35"), width: float = 0.35
) -> None:
    """Draw the lines of a plane mesh of (H, W, 2) nodes, or some of them if there are many.

    The colours are those of the lines along which the first and the second mesh index is fixed.
    """
    for axis, colour in enumerate(colours):
        lines = np.moveaxis(nodes, axis, 0)
        stride = -(-(len(lines) - 1) // (MAX_LINES - 1))
        some = [*lines[:-1:stride], lines[-1]]
        axes.add_collection(LineCollection(some, colors=colour, linewidths=width))


def show_window(axes: Axes, window: Window, aspect: str = "equal") -> None:
    """Show a window of the plane, without ticks."""
    axes.set(xlim=(window.left, window.right), ylim=(window.bottom, window.top), aspect=aspect)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_linewidth(0.4)


def _show_domain(axes: Axes, problem: Problem, coords: np.ndarray) -> None:
    """Show the problem's window, in true proportions unless it is long."""
    window = window_of(problem, coords)
    width, height = window.size
    is_long = max(width, height) > MAX_ASPECT * min(width, height)
    show_window(axes, window, "auto" if is_long else "equal")


def panel_height(problem: Problem, coords: np.ndarray, width: float) -> float:
    """Height of a panel of the given width."""
    if problem.dimension == 1:
        return 0.75 * width
    across, up = window_of(problem, coords).size
    return width * float(np.clip(up / across, 0.5, 1.6))


def value_limits(problem: Problem, coords: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    """Colour limits of those of the (…, N) values that are in the window."""
    shown = _shown(problem, coords, values)
    known = shown[np.isfinite(shown)] if np.isfinite(shown).any() else np.zeros(1)
    return {"vmin": float(known.min()), "vmax": float(known.max())}


def error_limits(problem: Problem, coords: np.ndarray, errors: np.ndarray) -> dict[str, Any]:
    """A diverging colour scale for (…, N) errors, symmetric about 0."""
    size = float(np.nan_to_num(np.abs(_shown(problem, coords, errors))).max()) or 1.0
    return {"vmin": -size, "vmax": size, "cmap": DIVERGING}


def _shown(problem: Problem, coords: np.ndarray, values: np.ndarray) -> np.ndarray:
    if problem.dimension == 1:
        return values
    return values[..., window_of(problem, coords).contains(coords)]


def colour_bar(
    picture: Collection | None, axes: list[Axes], label: str = "", num_rows: int = 1
) -> None:
    """One colour bar for `axes` in `num_rows` rows; none for curves, which have scales."""
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
    """Values on the mesh; of a 3-D mesh the middle slice of the last axis."""
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
    """Hide the frames of axes without a drawing."""
    for panel in axes.flat:
        if not panel.has_data():
            panel.set_axis_off()
