"""Learning curves: known laws are found, and intervals hold what they promise."""

import numpy as np
import pytest

from cato.training.advice import SHARES
from cato.training.learning_curve import CONFIDENCE, Trained, fit_learning_curve

SAMPLES, STEPS = 400, 800  # Of the largest training.


def law(share, by_samples, by_steps):
    def error(samples, steps):
        first = share * (samples / SAMPLES) ** -by_samples
        return 0.1 * (first + (1 - share) * (steps / STEPS) ** -by_steps)

    return error


def trained(error, rng=None, scatter=0.0):
    """The trainings of an advice under a law."""
    noise = np.exp(scatter * rng.standard_normal(len(SHARES))) if rng else np.ones(len(SHARES))
    sizes = [(int(n * SAMPLES), int(s * STEPS)) for n, s in SHARES]
    errors = [error(*size) * x for size, x in zip(sizes, noise, strict=True)]
    return [Trained(*size, e, e / 2) for size, e in zip(sizes, errors, strict=True)]


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_a_law_without_scatter_is_continued(share):
    error = law(share, 0.6, 0.8)
    curve = fit_learning_curve(trained(error))
    for size in ((2 * SAMPLES, 4 * STEPS), (SAMPLES, 8 * STEPS)):
        assert curve.error(*size).median == pytest.approx(error(*size), rel=0.12)
        assert curve.error(*size).low < error(*size) < curve.error(*size).high


def test_as_many_intervals_hold_the_truth_as_promised():
    """For laws and single trainings drawn like the prior, with a margin of three deviations."""
    rng, inside = np.random.default_rng(0), []
    for _ in range(60):
        error = law(rng.uniform(0.02, 0.98), *rng.uniform(0.1, 1.5, 2))
        found = fit_learning_curve(trained(error, rng, 0.05)).error(2 * SAMPLES, 4 * STEPS)
        truth = error(2 * SAMPLES, 4 * STEPS) * np.exp(0.05 * rng.standard_normal())
        inside.append(found.low < truth < found.high)
    assert np.mean(inside) > CONFIDENCE - 3 * np.sqrt(CONFIDENCE * (1 - CONFIDENCE) / 60)


def test_intervals_widen_with_scatter_and_distance():
    error, rng = law(0.5, 0.6, 0.8), np.random.default_rng(0)
    calm, wild = (fit_learning_curve(trained(error, rng, s)) for s in (0.01, 0.3))
    at = 2 * SAMPLES, 4 * STEPS
    assert wild.error(*at).width > 1.5 * calm.error(*at).width
    assert calm.error(*at).width > calm.error(SAMPLES, STEPS).width
