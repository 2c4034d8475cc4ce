"""SAOT: the Haar transform, the spectral branches and the gate as mathematics."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cato.errors import InputError
from cato.models.baselines.saot import (
    SAOT,
    FourierBranch,
    SAOTConfig,
    SpectralAttention,
    WaveletBranch,
    haar,
    inverse_haar,
)
from cato.models.layers.nodewise import ReferenceGrid
from cato.problem import Problem

shapes = st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple)


@given(shapes, st.integers(0, 10**6))
def test_haar_transform_reconstructs_exactly(shape, seed):
    torch.manual_seed(seed)
    x = torch.randn(2, *(2 * n for n in shape), 3, dtype=torch.float64)
    coefficients = haar(x)
    assert coefficients.shape == (2, *shape, 3 * 2 ** len(shape))
    torch.testing.assert_close(inverse_haar(coefficients), x)


@given(shapes, st.integers(0, 10**6))
def test_haar_transform_is_orthogonal(shape, seed):
    torch.manual_seed(seed)
    x, y = torch.randn(2, 1, *(2 * n for n in shape), 3, dtype=torch.float64)
    torch.testing.assert_close((haar(x) * haar(y)).sum(), (x * y).sum())


def test_haar_coefficients_are_scaled_sums_and_differences_of_two_by_two_nodes():
    x = torch.randn(1, 6, 4, 2, dtype=torch.float64)
    for i in range(3):
        for j in range(2):
            a, b = x[0, 2 * i, 2 * j], x[0, 2 * i, 2 * j + 1]
            c, d = x[0, 2 * i + 1, 2 * j], x[0, 2 * i + 1, 2 * j + 1]
            by_hand = (a + b + c + d, a + b - c - d, a - b + c - d, a - b - c + d)
            torch.testing.assert_close(haar(x)[0, i, j], torch.cat(by_hand) / 2)


def test_a_constant_has_no_details():
    details = haar(torch.full((1, 8, 6, 2), 3.0))[..., 2:]
    assert torch.equal(details, torch.zeros_like(details))


def test_odd_axes_get_a_node_without_coordinates_and_inputs():
    torch.manual_seed(0)
    config = SAOTConfig(16, 2, 4)
    odd, even = (Problem("test", "grid", shape, ("a",), ("u",)) for shape in ((7, 6), (8, 6)))
    model, other = SAOT(config, odd).eval(), SAOT(config, even).eval()
    other.load_state_dict(model.state_dict())
    coords, features = torch.rand(2, 42, 2), torch.randn(2, 42, 1)
    padded = [torch.cat((x, torch.zeros_like(x[:, :6])), dim=1) for x in (coords, features)]
    torch.testing.assert_close(model(coords, features).values, other(*padded).values[:, :42])


def test_output_is_a_convex_combination_of_the_branches():
    torch.manual_seed(0)
    attention = SpectralAttention(16, 4, 2, (True, True)).double().eval()
    attention.gate.weight.data.mul_(20)  # gates near 0 and near 1 as well
    h = torch.randn(2, 8, 6, 16, dtype=torch.float64)
    f, w, out = attention.fourier(h), attention.wavelet(h), attention(h)
    gate = 1 / (1 + torch.exp(-attention.gate(torch.cat((f, w), -1))))
    assert gate.min() < 0.01
    assert gate.max() > 0.99
    assert (out >= torch.minimum(f, w) - 1e-12).all()
    assert (out <= torch.maximum(f, w) + 1e-12).all()
    torch.testing.assert_close((out - w) / (f - w), gate, atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize("shape", [(6,), (5, 6), (4, 3, 5)])
def test_fourier_branch_is_a_complex_perceptron_at_every_frequency(shape):
    """Against the definition of the discrete Fourier transform, one frequency at a time."""
    torch.manual_seed(0)
    heads, size = 2, 3
    branch = FourierBranch(heads * size, heads).double()
    for layer in (branch.hidden, branch.out):
        layer.weight.data.normal_()
        layer.bias.data.normal_()
    h = torch.randn(1, *shape, heads * size, dtype=torch.float64)

    def layer_of(layer, z, block):
        real, imag = layer.weight.detach().numpy()[:, block]
        bias = layer.bias.detach().numpy()[block, 0]
        return z @ (real + 1j * imag) + bias[0::2] + 1j * bias[1::2]

    nodes = list(np.ndindex(*shape))
    values = h[0].reshape(-1, heads * size).numpy()
    half = (*shape[:-1], shape[-1] // 2 + 1)
    mixed = np.zeros((*half, heads * size), complex)
    for k in np.ndindex(*half):
        turns = np.sum(np.array(nodes) * k / shape, axis=1)
        z = np.exp(-2j * np.pi * turns) @ values / np.sqrt(len(nodes))
        for block in range(heads):
            channels = slice(block * size, (block + 1) * size)
            y = layer_of(branch.hidden, z[channels], block)
            y = np.maximum(y.real, 0) + 1j * np.maximum(y.imag, 0)
            mixed[(*k, channels)] = layer_of(branch.out, y, block)
    back = np.fft.irfftn(mixed, s=shape, axes=range(len(shape)), norm="ortho")
    torch.testing.assert_close(branch(h).detach()[0], h[0] + torch.from_numpy(back))


def wavelet_by_loops(branch, h):
    """The wavelet branch in evaluation, with explicit weights between all pairs of coefficients."""
    reduced = branch.norm_reduce(h @ branch.reduce.weight.T)
    is_cloud = h.ndim == 3
    s = haar(torch.where(reduced > 0, reduced, 0)) if is_cloud else branch.filter(haar(reduced))
    q, k, v = branch.qkv(branch.norm(s)).flatten(1, -2).chunk(3, dim=-1)
    size = q.shape[-1] // branch.heads
    result = torch.zeros_like(q)
    for b in range(len(q)):
        for m in range(branch.heads):
            channels = slice(m * size, (m + 1) * size)
            phi_q, phi_k = (torch.where(x > 0, x + 1, x.exp())[b, :, channels] for x in (q, k))
            weights = phi_q @ phi_k.T
            weights = weights / weights.sum(1, keepdim=True)
            result[b, :, channels] = weights @ v[b, :, channels]
    back = inverse_haar(result.view(s.shape))
    return branch.out(torch.cat((h, back), dim=-1))


@pytest.mark.parametrize("shape", [(8, 6), (12,)])
def test_wavelet_branch_attends_among_all_coefficients(shape):
    torch.manual_seed(0)
    branch = WaveletBranch(16, 4, len(shape), (False, True) if len(shape) == 2 else None)
    branch = branch.double().eval()
    h = torch.randn(2, *shape, 16, dtype=torch.float64)
    torch.testing.assert_close(branch(h), wavelet_by_loops(branch, h))


def test_wavelet_branch_moves_with_the_field_along_periodic_axes():
    """By pairs of nodes, and only where the axis closes on itself."""
    torch.manual_seed(0)
    branch = WaveletBranch(16, 4, 2, (True, False)).double().eval()
    h = torch.randn(1, 8, 10, 16, dtype=torch.float64)
    for axis, closes in ((1, True), (2, False)):
        moved = branch(h.roll(2, axis))
        assert torch.allclose(moved, branch(h).roll(2, axis)) == closes


@pytest.mark.parametrize(
    ("problem", "config", "millions"),
    [
        (Problem("darcy", "grid", (85, 85), ("a",), ("u",)), SAOTConfig(128, 8, 8, 2.0, 8), 2.69),
        (
            Problem("ns", "grid", (64, 64), tuple("abcdefghij"), ("w",), periodic=(True, True)),
            SAOTConfig(256, 8, 8, 1.0, 8),
            9.65,
        ),
        (Problem("airfoil", "mesh", (221, 51), (), ("m",)), SAOTConfig(256, 5), 6.06),
        (Problem("pipe", "mesh", (129, 129), (), ("u",)), SAOTConfig(192, 8), 5.42),
        (
            Problem("plasticity", "mesh", (101, 31), ("d",), tuple("abcd"), time="conditioned"),
            SAOTConfig(192, 8),
            5.49,
        ),
        (Problem("elasticity", "cloud", (972,), (), ("s",)), SAOTConfig(144, 10), 2.04),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_published_settings_have_the_published_size(problem, config, millions):
    with torch.device("meta"):
        model = SAOT(config, problem)
    num_parameters = sum(p.numel() for p in model.parameters())
    assert num_parameters / 1e6 == pytest.approx(millions, rel=0.01)


def test_clouds_are_read_in_their_stored_order():
    """SAOT says that it is not permutation equivariant, and it is not."""
    torch.manual_seed(0)
    model = SAOT(SAOTConfig(16, 2, 4), Problem("test", "cloud", (20,), ("a",), ("u",))).eval()
    coords, features, order = torch.rand(1, 20, 2), torch.randn(1, 20, 1), torch.randperm(20)
    values = model(coords, features).values
    assert not SAOT.permutation_equivariant
    assert not torch.allclose(model(coords[:, order], features[:, order]).values, values[:, order])
    with pytest.raises(InputError, match="without a mask"):
        model(coords, features, mask=torch.ones(1, 20, dtype=torch.bool))


def test_reference_grid_gives_distances():
    coords = torch.rand(2, 5, 2, dtype=torch.float64)
    distances = ReferenceGrid(3, 2).double()(coords)
    for i in range(3):
        for j in range(3):
            x, y = coords[..., 0] - i / 2, coords[..., 1] - j / 2
            torch.testing.assert_close(distances[..., 3 * i + j], (x**2 + y**2).sqrt())


def test_width_must_suit_heads_and_wavelets():
    problem = Problem("test", "grid", (8, 8), ("a",), ("u",))
    with pytest.raises(InputError, match="multiple of heads and of 4"):
        SAOT(SAOTConfig(width=10, heads=5), problem)


def test_meshes_have_two_axes():
    problem = Problem("test", "grid", (8, 8, 8), ("a",), ("u",), dimension=3)
    with pytest.raises(InputError, match="two axes"):
        SAOT(SAOTConfig(), problem)
