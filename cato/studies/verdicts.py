"""What a comparison of measured figures says of a claim."""

from collections.abc import Mapping
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


@dataclass(frozen=True)
class Claim:
    """What the paper says, what was found here and in which setting, and the verdict."""

    text: str
    paper: str
    ours: str
    setting: str
    verdict: str


def lower(
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    error: str = "relative_l2",
    spread: str = "spread",
) -> str:
    """Whether our error is below theirs, by more than both vary over the seeds.

    Both vary, so their standard deviations add up as for a difference; where only one has several
    seeds, the other is taken to vary as much.
    """
    gap = theirs[error] - ours[error]
    known = [row[spread] for row in (ours, theirs) if row[spread] is not None]
    if not known:
        return ONCE if gap > 0 else NOT_SHOWN
    if abs(gap) <= hypot(known[0], known[-1]):
        return LEVEL
    return SHOWN if gap > 0 else NOT_SHOWN


def of_parts(num_shown: int, total: int) -> str:
    """A claim of several parts, each of which shows or does not."""
    if num_shown < total:
        return IN_PART if num_shown else NOT_SHOWN
    return SHOWN


def at_least(gain: float, claimed: float) -> str:
    """Whether a gain is as large as claimed, or a gain at all."""
    return SHOWN if gain >= claimed else IN_PART if gain > 0 else NOT_SHOWN


def with_seeds(verdict: str, num_seeds: int) -> str:
    """What one seed shows may be its luck."""
    return ONCE if verdict == SHOWN and num_seeds == 1 else verdict
