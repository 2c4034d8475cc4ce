"""The paper's theory executed: Definition 1, Lemmas 1 and 2, Theorem 1.

The mathematics is in `reproduce.theory`: operators, Lemma 1's weights in the real module, error
measures and the experiments.
"""

from pathlib import Path
from typing import Any

import numpy as np

from reproduce.experiment import Experiment
from reproduce.figures import save_figure
from reproduce.figures.theory import draw_realisation, draw_stability, draw_theorem
from reproduce.results import Row, log_slope, measured_now, rows_of
from reproduce.theory import experiments

SUMMARY = ("realisation", ("rank", "width", "errors", "bounds"))


def run(experiment: Experiment) -> Row:
    """Carry out all experiments; the seed is that of operators, charts, features and fields."""
    (seed,) = experiment.seeds
    settings = {
        "seed": seed,
        "shape": list(experiments.SHAPE),
        "small_shape": list(experiments.SMALL_SHAPE),
        "radius": experiments.RADIUS,
        "operators": experiments.NUM_OPERATORS,
        "sharp_rank": experiments.SHARP_RANK,
        "theorem_width": experiments.THEOREM_WIDTH,
        "theorem_rank": experiments.THEOREM_RANK,
    }
    results: Row = {
        "settings": settings,
        "products": experiments.product_errors(seed),
        "realisation": experiments.realisation(seed),
        "stability": experiments.stability(seed),
        "theorem": experiments.theorem(seed),
    }
    provenance = measured_now(settings)
    for row in rows_of(results):
        row["provenance"] = provenance
    return results


def draw(results: Row, out: Path) -> None:
    """A picture for each lemma and for the theorem."""
    figures = {
        "realisation": draw_realisation(results["realisation"], results["products"]),
        "stability": draw_stability(results["stability"]),
        "theorem": draw_theorem(results["theorem"]),
    }
    for name, figure in figures.items():
        save_figure(figure, out / f"theory-{name}.png")


def page(results: Row) -> dict[str, Any]:
    """Tables and counts of violated bounds."""
    rows, products = results["realisation"], results["products"]
    stability, theorem = results["stability"], results["theorem"]
    return {
        "order": log_slope([p["step"] for p in products], [p["error"] for p in products]),
        "largest_ratio": max(p["ratio"] for p in products),
        "summary_error": max(row["summary_error"] for row in rows),
        "num_operators": len(rows[0]["errors"]),
        "realised": {
            "total": sum(len(row["errors"]) for row in rows),
            "violations": sum(
                e > b for row in rows for e, b in zip(row["errors"], row["bounds"], strict=True)
            ),
            "rows": [_realised(row) for row in rows],
            "orders": _orders(rows),
        },
        "stable": {
            "total": sum(row["draws"] for row in stability["rows"]),
            "violations": sum(row["violations"] for row in stability["rows"]),
            "rows": [_stable(row) for row in stability["rows"]],
            "sharp": max(stability["sharp"], key=lambda row: row["ratio"]),
        },
        "bounded": {
            "total": len(theorem["rows"]),
            "violations": sum(row["measured"] > sum(row["terms"]) for row in theorem["rows"]),
            "rows": [_bounded(row) for row in theorem["rows"]],
            "chart_constant": theorem["chart_constant"],
            "chart_effect": theorem["chart_effect"],
        },
    }


def _realised(row: Row) -> list[str]:
    medians = [f"{np.median(row[name]):.1e}" for name in ("errors", "bounds")]
    return [str(row["rank"]), str(row["width"]), *medians]


def _orders(rows: list[Row]) -> list[list[str]]:
    """s of ε ~ C^−s by rank, over all widths and over the last two."""
    lines = []
    for rank in dict.fromkeys(row["rank"] for row in rows):
        some = [row for row in rows if row["rank"] == rank]
        widths = [row["width"] for row in some]
        found = [float(np.median(row["errors"])) for row in some]
        orders = log_slope(widths, found), log_slope(widths[-2:], found[-2:])
        lines.append([str(rank), *(f"{-order:.1f}" for order in orders)])
    return lines


def _stable(row: Row) -> list[str]:
    return [
        row["displacement"],
        f"{row['delta']:g}",
        f"{row['worst_f'][2]:.2f}",
        f"{row['worst_f'][4]:.4f}",
        f"{row['worst_with_averages']:.2f}",
        f"{row['random_f'][2]:.2f}",
    ]


def _bounded(row: Row) -> list[str]:
    bound = sum(row["terms"])
    values = (row["delta"], *row["terms"], bound, row["measured"])
    return [*(f"{value:.1e}" for value in values), f"{row['measured'] / bound:.2f}"]
