"""Heat map of errors: models × benchmarks, one panel per comparison."""

import re
from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cato.benchmarks import BENCHMARKS
from cato.inference.evaluate import has_learnt
from cato.models.registry import model_class
from reproduce.experiment import OURS
from reproduce.results import Row, by_headline, setting_of, title_with_field
from reproduce.studies.compare import family, mean_ranks
from reproduce.verdicts import counted

WORST = 4.0
"""Errors of this many times the best, or more, have the last colour."""
COLOURS = colormaps["RdYlBu_r"]
GREY = "0.82"


def heatmap(comparisons: Sequence[Row]) -> Figure:
    """The error of every model on every benchmark.

    Colours are relative to the best model of each column; grey if a model is not clearly better
    than the training mean, hatched if it was not run. Models are sorted by their mean rank in the
    comparison with the most models.

    Args:
        comparisons: Contents of the results files, all of kind compare.
    """
    shown = [by_headline(results["rows"]) for results in comparisons]
    largest = max(shown, key=len)
    ranks = mean_ranks(counted(largest, OURS) or largest)
    models = sorted(ranks, key=lambda name: ranks[name])
    benchmarks = [b for b in BENCHMARKS if any(b == r["benchmark"] for r in largest)]
    size = (1.9 + len(comparisons) * (0.35 + 0.95 * len(benchmarks)), 1.6 + 0.36 * len(models))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(comparisons), squeeze=False, sharey=True)[0]
    figure.suptitle("Test error (relative L2); colour: error relative to the best of the column")
    for panel, results, rows in zip(panels, comparisons, shown, strict=True):
        _draw(panel, rows, models, benchmarks)
        protocol = "Equal epochs" if results["settings"]["minutes"] is None else "Equal time"
        setting = setting_of(results).replace("`", "")
        panel.set_title(f"{protocol}: {setting}", fontsize=10, pad=10)
    panels[0].set_yticks(range(len(models)), [model_class(name).title for name in models])
    scale = figure.colorbar(
        ScalarMappable(LogNorm(1, WORST), COLOURS),
        ax=list(panels),
        shrink=0.7,
        pad=0.01,
        ticks=[1, 1.5, 2, 3, WORST],
    )
    scale.ax.set_yticklabels(["best", "1.5 ×", "2 ×", "3 ×", f"{WORST:g} × or more"])
    scale.ax.minorticks_off()
    return figure


def _draw(panel: Axes, rows: list[Row], models: list[str], benchmarks: list[str]) -> None:
    found = {(family(row), row["benchmark"]): row for row in rows}
    norm = LogNorm(1, WORST, clip=True)
    for x, benchmark in enumerate(benchmarks):
        errors = [row["relative_l2"] for (_, b), row in found.items() if b == benchmark]
        best = min(errors, default=np.nan)
        for y, model in enumerate(models):
            row, corner = found.get((model, benchmark)), (x - 0.5, y - 0.5)
            if row is None:
                panel.add_patch(
                    Rectangle(corner, 1, 1, facecolor="0.95", edgecolor="0.8", hatch="////", lw=0)
                )
                continue
            error = row["relative_l2"]
            is_learnt = has_learnt(row)
            colour = COLOURS(norm(error / best)) if is_learnt else GREY
            panel.add_patch(Rectangle(corner, 1, 1, facecolor=colour, edgecolor="white", lw=1.2))
            luminance = np.dot(colour[:3], (0.299, 0.587, 0.114)) if is_learnt else 1.0
            text = f"{error:.1%}" if error >= 0.1 else f"{error:.2%}"
            panel.text(
                x,
                y,
                text,
                ha="center",
                va="center",
                fontsize=8.5,
                color="white" if luminance < 0.5 else "black" if is_learnt else "0.4",
                fontweight="bold" if error == best else "normal",
            )
    panel.set(xlim=(-0.5, len(benchmarks) - 0.5), ylim=(len(models) - 0.5, -0.5))
    titles = {row["benchmark"]: title_with_field(row) for row in rows}
    broken = [re.sub("[ –]", lambda m: m[0].strip() + "\n", titles[name]) for name in benchmarks]
    panel.set_xticks(range(len(benchmarks)), broken, fontsize=8.5)
    panel.tick_params(length=0, labelbottom=False, labeltop=True)
    panel.spines[:].set_visible(False)
