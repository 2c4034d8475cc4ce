"""CATO has the lowest error on every benchmark (paper, Table 1 and abstract)."""

import math
from collections import Counter
from collections.abc import Mapping
from statistics import mean
from typing import Any, NamedTuple

from cato.data.benchmarks import BENCHMARKS, get_benchmark
from cato.models.registry import model_entry
from cato.studies.compare import OURS
from cato.studies.outcomes import percent, setting_of
from cato.studies.verdicts import (
    NOT_RUN,
    NOT_SHOWN,
    ONCE,
    SHOWN,
    TOO_SHORT,
    Claim,
    at_least,
    decide,
    has_learnt,
    holds,
    of_parts,
    seen,
)

PAPER = {
    "plasticity": {"cato": 0.0005, "saot": 0.0009},
    "airfoil": {"cato": 0.0041, "saot": 0.0049},
    "pipe": {"cato": 0.0038, "gnot": 0.0047},
    "navier_stokes": {"cato": 0.0319, "saot": 0.0675},
    "darcy": {"cato": 0.0042, "saot": 0.0049},
    "elasticity": {"cato": 0.0070, "transolver": 0.0081},
}
"""Table 1 of the paper: CATO's error and that of its strongest rival."""
PAPER_REDUCTION, PAPER_LARGEST_REDUCTION = 0.2676, 0.5274
"""Of the error, over the strongest rivals: the mean, and the largest, on Navier–Stokes."""

Row = dict[str, Any]


class Reduction(NamedTuple):
    """Of the error below that of the best rival, on one benchmark."""

    share: float
    verdict: str


def accuracy(results: Row) -> list[Claim]:
    """CATO has the lowest error on every benchmark, by 27 % in the mean."""
    setting = setting_of(results)
    found, reductions = [], {}
    for benchmark in BENCHMARKS:
        rows = [row for row in results["rows"] if row["benchmark"] == benchmark]
        ours = next((row for row in rows if row["model"] in OURS), None)
        rivals = sorted(
            (row for row in rows if row["model"] not in OURS), key=lambda row: row["relative_l2"]
        )
        title, published = get_benchmark(benchmark).title, PAPER[benchmark]
        (rival,) = [name for name in published if name != "cato"]
        text = f"lowest error on {title}"
        paper = f"{published['cato']:.2%}; {model_entry(rival).title} {published[rival]:.2%}"
        if ours is None or not rivals:
            found.append(Claim(text, paper, "", setting, NOT_RUN))
            continue
        best, verdict = rivals[0], decide(ours, rivals)
        if verdict != TOO_SHORT:
            reductions[title] = Reduction(1 - ours["relative_l2"] / best["relative_l2"], verdict)
        rank = 1 + sum(row["relative_l2"] < ours["relative_l2"] for row in rivals)
        num_learnt = sum(map(has_learnt, rivals))
        words = (
            f"{_error(ours)}; best rival {_error(best)}; rank {rank} of {len(rows)}; "
            f"{num_learnt} of {len(rivals)} rivals clearly beat the training mean, "
            f"{ours['mean_predictor']:.1%}"
        )
        found.append(Claim(text, paper, words, setting, verdict))
    return [*found, *_reductions(reductions, setting), *_against(results, setting)]


def table_1_claims(results: Row) -> list[Claim]:
    """The errors of the paper's CATO, of trainings as long as the paper's."""
    num_seeds = len(results["settings"]["seeds"])
    return [
        Claim(
            f"{get_benchmark(row['benchmark']).title}: the error of Table 1",
            f"{published['cato']:.2%}",
            _error(row),
            setting_of(results),
            seen(row["relative_l2"] - (row["spread"] or 0) <= published["cato"], num_seeds),
        )
        for row in results["rows"]
        if row["model"] in OURS
        for published in [PAPER[row["benchmark"]]]
    ]


def _reductions(reductions: Mapping[str, Reduction], setting: str) -> list[Claim]:
    """By how much CATO's error is below that of the strongest rival, in the mean and at most."""
    if not reductions:
        return []
    wins = sum(holds(reduction.verdict) for reduction in reductions.values())
    average = mean(reduction.share for reduction in reductions.values())
    where, largest = max(reductions.items(), key=lambda item: item[1].share)
    everywhere = wins == len(BENCHMARKS)
    return [
        Claim(
            "mean error reduction over the strongest rivals",
            f"{PAPER_REDUCTION:.1%}, first on {len(BENCHMARKS)} of {len(BENCHMARKS)}",
            f"{average:.1%} over {len(reductions)} decided benchmark(s), clearly first on {wins}",
            setting,
            at_least(average, PAPER_REDUCTION if everywhere else math.inf),
        ),
        Claim(
            "largest error reduction over the strongest rival",
            f"{PAPER_LARGEST_REDUCTION:.1%} (Navier–Stokes)",
            f"{largest.share:.1%} ({where})",
            setting,
            at_least(largest.share, PAPER_LARGEST_REDUCTION)
            if holds(largest.verdict)
            else largest.verdict,
        ),
    ]


def _against(results: Row, setting: str) -> list[Claim]:
    """CATO beside the two transformers that the paper compares it with throughout."""
    found = []
    for rival in ("saot", "transolver"):
        verdicts = [
            decide(ours, [theirs])
            for ours in results["rows"]
            for theirs in results["rows"]
            if ours["model"] in OURS
            and theirs["model"] == rival
            and ours["benchmark"] == theirs["benchmark"]
        ]
        if verdicts:
            counts = Counter(map(_in_words, verdicts)).items()
            missing = [NOT_RUN] * (len(BENCHMARKS) - len(verdicts))
            found.append(
                Claim(
                    f"lower error than {model_entry(rival).title}",
                    f"on {len(BENCHMARKS)} of {len(BENCHMARKS)}",
                    ", ".join(f"{words} on {number}" for words, number in counts),
                    setting,
                    of_parts([*verdicts, *missing]),
                )
            )
    return found


def _in_words(verdict: str) -> str:
    return {SHOWN: "lower", ONCE: "lower", NOT_SHOWN: "not lower"}.get(verdict, verdict)


def _error(row: Row) -> str:
    return f"{model_entry(row['model']).title} {percent(row['relative_l2'], row['spread'])}"
