"""FNO and its spectral convolution, against circular convolutions written as plain sums."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cato.errors import InputError
from cato.models.baselines.fno import FNO, FNOConfig
from cato.models.layers.spectral import SpectralConv, resample
from cato.problem import Problem

seeds = st.integers(0, 2**31)


def frequencies(modes, shape):
    """The frequencies the convolution keeps and where their weights lie, by the definition."""
    axes = []
    for axis, (m, n) in enumerate(zip(modes, shape, strict=True)):
        last = axis == len(shape) - 1
        rows = {k: k for k in range(m) if 2 * k < n}
        if not last:
            rows |= {-k: 2 * m - k for k in range(1, m + 1) if 2 * k <= n}
        axes.append(rows)
    for ks in product(*axes):
        yield ks, tuple(rows[k] for rows, k in zip(axes, ks, strict=True))


def kernel_of(conv, shape):
    """κ(x) = 1/N Σ_k c_k Re[W(k) exp(2πi k·x/n)], the real kernel whose spectrum the weights are:
    each k with k_last > 0 stands for its conjugate, too."""
    weight = torch.view_as_complex(conv.weight.detach()).numpy()
    mesh = np.meshgrid(*(np.arange(n) / n for n in shape), indexing="ij")
    kernel = np.zeros((*weight.shape[-2:], *shape))
    for ks, where in frequencies(conv.modes, shape):
        phase = 2 * np.pi * sum(k * x for k, x in zip(ks, mesh, strict=True))
        both = 2 if ks[-1] else 1
        kernel += both * np.real(np.multiply.outer(weight[where], np.exp(1j * phase)))
    return kernel / np.prod(shape)


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.integers(2, 7), st.integers(1, 5)), min_size=1, max_size=3),
    seeds,
)
def test_spectral_convolution_is_a_circular_convolution(axes, seed):
    """Any mesh, also one with fewer frequencies than there are modes."""
    torch.manual_seed(seed)
    shape, modes = (tuple(values) for values in zip(*axes, strict=True))
    conv = SpectralConv(2, 3, modes).double()
    x = torch.randn(1, 2, *shape, dtype=torch.float64)
    kernel, expected = kernel_of(conv, shape), np.zeros((3, *shape))
    mesh_axes = tuple(range(2, 2 + len(shape)))
    for node in np.ndindex(shape):
        moved = np.roll(kernel, node, axis=mesh_axes)  # κ(· − node)
        expected += np.einsum("io...,i->o...", moved, x[0, :, *node].numpy())
    np.testing.assert_allclose(conv(x)[0].detach().numpy(), expected, atol=1e-12)


def smooth(shape, dtype=torch.float64):
    """A trigonometric polynomial of degree at most 2 in each variable, on a mesh of the torus."""
    x, y = torch.meshgrid(
        *(2 * torch.pi * torch.arange(n, dtype=dtype) / n for n in shape), indexing="ij"
    )
    u = torch.sin(x) * torch.cos(2 * y) + 0.3 + torch.cos(2 * x - y)
    return torch.stack((u, torch.sin(2 * y)))[None]


@settings(max_examples=20)
@given(*(st.tuples(st.integers(6, 12), st.integers(6, 12)) for _ in range(2)), seeds)
def test_result_can_be_read_out_on_any_mesh(shape, other, seed):
    """The convolution acts on functions: mesh in and mesh out do not matter."""
    torch.manual_seed(seed)
    conv = SpectralConv(2, 3, (3, 3)).double()
    torch.testing.assert_close(conv(smooth(shape), other), conv(smooth(other)))
    torch.testing.assert_close(resample(smooth(shape), other), smooth(other))


def test_weights_of_missing_frequencies_get_no_gradient():
    conv = SpectralConv(1, 1, (4, 4))
    conv(torch.randn(1, 1, 4, 4)).square().sum().backward()
    used = conv.weight.grad.flatten(-3).any(-1)
    expected = torch.zeros(8, 4, dtype=torch.bool)
    expected[[0, 1, 6, 7], :2] = True  # frequencies 0, 1, −2, −1 of the rows; 0, 1 of the columns
    assert torch.equal(used, expected)


def test_convolution_stays_in_float32_inside_autocast():
    torch.manual_seed(0)
    conv, x = SpectralConv(4, 4, (3, 3)), torch.randn(2, 4, 9, 8)
    with torch.autocast("cpu", torch.bfloat16):
        rough = conv(x)
    assert rough.dtype == torch.float32
    assert torch.equal(rough, conv(x))


@pytest.mark.parametrize("periodic", [(True, True), (False, False), (True, False)])
def test_only_open_axes_are_padded(periodic):
    """A model of convolutions commutes with shifts along an axis exactly if it is not padded."""
    torch.manual_seed(0)
    problem = Problem("test", "mesh", (16, 15), ("a",), ("u",), periodic=periodic)
    model = FNO(FNOConfig(width=8, depth=2, modes=(4, 4)), problem).double()
    coords, features = torch.rand(1, 240, 3, dtype=torch.float64).split((2, 1), -1)

    def roll(x, axis):
        return x.unflatten(1, problem.shape).roll(5, 1 + axis).flatten(1, 2)

    for axis, wraps in enumerate(periodic):
        moved = model(roll(coords, axis), roll(features, axis)).values
        error = (moved - roll(model(coords, features).values, axis)).abs().max()
        assert error < 1e-12 if wraps else error > 1e-6


def test_two_dimensions_only():
    with pytest.raises(InputError, match="works in two dimensions"):
        FNO(FNOConfig(), Problem("test", "mesh", (9, 9, 9), (), ("u",), dimension=3))


def test_masks_are_for_clouds():
    problem = Problem("test", "grid", (9, 9), (), ("u",))
    mask = torch.ones(1, 81, dtype=torch.bool)
    with pytest.raises(InputError, match="masks are for point clouds"):
        FNO(FNOConfig(width=4), problem)(torch.rand(1, 81, 2), torch.rand(1, 81, 0), mask=mask)
