"""The foils, their meshes, and flows that must obey physics."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cato.benchmarks.airfoil import euler
from cato.benchmarks.airfoil import solver as airfoil
from cato.benchmarks.airfoil.benchmark import Airfoil
from cato.benchmarks.airfoil.mesh import AMPLITUDE, BOX_HEIGHT, BOX_KNOTS, deformed, num_wake_cells
from cato.benchmarks.airfoil.solver import Solution
from cato.errors import InputError

NACA_0012 = np.zeros(7)
SMOKE, SMALL, PAPER = (45, 11), (111, 26), (221, 51)
DISPLACEMENTS = arrays(float, 7, elements=st.floats(-AMPLITUDE, AMPLITUDE))


@cache
def draw_parameters(seed: int) -> np.ndarray:
    return Airfoil().draw(np.random.default_rng(seed), None)


def symmetric_flow(shape: tuple[int, int], mach: float = 0.8) -> Solution:
    return airfoil.solve(NACA_0012, shape, mach=mach)


# Geometry


@settings(max_examples=60, deadline=None)
@given(DISPLACEMENTS, st.sampled_from([SMOKE, SMALL, PAPER]))
def test_every_cell_of_every_mesh_has_positive_area(parameters, shape):
    nodes = airfoil.mesh(parameters, shape)
    assert nodes.shape == (*shape, 2)
    (ax, ay), (bx, by) = (
        np.moveaxis(d, -1, 0)
        for d in (nodes[1:, 1:] - nodes[:-1, :-1], nodes[1:, :-1] - nodes[:-1, 1:])
    )
    assert (ax * by - ay * bx).min() > 0


@settings(max_examples=20, deadline=None)
@given(DISPLACEMENTS)
def test_both_sides_of_the_wake_share_their_nodes(parameters):
    first_row = airfoil.mesh(parameters, SMALL)[:, 0]
    num_wake = num_wake_cells(SMALL)
    np.testing.assert_array_equal(first_row[: num_wake + 1], first_row[: -num_wake - 2 : -1])
    assert (first_row[num_wake, 0], first_row[0, 0]) == (1, 40)


def test_undeformed_foil_is_twelve_percent_thick():
    x, y = airfoil.mesh(NACA_0012, PAPER)[50:-50, 0].T
    assert 2 * y.max() == pytest.approx(0.12, rel=2e-3)
    assert x[y.argmax()] == pytest.approx(0.30, abs=0.02)
    np.testing.assert_allclose(y, -y[::-1], atol=1e-15)


@settings(max_examples=20, deadline=None)
@given(DISPLACEMENTS)
def test_control_points_move_by_their_displacement(parameters):
    below, above = (
        np.stack([BOX_KNOTS, np.full(4, y)], -1) for y in (-BOX_HEIGHT / 2, BOX_HEIGHT / 2)
    )
    around = np.concatenate([below, above[::-1]])
    moved = deformed(around, parameters) - around
    np.testing.assert_allclose(moved[:, 1], [0, *parameters], atol=1e-14)
    assert not moved[:, 0].any()


def test_parameters_are_uniform_and_reproducible():
    draws = np.array([draw_parameters(k) for k in range(400)])
    assert draws.shape == (400, 7)
    assert np.abs(draws).max() <= AMPLITUDE
    np.testing.assert_allclose(draws.std(axis=0), AMPLITUDE / np.sqrt(3), rtol=0.1)
    np.testing.assert_array_equal(draws[3], draw_parameters(3))


# Flows


def test_symmetric_foil_has_a_symmetric_flow_without_lift():
    flow = symmetric_flow(PAPER)
    assert flow.residual <= 1e-6
    assert abs(flow.lift) < 1e-5
    np.testing.assert_allclose(flow.fields[..., 4], flow.fields[::-1, :, 4], atol=1e-4)
    np.testing.assert_allclose(flow.fields[..., 2], -flow.fields[::-1, :, 2], atol=1e-4)


def test_mirrored_foil_has_the_mirrored_flow():
    parameters = np.array([0.04, -0.03, 0.02, -0.01, 0.03, -0.02, 0.0])
    mirrored = np.r_[-parameters[5::-1], 0.0]
    flow, image = airfoil.solve(parameters, SMALL), airfoil.solve(mirrored, SMALL)
    np.testing.assert_allclose(image.coords, flow.coords[::-1] * [1, -1], atol=1e-13)
    np.testing.assert_allclose(image.fields[..., 4], flow.fields[::-1, :, 4], atol=1e-5)
    assert image.lift == pytest.approx(-flow.lift, abs=1e-5)
    assert abs(flow.lift) > 0.01


def test_both_sides_of_the_wake_carry_the_same_values():
    flow = airfoil.solve(np.linspace(-0.05, 0.05, 7), SMALL)
    fields, num_wake = flow.fields[:, 0], num_wake_cells(SMALL)
    np.testing.assert_allclose(fields[: num_wake + 1], fields[: -num_wake - 2 : -1], atol=1e-14)


def test_transonic_flow_has_a_supersonic_pocket_that_ends_in_a_shock():
    """NACA 0012 at Mach 0.8: shocks at half the chord, reference drag about 0.0084."""
    flow = symmetric_flow(PAPER)
    mach, x = flow.fields[110:49:-1, 4, 4], flow.coords[110:49:-1, 4, 0]
    assert 1.2 < mach.max() < 1.3
    before, behind = x[mach > 1.2].max(), x[(mach < 0.9) & (x > 0.3)].min()
    assert 0.44 < before < behind < 0.56
    assert behind - before < 5 / 59  # cells of 1/59
    assert symmetric_flow(SMALL).drag > 1.5 * flow.drag > 1.5 * 0.0084


def test_drag_without_shocks_is_small_and_vanishes_under_refinement():
    coarse, fine = symmetric_flow(SMALL, 0.5), symmetric_flow(PAPER, 0.5)
    assert coarse.residual <= 1e-6 >= fine.residual
    assert 0 < fine.drag < 0.01
    assert fine.drag < 0.6 * coarse.drag


def test_total_enthalpy_is_that_of_the_free_stream_and_entropy_grows_at_shocks_only():
    density, u, v, pressure, _ = np.moveaxis(symmetric_flow(PAPER).fields, -1, 0)
    enthalpy = euler.GAMMA / (euler.GAMMA - 1) * pressure / density + 0.5 * (u**2 + v**2)
    np.testing.assert_allclose(enthalpy, enthalpy[110, -1], rtol=0.02)
    entropy = pressure / density**euler.GAMMA
    assert entropy.min() > 0.98
    assert np.abs(entropy[:, 12:] - 1).max() < 0.01


def test_as_much_gas_leaves_the_domain_as_enters_it():
    flow = airfoil.solve(np.linspace(-0.05, 0.05, 7), SMALL)
    # Along the outer row from one end of the wake to the other, and back down the outflow.
    path = [np.s_[:, -1], np.s_[-1, -2::-1], np.s_[0, 1:]]
    coords = np.concatenate([flow.coords[part] for part in path])
    fields = np.concatenate([flow.fields[part] for part in path])
    edges = np.diff(coords, axis=0)
    momentum = fields[:, :1] * fields[:, 1:3]
    mean = 0.5 * (momentum[1:] + momentum[:-1])
    flux = mean[:, 0] * edges[:, 1] - mean[:, 1] * edges[:, 0]
    assert abs(flux.sum()) < 1e-3 * np.abs(flux).sum() / 2


def test_lift_grows_with_incidence_and_changes_sign_with_it():
    up, down = (airfoil.solve(NACA_0012, SMALL, alpha=a) for a in (1.25, -1.25))
    assert up.lift == pytest.approx(-down.lift, abs=1e-5)
    assert up.drag == pytest.approx(down.drag, abs=1e-5)
    assert 0.2 < up.lift < 0.36


@pytest.mark.parametrize("seed", range(6))
def test_random_foils_converge(seed):
    flow = airfoil.solve(draw_parameters(seed), SMALL)
    assert flow.converged
    assert flow.residual <= 1e-6
    assert np.isfinite(flow.fields).all()
    assert flow.fields[..., [0, 3]].min() > 0.2


def test_same_arguments_give_the_same_bits():
    parameters = draw_parameters(11)
    a, b = airfoil.solve(parameters, SMOKE), airfoil.solve(parameters, SMOKE)
    np.testing.assert_array_equal(a.fields, b.fields)
    assert (a.residual, a.lift, a.drag) == (b.residual, b.lift, b.drag)


def test_too_few_iterations_are_reported_as_not_converged():
    flow = airfoil.solve(NACA_0012, SMALL, max_iterations=5)
    assert flow.num_iterations == 5
    assert flow.residual > airfoil.ACCEPTED_RESIDUAL
    assert not flow.converged


def test_breakdown_is_reported_as_not_converged():
    folded = np.array([0.5, -0.5, 0.5, -0.5, 0.5, -0.5, 0.5])
    assert not airfoil.solve(folded, SMOKE, max_iterations=50).converged


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": (220, 51)}, "22k"),
        ({"shape": (221, 5)}, "at least 11"),
        ({"mach": 0.0}, "Mach"),
        ({"parameters": np.full(7, np.nan)}, "finite"),
    ],
)
def test_impossible_arguments_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        airfoil.solve(**({"parameters": NACA_0012} | arguments))


@pytest.mark.slow
def test_drag_converges_under_refinement():
    finest = symmetric_flow((441, 101))
    assert finest.residual <= 1e-6
    drags = [symmetric_flow(shape).drag for shape in (SMALL, PAPER)] + [finest.drag]
    errors = np.array(drags) - 0.0084
    assert (errors > 0).all()
    assert (errors[1:] < 0.6 * errors[:-1]).all()
    subsonic = [symmetric_flow(shape, 0.5).drag for shape in (SMALL, PAPER, (441, 101))]
    assert subsonic[2] < 0.55 * subsonic[1] < 0.3 * subsonic[0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_random_foils_converge_at_the_papers_resolution(seed):
    flow = airfoil.solve(draw_parameters(seed), PAPER)
    assert flow.residual <= 1e-6
