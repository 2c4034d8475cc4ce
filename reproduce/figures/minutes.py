"""Error against training minutes, on logarithmic axes, with the fitted power laws."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator, PercentFormatter

from cato.benchmarks import get_benchmark
from cato.models.registry import MODELS
from cato.viz.fields import new_figure
from reproduce.curves import Curve
from reproduce.experiment import OURS
from reproduce.figures.efficiency import COLOURS
from reproduce.results import seeds_of

OTHERS = [colormaps["tab20"](number) for number in (2, 8, 10, 12, 14, 16, 18, 3, 9, 11, 13, 15, 17)]
"""Colours of all models but those of the paper's charts: the strong ones first."""


def minutes_figure(curves: Sequence[Curve], benchmark: str, settings: Mapping[str, Any]) -> Figure:
    """A curve for each model; where three times or more are known, its law.

    The 95 % interval of a law is drawn if it is extrapolated, or follows from several seeds: those
    of single seeds and few times would hide all else.

    Args:
        curves: The models, best first.
        benchmark: Name of the benchmark.
        settings: Of the results file; `extrapolate` says how far the laws are drawn, dashed
            beyond the measured times.
    """
    what = f"{get_benchmark(benchmark).title}, scale {settings['scale']}, {seeds_of(settings)}"
    figure, axes = new_figure(1, 1, (7.6, 4.6), what)
    (panel,) = axes.flat
    budgets = [row["budget"] for row in curves[0].rows]
    until = settings.get("extrapolate")
    for curve in curves:
        _draw(panel, curve, budgets, until)
    panel.set(xscale="log", yscale="log", xlabel="training on one CPU thread (min)")
    panel.set_ylabel(f"test error (relative L2){', ' + curves[0].field if curves[0].field else ''}")
    panel.set_ylim(*_limits(curves, until))
    panel.xaxis.set_major_locator(FixedLocator([*budgets, until] if until else budgets))
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    panel.yaxis.set_major_formatter(PercentFormatter(1))
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_minor_locator(NullLocator())
    panel.grid(alpha=0.3, linewidth=0.4)
    title = "model: exponent" if any(curve.law for curve in curves) else "model"
    figure.legend(title=title, loc="outside right upper", frameon=False, fontsize=8)
    return figure


def colour_of(model: str) -> Any:
    """The colour of a model, whichever others are shown."""
    others = [name for name in MODELS if name not in (*COLOURS, *OURS)]
    return OTHERS[others.index(model)] if model in others else COLOURS.get(model, COLOURS["cato"])


def _draw(panel: Axes, curve: Curve, budgets: Sequence[float], until: float | None) -> None:
    errors, spreads = ([row[name] for row in curve.rows] for name in ("relative_l2", "spread"))
    colour, is_ours = colour_of(curve.model), curve.model in OURS
    style: dict[str, Any] = {"color": colour, "linewidth": 2.2 if is_ours else 1.2}
    style["zorder"] = 4 if is_ours else 3
    law = curve.law
    label = curve.title if law is None else f"{curve.title}: {law.exponent:.2f}"
    line = "-" if law is None else "none"
    known = None if None in spreads else spreads
    panel.errorbar(
        budgets, errors, known, marker="o", ms=5, capsize=2, linestyle=line, label=label, **style
    )
    if law is None:
        return
    first, last, end = budgets[0], budgets[-1], until or budgets[-1]
    panel.plot([first, last], [law.error(first), law.error(last)], "-", **style)
    panel.plot([last, end], [law.error(last), law.error(end)], "--", **style)
    if until is not None or known is not None:
        x = np.geomspace(first, end)
        low, high = zip(*map(law.interval, x), strict=True)
        panel.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)


def _limits(curves: Sequence[Curve], until: float | None) -> tuple[float, float]:
    """By errors and laws; intervals may leave the picture."""
    shown = [row["relative_l2"] for curve in curves for row in curve.rows]
    if until is not None:
        shown += [curve.law.error(until) for curve in curves if curve.law is not None]
    finite = [error for error in shown if np.isfinite(error)]
    return min(finite) / 1.25, max(finite) * 1.25
