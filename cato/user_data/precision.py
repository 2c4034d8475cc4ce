"""What float32 carries of users' values, and what has to stay in float64.

Networks compute in float32, on normalised values. Before that, float32 keeps seven digits of a
value, and squares and gradients of a field have to fit between 1e-38 and 1e38. So it carries a
channel if the values are neither huge nor tiny, and do not vary by a small fraction of a large
mean, such as a pressure of 1e6 ± 1e-3. Such a mean of an output is also left out of the size that
errors are relative to: otherwise every error, also that of always predicting the mean, would look
tiny.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

SAFE = (1e-15, 1e15)
"""Range of the largest magnitude of a channel that float32 carries with squares and gradients."""
LIMITS = (1e-100, 1e100)  # The same for float64.
SMALL_VARIATION = 2.0**-10
"""A channel whose deviation is below this share of its mean varies around an offset."""
ROUNDING = 2.0**-10  # Largest share of a deviation that rounding may take without a word.


@dataclass(frozen=True)
class Spread:
    """Statistics of the finite values of one channel over all samples; NaN if it has none."""

    low: float
    high: float
    mean: float
    deviation: float
    eps: float  # Relative rounding of the type of the values.

    @property
    def largest(self) -> float:
        """Largest magnitude."""
        return max(abs(self.low), abs(self.high))

    @property
    def is_constant(self) -> bool:
        return self.low == self.high

    @property
    def is_offset(self) -> bool:
        """Whether the values vary by a small fraction of a large mean."""
        return not self.is_constant and self.deviation < SMALL_VARIATION * abs(self.mean)

    @property
    def is_in_range(self) -> bool:
        """Whether float32 carries the values with their squares and gradients."""
        return not self.largest > SAFE[1] and not 0 < self.largest < SAFE[0]

    @property
    def is_usable(self) -> bool:
        """Whether float64 carries the values with their squares."""
        return not LIMITS[1] < self.largest < inf and not 0 < self.largest < LIMITS[0]

    @property
    def rounded_share(self) -> float:
        """Share of the deviation that the type of the values rounds away."""
        return self.eps * self.largest / self.deviation if self.deviation else 0.0


def spreads(arrays: Sequence[np.ndarray]) -> list[Spread]:
    """Statistics of each channel of arrays (…, C)."""
    num_channels = arrays[0].shape[-1]
    if not num_channels:
        return []

    def over(function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
        """A function of the rows of each array, and of which of their values are finite."""
        rows = (array.reshape(-1, num_channels).astype(np.float64) for array in arrays)
        return np.stack([function(part, np.isfinite(part)) for part in rows])

    with np.errstate(over="ignore", invalid="ignore"):
        low = over(lambda x, good: x.min(0, where=good, initial=np.inf)).min(0)
        high = over(lambda x, good: x.max(0, where=good, initial=-np.inf)).max(0)
        count = over(lambda x, good: good.sum(0)).sum(0)
        mean = over(lambda x, good: x.sum(0, where=good)).sum(0) / count
        squares = over(lambda x, good: np.square(x - mean).sum(0, where=good)).sum(0)
        deviation = np.sqrt(squares / count)
    eps = max(float(np.finfo(array.dtype).eps) for array in arrays)
    columns = zip(low.tolist(), high.tolist(), mean.tolist(), deviation.tolist(), strict=True)
    return [Spread(*column, eps) for column in columns]


def needs_float64(channels: Iterable[Spread]) -> bool:
    """Whether float32 cannot carry some of the channels of an array."""
    return any(spread.is_offset or not spread.is_in_range for spread in channels)


def offsets_of(channels: Iterable[Spread]) -> tuple[float, ...]:
    """For each output the mean that errors leave out, or 0; empty if all are 0."""
    found = tuple(spread.mean if spread.is_offset else 0.0 for spread in channels)
    return found if any(found) else ()
