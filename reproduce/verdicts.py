"""Rules that turn measured numbers into a verdict on a claim of the paper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot
from typing import Any

import numpy as np

from cato.inference.evaluate import has_learnt

SHOWN = "shown"
ONE_SEED = "shown with one seed"
IN_PART = "shown in part"
WITHIN_SPREAD = "within the spread"
TOO_SHORT = "trained too short to tell"
NOT_SHOWN = "not shown"
NOT_RUN = "not run"
NEEDS_GPU = "not testable without a GPU"
MEANINGS = {
    SHOWN: "the measurement agrees, by more than the seeds vary where models were trained",
    ONE_SEED: "the measurement agrees, but at least one side has a single seed",
    IN_PART: "only some parts hold, or the gain is smaller than the paper's",
    WITHIN_SPREAD: "no difference larger than the spread over seeds or benchmarks",
    TOO_SHORT: "the compared models have not yet learnt more than the training mean",
    NOT_SHOWN: "the measurement, in this setting, contradicts the claim",
    NEEDS_GPU: "a statement about full-size training or about GPU time",
    NOT_RUN: "the experiment has no results yet or does not cover the claim",
}
"""All verdicts, in the order of the results page."""

CONFIDENCE = 0.95
"""Share of the bootstrap draws that must agree."""
NUM_DRAWS = 2000
MIN_BENCHMARKS = 3
"""With fewer benchmarks a bootstrap over them says nothing."""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper and our measurement.

    Attributes:
        text: The claim.
        paper: The paper's number.
        ours: Our number.
        setting: Scale, budget and seeds of the measurement.
        verdict: One of `MEANINGS`.
        details: More numbers behind the verdict.
    """

    text: str
    paper: str
    ours: str
    setting: str
    verdict: str
    details: str = ""


def compare_errors(
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    error: str = "relative_l2",
    spread: str = "spread",
) -> str:
    """Whether our error is lower by more than both vary over the seeds.

    The standard deviations of both sides add up in quadrature. If only one side has several seeds,
    the other is assumed to vary as much, and a positive verdict is `ONE_SEED`.
    """
    gap = theirs[error] - ours[error]
    known = [row[spread] for row in (ours, theirs) if row[spread] is not None]
    if not known:
        return ONE_SEED if gap > 0 else NOT_SHOWN
    if abs(gap) <= hypot(known[0], known[-1]):
        return WITHIN_SPREAD
    if gap < 0:
        return NOT_SHOWN
    return SHOWN if len(known) == 2 else ONE_SEED


def compare_to_rivals(ours: Mapping[str, Any], rivals: Sequence[Mapping[str, Any]]) -> str:
    """Whether our error is lower than that of the first, best rival.

    `TOO_SHORT` if we or most rivals have learnt next to nothing, unless we are clearly beaten.
    """
    best, verdict = rivals[0], compare_errors(ours, rivals[0])
    is_beaten = verdict == NOT_SHOWN and has_learnt(best)
    are_comparable = has_learnt(ours) and sum(map(has_learnt, rivals)) >= len(rivals) / 2
    return verdict if is_beaten or are_comparable else TOO_SHORT


def is_positive(verdict: str) -> bool:
    """Whether the measurement supports the whole claim."""
    return verdict in (SHOWN, ONE_SEED)


def combine(verdicts: Sequence[str]) -> str:
    """The verdict on a claim of several parts."""
    if all(map(is_positive, verdicts)):
        return ONE_SEED if ONE_SEED in verdicts else SHOWN
    if any(is_positive(verdict) or verdict == IN_PART for verdict in verdicts):
        return IN_PART
    order = (NOT_SHOWN, NOT_RUN, TOO_SHORT, WITHIN_SPREAD)
    return next(verdict for verdict in order if verdict in verdicts)


def check_gain(gain: float, claimed: float, confirmed: str = SHOWN) -> str:
    """Whether a gain is as large as claimed (`confirmed`), or positive at all."""
    return confirmed if gain >= claimed else IN_PART if gain > 0 else NOT_SHOWN


def check_observed(is_true: bool, num_seeds: int) -> str:
    """The verdict on an observation, given the number of seeds behind it."""
    if not is_true:
        return NOT_SHOWN
    return ONE_SEED if num_seeds == 1 else SHOWN


def rank_confidence(rows: Sequence[Mapping[str, Any]], ours: str) -> float:
    """Share of bootstrap draws in which model `ours` has the lowest mean rank of all.

    A draw resamples the benchmarks with replacement and adds to every error normal noise of its
    spread over the seeds; a model with one seed is assumed to vary as much as the median of the
    others on the benchmark. Models are ranked on the benchmarks that they can do.

    Args:
        rows: Of one comparison, with `family`, `benchmark`, `relative_l2` and `spread`.
        ours: A value of `family`.
    """
    random = np.random.default_rng(0)
    families = list(dict.fromkeys(row["family"] for row in rows))
    benchmarks = list(dict.fromkeys(row["benchmark"] for row in rows))
    ranks = np.full((len(benchmarks), NUM_DRAWS, len(families)), np.nan)
    for ranked, benchmark in zip(ranks, benchmarks, strict=True):
        here = [row for row in rows if row["benchmark"] == benchmark]
        known = [row["spread"] for row in here if row["spread"] is not None]
        usual = float(np.median(known)) if known else 0.0
        spreads = [usual if row["spread"] is None else row["spread"] for row in here]
        noise = random.normal(size=(NUM_DRAWS, len(here))) * spreads
        errors = np.array([row["relative_l2"] for row in here]) + noise
        columns = [families.index(row["family"]) for row in here]
        ranked[:, columns] = 1 + (errors[:, None, :] < errors[:, :, None]).sum(-1)
    chosen = random.integers(len(benchmarks), size=(NUM_DRAWS, len(benchmarks)))
    drawn = ranks[chosen, np.arange(NUM_DRAWS)[:, None]]  # draws, benchmarks, families
    can = ~np.isnan(drawn)
    counts = can.sum(1)
    sums = np.where(can, drawn, 0).sum(1)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.inf)
    column = families.index(ours)
    others = np.delete(means, column, axis=1).min(1)
    return float((means[:, column] < others).mean())


def check_lowest_rank(rows: Sequence[Mapping[str, Any]], ours: str) -> tuple[str, float]:
    """Whether a model has the lowest mean rank beyond the spread, and the share of draws."""
    share = rank_confidence(rows, ours)
    if len({row["benchmark"] for row in rows}) < MIN_BENCHMARKS:
        return WITHIN_SPREAD, share
    if share <= 1 - CONFIDENCE:
        return NOT_SHOWN, share
    if share < CONFIDENCE:
        return WITHIN_SPREAD, share
    return (SHOWN if any(row["spread"] is not None for row in rows) else ONE_SEED), share
