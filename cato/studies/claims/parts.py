"""What each part of CATO is worth: attention, local operator, terms of the loss, the chart."""

from statistics import mean
from typing import Any

from cato.data.benchmarks import get_benchmark
from cato.studies.ablation import RECIPE
from cato.studies.chart_page import PAPER_DIMENSION, PAPER_ERRORS, PAPER_SHARES, one_dimensional
from cato.studies.outcomes import percent, setting_of
from cato.studies.verdicts import Claim, decide, lower, of_parts

PARTS = {
    "attention": ("without rows", "without columns"),
    "local operator": ("without",),
    "chart": ("no positions",),
}
"""Answers of the ablation that leave out a part of CATO, by question."""
TERMS = ("no gradient term", "no flux term", "no consistency term")
"""Those that leave out a term of the physical loss."""

Row = dict[str, Any]


def ablation_claims(results: Row) -> list[Claim]:
    """Every part of CATO helps, and so does supervising gradients and a flux."""
    setting = setting_of(results)
    if len(results["settings"]["seeds"]) > 1 and results["rows"][-1]["validation_spread"] is None:
        setting += " of the recipe and one of each change"
    found = []
    for benchmark in dict.fromkeys(row["benchmark"] for row in results["rows"]):
        rows = {
            (row["question"], row["answer"]): row
            for row in results["rows"]
            if row["benchmark"] == benchmark
        }
        recipe, title = rows["", RECIPE], get_benchmark(benchmark).title
        parts = [(question, a) for question, answers in PARTS.items() for a in answers]
        for text, left_out in (
            (f"every part of CATO helps on {title}", parts),
            (f"every term of the physical loss helps on {title}", [("loss", t) for t in TERMS]),
        ):
            tried = {key: rows[key] for key in left_out if key in rows}
            if tried:
                words = ", ".join(f"{_name(k)} {_change(r, recipe):+.1%}" for k, r in tried.items())
                found.append(
                    Claim(
                        text,
                        "no number",
                        f"validation error {recipe['validation']:.2%}; {words}",
                        setting,
                        of_parts([_worse(row, recipe) for row in tried.values()]),
                    )
                )
        plain = rows.get(("loss", "no physical terms"))
        if plain is not None:
            found.append(
                Claim(
                    f"the physical loss helps on {title}",
                    "improves fidelity; no number",
                    f"validation error {recipe['validation']:.2%} with it, "
                    f"{plain['validation']:.2%} without ({_change(plain, recipe):+.1%})",
                    setting,
                    _worse(plain, recipe),
                )
            )
            if recipe["gradient_error"] is not None:  # steady, and on a mesh
                found.append(
                    Claim(
                        f"the physical loss makes gradients better on {title}",
                        "less oversmoothing; no number",
                        f"error of ∇u {recipe['gradient_error']:.2%} with it, "
                        f"{plain['gradient_error']:.2%} without",
                        setting,
                        lower(recipe, plain, "gradient_error", "gradient_spread"),
                    )
                )
    return found


def _change(row: Row, recipe: Row) -> float:
    return float(row["validation"] / recipe["validation"] - 1)


def _worse(row: Row, recipe: Row) -> str:
    return lower(recipe, row, "validation", "validation_spread")


def _name(key: tuple[str, str]) -> str:
    question, answer = key
    return f"without {question}" if answer == "without" else answer


def chart_claims(results: Row) -> list[Claim]:
    """The learned chart is nearly one-dimensional, and better than other coordinates."""
    settings = results["settings"]
    found = []
    for benchmark in dict.fromkeys(row["benchmark"] for row in results["spaces"]):
        rows = [r for r in results["spaces"] if r["benchmark"] == benchmark]
        first, dimension = {}, {}
        for space in ("physical", "untrained", "learned"):
            some = [row for row in rows if row["space"] == space]
            first[space], dimension[space] = (
                mean(row[name] for row in some) for name in ("first", "dimension")
            )
        found.append(
            Claim(
                f"{get_benchmark(benchmark).title}: training makes the chart nearly "
                "one-dimensional",
                f"first component {PAPER_SHARES[0]:.0%}, dimension {PAPER_DIMENSION} (benchmark "
                "not named)",
                f"{first['learned']:.1%}, {dimension['learned']:.3f}; before training "
                f"{first['untrained']:.1%}, {dimension['untrained']:.3f}; physical grid "
                f"{first['physical']:.1%}, {dimension['physical']:.3f}",
                f"`{settings['scale']}`, means over {len(settings['seeds'])} seeds",
                one_dimensional(rows),
            )
        )
    errors = {(row["benchmark"], row["chart"]): row for row in results["errors"]}
    for benchmark, kind in errors:
        if kind == "learned":
            continue
        ours, theirs = errors[benchmark, "learned"], errors[benchmark, kind]
        words = {"normalised": "normalised coordinates", "raw": "raw coordinates"}
        paper = "no number"
        if kind in PAPER_ERRORS:
            pair = f"{PAPER_ERRORS['learned']:.2%} against {PAPER_ERRORS[kind]:.2%}"
            paper = f"{pair} (benchmark not named)"
        found.append(
            Claim(
                f"{get_benchmark(benchmark).title}: learned chart better than "
                f"{words.get(kind, 'no positions')}",
                paper,
                f"{percent(ours['relative_l2'], ours['spread'])} against "
                f"{percent(theirs['relative_l2'], theirs['spread'])}",
                setting_of(results),
                decide(ours, [theirs]),
            )
        )
    return found
