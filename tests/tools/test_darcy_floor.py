"""Draws of media that agree with what a model sees of them."""

from math import asin, pi, sqrt

import numpy as np
import pytest

from cato.benchmarks.darcy.medium import gaussian_field
from tools.darcy_floor import between, sweep, visible_nodes


@pytest.mark.parametrize("correlation", [0.0, 0.6, -0.5])
def test_draws_with_given_signs_have_the_exact_mean(correlation):
    rng = np.random.default_rng(0)
    precision = np.linalg.inv(np.array([[1, correlation], [correlation, 1]]))
    field, signs = np.array([0.5, -0.5]), np.array([1.0, -1.0])
    total = np.zeros(2)
    for _ in range(8000):
        sweep(field, signs, precision, rng)
        total += field
    # of the quadrant x > 0 > y, which has the correlation of x and −y
    share = 1 / 4 - asin(correlation) / (2 * pi)
    mean = (1 - correlation) / (2 * sqrt(2 * pi) * share)
    assert total / 8000 == pytest.approx([mean, -mean], abs=0.03)


def test_a_drawn_field_has_the_visible_values_and_the_variance_of_the_medium():
    rng, seen = np.random.default_rng(1), visible_nodes(21, 5)
    true = gaussian_field(rng, 21)
    drawn = between(seen.of(true).ravel(), seen, rng)
    np.testing.assert_allclose(seen.of(drawn), seen.of(true), atol=1e-6)
    assert np.abs(drawn - true).max() > 1e-3
    # A field drawn around a fresh draw of the visible nodes is a draw of the medium.
    others = [
        between(seen.of(gaussian_field(rng, 21)).ravel(), seen, rng)[7, 9] for _ in range(300)
    ]
    medium = [gaussian_field(rng, 21)[7, 9] for _ in range(300)]
    assert np.std(others) == pytest.approx(np.std(medium), rel=0.2)
