"""The relative error against plain NumPy, its invariances, and the summary."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cato.errors import InputError
from cato.physics.metrics import (
    relative_l2,
    relative_l2_per_field,
    relative_l2_per_frame,
    summarise,
)


@pytest.mark.parametrize("shape", [(4, 7, 2), (3, 5, 7, 1)])
def test_relative_error_of_each_sample(shape: tuple[int, ...]) -> None:
    prediction, target = torch.randn(shape), torch.randn(shape)
    expected = [
        np.linalg.norm((p - t).flatten()) / np.linalg.norm(t.flatten())
        for p, t in zip(prediction.numpy(), target.numpy(), strict=True)
    ]
    np.testing.assert_allclose(relative_l2(prediction, target), expected, rtol=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.floats(1e-6, 1e6), st.floats(0, 3))
def test_scale_invariance_and_homogeneity(unit: float, error: float) -> None:
    target = torch.randn(2, 9, 3, dtype=torch.float64) * unit
    torch.testing.assert_close(
        relative_l2((1 + error) * target, target), torch.full((2,), error, dtype=torch.float64)
    )


def test_frames_by_themselves_and_jointly() -> None:
    """The joint error is the quadratic mean of the frames' errors, weighted by their sizes."""
    prediction, target = torch.randn(2, 4, 6, 1), torch.randn(2, 4, 6, 1)
    frames = relative_l2_per_frame(prediction, target)
    assert frames.shape == (2, 4)
    torch.testing.assert_close(frames[:, 2], relative_l2(prediction[:, 2], target[:, 2]))
    sizes = target.square().sum((2, 3))
    joint = ((frames.square() * sizes).sum(1) / sizes.sum(1)).sqrt()
    torch.testing.assert_close(relative_l2(prediction, target), joint)


def test_fields_by_themselves_and_jointly() -> None:
    """Fields that part the channels make up the joint error, weighted by their sizes."""
    prediction, target = torch.randn(2, 4, 6, 3), torch.randn(2, 4, 6, 3)
    target[..., 0] *= 100
    fields = relative_l2_per_field(prediction, target, {"large": [0], "small": [1, 2]})
    torch.testing.assert_close(fields["small"], relative_l2(prediction[..., 1:], target[..., 1:]))
    sizes = torch.stack(
        [target[..., :1].square().sum((1, 2, 3)), target[..., 1:].square().sum((1, 2, 3))]
    )
    joint = ((torch.stack(list(fields.values())).square() * sizes).sum(0) / sizes.sum(0)).sqrt()
    torch.testing.assert_close(relative_l2(prediction, target), joint)


def test_padding_does_not_count() -> None:
    prediction, target = torch.randn(2, 3, 8, 2), torch.randn(2, 3, 8, 2)
    mask = torch.arange(8).expand(2, -1) < torch.tensor([[5], [8]])
    expected = torch.cat(
        [
            relative_l2(prediction[:1, :, :5], target[:1, :, :5]),
            relative_l2(prediction[1:], target[1:]),
        ]
    )
    prediction[0, :, 5:], target[0, :, 5:] = math.nan, math.inf
    torch.testing.assert_close(relative_l2(prediction, target, mask), expected)
    frames = relative_l2_per_frame(prediction, target, mask)
    torch.testing.assert_close(
        frames[0], relative_l2_per_frame(prediction[:1, :, :5], target[:1, :, :5])[0]
    )


def test_zero_target_is_infinitely_wrong_unless_exact() -> None:
    target = torch.zeros(3, 4, 1)
    prediction = target.clone()
    prediction[1, 2] = 1e-20
    prediction[2] = math.nan
    errors = relative_l2(prediction.double(), target.double())
    assert errors[0] == 0
    assert errors[1] == math.inf
    assert errors[2].isnan()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 10), min_size=1, max_size=40))
def test_summary_against_numpy(errors: list[float]) -> None:
    summary = summarise(torch.tensor(errors, dtype=torch.float64))
    assert summary.mean == pytest.approx(np.mean(errors))
    assert summary.median == pytest.approx(np.median(errors))
    assert summary.p90 == np.quantile(errors, 0.9, method="inverted_cdf")
    assert summary.worst == max(errors) == errors[summary.worst_index]


def test_summary_keeps_infinite_and_missing_errors_in_sight() -> None:
    summary = summarise(torch.tensor([0.1, math.inf, 0.2, 0.3]))
    assert (summary.mean, summary.worst, summary.worst_index) == (math.inf, math.inf, 1)
    assert summary.median == pytest.approx(0.25)
    summary = summarise(torch.tensor([0.1, 0.2, math.nan]))
    assert math.isnan(summary.mean)
    assert math.isnan(summary.worst)
    assert summary.worst_index == 2


def test_no_sample_is_an_error() -> None:
    with pytest.raises(InputError, match="at least one"):
        summarise(torch.zeros(0))
