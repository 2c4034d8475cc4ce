import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import simpson

from cato.benchmarks import newton
from cato.benchmarks.contract import Rejected
from cato.benchmarks.pipe import solver as pipe
from cato.benchmarks.pipe.benchmark import RANGES, draw_centreline
from cato.errors import InputError

BENT = draw_centreline(np.random.default_rng(0))


def relative_difference(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def test_straight_pipe_is_poiseuille_flow():
    solution = pipe.solve(np.zeros((5, 2)), (33, 17))
    x, y = np.moveaxis(solution.coords, -1, 0)
    np.testing.assert_allclose(solution.u_x, 1 - 4 * y**2, atol=1e-12)
    np.testing.assert_allclose(solution.u_y, 0, atol=1e-12)
    np.testing.assert_allclose(solution.p, 8 * pipe.VISCOSITY * (10 - x), atol=1e-12)
    assert solution.diagnostics["num_iterations"] == 1


class Kovasznay:
    """An exact solution in which convection, viscosity and pressure all matter."""

    rate = 0.5 / pipe.VISCOSITY - np.sqrt(0.25 / pipe.VISCOSITY**2 + 4 * np.pi**2)

    def u_x(self, x, y):
        return 1 - np.exp(self.rate * x) * np.cos(2 * np.pi * y)

    def u_y(self, x, y):
        return self.rate / (2 * np.pi) * np.exp(self.rate * x) * np.sin(2 * np.pi * y)

    def p(self, x, y):
        return -np.exp(2 * self.rate * x) / 2


def kovasznay_errors(shape):
    """L2 errors of velocity and pressure in a bent pipe with exact velocities on its boundary."""
    exact = Kovasznay()
    flow = pipe.Flow(pipe.mesh(BENT / 4, shape))
    nodes = np.moveaxis(flow.coords, -1, 0)
    state = flow.state(u_x=exact.u_x(*nodes), u_y=exact.u_y(*nodes), p=exact.p(*nodes))
    num_nodes = flow.basis.N
    boundary = np.concatenate([flow.node[0], flow.node[-1], flow.node[:, 0], flow.node[:, -1]])
    level_of_pressure = [2 * num_nodes + flow.node[0, 0]]
    fixed = np.concatenate([boundary, num_nodes + boundary, level_of_pressure])
    state, _ = flow.newton(state, np.setdiff1d(np.arange(state.size), fixed))

    def error(values, function):
        by_number = np.empty(num_nodes)
        by_number[flow.node] = values
        field = np.asarray(flow.basis.interpolate(by_number))
        return field - function(*np.asarray(flow.basis.global_coordinates()))

    u_x, u_y, p = flow.fields(state)
    weight = flow.basis.dx
    wrong_u_x, wrong_u_y, wrong_p = error(u_x, exact.u_x), error(u_y, exact.u_y), error(p, exact.p)
    wrong_p -= (wrong_p * weight).sum() / weight.sum()
    return (
        np.sqrt(((wrong_u_x**2 + wrong_u_y**2) * weight).sum()),
        np.sqrt((wrong_p**2 * weight).sum()),
    )


def test_kovasznay_flow_in_a_bent_pipe_converges_with_order_3_and_2():
    coarse, fine = kovasznay_errors((33, 17)), kovasznay_errors((65, 33))
    velocity, pressure = np.log2(np.divide(coarse, fine))
    assert fine[0] < 1e-3
    assert velocity > 2.8
    assert pressure > 1.8


def test_jacobian_is_the_derivative_of_the_residual():
    flow = pipe.Flow(pipe.mesh(BENT, (9, 7)))
    rng = np.random.default_rng(1)
    state = rng.standard_normal(flow.state().size)
    step = rng.standard_normal(state.size)
    # The residual is quadratic in the state, so a central difference of any length is exact.
    difference = (flow.residual(state + step) - flow.residual(state - step)) / 2
    np.testing.assert_allclose(flow.jacobian(state) @ step, difference, rtol=1e-9, atol=1e-12)


def test_newton_converges_quadratically():
    residuals = np.array(pipe.solve(BENT, (33, 17)).residuals)
    assert residuals[-1] < newton.TOLERANCE
    before, now, after = residuals[-4:-1]
    assert after > 1e-12, "at round-off no order can be seen"
    assert np.log(after / now) / np.log(now / before) > 1.7


def test_mean_flux_through_every_column_of_elements_is_that_of_the_inlet():
    shape = (33, 17)
    solution = pipe.solve(BENT, shape)
    flux = simpson(solution.u_x, dx=1 / (shape[1] - 1), axis=1)
    column_means = (flux[:-1:2] + 4 * flux[1::2] + flux[2::2]) / 6
    np.testing.assert_allclose(column_means, 2 / 3, rtol=1e-9)
    assert solution.flux_error == pytest.approx(np.abs(flux / (2 / 3) - 1).max())


def test_boundary_values():
    solution = pipe.solve(BENT, (33, 17))
    across = np.linspace(-0.5, 0.5, 17)
    np.testing.assert_array_equal(solution.u_x[0], 1 - (2 * across) ** 2)
    np.testing.assert_array_equal(solution.u_y[0], 0)
    for wall in (0, -1):
        np.testing.assert_array_equal(solution.u_x[1:, wall], 0)
        np.testing.assert_array_equal(solution.u_y[1:, wall], 0)


def test_refinement_error_falls_with_order_2_or_better():
    coarse, middle, fine = (pipe.solve(BENT, shape) for shape in ((33, 17), (65, 33), (129, 65)))
    first = relative_difference(coarse.u_x, middle.u_x[::2, ::2])
    second = relative_difference(middle.u_x, fine.u_x[::2, ::2])
    assert np.log2(first / second) > 2
    assert coarse.flux_error > 3 * middle.flux_error > 9 * fine.flux_error


@pytest.mark.slow
def test_refinement_of_the_paper_mesh_changes_the_flow_by_less_than_a_fifth_of_a_percent():
    solution, finer = pipe.solve(BENT), pipe.solve(BENT, (257, 257))
    assert relative_difference(solution.u_x, finer.u_x[::2, ::2]) < 2e-3
    assert solution.flux_error < 5e-3


def test_mirrored_pipe_has_the_mirrored_flow():
    solution, mirrored = pipe.solve(BENT, (33, 17)), pipe.solve(-BENT, (33, 17))
    np.testing.assert_allclose(mirrored.u_x[:, ::-1], solution.u_x, atol=1e-8)
    np.testing.assert_allclose(mirrored.u_y[:, ::-1], -solution.u_y, atol=1e-8)
    np.testing.assert_allclose(mirrored.p[:, ::-1], solution.p, atol=1e-8)


def test_same_arguments_give_the_same_bits():
    first, other, second = (pipe.solve(c, (17, 9)) for c in (BENT, -BENT, BENT))
    np.testing.assert_array_equal(first.u_x, second.u_x)
    np.testing.assert_array_equal(first.p, second.p)
    assert not np.array_equal(first.u_x, other.u_x)


@given(seed=st.integers(0, 2**32 - 1), law=st.sampled_from(list(RANGES)))
@settings(deadline=None)
def test_mesh_follows_the_drawn_centreline(seed, law):
    parameters = draw_centreline(np.random.default_rng(seed), law)
    height, slope = RANGES[law]
    assert parameters[0, 0] == 0
    assert np.abs(parameters[:, 0]).max() <= height
    assert np.abs(parameters[:, 1]).max() <= slope

    num_steps = 4000
    x, y = np.moveaxis(pipe.mesh(parameters, (num_steps + 1, 5)), -1, 0)
    knots = np.arange(0, num_steps + 1, num_steps // 4)
    centre = y[:, 2]
    np.testing.assert_allclose(centre[knots], parameters[:, 0], atol=1e-12)
    for side, some in ((1, slice(None, -1)), (-1, slice(1, None))):  # one-sided, of second order
        at, near, far = (centre[knots[some] + side * k] for k in range(3))
        slopes = side * (4 * near - far - 3 * at) / (2 * x[1, 0])
        np.testing.assert_allclose(slopes, parameters[some, 1], atol=1e-4)
    np.testing.assert_allclose(
        y - centre[:, None], np.tile([-0.5, -0.25, 0, 0.25, 0.5], (len(y), 1))
    )


def test_heights_and_slopes_are_uniform():
    rng = np.random.default_rng(0)
    draws = np.stack([draw_centreline(rng) for _ in range(2000)])
    # The standard deviation of U[−a, a] is a/√3; its sampling error here is 1.4 %.
    np.testing.assert_allclose(draws[:, 1:, 0].std(axis=0), 1 / np.sqrt(3), rtol=0.06)
    np.testing.assert_allclose(draws[:, :, 1].std(axis=0), 0.4 / np.sqrt(3), rtol=0.06)


def test_a_flow_that_does_not_converge_is_rejected(monkeypatch):
    monkeypatch.setattr(newton, "MAX_ITERATIONS", 2)
    with pytest.raises(Rejected, match="after 2 Newton steps"):
        pipe.solve(BENT, (17, 9))


@pytest.mark.parametrize("shape", [(64, 65), (65, 64), (3, 65)])
def test_shape_must_fit_quadratic_elements(shape):
    with pytest.raises(InputError, match="odd"):
        pipe.solve(BENT, shape)


def test_unknown_law_is_named():
    with pytest.raises(InputError, match="code, paper"):
        draw_centreline(np.random.default_rng(0), "book")
