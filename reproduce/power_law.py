"""Error against training time: error = a · minutes^(−b), and how well a and b are known.

The law is a line through the logarithms, by least squares. Two things make it uncertain. Seeds
differ, and since all times of a seed share one trunk, they differ in whole lines: the first part is
the covariance of the lines of single seeds. And the points need not lie on a line: the second part
is the covariance that follows from their scatter about it. Both are added, which counts independent
noise twice and so errs on the safe side; the degrees of freedom of the sum are Welch's and
Satterthwaite's. With one seed only the second part is known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt

import numpy as np
from jaxtyping import Float
from scipy.stats import t

MIN_BUDGETS = 3
"""Two times always lie on a line."""
CONFIDENCE = 0.95


@dataclass(frozen=True)
class PowerLaw:
    """A fitted law; intervals are those of 95 % confidence for the law, not for a single run."""

    centre: float  # Mean of log minutes.
    line: Float[np.ndarray, "2"]  # Log error at the centre, and slope −b.
    parts: tuple[tuple[Float[np.ndarray, "2 2"], int], ...]
    """Covariances of the line that add up, each with its degrees of freedom."""

    @property
    def exponent(self) -> float:
        """b: twice the time divides the error by 2^b."""
        return -float(self.line[1])

    @property
    def exponent_margin(self) -> float:
        """Half the interval of the exponent."""
        return self._margin(np.array([0.0, 1.0]))

    def error(self, minutes: float) -> float:
        """The error after this time."""
        return exp(self._at(minutes) @ self.line)

    def interval(self, minutes: float) -> tuple[float, float]:
        """The interval of the error after this time."""
        factor, error = exp(self._margin(self._at(minutes))), self.error(minutes)
        return error / factor, error * factor

    def _at(self, minutes: float) -> Float[np.ndarray, "2"]:
        return np.array([1.0, log(minutes) - self.centre])

    def _margin(self, direction: Float[np.ndarray, "2"]) -> float:
        """Half the interval of a linear function of the line."""
        variances = [(direction @ covariance @ direction, free) for covariance, free in self.parts]
        total = sum(variance for variance, _ in variances)
        if not total:
            return 0.0
        freedom = total**2 / sum(variance**2 / free for variance, free in variances)
        return float(t.ppf((1 + CONFIDENCE) / 2, freedom) * sqrt(total))


def fit_power_law(minutes: Sequence[float], errors: Float[np.ndarray, "S B"]) -> PowerLaw:
    """The law of S seeds, each with an error after every one of at least three times.

    Args:
        minutes: The times.
        errors: Of each seed at each time, all finite and above 0.
    """
    num_seeds, num_budgets = errors.shape
    assert num_budgets == len(minutes) >= MIN_BUDGETS
    x, y = np.log(minutes), np.log(errors)
    centre = float(x.mean())
    design = np.stack([np.ones_like(x), x - centre], axis=1)  # orthogonal columns
    lines = y @ design / (design**2).sum(0)  # of each seed
    line = lines.mean(0)
    free = num_budgets - 2
    scatter = y.mean(0) - design @ line
    parts = [(np.diag((scatter @ scatter) / free / (design**2).sum(0)), free)]
    if num_seeds > 1:
        parts.append((np.cov(lines, rowvar=False) / num_seeds, num_seeds - 1))
    return PowerLaw(centre, line, tuple(parts))
