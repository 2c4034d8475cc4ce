"""What a comparison of measured figures says of a claim."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot
from typing import Any

SHOWN = "shown"
ONCE = "shown with one seed"
IN_PART = "shown in part"
LEVEL = "within the spread"
TOO_SHORT = "trained too short to tell"
NOT_SHOWN = "not shown"
NOT_RUN = "not run"
NEEDS_GPU = "not testable without a GPU"
MEANINGS = {
    SHOWN: "what was measured agrees, by more than seeds vary where it was trained",
    ONCE: "so with a single seed on one side at least, which may be luck",
    IN_PART: "some of it, or a gain smaller than the paper's",
    LEVEL: "no difference larger than what seeds are worth",
    TOO_SHORT: "those compared had not yet learnt more than the mean of the training solutions",
    NOT_SHOWN: "what was measured here, in this setting, speaks against it",
    NOT_RUN: "its study has no results yet, or does not ask this",
    NEEDS_GPU: "a statement on full-size trainings or on the time of a GPU",
}
"""What the words mean, for readers of the page of claims."""

LEARNT = 0.95
"""Of the training mean's error: a model above it has learnt next to nothing."""


@dataclass(frozen=True)
class Claim:
    """What the paper says, what was found here and in which setting, and the verdict."""

    text: str
    paper: str
    ours: str
    setting: str
    verdict: str


Stated = tuple[str, str, str, str]
"""A claim without its setting: text, paper, ours, verdict."""


def lower(
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    error: str = "relative_l2",
    spread: str = "spread",
) -> str:
    """Whether our error is below theirs, by more than both vary over the seeds.

    Both vary, so their standard deviations add up as for a difference; where only one has several
    seeds, the other is taken to vary as much, and may have been lucky.
    """
    gap = theirs[error] - ours[error]
    known = [row[spread] for row in (ours, theirs) if row[spread] is not None]
    if not known:
        return ONCE if gap > 0 else NOT_SHOWN
    if abs(gap) <= hypot(known[0], known[-1]):
        return LEVEL
    if gap < 0:
        return NOT_SHOWN
    return SHOWN if len(known) == 2 else ONCE


def decide(ours: Mapping[str, Any], rivals: Sequence[Mapping[str, Any]]) -> str:
    """Whether our error is below the first rival's, the best one.

    Too early to say where we or most rivals have learnt next to nothing, unless we are beaten.
    """
    best, verdict = rivals[0], lower(ours, rivals[0])
    is_beaten = verdict == NOT_SHOWN and has_learnt(best)
    are_apart = has_learnt(ours) and sum(map(has_learnt, rivals)) >= len(rivals) / 2
    return verdict if is_beaten or are_apart else TOO_SHORT


def has_learnt(row: Mapping[str, Any]) -> bool:
    """Whether a model does clearly better than the mean of the training solutions."""
    return bool(row["relative_l2"] < LEARNT * row["mean_predictor"])


def holds(verdict: str) -> bool:
    """Whether what was measured speaks for a claim, as a whole."""
    return verdict in (SHOWN, ONCE)


def of_parts(verdicts: Sequence[str]) -> str:
    """A claim of several parts, by the verdict on each."""
    if all(map(holds, verdicts)):
        return ONCE if ONCE in verdicts else SHOWN
    if any(holds(verdict) or verdict == IN_PART for verdict in verdicts):
        return IN_PART
    return next(word for word in (NOT_SHOWN, NOT_RUN, TOO_SHORT, LEVEL) if word in verdicts)


def at_least(gain: float, claimed: float) -> str:
    """Whether a gain is as large as claimed, or a gain at all."""
    return SHOWN if gain >= claimed else IN_PART if gain > 0 else NOT_SHOWN


def seen(is_so: bool, num_seeds: int) -> str:
    """Whether something is so; with one seed it may be luck."""
    if not is_so:
        return NOT_SHOWN
    return ONCE if num_seeds == 1 else SHOWN
