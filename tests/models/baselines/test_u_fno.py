"""U-FNO: the U-Net's changes of resolution as plain sums, and its place in the layer."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from cato.models.baselines.u_fno import (
    UFNO,
    Convolution,
    Expansion,
    UFNOConfig,
    UFourierLayer,
    UNet,
)
from cato.problem import Problem

meshes = st.tuples(st.integers(2, 6), st.integers(2, 6))
seams = st.tuples(st.booleans(), st.booleans())
seeds = st.integers(0, 2**31)


def node(index, sizes, periodic):
    """The node at `index` after wrapping, or None beyond an open end."""
    wrapped = [i % n if wraps else i for i, n, wraps in zip(index, sizes, periodic, strict=True)]
    inside = all(0 <= i < n for i, n in zip(wrapped, sizes, strict=True))
    return tuple(wrapped) if inside else None


@settings(max_examples=15)
@given(meshes, seams, st.sampled_from([1, 2]), seeds)
def test_convolution_looks_at_every_other_node(shape, periodic, stride, seed):
    torch.manual_seed(seed)
    layer = Convolution(2, periodic, stride).double().eval()
    x = torch.randn(1, 2, *shape, dtype=torch.float64)
    weight = layer.convolve.weight
    coarse = tuple(-(-n // stride) for n in shape)
    y = torch.zeros(1, 2, *coarse, dtype=torch.float64)
    for i in range(coarse[0]):
        for j in range(coarse[1]):
            for a in range(3):
                for b in range(3):
                    there = node((stride * i + a - 1, stride * j + b - 1), shape, periodic)
                    if there is not None:
                        y[0, :, i, j] += weight[:, :, a, b] @ x[0, :, *there]
    expected = F.leaky_relu(y / (1 + layer.norm.eps) ** 0.5, 0.1)
    torch.testing.assert_close(layer(x), expected)


@settings(max_examples=15)
@given(meshes, seams, st.tuples(st.booleans(), st.booleans()), seeds)
def test_expansion_spreads_every_node_over_its_children(shape, periodic, odd, seed):
    torch.manual_seed(seed)
    layer = Expansion(2, 3, periodic).double()
    x = torch.randn(1, 2, *shape, dtype=torch.float64)
    fine = tuple(2 * n for n in shape)
    weight, y = layer.convolve.weight, layer.convolve.bias[:, None, None].repeat(1, *fine)
    for i in range(shape[0]):
        for j in range(shape[1]):
            for a in range(4):
                for b in range(4):
                    there = node((2 * i + a - 1, 2 * j + b - 1), fine, periodic)
                    if there is not None:
                        y[:, *there] += x[0, :, i, j] @ weight[:, :, a, b]
    skip = torch.randn(1, 3, *(n - o for n, o in zip(fine, odd, strict=True))).double()
    expected = F.leaky_relu(y[:, : skip.shape[2], : skip.shape[3]], 0.1)
    torch.testing.assert_close(layer(x, skip), torch.cat((skip, expected[None]), dim=1))


@settings(max_examples=10)
@given(st.tuples(st.integers(3, 20), st.integers(3, 20)), seams)
def test_unet_returns_to_the_mesh_it_came_from(shape, periodic):
    x = torch.randn(2, 4, *shape)
    assert UNet(4, periodic)(x).shape == x.shape


def test_torus_has_no_seam():
    """Shifts by the coarsest cell, 8 nodes, commute with the model; by less they need not."""
    torch.manual_seed(0)
    problem = Problem("test", "mesh", (24, 16), ("a",), ("u",), periodic=(True, True))
    config = UFNOConfig(width=8, depth=1, u_depth=1, modes=(4, 4))
    model = UFNO(config, problem).double().eval()
    coords, features = torch.rand(1, 24 * 16, 3, dtype=torch.float64).split((2, 1), -1)

    def error(shift):
        def roll(x):
            return x.unflatten(1, problem.shape).roll((shift, shift), (1, 2)).flatten(1, 2)

        return model(roll(coords), roll(features)).values - roll(model(coords, features).values)

    assert error(8).abs().max() < 1e-12
    assert error(3).abs().max() > 1e-9


def test_u_fourier_layer_is_the_sum_of_three_branches():
    torch.manual_seed(0)
    layer = UFourierLayer(4, (3, 3), (False, False)).double().eval()
    x = torch.randn(2, 4, 11, 9, dtype=torch.float64)
    fourier = layer.spectral(x) + F.conv2d(
        x, layer.pointwise.weight[..., None, None], layer.pointwise.bias
    )
    torch.testing.assert_close(layer(x), fourier + layer.unet(x))
    torch.nn.init.zeros_(layer.unet.out.weight)
    torch.nn.init.zeros_(layer.unet.out.bias)
    torch.testing.assert_close(layer(x), fourier)


@pytest.mark.parametrize("count", [(1, 2), (3, 3)])
def test_unets_come_last(count):
    problem = Problem("test", "mesh", (12, 12), (), ("u",))
    model = UFNO(UFNOConfig(width=4, depth=count[0], u_depth=count[1]), problem)
    kinds = [isinstance(layer, UFourierLayer) for layer in model.layers]
    assert kinds == [False] * count[0] + [True] * count[1]
