"""Error against minutes: the errors of a model after several training times, and their law."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from cato.inference.evaluate import has_learnt
from cato.models.registry import model_class
from reproduce.power_law import MIN_BUDGETS, PowerLaw, fit_power_law
from reproduce.results import Row, by_benchmark, percent


@dataclass(frozen=True)
class Curve:
    """A model on one benchmark.

    Attributes:
        field: The benchmark's headline; empty for all outputs jointly.
        rows: A row for each time (`budget`), ascending, with the errors of `field`.
    """

    model: str
    field: str
    rows: list[Row]

    @property
    def title(self) -> str:
        return model_class(self.model).title

    @property
    def law(self) -> PowerLaw | None:
        """Fitted to the times after which the model has learnt more than the training mean.

        Seeds that were not trained for all of them are left out.
        """
        learnt = [row for row in self.rows if has_learnt(row)]
        if len(learnt) < MIN_BUDGETS:
            return None
        num_seeds = min(len(row["errors"]) for row in learnt)
        errors = np.array([row["errors"][:num_seeds] for row in learnt]).T
        if not np.isfinite(errors).all():
            return None
        return fit_power_law([row["budget"] for row in learnt], errors)


def curves_of(rows: Sequence[Row]) -> dict[str, list[Curve]]:
    """The curves of every benchmark, the lowest last error first."""
    found: dict[str, list[Curve]] = {}
    for benchmark, group in by_benchmark(rows).items():
        by_model: dict[str, list[Row]] = {}
        for row in sorted(group, key=lambda row: row["budget"]):
            by_model.setdefault(row["model"], []).append(row | _headline(row))
        field = group[0].get("headline") or ""
        curves = [Curve(model, field, rows) for model, rows in by_model.items()]
        found[benchmark] = sorted(curves, key=lambda curve: curve.rows[-1]["relative_l2"])
    return found


def _headline(row: Row) -> Row:
    """Errors of the field that matters most, if it was measured."""
    return dict(row.get("fields", {}).get(row.get("headline"), {}))


def curve_table(curves: Sequence[Curve], extrapolate: float | None) -> dict[str, Any]:
    """A line for each model: error after each time, exponent, and extrapolated error."""
    columns = ["model", *(f"{row['budget']:g} min" for row in curves[0].rows), "exponent"]
    lines = []
    for curve in curves:
        cells = [percent(row["relative_l2"], row["spread"]) for row in curve.rows]
        law = curve.law
        known = "–" if law is None else f"{law.exponent:.2f} ± {law.exponent_margin:.2f}"
        lines.append([curve.title, *cells, known])
        if extrapolate is not None:
            lines[-1].append("–" if law is None else extrapolated(law, extrapolate))
    if extrapolate is not None:
        columns.append(f"extrapolated to {extrapolate:g} min")
    return {"columns": columns, "rows": lines, "field": curves[0].field}


def extrapolated(law: PowerLaw, minutes: float) -> str:
    """Error after a time that was not measured, with its interval."""
    low, high = law.interval(minutes)
    most = percent(high) if isfinite(high) and high < 1 else "more than 100%"
    return f"{percent(law.error(minutes))} ({percent(low)} to {most})"
