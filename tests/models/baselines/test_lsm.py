"""LSM: the latent basis as Fourier series, patches against plain loops, the U-Net on a torus."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cato.errors import InputError
from cato.models.baselines.lsm import LSM, LatentBasis, LatentSpectral, LSMConfig
from cato.problem import Problem


@settings(max_examples=20)
@given(st.integers(2, 12), st.integers(0, 2**31))
def test_latent_update_is_a_fourier_series_with_the_weights_as_coefficients(num_functions, seed):
    """Projection onto the orthogonal basis over one period 2K gives the weights back, and nothing
    is left."""
    torch.manual_seed(seed)
    basis = LatentBasis(3, num_functions).double()
    num_samples = 4 * num_functions
    t = 2 * num_functions * np.arange(num_samples) / num_samples - 1.7
    tokens = torch.from_numpy(t)[:, None].expand(-1, 3)
    update = (basis(tokens) - tokens).detach().numpy()
    left = update.copy()

    def project(wave, weights):
        found = wave @ update / (wave @ wave)
        np.testing.assert_allclose(found, weights.detach().numpy(), atol=1e-12)
        left[:] -= wave[:, None] * found

    for k in range(num_functions):
        angle = k * np.pi * t / num_functions
        project(np.cos(angle), basis.cosine[:, k])
        if k:
            project(np.sin(angle), basis.sine[:, k - 1])
    np.testing.assert_allclose(left, 0, atol=1e-12)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def patch_reference(layer, nodes, num_functions):
    """Three steps in one patch of real nodes (n, C), head by head and function by function."""
    p = {name: value.detach().numpy() for name, value in layer.named_parameters()}
    heads, size = layer.heads, nodes.shape[-1] // layer.heads
    keys, values = np.split(nodes @ p["key_value.weight"].T + p["key_value.bias"], 2, axis=-1)
    queries = nodes @ p["query.weight"].T + p["query.bias"]
    result = nodes.copy()
    for m in range(heads):
        channels = slice(m * size, (m + 1) * size)
        tokens = p["latent"][m]
        scores = tokens @ keys[:, channels].T
        tokens = tokens + softmax(scores) @ values[:, channels]
        update = np.zeros_like(tokens)
        for k in range(num_functions):
            angle = k * np.pi * tokens / num_functions
            update += p["basis.cosine"][channels, k] * np.cos(angle)
            if k:
                update += p["basis.sine"][channels, k - 1] * np.sin(angle)
        tokens = tokens + update
        scores = queries[:, channels] @ tokens.T
        result[:, channels] += softmax(scores) @ tokens
    return result


@settings(max_examples=20)
@given(
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.integers(0, 2**31),
)
def test_patches_are_updated_one_by_one_without_their_padding(shape, patch, seed):
    torch.manual_seed(seed)
    config = LSMConfig(width=6, heads=2, patch=patch, tokens=3, basis=5)
    layer = LatentSpectral(6, config, (False, False)).double()
    torch.nn.init.normal_(layer.latent)
    torch.nn.init.normal_(layer.basis.cosine)
    torch.nn.init.normal_(layer.basis.sine)
    x = torch.randn(2, 6, *shape, dtype=torch.float64)
    expected = x.numpy().copy()
    for b in range(2):
        for i in range(0, shape[0], patch[0]):
            for j in range(0, shape[1], patch[1]):
                cut = (b, slice(None), slice(i, i + patch[0]), slice(j, j + patch[1]))
                nodes = expected[cut].reshape(6, -1).T
                expected[cut] = patch_reference(layer, nodes, 5).T.reshape(expected[cut].shape)
    np.testing.assert_allclose(layer(x).detach().numpy(), expected, atol=1e-12)


def model_of(shape, periodic, **kwargs):
    problem = Problem("test", "mesh", shape, ("a",), ("u",), periodic=periodic)
    config = LSMConfig(**({"width": 8, "heads": 2, "levels": 3, "patch": (2, 2)} | kwargs))
    return LSM(config, problem).double().eval()


def test_a_torus_may_be_shifted_by_whole_patches_of_the_coarsest_level():
    """Pooling, interpolation, stencils and patches all close over the seam."""
    torch.manual_seed(0)
    model = model_of((16, 24), (True, True))
    coords = torch.rand(2, 384, 2, dtype=torch.float64)
    features = torch.randn(2, 384, 1, dtype=torch.float64)

    def mismatch(shifts):
        def roll(x):
            return x.unflatten(1, (16, 24)).roll(shifts, (1, 2)).flatten(1, 2)

        moved = model(roll(coords), roll(features)).values
        return (moved - roll(model(coords, features).values)).abs().max().item()

    assert mismatch((8, 16)) < 1e-12
    assert mismatch((1, 0)) > 1e-6


@pytest.mark.parametrize("size", [12, 13])
def test_interpolation_is_linear_from_corner_to_corner(size):
    level = model_of((size, 10), (False, False)).unet
    ramp = lambda rows, columns: (  # noqa: E731
        torch.linspace(0, 3, rows).double()[:, None] + torch.linspace(5, 1, columns).double()
    )
    fine = level.upsample(ramp((size + 1) // 2, 5)[None, None], (2, 2), torch.zeros(1, 1, size, 10))
    torch.testing.assert_close(fine[0, 0], ramp(size, 10))


def test_interpolation_along_a_periodic_axis_is_linear_between_cell_centres():
    level = model_of((12, 12), (True, False)).unet
    coarse = torch.arange(6, dtype=torch.float64).view(1, 1, 6, 1).expand(1, 1, 6, 6)
    fine = level.upsample(coarse, (2, 2), torch.zeros(1, 1, 12, 12))[0, 0, :, 0]
    expected = torch.arange(12, dtype=torch.float64) / 2 - 0.25
    expected[[0, -1]] = torch.tensor([1.25, 3.75]).double()  # between coarse nodes 5 and 0
    torch.testing.assert_close(fine, expected)


def test_width_must_be_a_multiple_of_heads():
    with pytest.raises(InputError, match="multiple of heads; got 9 with 2"):
        model_of((12, 12), (False, False), width=9)
