"""Lemmas 1 and 2, Theorem 1, and what they say of the chart."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from reproduce.results import Row
from reproduce.verdicts import IN_PART, NOT_SHOWN, SHOWN, Claim

SMALL_ERROR = 1e-3
"""Upper estimate of the error that Lemma 1's widest networks must reach."""


def theory_claims(results: Row) -> list[Claim]:
    """Lemma 1, Lemma 2, Theorem 1, and whether they speak of a learned chart."""
    moved, theorem = results["stability"]["rows"], results["theorem"]
    num_draws, violations = (sum(row[name] for row in moved) for name in ("draws", "violations"))
    ratio = max(max(row["worst_f"]) for row in moved)
    averaging = max(row["worst_with_averages"] for row in moved)
    sharpest = max(row["ratio"] for row in results["stability"]["sharp"])
    cases = theorem["rows"]
    held = sum(case["measured"] <= sum(case["terms"]) for case in cases)
    unused = theorem["chart_effect"] == 0
    return [
        _lemma_1(results["realisation"]),
        Claim(
            "Lemma 2: stability with constant C_chart",
            "proved",
            f"{num_draws - violations:,} of {num_draws:,} draws below the bound",
            "random operators, charts and displacements",
            SHOWN if violations == 0 else NOT_SHOWN,
            f"the largest reaches {ratio:.4f} of the bound ({averaging:.2f} with averages); "
            f"{sharpest:.4f} in the sharp example",
        ),
        Claim(
            "Theorem 1: three-term bound",
            "proved",
            f"{held} of {len(cases)} cases below the bound",
            "a random operator, remainders of three sizes, charts with noise of five",
            SHOWN if held == len(cases) else NOT_SHOWN,
        ),
        Claim(
            "the theory explains why a learned chart helps",
            "claimed",
            "the construction does not use the chart"
            if unused
            else f"another chart changes the output by up to {theorem['chart_effect']:.1e}",
            "Lemma 1's weights in the real module",
            NOT_SHOWN if unused else IN_PART,
            "another chart in the finished network changes no output, and every chart that keeps "
            "the nodes apart gives the same class of operators"
            if unused
            else "",
        ),
    ]


def _lemma_1(rows: Sequence[Row]) -> Claim:
    """Errors fall with the width at every rank, and even their upper estimates become small."""
    within = all(e <= b for row in rows for e, b in zip(row["errors"], row["bounds"], strict=True))
    falls, width = True, max(row["width"] for row in rows)
    for rank in dict.fromkeys(row["rank"] for row in rows):
        line = sorted((row["width"], median(row["errors"])) for row in rows if row["rank"] == rank)
        errors = [error for _, error in line]
        falls &= all(wide < narrow for narrow, wide in pairwise(errors))
    largest = max(bound for row in rows if row["width"] == width for bound in row["bounds"])
    return Claim(
        "Lemma 1: one block realises charted axial operators to any accuracy",
        "proved",
        f"error at most {largest:.1e} at width {width}",
        "the real module, no norm, no local operator",
        SHOWN if within and falls and largest < SMALL_ERROR else NOT_SHOWN,
        f"the median error {'falls' if falls else 'does not always fall'} with every doubling of "
        "the width",
    )
