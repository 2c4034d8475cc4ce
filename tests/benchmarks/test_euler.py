"""The discrete Euler equations: waves, fluxes, conservation, and their linearisation."""

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cato.benchmarks.airfoil import euler
from cato.benchmarks.airfoil import solver as airfoil
from cato.benchmarks.airfoil.mesh import AMPLITUDE
from cato.benchmarks.airfoil.solver import Grid
from cato.kernels import jit

NACA_0012 = np.zeros(7)
SMOKE, SMALL = (45, 11), (111, 26)
DISPLACEMENTS = arrays(float, 7, elements=st.floats(-AMPLITUDE, AMPLITUDE))
STREAM = np.array([1.0, 0.8 * np.sqrt(euler.GAMMA), 0.0, 1.0])


def random_cells(grid: Grid, seed: int) -> np.ndarray:
    """A rough flow: the free stream times 1 ± 0.3 in each cell, with proper ghosts."""
    cells = np.tile([1.0, 0.8, 0.3, 1.0], (*grid.normals.shape[1:3], 1))
    cells *= np.random.default_rng(seed).uniform(0.7, 1.3, cells.shape)
    euler.fill_ghosts(cells, STREAM, grid.wall)
    return cells


def net_flux(cells: np.ndarray, grid: Grid) -> np.ndarray:
    out = np.empty_like(cells)
    euler.net_flux(cells, grid.normals, grid.wall, np.zeros((2, *cells.shape)), out)
    return out


def linearised(stream: np.ndarray, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of the implicit operator about a uniform flow, without the term of the time step."""
    shape = grid.normals.shape[1:3]
    diagonal, coupling = np.zeros((*shape, 4, 4)), np.zeros((*shape, 4, 4, 4))
    cells = np.tile(stream, (*shape, 1))
    euler.linearise(cells, grid.normals, grid.wall, np.inf, diagonal, coupling)
    return diagonal, coupling


def primitive(state: np.ndarray) -> tuple[float, ...]:
    density, momentum, energy = state[0], state[1:3], state[3]
    pressure = (euler.GAMMA - 1) * (energy - 0.5 * momentum @ momentum / density)
    return density, *(momentum / density), pressure


def physical_flux(state: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """F·n of conservative variables."""
    density, momentum, energy = state[0], state[1:3], state[3]
    velocity = momentum / density
    pressure = (euler.GAMMA - 1) * (energy - 0.5 * momentum @ velocity)
    through = velocity @ normal
    return np.array(
        [
            density * through,
            *(momentum * through + pressure * normal),
            (energy + pressure) * through,
        ]
    )


@pytest.mark.parametrize("speed", [0.3, 0.9, 1.7, -1.4])
def test_waves_are_the_spectral_decomposition_of_the_flux_jacobian(speed):
    u, v, density, pressure = speed, 0.4, 1.3, 0.8
    normal = np.array([0.8, -0.6])
    c = np.sqrt(euler.GAMMA * pressure / density)
    state = np.array(euler.conservative(np.array([density, u, v, pressure])))
    enthalpy = (state[3] + pressure) / density
    jacobian = np.stack(
        [physical_flux(state + 1e-20j * unit, normal).imag / 1e-20 for unit in np.eye(4)], axis=1
    )
    values, vectors = np.linalg.eig(jacobian)
    through = u * normal[0] + v * normal[1]
    for function in (np.asarray, np.abs, np.square):
        expected = (vectors * function(values)) @ np.linalg.inv(vectors)
        speeds = tuple(float(function(s)) for s in (through, through + c, through - c))
        waves = [
            euler.along_waves(speeds, (u, v, enthalpy, c), *normal, tuple(unit))
            for unit in np.eye(4)
        ]
        np.testing.assert_allclose(np.transpose(waves), expected, atol=1e-12)


def test_roe_flux_is_consistent_and_upwind():
    area = np.array([0.3, -0.2])
    state = (1.2, 0.5, -0.4, 0.9)
    exact = physical_flux(np.array(euler.conservative(state)), area)
    np.testing.assert_allclose(euler.roe_flux(state, state, *area), exact, atol=1e-15)

    fast, other = (1.2, 4.0, 0.0, 0.9), (0.8, 3.5, 0.3, 1.1)
    upwind = physical_flux(np.array(euler.conservative(fast)), np.array([1.0, 0.0]))
    np.testing.assert_allclose(euler.roe_flux(fast, other, 1.0, 0.0), upwind, atol=1e-13)


@settings(max_examples=10, deadline=None)
@given(DISPLACEMENTS, st.floats(0, 2), st.floats(-180, 180))
def test_free_stream_is_preserved_away_from_the_foil(parameters, mach, degrees):
    grid = Grid(airfoil.mesh(parameters, SMALL))
    speed, angle = mach * np.sqrt(euler.GAMMA), np.deg2rad(degrees)
    stream = np.array([1.0, speed * np.cos(angle), speed * np.sin(angle), 1.0])
    cells = np.tile(stream, (*grid.normals.shape[1:3], 1))
    euler.fill_ghosts(cells, stream, grid.wall)
    flux = net_flux(cells, grid)[2:-2, 2:-2]
    flux[grid.wall[2:-2], 0] = 0  # the foil is in the way
    scale = np.abs(grid.normals).max() * (1 + speed) ** 3
    assert np.abs(flux).max() < 1e-14 * scale


def test_gas_at_rest_stays_at_rest_at_the_foil_too():
    grid = Grid(airfoil.mesh(np.linspace(-0.05, 0.05, 7), SMALL))
    rest = np.array([1.0, 0.0, 0.0, 1.0])
    cells = np.tile(rest, (*grid.normals.shape[1:3], 1))
    euler.fill_ghosts(cells, rest, grid.wall)
    assert np.abs(net_flux(cells, grid)[2:-2, 2:-2]).max() < 1e-12


def test_nothing_is_lost_at_the_wake_cut_nor_passes_the_wall():
    grid = Grid(airfoil.mesh(np.linspace(-0.05, 0.05, 7), SMALL))
    flux = net_flux(random_cells(grid, 0), grid)
    through_cut = flux[2:-2, 1]
    wake = ~grid.wall[2:-2]
    assert np.abs(through_cut[wake]).max() > 0.1
    np.testing.assert_allclose(through_cut[wake], -through_cut[::-1][wake], atol=1e-12)
    assert not through_cut[~wake].any()
    # What leaves all cells has left through the outer boundary; the wall takes momentum only.
    outside = flux.sum(axis=(0, 1)) - flux[2:-2, 1:-2].sum(axis=(0, 1))
    inside = flux[2:-2, 2:-2].sum(axis=(0, 1))
    np.testing.assert_allclose(inside[[0, 3]], -outside[[0, 3]], rtol=1e-10)


def test_linearised_flux_of_a_common_change_cancels_in_every_cell():
    """Area vectors of a closed cell add up to zero, whatever the floors of the speeds."""
    grid = Grid(airfoil.mesh(NACA_0012, SMOKE))
    diagonal, coupling = linearised(STREAM, grid)
    inner = np.s_[3:-3, 3:-3]  # all four neighbours are cells
    total = (diagonal + coupling.sum(axis=2))[inner]
    assert np.abs(total / np.abs(diagonal[inner]).max(axis=(2, 3), keepdims=True)).max() < 1e-12


def test_linearisation_is_the_derivative_of_the_flux_where_waves_are_fast():
    grid = Grid(airfoil.mesh(NACA_0012, SMOKE))
    state = np.array(euler.conservative((1.0, 4.0, 0.3, 1.0)))
    _, coupling = linearised(np.array([1.0, 4.0, 0.3, 1.0]), grid)
    cell = (23, 6)  # before the nose, where the faces across the flow are fast
    normal = grid.normals[1][23, 7]

    def flux(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.array(euler.roe_flux(primitive(left), primitive(right), *normal))

    steps = 1e-6 * np.eye(4)
    slope = [(flux(state, state + d) - flux(state, state - d)) / 2e-6 for d in steps]
    np.testing.assert_allclose(coupling[cell][3], slope, atol=1e-7)
    slope = [(flux(state + d, state) - flux(state - d, state)) / 2e-6 for d in steps]
    np.testing.assert_allclose(coupling[23, 7][2], -np.array(slope), atol=1e-7)
    assert np.abs(coupling[cell][2:]).max() > 0.1


def test_compilation_does_without_a_cache_folder(monkeypatch):
    def njit_without_folder(*, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(numba, "njit", njit_without_folder)
    assert jit.compiled(abs) is abs
