"""Bubble charts of cost, as in the paper, and cost against the number of nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from cato.viz.fields import new_figure
from reproduce.figures import DPI
from reproduce.figures.labels import place_labels

COLOURS = {"cato": "tab:red", "saot": "tab:blue", "transolver": "tab:green"}
"""The models that the paper's charts compare; all others are grey."""
GREY = "0.62"
CLEAR = 5.0
"""Pixels between a name and the frame."""
AREA_PER_MILLION = 55.0
"""Square points of print for a million parameters."""


@dataclass(frozen=True)
class Bubble:
    """A model in the chart."""

    name: str
    title: str
    gflop: float
    minutes: float
    parameters: int

    @property
    def area(self) -> float:
        """In square points of print."""
        return AREA_PER_MILLION * self.parameters / 1e6


@dataclass(frozen=True)
class Curve:
    """A model's cost on growing meshes; time for the first of them only, where it grew too long."""

    name: str
    title: str
    nodes: Sequence[int]
    gflop: Sequence[float]
    seconds: Sequence[float]


def bubble_chart(bubbles: Sequence[Bubble], title: str) -> Figure:
    """Time of an epoch against operations of a forward; the area is the number of parameters."""
    figure, panels = new_figure(1, 1, (8.2, 5.6), title)
    figure.set_dpi(DPI)
    (axes,) = panels.flat
    # The paper's models last, to lie on top, but their labels first, to be the nearest.
    bubbles = sorted(bubbles, key=lambda bubble: bubble.name in COLOURS)
    for bubble in bubbles:
        axes.scatter(
            [bubble.gflop],
            [bubble.minutes],
            s=bubble.area,
            color=COLOURS.get(bubble.name, GREY),
            alpha=0.75,
            edgecolors="white",
            linewidths=0.6,
        )
    axes.set(xscale="log", yscale="log")
    axes.set(xlabel="forward of one sample (GFLOP)", ylabel="epoch on one CPU thread (min)")
    axes.margins(0.12)
    axes.grid(True, which="major", color="0.92", linewidth=0.6)
    axes.set_axisbelow(True)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_locator(NullLocator())
    for millions in (1, 5, 20):
        area = AREA_PER_MILLION * millions
        axes.scatter([], [], s=area, color=GREY, linewidths=0, label=f"{millions} M")
    figure.legend(
        title="parameters",
        loc="outside right center",
        frameon=False,
        labelspacing=2.4,
        handletextpad=1.6,
        borderpad=1.6,
        fontsize=8,
    )
    _label(figure, axes, bubbles[::-1])
    return figure


def _label(figure: Figure, axes: Axes, bubbles: Sequence[Bubble]) -> None:
    """Names next to the bubbles, with a line to those that had to go further away."""
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # what is measured now must not move any more
    to_pixels, pixels_per_point = axes.transData, figure.dpi / 72
    texts = [
        axes.text(
            b.gflop,
            b.minutes,
            b.title,
            fontsize=9 if b.name in COLOURS else 8,
            fontweight="bold" if b.name in COLOURS else "normal",
            color=COLOURS.get(b.name, "0.3"),
            ha="center",
            va="center",
        )
        for b in bubbles
    ]
    extents = [text.get_window_extent() for text in texts]
    centres = to_pixels.transform([(b.gflop, b.minutes) for b in bubbles])
    radii = [sqrt(b.area / np.pi) * pixels_per_point for b in bubbles]
    marks = [(float(x), float(y), r) for (x, y), r in zip(centres, radii, strict=True)]
    left, bottom, right, top = axes.get_window_extent().extents
    frame = left + CLEAR, bottom + CLEAR, right - CLEAR, top - CLEAR
    boxes = place_labels(marks, [(e.width, e.height) for e in extents], frame)
    for text, box, (x, y, radius) in zip(texts, boxes, marks, strict=True):
        middle = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        text.set_position(tuple(to_pixels.inverted().transform(middle)))
        near = np.clip(x, box[0], box[2]), np.clip(y, box[1], box[3])
        away = float(np.hypot(near[0] - x, near[1] - y))
        if away > radius + 12:
            start = x + (near[0] - x) * radius / away, y + (near[1] - y) * radius / away
            ends = to_pixels.inverted().transform([start, near])
            axes.plot(*ends.T, color="0.6", linewidth=0.6, zorder=1)


def growth_chart(curves: Sequence[Curve], title: str) -> Figure:
    """Operations and time of a forward against the number of nodes."""
    figure, panels = new_figure(1, 2, (11.0, 5.0), title)
    left, right = panels.flat
    for number, curve in enumerate(curves):
        style = _style(curve, number)
        left.loglog(curve.nodes, curve.gflop, label=curve.title, **style)
        timed = curve.nodes[: len(curve.seconds)]
        right.loglog(timed, curve.seconds, **style)
    left.set(xlabel="nodes", ylabel="forward of one sample (GFLOP)")
    right.set(xlabel="nodes", ylabel="forward of one sample (s, one CPU thread)")
    sizes = sorted({n for curve in curves for n in curve.nodes})
    shown = _spaced(sizes)
    for panel in (left, right):
        panel.set_xticks(shown, [f"{round(sqrt(n))}²" for n in shown])
        panel.set_xticks([], minor=True)
        panel.grid(True, color="0.92", linewidth=0.6)
        _guides(panel, sizes[0], sizes[-1])
    figure.legend(loc="outside right center", frameon=False, fontsize=8)
    return figure


def _style(curve: Curve, number: int) -> dict[str, Any]:
    if curve.name in COLOURS:
        return {"color": COLOURS[curve.name], "linewidth": 2.2, "marker": "o", "ms": 5, "zorder": 4}
    if "attention" in curve.name:
        dash = "--" if curve.name.startswith("axial") else ":"
        return {"color": "black", "linewidth": 1.8, "linestyle": dash, "marker": "s", "ms": 4}
    return {
        "color": colormaps["tab20"]((2 * number) % 20 + number // 10 % 2),  # the strong ones first
        "linewidth": 0.9,
        "alpha": 0.75,
        "marker": "v^<>Dxp*"[number % 8],
        "ms": 4,
    }


def _spaced(sizes: Sequence[int]) -> list[int]:
    """Some of the ascending sizes, the last one among them, each at least twice the next below."""
    shown = [sizes[-1]]
    for size in reversed(sizes):
        if shown[0] >= 2 * size:
            shown.insert(0, size)
    return shown


def _guides(panel: Axes, first: int, last: int) -> None:
    """Slopes 1, 3/2 and 2 from one point, at the lower edge."""
    low, high = panel.get_ylim()
    at = low * 1.3
    for slope, name in ((1.0, "$N$"), (1.5, "$N^{3/2}$"), (2.0, "$N^2$")):
        end = min(last, first * (high / at) ** (1 / slope))
        tip = at * (end / first) ** slope
        panel.plot([first, end], [at, tip], color="0.75", linewidth=0.8, zorder=0)
        style: dict[str, Any] = {"va": "center", "color": "0.3", "fontsize": 8, "zorder": 6}
        style["path_effects"] = [withStroke(linewidth=2.5, foreground="white")]
        panel.annotate(name, (end, tip), (4, -5), textcoords="offset points", **style)
    panel.set_xlim(right=1.9 * last)  # room for the names
    panel.set_ylim(low, high)
