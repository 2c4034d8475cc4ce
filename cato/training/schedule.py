"""The OneCycle schedule as a pure function of the step, so that resuming needs no state.

Learning rate: a cosine up from 1/25 of the peak over the first 30 % of the steps, then a cosine
down to 1/250000 of it. AdamW's first momentum runs the other way, 0.95 → 0.85 → 0.95. These are
PyTorch's `OneCycleLR` defaults, which the public codes of this field use (a test compares both).
"""

from dataclasses import dataclass
from math import cos, pi

WARM_UP = 0.3
START = 1 / 25
END = START / 1e4
HIGH_MOMENTUM, LOW_MOMENTUM = 0.95, 0.85


@dataclass(frozen=True)
class CyclePoint:
    """Where the cycle stands at one step."""

    rate: float
    """Learning rate in units of its peak."""
    momentum: float
    """First momentum β₁ of AdamW."""


def one_cycle(step: int, num_steps: int) -> CyclePoint:
    """The cycle at step 0 … num_steps − 1."""
    peak = WARM_UP * num_steps - 1
    last = num_steps - 1
    if step <= peak:
        way = step / peak
        return CyclePoint(_cosine(START, 1.0, way), _cosine(HIGH_MOMENTUM, LOW_MOMENTUM, way))
    way = (step - peak) / (last - peak)
    return CyclePoint(_cosine(1.0, END, way), _cosine(LOW_MOMENTUM, HIGH_MOMENTUM, way))


def _cosine(start: float, end: float, way: float) -> float:
    return end + (start - end) * (1 + cos(pi * way)) / 2
