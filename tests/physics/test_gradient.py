"""Exactness, order and symmetry of the mesh gradient, and the meshes it refuses."""

import math
from contextlib import nullcontext
from importlib import import_module
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cato.errors import InputError
from cato.physics.gradient import gradient, inverse_metric

OPEN = (False, False)
NO_PERIOD = (None, None)


def lattice(*axes: Tensor) -> Tensor:
    """Tensor-product mesh (N, D), row-major."""
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2)


def unit_mesh(*shape: int, end: bool = True) -> Tensor:
    """Uniform mesh of the unit cube in float64, without its far end where it is periodic."""
    return lattice(*[torch.arange(n, dtype=torch.float64) / (n - end) for n in shape])


def rotation(angle: float) -> Tensor:
    cos, sin = math.cos(angle), math.sin(angle)
    return torch.tensor([[cos, sin], [-sin, cos]], dtype=torch.float64)


def mesh_gradient(u: Tensor, coords: Tensor, shape, periodic=None, period=None) -> Tensor:
    """Gradient (N, D) of one scalar field."""
    periodic, period = periodic or (False,) * len(shape), period or (None,) * len(shape)
    metric = inverse_metric(coords, shape, periodic, period)
    return gradient(u[None, :, None], metric, shape, periodic)[0, :, 0]


@st.composite
def distorted_meshes(draw):
    """Unfolded meshes of any shape, one per sample: all nodes moved, then stretched and rotated.

    Rotations may mirror, so that meshes of one batch turn either way.
    """
    dimension = draw(st.integers(1, 3))
    shape = tuple(draw(st.lists(st.integers(3, 7), min_size=dimension, max_size=dimension)))
    num_samples = draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    indices = lattice(*[torch.arange(n, dtype=torch.float64) for n in shape])
    noise = torch.rand(num_samples, *indices.shape, dtype=torch.float64, generator=generator)
    # Below this amplitude the one-sided systems are diagonally dominant, hence regular.
    nodes = indices + (0.07 if dimension == 3 else 0.11) * (2 * noise - 1)
    rows = torch.randn(num_samples, dimension, dimension, dtype=torch.float64, generator=generator)
    stretch = torch.rand(num_samples, 1, dimension, dtype=torch.float64, generator=generator)
    return shape, (nodes * 10 ** (3 * stretch - 2)) @ torch.linalg.qr(rows).Q, generator


@settings(max_examples=60, deadline=None)
@given(distorted_meshes())
def test_linear_fields_are_exact_on_any_mesh(mesh) -> None:
    shape, coords, generator = mesh
    num_samples, _, dimension = coords.shape
    slopes = torch.randn(num_samples, 2, dimension, dtype=torch.float64, generator=generator)
    u = coords @ slopes.mT + 0.5
    metric = inverse_metric(coords, shape, (False,) * dimension, (None,) * dimension)
    computed = gradient(u, metric, shape, (False,) * dimension)
    expected = slopes[:, None].expand_as(computed)
    torch.testing.assert_close(computed, expected, rtol=1e-10, atol=1e-10)
    shared = inverse_metric(coords[0], shape, (False,) * dimension, (None,) * dimension)
    one_for_all = gradient(u[:1].expand(2, -1, -1), shared, shape, (False,) * dimension)
    assert torch.equal(one_for_all, computed[:1].expand(2, -1, -1, -1))


def test_agrees_with_the_formula_of_the_paper() -> None:
    """u_x = (Δ_i u d − Δ_j u b)/(ad − bc) and u_y = (−Δ_i u c + Δ_j u a)/(ad − bc), in a loop."""
    height, width = 5, 6
    rng = np.random.default_rng(0)
    index = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), -1)
    x = index @ np.array([[1.0, 0.3], [-0.4, 2.0]]) + 0.1 * rng.uniform(-1, 1, (height, width, 2))
    u = rng.normal(size=(height, width))

    def delta(f, i: int, n: int):
        if i == 0:
            return -3 * f(0) + 4 * f(1) - f(2)
        if i == n - 1:
            return 3 * f(n - 1) - 4 * f(n - 2) + f(n - 3)
        return f(i + 1) - f(i - 1)

    expected = np.empty((height, width, 2))
    for i in range(height):
        for j in range(width):
            a, b = delta(lambda k, j=j: x[k, j], i, height)
            c, d = delta(lambda k, i=i: x[i, k], j, width)
            delta_i = delta(lambda k, j=j: u[k, j], i, height)
            delta_j = delta(lambda k, i=i: u[i, k], j, width)
            expected[i, j, 0] = (delta_i * d - delta_j * b) / (a * d - b * c)
            expected[i, j, 1] = (-delta_i * c + delta_j * a) / (a * d - b * c)
    nodes = torch.from_numpy(x).flatten(0, 1)
    computed = mesh_gradient(torch.from_numpy(u).flatten(), nodes, (height, width))
    np.testing.assert_allclose(computed, expected.reshape(-1, 2), rtol=1e-12, atol=1e-12)


def wavy_cube(n: int, num_axes: int):
    shape = tuple(n + k * n // 4 + 1 for k in range(num_axes))
    x = unit_mesh(*shape)
    x = x + 0.06 * torch.sin(2 * math.pi * x + 1) * torch.cos(3 * x.roll(1, -1))
    return x, shape, (False,) * num_axes, (None,) * num_axes


def wavy_torus(n: int):
    flat = unit_mesh(n, n + n // 2, end=False)
    x = (flat + 0.05 * torch.sin(2 * math.pi * (flat + flat.flip(-1) + 0.1))) % 1.0
    return x, (n, n + n // 2), (True, True), (1.0, 1.0)


def o_grid(n: int):
    """Around a circle, closed in the angle; radii from 1 to e, finer at the circle."""
    angle = 2 * math.pi * torch.arange(3 * n, dtype=torch.float64) / (3 * n)
    polar = lattice(angle, torch.linspace(0, 1, n + 1, dtype=torch.float64).exp())
    x = polar[:, 1:] * torch.stack([polar[:, 0].cos(), polar[:, 0].sin()], -1)
    return x, (3 * n, n + 1), (True, False), NO_PERIOD


def wave(x: Tensor) -> Tensor:
    return torch.sin(x @ torch.tensor([2.0, -1.5, 1.0], dtype=x.dtype)[: x.shape[-1]])


def periodic_wave(x: Tensor) -> Tensor:
    return torch.sin(2 * math.pi * (x[:, 0] + 2 * x[:, 1]))


@pytest.mark.parametrize(
    ("mesh", "field", "num_cells"),
    [
        (lambda n: wavy_cube(n, 1), wave, 256),
        (lambda n: wavy_cube(n, 2), wave, 40),
        (lambda n: wavy_cube(n, 3), wave, 16),
        (wavy_torus, periodic_wave, 32),
        (o_grid, wave, 32),
    ],
    ids=["line", "rectangle", "box", "torus", "o-grid"],
)
def test_second_order_everywhere(mesh, field, num_cells: int) -> None:
    """In the maximum norm over all nodes, those of the boundary included."""
    errors = []
    for n in (num_cells, 2 * num_cells):
        x, shape, periodic, period = mesh(n)
        x.requires_grad_()
        u = field(x)
        (exact,) = torch.autograd.grad(u.sum(), x)
        computed = mesh_gradient(u.detach(), x.detach(), shape, periodic, period)
        errors.append(float((computed - exact).abs().max()))
    assert math.log2(errors[0] / errors[1]) >= 1.9, errors


@pytest.mark.parametrize("shape", [(3,), (4,), (9, 5), (3, 4, 5)])
def test_uniform_torus_has_the_exact_discrete_symbol(shape: tuple[int, ...]) -> None:
    """Centred differences of sin(πx) are cos(πx) sin(πh)/h at every node, the seam included."""
    periodic, period = (True,) * len(shape), (2.0,) * len(shape)
    x = 2 * unit_mesh(*shape, end=False) + 0.3
    x += 2 * torch.randint(-2, 3, x.shape)  # every node in any of its images
    for d, n in enumerate(shape):
        h = 2 / n
        computed = mesh_gradient(torch.sin(math.pi * x[:, d]), x, shape, periodic, period)
        expected = torch.zeros_like(x)
        expected[:, d] = torch.cos(math.pi * x[:, d]) * math.sin(math.pi * h) / h
        torch.testing.assert_close(computed, expected, rtol=1e-12, atol=1e-12)


def test_o_grid_closes_without_a_seam() -> None:
    """A rotated O-grid gives the rotated gradient: no node of the periodic axis is special."""
    x, shape, flags, _ = o_grid(5)
    field = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    here = mesh_gradient(field.flatten(), x, shape, flags)
    there = mesh_gradient(field.roll(1, 0).flatten(), x, shape, flags)
    rotated = (here @ rotation(2 * math.pi / 15)).unflatten(0, shape).roll(1, 0).flatten(0, 1)
    torch.testing.assert_close(there, rotated, rtol=1e-10, atol=1e-10)


def test_autograd_is_the_adjoint() -> None:
    shape, flags = (3, 4), (False, True)
    x = unit_mesh(3, 5)[torch.arange(15) % 5 < 4] + 0.02 * torch.randn(12, 2, dtype=torch.float64)
    metric = inverse_metric(x, shape, flags, (None, 1.0))
    u = torch.randn(2, 12, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: gradient(v, metric, shape, flags), (u,))


def c_grid() -> Tensor:
    """C-grid (61, 21, 2) with far field at 40 chords around a thin airfoil with a sharp tail.

    The spacing doubles from cell to cell away from the wall, where it is 4e-5.
    """
    wake = 1 + 39 * torch.linspace(1, 0, 16, dtype=torch.float64)[:-1] ** 2
    chord = (1 + torch.linspace(0, 2 * math.pi, 31, dtype=torch.float64).cos()) / 2
    side = torch.where(torch.arange(31) < 15, -1.0, 1.0)
    thickness = 0.1 * chord.sqrt() * (1 - chord)
    angle = math.pi * (1.5 - torch.linspace(0, 1, 31, dtype=torch.float64))
    cut = torch.zeros_like(wake)
    inner_y = torch.cat([cut, side * thickness, cut])
    outer_y = 40 * torch.cat([cut - 1, angle.sin(), cut + 1])
    inner = torch.stack([torch.cat([wake, chord, wake.flip(0)]), inner_y], -1)
    outer = torch.stack([torch.cat([wake, 1 + 40 * angle.cos(), wake.flip(0)]), outer_y], -1)
    blend = (2.0 ** torch.arange(21, dtype=torch.float64) - 1) / (2**20 - 1)
    return inner[:, None] + blend[:, None] * (outer - inner)[:, None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_airfoil_c_grid_with_thin_cells_passes(dtype: torch.dtype) -> None:
    mesh = c_grid()
    along, away = mesh.diff(dim=0).norm(dim=-1)[:, 0], mesh.diff(dim=1).norm(dim=-1)[:, 0]
    assert (along / away[:-1]).max() > 1e3
    x = mesh.flatten(0, 1).to(dtype)
    slope = torch.tensor([2.0, -1.0], dtype=dtype)
    error = (mesh_gradient(x @ slope, x, (61, 21)) - slope).abs().max()
    assert error < (0.05 if dtype == torch.float32 else 1e-9)


# Where nodes of a unit lattice go, the message, and the nodes that it may name.
FAULTS = {
    "swapped": ({(2, 3): (2, 4), (2, 4): (2, 3)}, "folded", {(2, 3), (2, 4)}),
    "folded": ({(2, 3): (3.6, 3)}, "folded", {(2, 3), (3, 3)}),
    "coincident": ({(2, 3): (2, 4)}, "coincide", {(2, 3), (2, 4)}),
    "flat": ({(2, 3): (1.5, 3.5)}, "collapsed", {(2, 3)}),
    "missing": ({(2, 3): (2, math.nan)}, "finite", {(2, 3)}),
}


def faulty_meshes(fault: str) -> Tensor:
    """Four 5 × 7 meshes, the third of which has a fault."""
    meshes = (unit_mesh(5, 7) * torch.tensor([4.0, 6.0])).unflatten(0, (5, 7)).repeat(4, 1, 1, 1)
    for node, position in FAULTS[fault][0].items():
        meshes[2][node] = torch.tensor(position, dtype=torch.float64)
    return meshes.flatten(1, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_mesh_is_named(fault: str, dtype: torch.dtype) -> None:
    _, what, nodes = FAULTS[fault]
    with pytest.raises(InputError, match=f"sample 2, node .*{what}") as raised:
        inverse_metric(faulty_meshes(fault).to(dtype), (5, 7), OPEN, NO_PERIOD)
    assert any(f"node {node}:" in str(raised.value) for node in nodes), raised.value


def test_chunks_of_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics and sample numbers stay right when the meshes are handled in chunks."""
    monkeypatch.setattr(import_module("cato.physics.gradient"), "NODES_PER_CHUNK", 80)
    coords = unit_mesh(5, 7) * torch.arange(1.0, 12.0)[:, None, None]
    metric = inverse_metric(coords, (5, 7), OPEN, NO_PERIOD)
    assert (gradient(coords, metric, (5, 7), OPEN) - torch.eye(2)).abs().max() < 1e-12
    coords[9, 24] = coords[9, 17]
    with pytest.raises(InputError, match="sample 9"):
        inverse_metric(coords, (5, 7), OPEN, NO_PERIOD)


@pytest.mark.parametrize("turn", [0.1, 0.3, 0.5, 0.7, 1.1])
def test_what_only_rounding_keeps_open_has_collapsed(turn: float) -> None:
    """A cell collapsed onto a slanting line, in float32: its determinant is not 0 but noise."""
    x = (faulty_meshes("flat") @ rotation(turn) + 100).float()
    with pytest.raises(InputError, match=r"sample 2, node .* collapsed"):
        inverse_metric(x, (5, 7), OPEN, NO_PERIOD)


@pytest.mark.parametrize("growth", [2.9, 3.0, 3.5])
def test_boundary_spacing_may_grow_less_than_threefold(growth: float) -> None:
    axis = torch.tensor([0, 1, 1 + growth, 2 + 2 * growth, 3 + 3 * growth], dtype=torch.float64)
    with nullcontext() if growth < 3 else pytest.raises(InputError, match="one-sided"):
        inverse_metric(lattice(axis, axis), (5, 5), OPEN, NO_PERIOD)


@pytest.mark.parametrize("period", [None, 1.0])
def test_a_wrong_seam_of_a_periodic_axis_is_explained(period: float | None) -> None:
    """The first node repeated at the end, or a torus without its period."""
    x = unit_mesh(6, 5, end=period is not None)
    with pytest.raises(InputError, match="Axis 0 is periodic"):
        inverse_metric(x, (6, 5), (True, False), (period, None))


@pytest.mark.parametrize("shape", [(5, 5), (2, 10), (20,)])
def test_a_shape_that_does_not_fit_is_an_error(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="one axis per coordinate"):
        inverse_metric(unit_mesh(4, 5), shape, (False,) * len(shape), NO_PERIOD)


@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_faults_are_found_wherever_they_are(num_axes: int) -> None:
    """Moving any single node inwards across its neighbour is noticed, on all kinds of axes."""
    for periodic in product((False, True), repeat=num_axes):
        period = tuple(1.0 if wraps else None for wraps in periodic)
        axes = [torch.arange(4, dtype=torch.float64) / (4 if wraps else 3) for wraps in periodic]
        for node in range(0, 4**num_axes, 7 if num_axes == 3 else 1):
            x = lattice(*axes)
            x[node] += 0.45 * torch.where(x[node] < 0.5, 1.0, -1.0)
            with pytest.raises(InputError, match=r"the mesh, node .* folded"):
                inverse_metric(x, (4,) * num_axes, periodic, period)
