"""WMT: the multiwavelets are orthonormal, reconstruct exactly and do not see polynomials."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cato.errors import InputError
from cato.models.baselines.wmt import (
    WMT,
    Multiwavelet,
    MultiwaveletLayer,
    WMTConfig,
    multiwavelet_filter,
)
from cato.problem import Problem

orders = pytest.mark.parametrize("k", [1, 2, 3, 4, 6])


def coefficients(function, num_cells, k):
    """L² projection on the normalised Legendre polynomials of each of the cells of [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    out = np.zeros((num_cells, k))
    for cell in range(num_cells):
        x = (cell + (nodes + 1) / 2) / num_cells
        for i in range(k):
            legendre = np.polynomial.legendre.Legendre.basis(i)(nodes)
            basis = np.sqrt((2 * i + 1) * num_cells) * legendre
            out[cell, i] = (weights * function(x) * basis).sum() / (2 * num_cells)
    return out


@orders
def test_filters_are_orthonormal(k):
    matrix = multiwavelet_filter(k)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(2 * k), atol=1e-13)


def test_one_polynomial_is_haar():
    np.testing.assert_allclose(multiwavelet_filter(1), np.array([[1, 1], [-1, 1]]) / np.sqrt(2))


@orders
def test_filters_project_any_function_on_the_coarser_cells(k):
    """Two fine cells know the coarse coefficients exactly; polynomials of degree < k leave none."""
    s, d = np.split(multiwavelet_filter(k), 2)
    fine = coefficients(lambda x: np.exp(2 * x), 8, k).reshape(4, 2 * k)
    np.testing.assert_allclose(fine @ s.T, coefficients(lambda x: np.exp(2 * x), 4, k), atol=1e-12)
    assert np.abs(fine @ d.T).max() > 1e-9
    polynomial = coefficients(lambda x: (x - 0.3) ** (k - 1), 8, k).reshape(4, 2 * k)
    np.testing.assert_allclose(polynomial @ d.T, 0, atol=1e-13)


@settings(max_examples=10)
@given(st.integers(1, 4), st.tuples(st.integers(1, 4), st.integers(1, 4)), st.integers(0, 2**31))
def test_two_dimensional_split_is_orthonormal_and_joins_exactly(k, cells, seed):
    torch.manual_seed(seed)
    wavelet = Multiwavelet(k).double()
    wavelet.matrix = exact_matrix(k)
    x = torch.randn(2, 2 * k**2, 2 * cells[0], 2 * cells[1], dtype=torch.float64)
    s, d = wavelet.split(x)
    assert s.shape == (2, 2 * k**2, *cells)
    assert d.shape == (2, 6 * k**2, *cells)
    torch.testing.assert_close(wavelet.join(s, d), x)
    torch.testing.assert_close(s.square().sum() + d.square().sum(), x.square().sum())


def exact_matrix(k):
    """The buffer of `Multiwavelet` holds single precision."""
    s, d = np.split(multiwavelet_filter(k), 2)
    return torch.tensor(np.concatenate([np.kron(a, b) for a in (s, d) for b in (s, d)]))


def test_split_of_products_is_the_product_of_projections():
    """f(x) g(y) on 4 × 8 cells: s, and the three kinds of detail in their order and layout."""
    k = 3
    s, d = np.split(multiwavelet_filter(k), 2)
    f, g = coefficients(np.exp, 4, k), coefficients(np.cos, 8, k)
    x = torch.tensor(np.einsum("hi,wj->ijhw", f, g).reshape(1, k * k, 4, 8))
    wavelet = Multiwavelet(k).double()
    coarse, details = wavelet.split(x)
    expected = [
        np.einsum("hi,wj->ijhw", f.reshape(2, -1) @ a.T, g.reshape(4, -1) @ b.T)
        for a in (s, d)
        for b in (s, d)
    ]
    both = torch.cat((coarse, details), dim=1).numpy().reshape(4, k, k, 2, 4)
    np.testing.assert_allclose(both, np.stack(expected), atol=1e-6)


class Silent(nn.Module):
    def __init__(self, num_out):
        super().__init__()
        self.num_out = num_out

    def forward(self, x):
        return x.new_zeros(len(x), self.num_out, *x.shape[2:])


@pytest.mark.parametrize("shape", [(16, 16), (4, 32), (8, 1)])
def test_layer_that_leaves_all_coefficients_alone_is_the_identity(shape):
    torch.manual_seed(0)
    layer = MultiwaveletLayer(WMTConfig(width=18, modes=(2, 2)), (False, False))
    layer.a, layer.b, layer.c, layer.t = nn.Identity(), Silent(54), Silent(18), nn.Identity()
    x = torch.randn(2, 18, *shape)
    torch.testing.assert_close(layer(x), x, atol=1e-5, rtol=1e-5)


def test_layer_acts_on_every_level_in_non_standard_form():
    """Two levels written out: d ← A d + B s and s ← s' + C d, T on the coarsest s."""
    torch.manual_seed(0)
    layer = MultiwaveletLayer(WMTConfig(width=9, modes=(2, 2)), (False, False)).double()
    x = torch.randn(2, 9, 4, 4, dtype=torch.float64)
    s1, d1 = layer.wavelet.split(x)
    s2, d2 = layer.wavelet.split(s1)
    s = layer.wavelet.join(layer.t(s2) + layer.c(d2), layer.a(d2) + layer.b(s2))
    expected = layer.wavelet.join(s + layer.c(d1), layer.a(d1) + layer.b(s1))
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("periodic", [(True, True), (False, True), (False, False)])
def test_any_mesh_becomes_a_power_of_two_and_returns(periodic):
    """With layers that do nothing, the body returns smooth fields as they were."""
    problem = Problem("test", "mesh", (13, 19), (), ("u",), periodic=periodic)
    model = WMT(WMTConfig(width=9, depth=1), problem)
    seen = []
    model.layers = nn.ModuleList([nn.Identity()])
    model.layers[0].register_forward_hook(lambda module, args, out: seen.append(out.shape[2:]))
    i, j = (2 * torch.pi * torch.arange(n) / n for n in problem.shape)
    x = (torch.sin(i)[:, None] + torch.cos(2 * j)).expand(1, 9, 13, 19)
    torch.testing.assert_close(model.body(x), x, atol=1e-5, rtol=1e-5)
    assert seen == [(16, 32)]


def test_width_must_hold_whole_cells():
    with pytest.raises(InputError, match="multiple of the 3² polynomials"):
        WMT(WMTConfig(width=32), Problem("test", "grid", (16, 16), (), ("u",)))
