"""The figures of `python -m reproduce theory`, each drawn from its part of the results."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cato.viz.fields import new_figure


def draw_realisation(rows: list[dict[str, Any]], products: list[dict[str, float]]) -> Figure:
    """Lemma 1: error of the networks against the width, and of a product against its step."""
    figure, axes = new_figure(1, 2, (9.0, 3.8))
    left, right = axes.flat
    for number, rank in enumerate(dict.fromkeys(row["rank"] for row in rows)):
        colour = f"C{number}"
        some = [row for row in rows if row["rank"] == rank]
        widths = [row["width"] for row in some]
        errors = np.array([row["errors"] for row in some])
        bounds = np.array([row["bounds"] for row in some])
        middle = np.median(errors, axis=1)
        left.loglog(widths, middle, "o-", color=colour, label=f"$R_ξ = R_η = {rank}$: found")
        left.loglog(widths, errors, ".", color=colour, alpha=0.5, markersize=4)
        left.loglog(widths, np.median(bounds, axis=1), "--", color=colour, label="upper estimate")
    _ticks(left, widths)
    left.set(xlabel="width $C$", ylabel="sup $‖N(f) − T_ζ f‖$ over $‖f‖ ≤ 1$")
    left.set_title("Lemma 1 in the real module", fontsize=9)
    left.legend(frameon=False, fontsize=7)
    steps = np.array([row["step"] for row in products])
    right.loglog(steps, [row["error"] for row in products], "o-", label="found")
    right.loglog(steps, 2 / 3 * steps**2, "--", color="black", label="bound $2h²/3$")
    _ticks(right, steps.tolist())
    right.set(xlabel="step $h$", ylabel="largest relative error of $p u$")
    right.set_title("product of four GELU units, $|p|, |u| ≤ 1$", fontsize=9)
    right.legend(frameon=False, fontsize=8)
    return figure


def _ticks(axes: Axes, values: list[float]) -> None:
    """Exactly these on the logarithmic axis."""
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.set_xticks([], minor=True)


def draw_stability(stability: dict[str, Any]) -> Figure:
    """Lemma 2: change of the operator over its bound, by kind and size of the displacement."""
    figure, axes = new_figure(1, 1, (7.0, 3.8))
    (panel,) = axes.flat
    rows = stability["rows"]
    kinds = list(dict.fromkeys(row["displacement"] for row in rows))
    deltas = sorted({row["delta"] for row in rows})
    for row in rows:
        kind = kinds.index(row["displacement"])
        place = deltas.index(row["delta"]) + 0.22 * (kind - (len(kinds) - 1) / 2)
        names = ("whislo", "q1", "med", "q3", "whishi")
        box = dict(zip(names, row["worst_f"], strict=True))
        colour = f"C{kind}"
        lines = {"color": colour, "linewidth": 1.0}
        panel.bxp(
            [box],
            positions=[place],
            widths=0.16,
            showfliers=False,
            patch_artist=True,
            boxprops={"facecolor": colour, "alpha": 0.4, "edgecolor": colour},
            medianprops={"color": "black"},
            whiskerprops=lines,
            capprops=lines,
            manage_ticks=False,
        )
    for number, kind in enumerate(kinds):
        panel.plot([], [], "s", color=f"C{number}", alpha=0.6, label=f"moved: {kind}")
    ratios = {row["delta"]: row["ratio"] for row in stability["sharp"]}
    panel.plot(
        range(len(deltas)), [ratios[d] for d in deltas], "*", color="black", label="sharp example"
    )
    panel.axhline(1, color="tab:red", linewidth=1, label="bound")
    panel.set_xticks(range(len(deltas)), [f"{delta:g}" for delta in deltas])
    panel.set(xlabel="displacement δ; of chart weights: noise relative to them", ylim=(0, 1.08))
    panel.set_ylabel("$‖T_{\\hat ζ} − T_ζ‖ / (C_{chart}\\, δ)$")
    panel.set_title("Lemma 2 (box: quartiles; whiskers: all draws)", fontsize=9)
    figure.legend(frameon=False, fontsize=8, loc="outside right center")
    return figure


def draw_theorem(theorem: dict[str, Any]) -> Figure:
    """Theorem 1: error against the displacement for each remainder, with its bound."""
    figure, axes = new_figure(1, 1, (7.0, 3.8))
    (panel,) = axes.flat
    rows = theorem["rows"]
    sizes = list(dict.fromkeys(row["remainder"] for row in rows))
    for number, size in enumerate(sizes):
        colour = f"C{number}"
        some = [row for row in rows if row["remainder"] == size]
        moved = [row for row in some if row["delta"] > 0]
        deltas = [row["delta"] for row in moved]
        found = [row["measured"] for row in moved]
        panel.loglog(deltas, found, "o-", color=colour, label=f"$ε_{{rk}} = {size:g}$: found")
        bounds = [sum(row["terms"]) for row in moved]
        panel.loglog(deltas, bounds, "--", color=colour, label="bound")
        at_rest = next(row["measured"] for row in some if row["delta"] == 0)
        panel.axhline(at_rest, linestyle=":", color=colour, label="lift fitted to ζ itself")
    panel.set(xlabel="displacement δ of the chart", ylabel="sup $‖N(f) − G f‖$ over $‖f‖ ≤ 1$")
    panel.set_title("Theorem 1", fontsize=9)
    figure.legend(frameon=False, fontsize=8, loc="outside right center")
    return figure
