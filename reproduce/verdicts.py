"""Rules that turn measured numbers into a verdict on a claim of the paper."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from scipy import stats

from cato.inference.evaluate import has_learnt

SHOWN = "shown"
ONE_SEED = "shown with one seed"
IN_PART = "shown in part"
WITHIN_SPREAD = "within the spread"
TOO_SHORT = "trained too short to tell"
NOT_SHOWN = "not shown"
NOT_RUN = "not run"
NEEDS_GPU = "not testable without a GPU"
CONTRADICTORY = "contradictory in the paper"
MEANINGS = {
    SHOWN: "the measurement agrees; where models were trained, with p < 0.05 over the seeds",
    ONE_SEED: "the measurement agrees, but at least one side has a single seed",
    IN_PART: "only some parts hold, or the gain is smaller than the paper's",
    WITHIN_SPREAD: "no difference with p < 0.05 over seeds, or 95 % of the draws of benchmarks",
    TOO_SHORT: "the compared models have not yet learnt more than the training mean",
    NOT_SHOWN: "the measurement, in this setting, contradicts the claim",
    CONTRADICTORY: "two numbers of the paper for the same quantity disagree",
    NEEDS_GPU: "a statement about full-size training or about GPU time",
    NOT_RUN: "the experiment has no results yet or does not cover the claim",
}
"""All verdicts, in the order of the results page."""

SIGNIFICANCE = 0.05
"""Largest p-value of a difference that counts."""
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


def p_value(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], error: str, spread: str
) -> float | None:
    """Welch's test of equal mean errors, two-sided; None if both sides have a single seed.

    A side with one seed is tested as one more draw from a normal distribution with the deviation of
    the other: it must lie outside their interval of prediction.
    """
    sides = [(row[error], row[spread], len(row["errors"])) for row in (ours, theirs)]
    gap = theirs[error] - ours[error]
    known = [(deviation, count) for _, deviation, count in sides if deviation is not None]
    if not known:
        return None
    if not any(deviation for deviation, _ in known):
        return 0.0 if gap else 1.0
    if len(known) == 2:
        (one, s1, n1), (two, s2, n2) = sides
        return float(stats.ttest_ind_from_stats(one, s1, n1, two, s2, n2, equal_var=False).pvalue)
    ((deviation, count),) = known
    t = abs(gap) / (deviation * sqrt(1 + 1 / count))
    return float(2 * stats.t.sf(t, count - 1))


def compare_errors(
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    error: str = "relative_l2",
    spread: str = "spread",
) -> str:
    """Whether our error is significantly lower over the seeds.

    If a side has a single seed, a positive verdict is `ONE_SEED`.
    """
    p = p_value(ours, theirs, error, spread)
    is_lower = ours[error] < theirs[error]
    if p is None:
        return ONE_SEED if is_lower else NOT_SHOWN
    if not p < SIGNIFICANCE:  # nor NaN
        return WITHIN_SPREAD
    if not is_lower:
        return NOT_SHOWN
    return ONE_SEED if None in (ours[spread], theirs[spread]) else SHOWN


def compare_to_rivals(ours: Mapping[str, Any], rivals: Sequence[Mapping[str, Any]]) -> str:
    """Whether our error is lower than that of the first, best rival.

    `TOO_SHORT` if they cannot be compared, unless we are clearly beaten.
    """
    best, verdict = rivals[0], compare_errors(ours, rivals[0])
    is_beaten = verdict == NOT_SHOWN and has_learnt(best)
    return verdict if is_beaten or are_comparable(ours, rivals) else TOO_SHORT


def are_comparable(ours: Mapping[str, Any], rivals: Sequence[Mapping[str, Any]]) -> bool:
    """Whether we, the best rival and at least half of all rivals beat the training mean."""
    learnt = [has_learnt(rival) for rival in rivals]
    best = min(range(len(rivals)), key=lambda k: rivals[k]["relative_l2"], default=None)
    return best is not None and has_learnt(ours) and learnt[best] and 2 * sum(learnt) >= len(learnt)


def counted(rows: Sequence[Mapping[str, Any]], is_ours: Container[str]) -> list[Any]:
    """The rows of the benchmarks on which models can be compared; only they enter means and ranks.

    Args:
        rows: Of one comparison.
        is_ours: Our models.
    """
    found: list[Any] = []
    for benchmark in dict.fromkeys(row["benchmark"] for row in rows):
        here = [row for row in rows if row["benchmark"] == benchmark]
        ours = [row for row in here if row["model"] in is_ours]
        rivals = [row for row in here if row["model"] not in is_ours]
        if ours and are_comparable(ours[0], rivals):
            found += here
    return found


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
    """Whether a model has the lowest mean rank beyond the spread, and the share of draws.

    `rows` are those of the benchmarks that count, see `counted`.
    """
    if not rows:
        return TOO_SHORT, 0.0
    share = rank_confidence(rows, ours)
    if len({row["benchmark"] for row in rows}) < MIN_BENCHMARKS:
        return WITHIN_SPREAD, share
    if share <= 1 - CONFIDENCE:
        return NOT_SHOWN, share
    if share < CONFIDENCE:
        return WITHIN_SPREAD, share
    return (SHOWN if any(row["spread"] is not None for row in rows) else ONE_SEED), share


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Interval of the mean in 95 % of the bootstrap draws of the values."""
    chosen = np.random.default_rng(0).integers(len(values), size=(NUM_DRAWS, len(values)))
    low, high = np.quantile(np.asarray(values)[chosen].mean(1), (0.025, 0.975))
    return float(low), float(high)


def check_mean_reduction(
    shares: Sequence[float], verdicts: Sequence[str], claimed: float, number: int
) -> str:
    """Whether the mean reduction of the error is as large as claimed, first on all benchmarks.

    Args:
        shares: Reductions on the benchmarks that count.
        verdicts: Whether each is significant.
        claimed: The paper's mean.
        number: Benchmarks of the paper.
    """
    if len(shares) < MIN_BENCHMARKS:
        return TOO_SHORT if len(shares) < len(verdicts) else NOT_RUN
    wins = sum(map(is_positive, verdicts))
    low, high = mean_interval(shares)
    if low <= 0:
        return NOT_SHOWN if high <= 0 else WITHIN_SPREAD
    if wins < number or np.mean(shares) < claimed:
        return IN_PART if 2 * wins > number else NOT_SHOWN
    return combine([v for v in verdicts if is_positive(v)])
