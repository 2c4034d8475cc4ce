"""Errors against what is varied, on logarithmic axes."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator, PercentFormatter

from cato.viz.fields import new_figure

_LABELS = {
    "samples": "training samples",
    "resolution": "nodes per side",
    "depth": "blocks",
    "width": "channels",
}


def scaling_figure(
    panels: Mapping[str, Mapping[str, tuple[Sequence[dict[str, Any]], float]]], title: str
) -> Figure:
    """A panel for each quantity that is varied, a curve for each model.

    Args:
        panels: By quantity and model the results, with `value`, `relative_l2` and `spread`, and
            the slope of the curve.
        title: Above all.
    """
    figure, axes = new_figure(1, len(panels), (3.1 * len(panels), 3.1), title)
    for panel, (axis, curves) in zip(axes[0], panels.items(), strict=True):
        for model, (rows, slope) in curves.items():
            values, errors = ([row[name] for row in rows] for name in ("value", "relative_l2"))
            spreads = [row["spread"] for row in rows]
            known = None if None in spreads else spreads
            label = f"{model}, slope {slope:.2f}"
            panel.errorbar(values, errors, known, marker="o", markersize=4, capsize=2, label=label)
        panel.set(xscale="log", yscale="log", xlabel=_LABELS[axis])
        panel.xaxis.set_major_locator(FixedLocator(values))
        panel.xaxis.set_minor_locator(NullLocator())
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 2.5, 3, 4, 5, 7)))
        panel.yaxis.set_minor_locator(NullLocator())
        panel.yaxis.set_major_formatter(PercentFormatter(1, decimals=1))
        panel.tick_params(labelsize=7)
        panel.xaxis.label.set_size(9)
        panel.grid(alpha=0.3, linewidth=0.4)
        panel.legend(fontsize=7)
    axes[0, 0].set_ylabel("test error (relative L2)", fontsize=9)
    return figure
