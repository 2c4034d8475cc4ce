"""Contribution of each part of CATO: attention, local operator, terms of the loss, chart."""

from collections.abc import Iterator, Mapping
from statistics import mean

from cato.benchmarks import get_benchmark
from cato.inference.evaluate import has_learnt
from reproduce.results import Row, by_benchmark, percent, setting_of
from reproduce.studies.ablation import RECIPE
from reproduce.studies.chart import PAPER_DIMENSION, PAPER_ERRORS, PAPER_SHARES, one_dimensional
from reproduce.verdicts import (
    NOT_RUN,
    TOO_SHORT,
    Claim,
    combine,
    compare_errors,
    compare_to_rivals,
    is_positive,
)

PARTS = {
    ("attention", "without rows"): "without rows",
    ("attention", "without columns"): "without columns",
    ("local operator", "without"): "without local operator",
    ("chart", "normalised coordinates"): "normalised coordinates for the chart",
    ("chart", "no positions"): "no positions",
}
"""Answers of the ablation that leave out a part of CATO, in words."""
CLOUD_PARTS = {
    ("chart", "normalised coordinates"): "normalised coordinates for the chart",
    ("chart", "no positions"): "no positions",
    ("neighbours", "8"): "8 instead of 16 neighbours",
}
"""The same of CATO-PC."""
TERMS = {
    ("loss", term): term
    for term in ("no gradient term", "no flux and consistency terms", "no consistency term")
}
"""Answers that leave out a term of the physical loss."""
Stated = tuple[str, str, str, str, str]
"""A claim without its setting: text, paper, ours, verdict, details."""


def ablation_claims(results: Row) -> list[Claim]:
    """Every part of CATO helps, and so does supervising gradients and a flux."""
    setting = setting_of(results)
    if len(results["settings"]["seeds"]) > 1 and results["rows"][-1]["validation_spread"] is None:
        setting += " of the recipe and one of each change"
    groups = by_benchmark(results["rows"])
    return [
        *(
            Claim(f"{text} on {get_benchmark(benchmark).title}", paper, ours, setting, *rest)
            for benchmark, rows in groups.items()
            for text, paper, ours, *rest in _on_one_benchmark(rows)
        ),
        _on_clouds([rows for rows in groups.values() if rows[0]["model"] == "cato_pc"], setting),
    ]


def _on_clouds(groups: list[list[Row]], setting: str) -> Claim:
    """Chart and neighbours in CATO-PC."""
    text, paper = "chart and neighbours of CATO-PC help", "not quantified"
    answers = {(row["question"], row["answer"]): row for rows in groups for row in rows}
    tried = {words: answers[key] for key, words in CLOUD_PARTS.items() if key in answers}
    if not tried:
        return Claim(text, paper, "", setting, NOT_RUN)
    recipe = answers["", RECIPE]
    changes = [f"{words} {_change(row, recipe):+.1%}" for words, row in tried.items()]
    verdicts = [_worse(row, recipe) for row in tried.values()]
    return Claim(text, paper, ", ".join(changes), setting, combine(verdicts))


def _on_one_benchmark(rows: list[Row]) -> Iterator[Stated]:
    answers = {(row["question"], row["answer"]): row for row in rows}
    recipe = answers["", RECIPE]
    for text, left_out in (
        ("every part of CATO helps", PARTS),
        ("every term of the physical loss helps", TERMS),
    ):
        tried = {words: answers[key] for key, words in left_out.items() if key in answers}
        if tried:
            changes = [f"{words} {_change(row, recipe):+.1%}" for words, row in tried.items()]
            verdicts = [_worse(row, recipe) for row in tried.values()]
            yield (
                text,
                "not quantified",
                f"lower error than {sum(map(is_positive, verdicts))} of {len(verdicts)} variants",
                combine(verdicts),
                f"validation error {recipe['validation']:.2%}; {', '.join(changes)}",
            )
    yield from _with_few_samples(answers)
    plain = answers.get(("loss", "no physical terms"))
    if plain is None:
        return
    nothing = "" if has_learnt(plain) else ", which is no better than the training mean"
    yield (
        "the physical loss helps",
        "improves fidelity; not quantified",
        f"validation error {recipe['validation']:.2%} with it, {plain['validation']:.2%} without "
        f"({_change(plain, recipe):+.1%}){nothing}",
        _worse(plain, recipe),
        "",
    )
    if recipe["gradient_error"] is not None:  # steady, and on a mesh
        yield (
            "the physical loss makes gradients better",
            "less oversmoothing; not quantified",
            f"error of ∇u {recipe['gradient_error']:.2%} with it, {plain['gradient_error']:.2%} "
            f"without{nothing}",
            compare_errors(recipe, plain, "gradient_error", "gradient_spread")
            if has_learnt(plain)
            else TOO_SHORT,
            "",
        )


def _with_few_samples(answers: Mapping[tuple[str, str], Row]) -> Iterator[Stated]:
    ours, plain = (
        answers.get(("few samples", answer)) for answer in ("physical loss", "no physical terms")
    )
    if ours is not None and plain is not None:
        yield (
            "the physical loss helps when data are limited,",
            "stabilises learning; not quantified",
            f"validation error {ours['validation']:.2%} with it, "
            f"{plain['validation']:.2%} without ({_change(plain, ours):+.1%})",
            _worse(plain, ours),
            f"with {ours['changes']['data']['count']} training samples",
        )


def _change(row: Row, recipe: Row) -> float:
    return float(row["validation"] / recipe["validation"] - 1)


def _worse(row: Row, recipe: Row) -> str:
    """Whether a change makes the recipe worse; not told where one of them has learnt nothing."""
    if not (has_learnt(row) and has_learnt(recipe)):
        return TOO_SHORT
    return compare_errors(recipe, row, "validation", "validation_spread")


def chart_claims(results: Row) -> list[Claim]:
    """The learned chart is nearly one-dimensional, and better than other coordinates."""
    settings = results["settings"]
    found = []
    for benchmark, rows in by_benchmark(results["spaces"]).items():
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
                f"first component {PAPER_SHARES[0]:.1%}, dimension {PAPER_DIMENSION}",
                f"{first['learned']:.1%}, {dimension['learned']:.3f}",
                f"`{settings['scale']}`, means over {len(settings['seeds'])} seeds",
                one_dimensional(rows),
                f"before training {first['untrained']:.1%}, {dimension['untrained']:.3f}; physical "
                f"grid {first['physical']:.1%}, {dimension['physical']:.3f}",
            )
        )
    errors = {(row["benchmark"], row["chart"]): row for row in results["errors"]}
    for benchmark, kind in errors:
        if kind == "learned":
            continue
        ours, theirs = errors[benchmark, "learned"], errors[benchmark, kind]
        words = {"normalised": "normalised coordinates", "raw": "raw coordinates"}
        paper = "not quantified"
        if kind in PAPER_ERRORS:
            pair = f"{PAPER_ERRORS['learned']:.2%} against {PAPER_ERRORS[kind]:.2%}"
            paper = pair
        found.append(
            Claim(
                f"{get_benchmark(benchmark).title}: learned chart better than "
                f"{words.get(kind, 'no positions')}",
                paper,
                f"{percent(ours['relative_l2'], ours['spread'])} against "
                f"{percent(theirs['relative_l2'], theirs['spread'])}",
                setting_of(results),
                compare_to_rivals(ours, [theirs]),
            )
        )
    return found
