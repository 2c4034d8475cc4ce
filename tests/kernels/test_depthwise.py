"""Depthwise convolutions: the gradients are PyTorch's."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from cato.kernels.depthwise import DepthwiseConv2d, weight_gradient
from cato.models.cato.grid import LocalOperator


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 20),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.sampled_from([(5, 5), (7, 7), (3, 7)]),
    st.booleans(),
)
def test_weight_gradients_are_exact(batch, channels, mesh, stencil, is_padded):
    padding = tuple(k // 2 for k in stencil) if is_padded else (0, 0)
    size = [n if is_padded else n + k - 1 for n, k in zip(mesh, stencil, strict=True)]
    x = torch.randn(batch, channels, *size, dtype=torch.float64)
    weight = torch.zeros(channels, 1, *stencil, dtype=torch.float64, requires_grad=True)
    y = F.conv2d(x, weight, padding=padding, groups=channels)
    slopes = torch.randn_like(y)
    (expected,) = torch.autograd.grad(y, weight, slopes)
    found = weight_gradient(x.float(), slopes.float(), weight.detach().float(), padding)
    torch.testing.assert_close(found.double(), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("periodic", [(False, False), (True, False), (True, True)])
def test_the_local_operator_is_that_of_pytorchs_operations(periodic):
    operator = LocalOperator(8, 7, periodic)
    h = torch.randn(2, 12, 9, 8, requires_grad=True)
    slopes = torch.randn(2, 12, 9, 8)
    parameters = [h, *operator.parameters()]
    found = torch.autograd.grad(operator(h), parameters, slopes)
    x = h.movedim(-1, 1)
    wrap = [3 if periodic[1] else 0] * 2 + [3 if periodic[0] else 0] * 2
    x = F.pad(F.pad(x, wrap, mode="circular"), [3 - n for n in wrap])
    x = F.conv2d(x, operator.depthwise.weight, operator.depthwise.bias, groups=8)
    expected = torch.autograd.grad(operator.pointwise(F.gelu(x).movedim(1, -1)), parameters, slopes)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=1e-4)


def test_results_do_not_depend_on_the_number_of_threads():
    x, slopes = torch.randn(2, 16, 20, 20), torch.randn(2, 16, 20, 20)
    weight, before = torch.zeros(16, 1, 5, 5), torch.get_num_threads()
    found = []
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            found.append(weight_gradient(x, slopes, weight, (2, 2)))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


def test_it_can_be_differentiated_twice():
    layer = DepthwiseConv2d(3, 3, 5, padding=2, groups=3)
    x = torch.randn(1, 3, 8, 8, requires_grad=True)
    (slope,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(slope.square().sum(), layer.weight)
    plain = F.conv2d(x, layer.weight, layer.bias, padding=2, groups=3)
    (slope,) = torch.autograd.grad(plain.square().sum(), x, create_graph=True)
    (expected,) = torch.autograd.grad(slope.square().sum(), layer.weight)
    torch.testing.assert_close(second, expected)
