"""Contribution of each part of CATO: attention, local operator, terms of the loss, chart."""

from collections.abc import Iterator, Mapping
from statistics import mean

from cato.benchmarks import get_benchmark
from cato.inference.evaluate import has_learnt
from cato.models.registry import model_class
from reproduce.results import Row, by_benchmark, percent, setting_of
from reproduce.studies.ablation import RECIPE
from reproduce.studies.chart import PAPER_DIMENSION, PAPER_ERRORS, PAPER_SHARES, one_dimensional
from reproduce.variants import FLUX
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
CLOUD_PARTS = (
    (
        "the learned chart of CATO-PC helps",
        '"chart learning generalizes beyond the axial-attention architecture"; not quantified',
        {
            ("chart", "normalised coordinates"): "normalised coordinates for the chart",
            ("chart", "no positions"): "no positions",
        },
    ),
    (
        "the neighbours of CATO-PC help",
        "topology-aware; not quantified",
        {("neighbours", "8"): "8 instead of 16 neighbours"},
    ),
)
"""Claims on CATO-PC, the paper's words, and the answers of the ablation that test them."""
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
    return [
        Claim(f"{text} on {get_benchmark(benchmark).title}", paper, ours, setting, *rest)
        for benchmark, rows in by_benchmark(results["rows"]).items()
        for text, paper, ours, *rest in _on_one_benchmark(rows)
    ]


def cloud_claims(results: Row) -> list[Claim]:
    """Chart and neighbours in CATO-PC, each a claim."""
    answers = {(row["question"], row["answer"]): row for row in results["rows"]}
    recipe = answers["", RECIPE]
    found = []
    for text, paper, parts in CLOUD_PARTS:
        tried = {words: answers[key] for key, words in parts.items() if key in answers}
        changes = [f"{words} {_change(row, recipe):+.1%}" for words, row in tried.items()]
        verdict = combine([_worse(row, recipe) for row in tried.values()] or [NOT_RUN])
        ours = f"validation error {recipe['validation']:.2%}; {', '.join(changes)}"
        found.append(Claim(text, paper, ours if tried else "", setting_of(results), verdict))
    return found


def flux_head_claims(results: Row) -> list[Claim]:
    """CATO is better than rivals with its loss, so that its gain is not the loss alone."""
    found = []
    for benchmark, rows in by_benchmark([*results["rows"], *results["variants"]]).items():
        named = {row["model"]: row for row in rows}
        rivals = {name: row for name, row in named.items() if name.endswith(FLUX)}
        if not rivals:
            continue
        ranked = sorted(rivals.values(), key=lambda row: row["relative_l2"])
        pairs = [
            f"{percent(row['relative_l2'], row['spread'])} ({model_class(name).title}; "
            f"{percent(without['relative_l2'], without['spread'])} with its own loss)"
            for name, row in rivals.items()
            for without in [named[name.removesuffix(FLUX)]]
        ]
        ours = named["cato"]
        found.append(
            Claim(
                f"CATO's gain on {get_benchmark(benchmark).title} is not its physical loss alone",
                "chart and attention; not quantified",
                f"CATO {percent(ours['relative_l2'], ours['spread'])}; {', '.join(pairs)}",
                setting_of(results),
                compare_to_rivals(ours, ranked),
            )
        )
    return found


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
