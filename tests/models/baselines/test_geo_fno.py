"""GEO-FNO and the transforms between points and latent grid."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cato.errors import InputError
from cato.models.baselines.geo_fno import GeoFNO, GeoFNOConfig
from cato.models.contract import Nodes
from cato.models.layers.latent_grid import (
    GeoConfig,
    GeoFrame,
    fourier_basis,
    nonuniform_spectrum,
    nonuniform_synthesis,
    unit_grid,
)
from cato.models.layers.nodewise import unit_box
from cato.models.layers.spectral import kept_modes, spectrum, synthesis
from cato.problem import Problem

seeds = st.integers(0, 2**31)


@settings(max_examples=20)
@given(st.tuples(st.integers(8, 13), st.integers(8, 13)), seeds)
def test_transform_on_a_uniform_grid_is_the_fft(shape, seed):
    torch.manual_seed(seed)
    modes = (4, 4)
    kept = kept_modes(modes, shape)
    x = torch.randn(2, 3, *shape, dtype=torch.float64)
    points = unit_grid(shape, x).flatten(2).transpose(1, 2).expand(2, -1, -1)
    basis = fourier_basis(points, modes)
    z = nonuniform_spectrum(x.flatten(2), basis, kept)
    full = np.fft.fft2(x.numpy()) / np.prod(shape)
    expected = full[..., [0, 1, 2, 3, -4, -3, -2, -1], :][..., :4]
    np.testing.assert_allclose(z.numpy(), expected, atol=1e-12)
    torch.testing.assert_close(z, spectrum(x, kept))
    back = nonuniform_synthesis(z, basis).unflatten(2, shape)
    torch.testing.assert_close(back, synthesis(z, kept, shape))


def test_transform_at_scattered_points_is_the_sum_of_its_definition():
    rng = np.random.default_rng(0)
    h, points, modes = rng.normal(size=(1, 2, 11)), rng.random((1, 11, 2)), (2, 3)
    basis = fourier_basis(torch.tensor(points), modes)
    z = nonuniform_spectrum(torch.tensor(h), basis, kept_modes(modes, (8, 8)))
    u = nonuniform_synthesis(z, basis)
    expected = np.zeros((2, 11))
    for row, k1 in enumerate((0, 1, -2, -1)):
        for k2 in range(3):
            wave = np.exp(2j * np.pi * points[0] @ (k1, k2))
            coefficient = (h[0] * wave.conj()).sum(-1) / 11
            np.testing.assert_allclose(z[0, :, row, k2].numpy(), coefficient, atol=1e-13)
            expected += (2 if k2 else 1) * (coefficient[:, None] * wave).real
    np.testing.assert_allclose(u[0].numpy(), expected, atol=1e-12)


def test_padding_and_order_of_the_points_do_not_matter():
    torch.manual_seed(0)
    frame = GeoFrame(4, GeoConfig(latent=(8, 8), modes=(3, 3), hidden=16, code=5)).double()
    h, coords = torch.randn(2, 4, 20).double(), torch.rand(2, 20, 2).double()

    def cloud(coords, mask=None):
        return Nodes(coords, coords[..., :0], None, (coords.shape[1],), mask)

    out = frame(h, torch.tanh, cloud(coords))
    order = torch.randperm(20)
    moved = frame(h[..., order], torch.tanh, cloud(coords[:, order]))
    torch.testing.assert_close(moved, out[..., order])
    padded = torch.cat((coords, 50 + torch.rand(2, 6, 2)), 1)
    mask = torch.arange(26).expand(2, 26) < 20
    longer = torch.cat((h, torch.full((2, 4, 6), 1e3)), -1).double()
    torch.testing.assert_close(frame(longer, torch.tanh, cloud(padded, mask))[..., :20], out)


def test_units_of_the_coordinates_do_not_matter():
    coords = torch.rand(3, 30, 2, dtype=torch.float64)
    unit = unit_box(coords, None)
    assert torch.equal(unit.amin(1), torch.zeros(3, 2).double())
    assert torch.equal(unit.amax(1), torch.ones(3, 2).double())
    scaled = unit_box(coords * torch.tensor([40.0, 0.1]) - 7, None)
    torch.testing.assert_close(scaled, unit)


def test_deformation_moves_the_points_and_is_learned():
    """Without it the frame is a fixed transform; with it, positions on the torus get a gradient."""
    torch.manual_seed(0)
    problem = Problem("test", "cloud", (40,), (), ("u",))
    config = GeoFNOConfig(width=8, depth=1, geo=GeoConfig((12, 12), (4, 4), hidden=16, code=4))
    model = GeoFNO(config, problem)
    deformation = model.frame.deformation
    points = torch.rand(1, 40, 2)
    assert not torch.allclose(deformation(points), points, atol=1e-3)
    code = deformation.code.weight
    model(points, torch.zeros(1, 40, 0)).values.square().sum().backward()
    assert code.grad.abs().max() > 0
    last = deformation.net[-1]
    torch.nn.init.zeros_(last.weight)
    torch.nn.init.zeros_(last.bias)
    assert torch.equal(deformation(points), points)


def test_layer_knows_its_place():
    """With equal values at all nodes only the unit coordinates can tell them apart."""
    torch.manual_seed(0)
    problem = Problem("test", "mesh", (12, 10), (), ("u",), periodic=(True, True))
    model = GeoFNO(GeoFNOConfig(width=8, depth=2, modes=(3, 3)), problem)
    values = model(torch.zeros(1, 120, 2), torch.zeros(1, 120, 0)).values
    assert values.std() > 1e-4
    for layer in model.layers:
        torch.nn.init.zeros_(layer.place.weight)
    values = model(torch.zeros(1, 120, 2), torch.zeros(1, 120, 0)).values
    assert values.std() < 1e-6


def test_modes_must_fit_the_latent_grid():
    with pytest.raises(InputError, match="at most half"):
        GeoFrame(4, GeoConfig(latent=(20, 20), modes=(12, 8)))
