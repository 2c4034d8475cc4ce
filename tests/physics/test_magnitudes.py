"""Errors and losses do not depend on the unit: fields times 1e-30 to 1e30 give the same numbers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cato.physics.gradient import inverse_metric
from cato.physics.losses import LossConfig, PhysicalLoss, gradient_rms
from cato.physics.metrics import relative_l2, relative_l2_per_field, relative_l2_per_frame
from cato.problem import Problem

SHAPE = (5, 6)
exponents = st.integers(-30, 30)


def fields(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Predictions and targets, float32."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randn(shape, generator=generator)
    return target + 0.3 * torch.randn(shape, generator=generator), target


@settings(max_examples=40)
@given(exponents, st.integers(0, 100))
def test_metrics_at_any_magnitude(exponent: int, seed: int) -> None:
    found, true = fields(3, 2, 30, 2, seed=seed)
    unit, mask = 10.0**exponent, torch.rand(3, 30) > 0.2
    for metric in (
        relative_l2,
        relative_l2_per_frame,
        lambda p, t, m: torch.stack(
            [*relative_l2_per_field(p, t, {"a": [0], "b": [1, 0]}, m).values()]
        ),
    ):
        for some in (None, mask):
            expected = metric(found, true, some)
            assert expected.min() > 0.1
            torch.testing.assert_close(
                metric(unit * found, unit * true, some), expected, rtol=1e-6, atol=0
            )


def test_squares_that_float64_does_not_have() -> None:
    found, true = (values.double() for values in fields(2, 30, 1))
    expected = relative_l2(found, true)
    for unit in (1e-250, 1e250):
        torch.testing.assert_close(relative_l2(unit * found, unit * true), expected)
    zero = torch.zeros(2, 30, 1)
    assert relative_l2(zero, zero).tolist() == [0, 0]
    assert relative_l2(zero + 1, zero).isinf().all()


@settings(max_examples=40)
@given(exponents, st.integers(0, 100))
def test_losses_at_any_magnitude(exponent: int, seed: int) -> None:
    """Every term with units, and the gradient for the network, which predicts in these units."""
    config = LossConfig(gradient=0.2, flux=0.3, consistency=0.05, gdl=0.1)
    problem = Problem("test", "mesh", SHAPE, (), ("u", "v"))
    i, j = torch.meshgrid(*[torch.arange(float(n)) for n in SHAPE], indexing="ij")
    coords = torch.stack([i + 0.2 * j, j], -1).flatten(0, 1)
    metric = inverse_metric(coords, SHAPE, problem.periodic, problem.period)
    found, true = fields(3, 30, 2, seed=seed)
    flux = torch.randn(3, 30, 2, 2, generator=torch.Generator().manual_seed(seed))

    def losses(unit: float) -> tuple[dict[str, Tensor], Tensor]:
        network = found.clone().requires_grad_()
        scale = gradient_rms(unit * true, metric, SHAPE, problem.periodic)
        loss = PhysicalLoss(config, problem, scale)
        total, terms = loss(unit * network, unit * true, flux=unit * flux, metric=metric)
        (slope,) = torch.autograd.grad(total, network)
        return terms | {"total": total.detach()}, slope

    (expected, slope), (terms, scaled_slope) = losses(1.0), losses(10.0**exponent)
    assert terms.keys() == {"total", "value", "gradient", "flux", "consistency", "gdl"}
    for name, term in expected.items():
        assert float(terms[name]) == pytest.approx(float(term), rel=1e-5), name
    torch.testing.assert_close(scaled_slope, slope, rtol=1e-4, atol=1e-6 * float(slope.abs().max()))


def test_ordinary_losses_keep_their_digits() -> None:
    """Units are powers of two, so that nothing is rounded that was not rounded before."""
    found, true = fields(4, 30, 1)
    expected = torch.linalg.vector_norm(found - true, dim=(1, 2)) / torch.linalg.vector_norm(
        true, dim=(1, 2)
    )
    cloud = Problem("test", "cloud", (30,), (), ("u",))
    weights = torch.eye(4)
    for index in range(4):
        total, _ = PhysicalLoss(LossConfig(), cloud)(found, true, weights=weights[index])
        assert torch.equal(total, expected[index])


@settings(max_examples=20)
@given(st.floats(-1e7, 1e7))
def test_errors_are_relative_to_the_variation_around_an_offset(offset: float) -> None:
    found, true = (values.double() for values in fields(3, 30, 2))
    expected = relative_l2(found, true)
    offsets = (offset, 0.0)
    level = torch.tensor(offsets, dtype=torch.float64)
    torch.testing.assert_close(
        relative_l2(found + level, true + level, None, offsets), expected, rtol=1e-6, atol=0
    )
    problem = Problem("test", "cloud", (30,), (), ("u", "v"), float64=("outputs",), offsets=offsets)
    total, _ = PhysicalLoss(LossConfig(), problem)(found + level, true + level)
    torch.testing.assert_close(total, expected.mean(), rtol=1e-6, atol=0)


def test_an_offset_of_one_field_is_not_that_of_another() -> None:
    found, true = (values.double() for values in fields(3, 30, 2))
    level = torch.tensor([5e3, 0.0], dtype=torch.float64)
    apart = relative_l2_per_field(
        found + level, true + level, {"u": [0], "v": [1]}, None, level.tolist()
    )
    for channel, errors in enumerate(apart.values()):
        one = [values[..., channel : channel + 1] for values in (found, true)]
        torch.testing.assert_close(errors, relative_l2(*one), rtol=1e-6, atol=0)
