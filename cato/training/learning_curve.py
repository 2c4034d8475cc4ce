"""Error against training samples and steps, from a few short trainings.

    error(n, s) = a · n^(−b) + c · s^(−d)

At equal steps this is the learning curve a n^(−b) + const; the constant is what more steps would
remove, so both questions, more samples or more minutes, have one law. A handful of trainings does
not determine it: every law on a grid of exponents and shares is weighted by how well it fits, with
scatter around it of unknown size, and predictions are quantiles over the weighted laws. The
exponents and the share of the first term are uniform beforehand, and the scatter is near 5 %, as
that between seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

EXPONENTS = np.linspace(0.1, 1.5, 15)
"""Possible b and d: a small one is as good as constant at these ranges."""
SHARES = np.linspace(0.02, 0.98, 33)
"""Possible shares of the first term in the error of the largest training."""
SCATTER, SCATTER_WEIGHT = 0.05, 4.0
"""Prior of the scatter, and how many measurements it counts for."""
NUM_DRAWS = 4000
CONFIDENCE = 0.9

Draws = Float[np.ndarray, " draws"]


@dataclass(frozen=True)
class Trained:
    """A short training: its size, and its errors at the end."""

    samples: int
    steps: int
    validation: float
    training: float | None = None  # On training samples; None if it was not measured.


@dataclass(frozen=True)
class Interval:
    """A prediction: median and interval of probability `CONFIDENCE`."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(draws: Draws) -> "Interval":
        tail = (1 - CONFIDENCE) / 2
        low, median, high = np.quantile(draws, (tail, 0.5, 1 - tail)).tolist()
        return Interval(median, low, high)

    @property
    def width(self) -> float:
        """Ratio of the ends."""
        return self.high / self.low


@dataclass(frozen=True)
class LearningCurve:
    """Draws from the laws that fit; `scatter` is the deviation of a single training's log error."""

    samples: int  # Of the largest training, at which `share` is that of the first term.
    steps: int
    level: Draws  # Log error of the largest training.
    share: Draws
    by_samples: Draws  # b
    by_steps: Draws  # d
    scatter: Draws

    def law(self, samples: float, steps: float) -> Draws:
        """The mean error of trainings of this size."""
        first = self.share * (samples / self.samples) ** -self.by_samples
        second = (1 - self.share) * (steps / self.steps) ** -self.by_steps
        return np.exp(self.level) * (first + second)

    def error(self, samples: float, steps: float) -> Interval:
        """The error of one training of this size."""
        noise = np.random.default_rng(1).standard_normal(len(self.level))
        return Interval.of(self.law(samples, steps) * np.exp(self.scatter * noise))


def fit_learning_curve(rows: Sequence[Trained]) -> LearningCurve:
    """The laws that fit at least four trainings, of different samples and of different steps."""
    assert len(rows) >= 4
    samples, steps, errors = (
        np.array([getattr(row, name) for row in rows], dtype=float)
        for name in ("samples", "steps", "validation")
    )
    largest = np.lexsort((samples, steps))[-1]
    b, d, share = (x.ravel() for x in np.meshgrid(EXPONENTS, EXPONENTS, SHARES, indexing="ij"))
    parts = (
        share[:, None] * (samples / samples[largest]) ** -b[:, None],
        (1 - share[:, None]) * (steps / steps[largest]) ** -d[:, None],
    )
    residuals = np.log(errors) - np.log(parts[0] + parts[1])  # (laws, trainings)
    level = residuals.mean(1)  # its best value for each law
    squares = ((residuals - level[:, None]) ** 2).sum(1) + SCATTER_WEIGHT * SCATTER**2
    freedom = SCATTER_WEIGHT + len(rows) - 1
    weights = (squares / squares.min()) ** (-freedom / 2)
    rng = np.random.default_rng(0)
    drawn = rng.choice(len(weights), NUM_DRAWS, p=weights / weights.sum())
    scatter = np.sqrt(squares[drawn] / rng.chisquare(freedom, NUM_DRAWS))
    levels = level[drawn] + scatter * rng.standard_normal(NUM_DRAWS) / np.sqrt(len(rows))
    return LearningCurve(
        int(samples[largest]),
        int(steps[largest]),
        levels,
        share[drawn],
        b[drawn],
        d[drawn],
        scatter,
    )
