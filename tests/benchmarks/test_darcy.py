import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cato.benchmarks.contract import Rejected
from cato.benchmarks.darcy import solver as darcy
from cato.benchmarks.darcy.medium import random_medium
from cato.benchmarks.darcy.solver import TOLERANCE, five_point_matrix, solve_darcy
from cato.errors import InputError


def manufactured(num_nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """a = 2 + sin(2x + y), u = sin(πx) sin(2πy)·e^x and f = −a Δu − ∇a·∇u."""
    x, y = np.meshgrid(*[np.linspace(0, 1, num_nodes)] * 2, indexing="ij")
    a = 2 + np.sin(2 * x + y)
    a_x, a_y = 2 * np.cos(2 * x + y), np.cos(2 * x + y)
    g = np.sin(np.pi * x) * np.exp(x)
    g_x = np.exp(x) * (np.sin(np.pi * x) + np.pi * np.cos(np.pi * x))
    g_xx = np.exp(x) * ((1 - np.pi**2) * np.sin(np.pi * x) + 2 * np.pi * np.cos(np.pi * x))
    s, c = np.sin(2 * np.pi * y), np.cos(2 * np.pi * y)
    laplacian = g_xx * s - 4 * np.pi**2 * g * s
    f = -a * laplacian - a_x * g_x * s - a_y * g * 2 * np.pi * c
    return a, f, g * s


def test_second_order_on_a_manufactured_solution() -> None:
    errors = []
    for num_nodes in (17, 33, 65, 129):
        a, f, u = manufactured(num_nodes)
        errors.append(np.abs(solve_darcy(a, f).u - u).max())
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert orders.min() >= 1.9, orders


def test_matrix_is_the_plain_stencil() -> None:
    """Against loops over nodes and their four faces."""
    a = np.random.default_rng(0).uniform(1, 2, (6, 6))
    expected = np.zeros((16, 16))
    for i in range(1, 5):
        for j in range(1, 5):
            row = 4 * (i - 1) + j - 1
            for ni, nj in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):
                face = (a[i, j] + a[ni, nj]) / 2
                expected[row, row] += face
                if 1 <= ni <= 4 and 1 <= nj <= 4:
                    expected[row, 4 * (ni - 1) + nj - 1] -= face
    np.testing.assert_allclose(five_point_matrix(a).toarray(), expected, atol=1e-15)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), num_nodes=st.integers(4, 40))
def test_maximum_principle_and_residual(seed: int, num_nodes: int) -> None:
    """f ≥ 0 pushes u up everywhere: positive inside, zero on the boundary."""
    a = random_medium(np.random.default_rng(seed), num_nodes)
    solution = solve_darcy(a)
    assert set(np.unique(a)) <= {3.0, 12.0}
    assert (solution.u[1:-1, 1:-1] > 0).all()
    boundary = np.concatenate([solution.u[[0, -1]].ravel(), solution.u[:, [0, -1]].ravel()])
    assert not boundary.any()
    inside = solution.u[1:-1, 1:-1].ravel()
    right = np.full_like(inside, 1 / (num_nodes - 1) ** 2)
    residual = np.linalg.norm(right - five_point_matrix(a) @ inside) / np.linalg.norm(right)
    assert residual < TOLERANCE
    assert solution.diagnostics["residual"] == pytest.approx(residual, rel=0.1, abs=1e-14)


def test_constant_medium_has_the_series_solution() -> None:
    """a = 1: u = Σ 16/(π⁴ k m (k² + m²)) sin(kπx) sin(mπy) over odd k, m; u(½, ½) = 0.0736713."""
    u = solve_darcy(np.full((129, 129), 1.0)).u
    k, m = np.meshgrid(np.arange(1, 400, 2), np.arange(1, 400, 2))
    terms = 16 / (np.pi**4 * k * m * (k**2 + m**2)) * np.sin(k * np.pi / 2) * np.sin(m * np.pi / 2)
    assert u[64, 64] == pytest.approx(terms.sum(), rel=1e-4)


def test_symmetric_medium_gives_symmetric_pressure() -> None:
    a = random_medium(np.random.default_rng(5), 41)
    a = np.maximum(a, a.T)
    a = np.maximum(a, a[::-1, ::-1])
    u = solve_darcy(a).u
    np.testing.assert_allclose(u, u.T, atol=1e-11)
    np.testing.assert_allclose(u, u[::-1, ::-1], atol=1e-11)


def test_pressure_scales_with_source_and_permeability() -> None:
    a = random_medium(np.random.default_rng(6), 33)
    np.testing.assert_allclose(solve_darcy(2 * a, 6.0).u, 3 * solve_darcy(a).u, rtol=1e-8)


def test_solver_is_a_pure_function() -> None:
    """Neither earlier calls nor the global random state may change a bit."""
    a = random_medium(np.random.default_rng(7), 85)
    before = a.copy()
    first = solve_darcy(a).u
    np.random.seed(1)  # noqa: NPY002
    solve_darcy(random_medium(np.random.default_rng(8), 85))
    assert np.array_equal(first, solve_darcy(a).u)
    assert np.array_equal(a, before)


def test_media_of_one_seed_are_nested() -> None:
    fine, coarse = (random_medium(np.random.default_rng(9), n) for n in (421, 85))
    assert np.array_equal(coarse, fine[::5, ::5])


@pytest.mark.parametrize("bad", [0.0, -3.0, np.nan])
def test_impossible_permeability_is_refused(bad: float) -> None:
    a = np.full((9, 9), 3.0)
    a[4, 4] = bad
    with pytest.raises(InputError, match="must be positive"):
        solve_darcy(a)


def test_unconverged_solution_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(darcy, "TOLERANCE", 1e-40)
    with pytest.raises(Rejected, match="residual"):
        solve_darcy(random_medium(np.random.default_rng(10), 29))
