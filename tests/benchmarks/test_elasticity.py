import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from skfem import Basis, ElementTriP2, ElementVector
from skfem.models.elasticity import linear_elasticity
from skfem.utils import condense, solve

from cato.benchmarks.contract import Rejected
from cato.benchmarks.elasticity import solver as elasticity
from cato.benchmarks.elasticity.benchmark import Elasticity
from cato.benchmarks.newton import TOLERANCE

CIRCLE = np.zeros((5, 2))


def draw_void(rng):
    return Elasticity().draw(rng, None)


VOID = draw_void(np.random.default_rng(0))
SHEAR_MODULUS = 2 * (elasticity.C1 + elasticity.C2)


def away_from_clamped_corners(points: np.ndarray) -> np.ndarray:
    """The exact stress is infinite at (0, 0) and (1, 0), so no number can converge there."""
    x, y = points.T
    return np.hypot(np.minimum(x, 1 - x), y) > 0.05


def relative_difference(coarse: elasticity.Solution, fine: elasticity.Solution) -> float:
    np.testing.assert_allclose(coarse.points, fine.points, atol=1e-14)
    keep = away_from_clamped_corners(coarse.points)
    return float(np.linalg.norm((coarse.stress - fine.stress)[keep]) / np.linalg.norm(fine.stress))


def affine(cell: elasticity.UnitCell, gradient: np.ndarray) -> np.ndarray:
    return (gradient @ cell.basis.doflocs).ravel()


def boundary_dofs(cell: elasticity.UnitCell) -> np.ndarray:
    nodes = cell.basis.get_dofs().flatten()
    return np.concatenate([nodes, cell.basis.N + nodes])


# The material


@given(stretch=st.floats(0.5, 2.0))
def test_uniaxial_tension_has_the_textbook_stress(stretch):
    stress = elasticity.cauchy_stress(np.diag([stretch**-0.5, stretch]))
    expected = 2 * (stretch**2 - 1 / stretch) * (elasticity.C1 + elasticity.C2 / stretch)
    np.testing.assert_allclose(stress, np.diag([0, expected]), rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(
        elasticity.von_mises(np.array([stress[0, 0], stress[1, 1], stress[0, 1]])),
        abs(expected),
        rtol=1e-9,
        atol=1e-8,
    )


def energy_density(F: np.ndarray) -> np.ndarray:
    """W(F) per undeformed volume, from the invariants of C = FᵀF."""
    C = np.einsum("ai...,aj...->ij...", F, F)
    trace, det = C[0, 0] + C[1, 1], C[0, 0] * C[1, 1] - C[0, 1] * C[1, 0]
    first, second = trace + 1 / det, det + trace / det
    return elasticity.C1 * (first - 3) + elasticity.C2 * (second - 3)


def energy(cell: elasticity.UnitCell, displacement: np.ndarray) -> float:
    """Stored energy minus the work of the load: equilibrium makes it stationary."""
    density = energy_density(cell.deformation(displacement))
    return float((density * cell.basis.dx).sum() - cell.load @ displacement)


@given(angle=st.floats(-np.pi, np.pi), seed=st.integers(0, 1000))
def test_rotation_stores_no_energy_and_turns_the_stress(angle, seed):
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    F = np.eye(2) + np.random.default_rng(seed).uniform(-0.2, 0.2, (2, 2))
    assert energy_density(rotation) == pytest.approx(0, abs=1e-8)
    assert energy_density(rotation @ F) == pytest.approx(energy_density(F))
    np.testing.assert_allclose(
        elasticity.cauchy_stress(rotation @ F),
        rotation @ elasticity.cauchy_stress(F) @ rotation.T,
        atol=1e-7,
    )


def test_moduli_at_rest_are_those_of_incompressible_plane_stress():
    strain = np.array([[0.3, -0.2], [-0.2, 0.5]])
    stress = np.einsum("aibj,bj->ai", elasticity.tangent_moduli(np.eye(2)), strain)
    youngs = 3 * SHEAR_MODULUS
    expected = youngs / (1 - 0.25) * (0.5 * strain + 0.5 * np.trace(strain) * np.eye(2))
    np.testing.assert_allclose(stress, expected, rtol=1e-12)


@given(angle=st.floats(-np.pi, np.pi), shear=st.floats(-1e3, 1e3))
def test_von_mises_stress_of_pure_shear_in_any_direction(angle, shear):
    direct = shear * np.sin(2 * angle)
    stress = np.array([direct, -direct, shear * np.cos(2 * angle)])
    assert elasticity.von_mises(stress) == pytest.approx(np.sqrt(3) * abs(shear), abs=1e-9)


# The discrete equations


def test_residual_and_tangent_are_derivatives_of_the_energy():
    cell = elasticity.UnitCell(VOID, traction=2e4)
    rng = np.random.default_rng(0)
    displacement = affine(cell, np.array([[0.1, 0.05], [-0.1, 0.2]]))
    displacement += 1e-4 * rng.standard_normal(displacement.size)
    step = 1e-7 * rng.standard_normal(displacement.size)

    slope = (energy(cell, displacement + step) - energy(cell, displacement - step)) / 2
    assert cell.residual(displacement) @ step == pytest.approx(slope, rel=1e-6)

    change = (cell.residual(displacement + step) - cell.residual(displacement - step)) / 2
    predicted = cell.jacobian(displacement) @ step
    assert np.linalg.norm(predicted - change) < 1e-6 * np.linalg.norm(change)


def test_patch_with_affine_boundary_deforms_homogeneously():
    gradient = np.array([[-0.05, 0.1], [0.02, 0.2]])
    cell = elasticity.UnitCell(VOID, traction=1e4)
    exact, fixed = affine(cell, gradient), boundary_dofs(cell)
    start = exact + 1e-4 * np.random.default_rng(0).standard_normal(exact.size)
    start[fixed] = exact[fixed]
    found, _ = cell.newton(start, np.setdiff1d(np.arange(exact.size), fixed))
    np.testing.assert_allclose(found, exact, atol=1e-10)

    stress = elasticity.cauchy_stress(np.eye(2) + gradient)
    expected = np.array([stress[0, 0], stress[1, 1], stress[0, 1]])
    np.testing.assert_allclose(cell.stress(found), np.tile(expected[:, None], 972), rtol=1e-8)


def test_forces_balance():
    cell = elasticity.UnitCell(VOID)
    found, _ = cell.newton(np.zeros(2 * cell.basis.N), cell.free)
    reaction = cell.residual(found).reshape(2, -1)
    np.testing.assert_allclose(reaction.sum(axis=1), [0, -elasticity.TRACTION], atol=1e-7)


def linear_displacement(cell: elasticity.UnitCell) -> np.ndarray:
    """Linear plane-stress elasticity with ν = ½, for which λ* = 2μ, by scikit-fem's own model."""
    basis = Basis(cell.basis.mesh, ElementVector(ElementTriP2()), intorder=4)
    stiffness = linear_elasticity(2 * SHEAR_MODULUS, SHEAR_MODULUS).assemble(basis)
    order = np.concatenate(basis.split_indices())
    stiffness = sp.csr_matrix(stiffness)[order][:, order]
    return solve(*condense(stiffness, cell.load, I=cell.free))


def test_small_loads_give_linear_elasticity():
    differences = []
    for traction in (200.0, 100.0, 50.0):
        cell = elasticity.UnitCell(VOID, traction)
        found, _ = cell.newton(np.zeros(2 * cell.basis.N), cell.free)
        linear = linear_displacement(cell)
        differences.append(np.linalg.norm(found - linear) / np.linalg.norm(linear))
    assert differences[-1] < 2e-3
    np.testing.assert_allclose(np.divide(differences[:-1], differences[1:]), 2, rtol=0.02)


def test_newton_converges_quadratically():
    residuals = np.array(elasticity.solve(VOID, traction=2e4).residuals)
    assert residuals[-1] < TOLERANCE
    before, now, after = residuals[-4:-1]
    assert np.log(after / now) / np.log(now / before) > 1.7


# The benchmark


def test_one_solution():
    solution = elasticity.solve(VOID)
    assert solution.points.shape == (972, 2)
    assert len(np.unique(solution.points.round(9), axis=0)) == 972
    assert (solution.stress > 0).all()
    assert solution.diagnostics["num_iterations"] <= 4
    assert solution.diagnostics["residual"] < TOLERANCE


def test_stress_concentrates_beside_the_void():
    solution = elasticity.solve(CIRCLE)
    interior = away_from_clamped_corners(solution.points)
    worst = solution.points[interior][solution.stress[interior].argmax()]
    assert np.hypot(*(worst - 0.5)) == pytest.approx(0.3, abs=1e-9)
    assert abs(worst[1] - 0.5) < 0.1


def test_refinement_changes_the_stress_little():
    coarse, fine = elasticity.solve(VOID), elasticity.solve(VOID, refine=1)
    assert relative_difference(coarse, fine) < 0.015


@pytest.mark.slow
def test_refinement_converges_away_from_the_clamped_corners_and_diverges_there():
    coarse, middle, fine = (elasticity.solve(VOID, refine=level) for level in range(3))
    first, second = relative_difference(coarse, middle), relative_difference(middle, fine)
    assert first / second > 1.8
    corner = np.hypot(*coarse.points.T).argmin()
    assert coarse.stress[corner] * 1.1 < middle.stress[corner]
    assert middle.stress[corner] * 1.1 < fine.stress[corner]


def test_mirrored_void_has_the_mirrored_stress():
    # θ → π − θ takes cos kθ to (−1)^k cos kθ and sin kθ to −(−1)^k sin kθ.
    sign = (-1.0) ** np.arange(1, 6)
    mirrored = VOID * np.stack([sign, -sign], axis=1)
    first, second = elasticity.solve(VOID), elasticity.solve(mirrored)
    reflected = second.points * [-1, 1] + [1, 0]
    distance = np.linalg.norm(first.points[:, None] - reflected[None], axis=-1)
    partner = distance.argmin(axis=1)
    np.testing.assert_allclose(distance.min(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(first.stress, second.stress[partner], rtol=1e-7)


def test_same_arguments_give_the_same_bits():
    first, other, second = (elasticity.solve(void) for void in (VOID, CIRCLE, VOID))
    np.testing.assert_array_equal(first.points, second.points)
    np.testing.assert_array_equal(first.stress, second.stress)
    assert not np.array_equal(first.stress, other.stress)


@given(seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=60)
def test_drawn_voids_neither_fold_the_mesh_nor_move_the_square(seed):
    void = draw_void(np.random.default_rng(seed))
    cell = elasticity.UnitCell(void)
    nodes = cell.basis.mesh.doflocs
    assert (cell.basis.mapping.detDF(cell.basis.X) > 0).all()
    x, y = nodes[:, cell.basis.mesh.t]
    assert ((x[1] - x[0]) * (y[2] - y[0]) > (x[2] - x[0]) * (y[1] - y[0])).all()

    radius = elasticity.void_radius(void, np.arange(720) * np.pi / 360)
    area = 1 - np.pi * np.mean(radius**2)
    assert cell.basis.dx.sum() == pytest.approx(area, rel=1e-3)
    circle = elasticity.UnitCell(CIRCLE).basis.mesh.doflocs
    square = (np.abs(circle - 0.5) > 0.5 - 1e-12).any(axis=0)
    np.testing.assert_allclose(nodes[:, square], circle[:, square], atol=1e-14)


@pytest.mark.parametrize("refine", [0, 1])
def test_reference_mesh_is_curved_along_the_circle_only(refine):
    mesh = elasticity.UnitCell(CIRCLE, refine=refine).basis.mesh
    middle, ends = mesh.doflocs[:, mesh.nvertices :], mesh.doflocs[:, mesh.facets]
    radius = np.hypot(*(ends - 0.5))
    on_circle = np.zeros(mesh.nfacets, dtype=bool)
    on_circle[mesh.boundary_facets()] = (radius[:, mesh.boundary_facets()] < 0.4).all(axis=0)
    np.testing.assert_allclose(middle[:, ~on_circle], ends.mean(axis=1)[:, ~on_circle], atol=1e-14)
    np.testing.assert_allclose(np.hypot(*(middle[:, on_circle] - 0.5)), 0.3, rtol=1e-14)
    assert on_circle.sum() == 72 * 2**refine


def test_coefficients_have_the_prior_covariance():
    rng = np.random.default_rng(0)
    draws = np.stack([draw_void(rng) for _ in range(4000)])
    k = np.arange(1, 6)
    expected = np.sqrt(16 / (np.pi * (k**2 + 9)))
    np.testing.assert_allclose(draws.std(axis=0), np.stack([expected, expected], 1), rtol=0.05)


def test_a_ragged_void_is_rejected():
    ragged = np.zeros((40, 2))
    ragged[-1] = 30
    with pytest.raises(Rejected, match="folds"):
        elasticity.solve(ragged)


def test_a_load_that_newton_cannot_balance_is_rejected():
    with pytest.raises(Rejected, match="Newton"):
        elasticity.solve(CIRCLE, traction=-1e7)
