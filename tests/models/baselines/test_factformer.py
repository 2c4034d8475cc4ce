"""FactFormer: factorised attention is one dense kernel, the Kronecker product of the axes'."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cato.errors import InputError
from cato.models.baselines.factformer import (
    AxisKernel,
    FactFormer,
    FactFormerConfig,
    apply_kernels,
    axis_places,
    rotation,
)
from cato.problem import Problem

shapes = st.lists(st.integers(3, 6), min_size=1, max_size=3).map(tuple)
seeds = st.integers(0, 2**31)


def model_of(shape, periodic=(), **kwargs):
    problem = Problem("test", "mesh", shape, ("a",), ("u",), len(shape), periodic)
    config = FactFormerConfig(**({"width": 8, "depth": 1, "heads": 2, "head_dim": 4} | kwargs))
    return FactFormer(config, problem).double(), problem


@settings(max_examples=20)
@given(shapes, seeds)
def test_axis_by_axis_is_the_dense_kronecker_kernel(shape, seed):
    torch.manual_seed(seed)
    kernels = [torch.randn(2, 3, n, n, dtype=torch.float64) for n in shape]
    v = torch.randn(2, 3, *shape, 5, dtype=torch.float64)
    z = apply_kernels(kernels, v)
    for b in range(2):
        for m in range(3):
            dense = np.ones((1, 1))
            for kernel in kernels:
                dense = np.kron(dense, kernel[b, m].numpy())
            expected = dense @ v[b, m].reshape(-1, 5).numpy()
            np.testing.assert_allclose(z[b, m].reshape(-1, 5).numpy(), expected, atol=1e-12)


@settings(max_examples=10)
@given(shapes, seeds)
def test_block_is_a_dense_kernel_integral(shape, seed):
    """The whole block, node pair by node pair, with kernels from plain loops over rotation
    matrices."""
    torch.manual_seed(seed)
    model, _ = model_of(shape)
    block, kernel_dim = model.blocks[0], model.kernel_dim
    h = torch.randn(1, *shape, 8, dtype=torch.float64)
    axes = [axis_places(n, False, h) for n in shape]
    turns = [rotation(axis, kernel_dim, False) for axis in axes]
    nodes = list(np.ndindex(*shape))
    turned = 2 * np.pi * np.stack(np.meshgrid(*axes, indexing="ij"), -1)
    turned = turned @ block.place.fourier.frequency.numpy()
    features = np.concatenate((np.sin(turned), np.cos(turned)), -1)
    placed = h + block.place.out(torch.from_numpy(features))

    normed = block.norm(placed)[0]
    omega = 64.0 * 10_000.0 ** (-2 * np.arange(kernel_dim // 2) / kernel_dim)
    q, k = [], []
    for axis, n in enumerate(shape):
        layer = block.axes[axis]
        for i in range(n):
            line = torch.stack([normed[x] for x in nodes if x[axis] == i]).mean(0)
            phi = layer.mlp(layer.norm(layer.pooled(line)))
            both = layer.query_key(phi).detach().numpy().reshape(2, 2, 2, kernel_dim // 2)
            both = (both[:, :, 0] + 1j * both[:, :, 1]) * np.exp(1j * omega * i / (n - 1))
            q.append(((axis, i), both[0]))
            k.append(((axis, i), both[1]))
    q, k = dict(q), dict(k)
    v = block.value(normed).detach().numpy().reshape(*shape, 2, 4)
    z = np.zeros((*shape, 2, 4))
    for m in range(2):
        for x in nodes:
            for y in nodes:
                kappa = 1.0
                for axis in range(len(shape)):
                    pair = np.conj(q[axis, x[axis]][m]) * k[axis, y[axis]][m]
                    kappa *= pair.real.sum()
                z[(*x, m)] += kappa * v[(*y, m)]
        z[..., m, :] -= z[..., m, :].mean()
        z[..., m, :] /= np.sqrt(z[..., m, :].var(ddof=1) + 1e-8)
    expected = placed[0] + block.mlp(torch.from_numpy(z).flatten(-2))
    places = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
    torch.testing.assert_close(block(h, places, turns)[0], expected, atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("periodic", [True, False])
def test_kernel_of_a_constant_state_depends_on_the_distance_only(periodic):
    """A Toeplitz matrix; on a periodic axis a circulant one."""
    torch.manual_seed(0)
    n, kernel_dim = 9, 16
    kernel = AxisKernel(8, 2, kernel_dim).double()
    constant = torch.randn(1, 1, 8, dtype=torch.float64).expand(1, n, 8)
    kernel.query_key.weight.data *= 100  # it starts small
    matrix = kernel(constant, rotation(axis_places(n, periodic, constant), kernel_dim, periodic))
    torch.testing.assert_close(matrix[..., 1:, 1:], matrix[..., :-1, :-1])
    wrapped = matrix.roll((1, 1), (-2, -1))
    assert torch.allclose(wrapped, matrix) == periodic
    assert matrix.std() > 1e-3  # and not constant: places are told apart


def test_places_on_a_torus_have_no_seam():
    """The position features of a node are a function on the torus: whole turns along every axis."""
    torch.manual_seed(0)
    model, _ = model_of((7, 6), (True, False), fourier_scale=8.0)
    place = model.blocks[0].place
    start, end = torch.tensor([[0.0, 0.3], [1.0, 0.3]], dtype=torch.float64)
    torch.testing.assert_close(place(start), place(end))
    assert not torch.allclose(place(start), place(start + 0.5))


def test_a_function_sampled_twice_as_densely_gives_nearly_the_same_answer():
    """Sums over nodes are integrals, once normed: the layers converge with the resolution."""
    torch.manual_seed(0)
    model, _ = model_of((9, 9), depth=2)
    model.head = torch.nn.Identity()  # its convolutions see the spacing of the nodes
    for block in model.blocks:
        for axis in block.axes:
            axis.query_key.weight.data *= 100  # not so small that the norm stops at its epsilon

    def answer(n):
        x = torch.linspace(0, 1, n, dtype=torch.float64)
        coords = torch.cartesian_prod(x, x)[None]
        features = torch.sin(3 * coords[..., :1]) * coords[..., 1:]
        values = model(coords, features, shape=(n, n)).values
        return values.detach().unflatten(1, (n, n))[:, :: (n - 1) // 8, :: (n - 1) // 8]

    exact = answer(257)
    errors = [(answer(n) - exact).norm().item() for n in (33, 65, 129)]
    assert errors[1] < 0.7 * errors[0]
    assert errors[2] < 0.7 * errors[1]


def test_odd_kernels_have_no_rotary_pairs():
    with pytest.raises(InputError, match="must be even, for rotary pairs; got 3"):
        model_of((6, 5), head_dim=3, kernel_ratio=1)
