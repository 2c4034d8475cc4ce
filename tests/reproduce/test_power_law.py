"""The fit of error against minutes: known laws are recovered, and the intervals cover them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import linregress, t

from reproduce.power_law import fit_power_law

MINUTES = (2.5, 5.0, 10.0)


@given(st.floats(-2, 3), st.floats(1e-3, 1), st.integers(1, 4))
def test_an_exact_law_is_recovered(exponent, factor, num_seeds):
    errors = np.tile([factor * m**-exponent for m in MINUTES], (num_seeds, 1))
    law = fit_power_law(MINUTES, errors)
    assert law.exponent == pytest.approx(exponent, abs=1e-9)
    assert law.exponent_margin < 1e-6
    assert law.error(40) == pytest.approx(factor * 40**-exponent)
    assert law.interval(40) == pytest.approx(2 * (law.error(40),), rel=1e-6)


def test_one_seed_has_the_interval_of_a_regression():
    errors = [0.20, 0.13, 0.11, 0.07]
    minutes = (2.5, 5, 10, 20)
    law = fit_power_law(minutes, np.array([errors]))
    expected = linregress(np.log(minutes), np.log(errors))
    assert law.exponent == pytest.approx(-expected.slope)
    assert law.exponent_margin == pytest.approx(t.ppf(0.975, 2) * expected.stderr)
    assert law.error(1) == pytest.approx(np.exp(expected.intercept))
    low, high = law.interval(1)
    margin = t.ppf(0.975, 2) * expected.intercept_stderr
    assert (low, high) == pytest.approx(np.exp(expected.intercept + np.array([-margin, margin])))


def test_intervals_widen_with_the_distance_of_an_extrapolation():
    errors = 0.2 * np.array(MINUTES) ** -0.4 * np.array([[1.02, 0.98, 1.01], [0.99, 1.0, 1.02]])
    law = fit_power_law(MINUTES, errors)
    ratios = [high / low for low, high in map(law.interval, (10, 40, 160, 640))]
    assert ratios == sorted(ratios)
    assert law.interval(10)[0] < law.error(10) < law.interval(10)[1]


@pytest.mark.parametrize(
    ("num_seeds", "minutes", "shared"),
    [
        (1, (2, 4, 8, 16), 0.0),
        (3, MINUTES, 0.0),
        (5, MINUTES, 0.0),
        (3, MINUTES, 0.15),
        (5, MINUTES, 0.15),
    ],
)
def test_intervals_cover_the_law(num_seeds, minutes, shared):
    """95 % of the time, also if every seed has a slope of its own, as trunks do (`shared`)."""
    random = np.random.default_rng(0)
    x, exponent = np.log(minutes), 0.35
    covered = []
    for _ in range(400):
        slopes = exponent + shared * random.normal(size=(num_seeds, 1))
        noise = 0.05 * random.normal(size=(num_seeds, len(x)))
        law = fit_power_law(minutes, 0.3 * np.exp(-slopes * x + noise))
        low, high = law.interval(100)
        covered.append(
            (abs(law.exponent - exponent) < law.exponent_margin, low < 0.3 * 100**-exponent < high)
        )
    assert (np.mean(covered, axis=0) > 0.93).all()


def test_points_off_the_line_are_uncertainty_that_seeds_do_not_show():
    """Errors that level off: all seeds agree, but not on a line."""
    level = 0.05 + 0.2 / np.array([2.5, 5, 10, 20, 40])
    seeds = np.tile(level, (5, 1)) * (1 + 1e-3 * np.arange(5))[:, None]
    law = fit_power_law((2.5, 5, 10, 20, 40), seeds)
    assert law.exponent_margin > 0.05
