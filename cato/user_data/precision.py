"""What float32 carries of users' values, and what has to stay in float64.

Networks compute in float32, on normalised values. Before that, float32 keeps seven digits of a
value, and squares and gradients of a field have to fit between 1e-38 and 1e38. So it carries a
channel if the values are neither huge nor tiny, and do not vary by a small fraction of a large
mean, such as a pressure of 1e6 ± 1e-3. Such a mean of an output is also left out of the size that
errors are relative to: otherwise every error, also that of always predicting the mean, would look
tiny.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import hypot, inf
from typing import Any

import numpy as np

SAFE = (1e-15, 1e15)
"""Range of the largest magnitude of a channel that float32 carries with squares and gradients."""
LIMITS = (1e-100, 1e100)  # The same for float64.
SMALL_VARIATION = 2.0**-10
"""A channel whose deviation is below this share of its mean varies around an offset."""
UNLIKE = 2.0  # Ratio of magnitudes from which on fields are measured in units of their own.
NOISE = 64.0  # Magnitude of a component that is rounding, in units of that of the largest.
COMPONENT = re.compile(r"(.+)_\d+")  # Name of a component of a vector.
ROUNDING = 2.0**-10  # Largest share of a deviation that rounding may take without a word.


@dataclass(frozen=True)
class Spread:
    """Statistics of the finite values of one channel over all samples; NaN if it has none."""

    low: float
    high: float
    mean: float
    deviation: float
    is_complete: bool  # Whether all values are finite.
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

    def rows() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The values of each array as rows, and which of them are finite."""
        for array in arrays:
            values = array.reshape(-1, num_channels).astype(np.float64)
            yield values, np.isfinite(values)

    with np.errstate(over="ignore", invalid="ignore"):
        parts = [
            (
                values.min(0, where=good, initial=np.inf),
                values.max(0, where=good, initial=-np.inf),
                values.sum(0, where=good),
                good.sum(0),
                good.all(0),
            )
            for values, good in rows()
        ]
        low, high, total, num_good, complete = map(np.stack, zip(*parts, strict=True))
        count = num_good.sum(0)
        mean = total.sum(0) / count
        squares = np.stack([np.square(x - mean).sum(0, where=good) for x, good in rows()]).sum(0)
    eps = np.full(num_channels, max(float(np.finfo(array.dtype).eps) for array in arrays))
    found = (low.min(0), high.max(0), mean, np.sqrt(squares / count), complete.all(0), eps)
    columns: list[Any] = [values.tolist() for values in found]
    return [Spread(*channel) for channel in zip(*columns, strict=True)]


def joined_spreads(
    one: Sequence[Spread], num_one: int, other: Sequence[Spread], num_other: int
) -> list[Spread]:
    """Statistics of two sets of finite values together, of these numbers."""
    count, found = num_one + num_other, []
    for a, b in zip(one, other, strict=True):
        complete = a.is_complete and b.is_complete
        share, apart = num_other / count, b.mean - a.mean
        squares = (1 - share) * a.deviation**2 + share * b.deviation**2
        deviation = (squares + share * (1 - share) * apart**2) ** 0.5
        low, high = min(a.low, b.low), max(a.high, b.high)
        mean, eps = a.mean + share * apart, max(a.eps, b.eps)
        new = {"low": low, "high": high, "mean": mean, "deviation": deviation, "eps": eps}
        found.append(replace(a, **new, is_complete=complete))
    return found


def units_of(
    names: Sequence[str], channels: Sequence[Spread]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """`units` and `deviations` of `Problem`; empty for outputs of one field or magnitude.

    A component U_3 that is nothing but the rounding of U_1 and U_2 gets the units of the largest.
    """
    offsets = [spread.mean if spread.is_offset else 0.0 for spread in channels]
    units = [hypot(s.deviation, s.mean - o) for s, o in zip(channels, offsets, strict=True)]
    deviations = [spread.deviation for spread in channels]
    for index, name in enumerate(names):
        match = COMPONENT.fullmatch(name)
        others = [i for i, n in enumerate(names) if match and n.startswith(f"{match[1]}_")]
        largest = max(others, key=lambda i: units[i], default=index)
        if units[index] <= NOISE * channels[index].eps * units[largest]:
            units[index], deviations[index] = units[largest], deviations[largest]
        units[index] = units[index] or 1.0
        deviations[index] = deviations[index] or units[index]
    if all(max(found) < UNLIKE * min(found) for found in (units, deviations)):
        return (), ()
    return tuple(units), tuple(deviations)


def needs_float64(channels: Iterable[Spread]) -> bool:
    """Whether float32 cannot carry some of the channels of an array."""
    return any(spread.is_offset or not spread.is_in_range for spread in channels)


def offsets_of(channels: Iterable[Spread]) -> tuple[float, ...]:
    """For each output the mean that errors leave out, or 0; empty if all are 0."""
    found = tuple(spread.mean if spread.is_offset else 0.0 for spread in channels)
    return found if any(found) else ()
