"""The vorticity solver against exact solutions, conservation laws, symmetries and plain loops."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cato.benchmarks.contract import Rejected
from cato.benchmarks.navier_stokes.solver import (
    IntegratingFactorRK4,
    Torus,
    VorticityEquation,
    diagonal_forcing,
    draw_vorticity,
    enstrophy_tail,
    solve,
)
from cato.errors import InputError


def no_forcing(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A flow left to itself."""
    return np.zeros_like(x)


@dataclass(frozen=True)
class TaylorGreen:
    """An exact solution without forcing: a chequerboard of vortices that decays in place.

    w = A cos(2πmx) cos(2πmy) exp(−8π²m²νt); its stream function is proportional to it, so that
    nothing is carried anywhere.
    """

    viscosity: float
    num_waves: int = 1
    amplitude: float = 1.0

    def __call__(self, x: np.ndarray, y: np.ndarray, t: float) -> np.ndarray:
        """Vorticity at time t."""
        k = 2 * np.pi * self.num_waves
        return (
            self.amplitude * np.exp(-2 * k**2 * self.viscosity * t) * np.cos(k * x) * np.cos(k * y)
        )


def initial(num_nodes: int, seed: int = 0) -> np.ndarray:
    return draw_vorticity(np.random.default_rng(seed), num_nodes)


def relative_error(value: np.ndarray, truth: np.ndarray) -> float:
    return float(np.linalg.norm(value - truth) / np.linalg.norm(truth))


# Exact solutions


@pytest.mark.parametrize("num_waves", [1, 3])
@pytest.mark.parametrize("num_nodes", [32, 45])
def test_taylor_green_vortices_decay_exactly(num_waves: int, num_nodes: int) -> None:
    exact = TaylorGreen(viscosity=2e-3, num_waves=num_waves, amplitude=3.0)
    x, y = Torus(num_nodes).nodes
    times = [0.3, 1.0, 2.0]
    frames = solve(
        exact(x, y, 0.0), viscosity=2e-3, times=times, forcing=no_forcing, dtype=np.float64
    )
    for frame, t in zip(frames, times, strict=True):
        assert relative_error(frame, exact(x, y, t)) < 1e-10


def test_the_forcing_accelerates_a_fluid_at_rest_to_its_exact_shear_flow() -> None:
    # f is a wave with Δf = −8π²f that carries itself nowhere: dw/dt = −8π²νw + f.
    viscosity, t = 1e-3, 20.0
    rate = 8 * np.pi**2 * viscosity
    frame = solve(np.zeros((16, 16)), viscosity=viscosity, times=[t], dtype=np.float64)[0]
    x, y = Torus(16).nodes
    forcing = 0.1 * (np.sin(2 * np.pi * (x + y)) + np.cos(2 * np.pi * (x + y)))
    exact = forcing * (1 - np.exp(-rate * t)) / rate
    assert relative_error(frame, exact) < 1e-8


def test_a_manufactured_steady_flow_stays() -> None:
    # w = cos 2πx + cos 4πy has u = −sin(4πy)/4π and v = sin(2πx)/2π, so that the transport
    # u ∂w/∂x + v ∂w/∂y = −1.5 sin 2πx sin 4πy must be balanced by the forcing.
    viscosity = 1e-3

    def forcing(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        x, y = 2 * np.pi * x, 4 * np.pi * y
        damping = 4 * np.pi**2 * np.cos(x) + 16 * np.pi**2 * np.cos(y)
        return viscosity * damping - 1.5 * np.sin(x) * np.sin(y)

    torus = Torus(24)
    x, y = torus.nodes
    steady = np.cos(2 * np.pi * x) + np.cos(4 * np.pi * y)
    equation = VorticityEquation(torus, viscosity, forcing, np.float64)
    w = torus.coefficients(steady)
    assert abs(equation.linear * w + equation.nonlinear(w)).max() < 1e-14
    # An integrating factor keeps a steady state up to its error in time only.
    frame = solve(steady, viscosity=viscosity, times=[2.0], forcing=forcing, dtype=np.float64)[0]
    assert relative_error(frame, steady) < 1e-6


# The equation


@pytest.mark.parametrize("num_nodes", [7, 8, 9, 10])
def test_transport_is_the_plain_sum_over_pairs_of_waves(num_nodes: int) -> None:
    """Without aliasing, whether or not the number of nodes is divisible by 3."""
    torus = Torus(num_nodes)
    w = torus.coefficients(initial(num_nodes))
    top = torus.top
    assert 3 * top < num_nodes <= 3 * (top + 1)

    waves = [(a, b) for a in range(-top, top + 1) for b in range(-top, top + 1)]

    def coefficient(a: int, b: int) -> complex:
        return w[a, b] if b >= 0 else np.conj(w[-a, -b])

    expected = np.zeros_like(w)
    for p in waves:
        for q in waves:
            k = (p[0] + q[0], p[1] + q[1])
            if p == (0, 0) or abs(k[0]) > top or not 0 <= k[1] <= top:
                continue
            # û_p = i p₂ ŵ_p / 2π|p|², v̂_p = −i p₁ ŵ_p / 2π|p|², and ∂ŵ_q = 2πi q ŵ_q.
            turn = (p[1] * q[0] - p[0] * q[1]) / (p[0] ** 2 + p[1] ** 2)
            expected[k] += turn * coefficient(*p) * coefficient(*q)
    equation = VorticityEquation(torus, 0.0, no_forcing, np.float64)
    np.testing.assert_allclose(equation.nonlinear(w), expected, atol=1e-13 * abs(expected).max())


@given(seed=st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_transport_changes_neither_energy_nor_enstrophy(seed: int) -> None:
    torus = Torus(24)
    w = torus.coefficients(initial(24, seed))
    equation = VorticityEquation(torus, 0.0, no_forcing, np.float64)
    k_x, k_y = torus.wavenumbers
    stream = w / np.maximum(k_x**2 + k_y**2, 1.0)
    change = torus.values(equation.nonlinear(w))
    for weight in (torus.values(w), torus.values(stream)):
        size = np.linalg.norm(weight) * np.linalg.norm(change)
        assert abs((weight * change).sum()) < 1e-13 * size


def test_velocity_has_the_vorticity_as_curl_and_no_divergence() -> None:
    torus = Torus(32)
    w = torus.coefficients(initial(32))
    u, v = torus.coefficients(VorticityEquation(torus, 0.0, no_forcing, np.float64).velocity(w))
    k_x, k_y = torus.wavenumbers
    np.testing.assert_allclose(1j * (k_x * v - k_y * u), w, atol=1e-14)
    np.testing.assert_allclose(k_x * u + k_y * v, 0.0, atol=1e-14)


def test_enstrophy_balance() -> None:
    # d/dt ½⟨w²⟩ = ⟨wf⟩ − ν⟨|∇w|²⟩, integrated over 1 ≤ t ≤ 3 by Gauss–Legendre quadrature.
    viscosity, num_nodes = 1e-3, 48
    points, weights = np.polynomial.legendre.leggauss(12)
    times = [1.0, *(2.0 + points), 3.0]
    frames = solve(initial(num_nodes), viscosity=viscosity, times=times, dtype=np.float64)
    k = 2 * np.pi * np.fft.fftfreq(num_nodes, 1 / num_nodes)
    power = np.abs(np.fft.fft2(frames, norm="forward")) ** 2
    enstrophy = power.sum(axis=(1, 2)) / 2
    dissipation = viscosity * (power * (k[:, None] ** 2 + k**2)).sum(axis=(1, 2))
    supply = (frames * diagonal_forcing(*Torus(num_nodes).nodes)).mean(axis=(1, 2))

    gained, lost = weights @ supply[1:-1], weights @ dissipation[1:-1]
    assert min(gained, lost) > 0.005  # neither side is trivial
    assert abs(enstrophy[-1] - enstrophy[0] - (gained - lost)) < 1e-7 * (gained + lost)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-14), (np.float32, 3e-7)])
def test_mean_vorticity_is_conserved(dtype: type, tolerance: float) -> None:
    frames = solve(initial(32) + 0.25, times=[1, 5, 10], dtype=dtype)
    np.testing.assert_allclose(frames.mean(axis=(1, 2), dtype=float), 0.25, atol=tolerance)


# Accuracy


def test_fourth_order_in_time() -> None:
    torus = Torus(32)
    equation = VorticityEquation(torus, 1e-3, diagonal_forcing, np.float64)
    start = torus.coefficients(3 * initial(32))

    def after_two(num_steps: int) -> np.ndarray:
        stepper, w = IntegratingFactorRK4(equation, 2.0 / num_steps), start
        for _ in range(num_steps):
            w = stepper.step(w)
        return torus.values(w)

    reference = after_two(320)
    errors = np.array([relative_error(after_two(m), reference) for m in (10, 20, 40)])
    assert (np.log2(errors[:-1] / errors[1:]) > 3.8).all(), errors


def test_grid_refinement_at_time_10() -> None:
    finest, *coarser = (
        solve(initial(n), viscosity=1e-3, times=[10], dtype=np.float64)[0]
        for n in (128, 16, 32, 64)
    )
    strides = [128 // len(w) for w in coarser]
    errors = [relative_error(w, finest[::s, ::s]) for w, s in zip(coarser, strides, strict=True)]
    assert errors[0] > 100 * errors[1] > 10_000 * errors[2], errors  # faster than any low power
    assert errors[2] < 1e-7, errors


@pytest.mark.slow
def test_the_benchmark_is_resolved_on_its_own_grid() -> None:
    coarse, fine = (solve(initial(n), times=[10])[0] for n in (256, 512))
    assert relative_error(coarse, fine[::2, ::2]) < 3e-4
    assert enstrophy_tail(coarse) < 1e-5


def test_single_precision_is_enough() -> None:
    single, double = (solve(initial(64), times=[10], dtype=t)[0] for t in (np.float32, np.float64))
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    assert 0 < relative_error(single, double) < 1e-4


def test_the_step_follows_a_flow_that_speeds_up() -> None:
    def strong(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return 60 * (diagonal_forcing(x, y) + diagonal_forcing(2 * x, -y))

    frame = solve(initial(32), times=[4], forcing=strong)[0]
    assert np.abs(frame).max() > 20 * np.abs(initial(32)).max()
    equation = VorticityEquation(Torus(32), 1e-5, strong, np.float64)
    w, stepper = equation.torus.coefficients(initial(32)), IntegratingFactorRK4(equation, 0.1)
    with np.errstate(all="ignore"):
        for _ in range(40):
            w = stepper.step(w)
    assert not np.isfinite(w).all()  # stable at the speed of the start, not at that of the end


# Symmetries


@given(shift=st.integers(1, 31))
@settings(max_examples=5, deadline=None)
def test_translations_along_the_forcing_commute_with_the_flow(shift: int) -> None:
    field = initial(32)
    moved = np.roll(field, (shift, -shift), axis=(0, 1))
    frames = solve(field, times=[1, 3], dtype=np.float64)
    expected = np.roll(frames, (shift, -shift), axis=(1, 2))
    np.testing.assert_allclose(solve(moved, times=[1, 3], dtype=np.float64), expected, atol=1e-12)


def test_the_axes_are_interchangeable() -> None:
    # The mirror (x, y) → (y, x) turns the sign of vorticity, and half a period that of the forcing.
    def mirrored(w: np.ndarray) -> np.ndarray:
        return -np.roll(np.swapaxes(w, -1, -2), 16, axis=-2)

    frame = solve(initial(32), times=[3], dtype=np.float64)[0]
    mirror_frame = solve(mirrored(initial(32)), times=[3], dtype=np.float64)[0]
    np.testing.assert_allclose(mirror_frame, mirrored(frame), atol=1e-12)


# Random initial fields


def test_one_seed_is_the_same_field_on_every_grid() -> None:
    fine = np.fft.fft2(initial(256, seed=3), norm="forward")
    for num_nodes in (15, 16, 64):
        k = np.arange(-((num_nodes - 1) // 2), (num_nodes - 1) // 2 + 1)
        coarse = np.fft.fft2(initial(num_nodes, seed=3), norm="forward")
        np.testing.assert_allclose(coarse[np.ix_(k, k)], fine[np.ix_(k, k)], atol=1e-16)
        coarse[np.ix_(k, k)] = 0.0
        assert abs(coarse).max() < 1e-16
    np.testing.assert_allclose(initial(512, seed=3)[::2, ::2], initial(256, seed=3), atol=1e-14)

    generators = [np.random.default_rng(1), np.random.default_rng(1)]
    for rng, num_nodes in zip(generators, (16, 300), strict=True):
        draw_vorticity(rng, num_nodes)
    assert generators[0].random() == generators[1].random()


def test_random_fields_have_the_spectrum_of_the_original() -> None:
    # The original takes the real part of ifft2(√λ_k (ξ + iη)) on s × s nodes with
    # √λ_k = s²√2·7^1.5·(4π²|k|² + 49)^−1.25, so that E|ŵ_k|² = λ_k / s⁴ for the real field.
    fields = np.stack([initial(32, seed) for seed in range(200)])
    k = np.fft.fftfreq(32, 1 / 32)
    squared = k[:, None] ** 2 + k**2
    variance = 2 * 7**3 * (4 * np.pi**2 * squared + 49) ** -2.5
    unit = np.fft.fft2(fields, norm="forward") / np.sqrt(variance / 2)
    assert abs(unit[:, 0, 0]).max() < 1e-13

    upper = (k > 0) | ((k == 0) & (k[:, None] > 0))  # of two conjugate waves one
    for low, high in [(1, 1), (2, 8), (9, 40), (41, 225)]:
        shell = unit[:, upper & (squared >= low) & (squared <= high)]
        margin = 5 / np.sqrt(shell.size)
        assert abs((shell.real**2).mean() - 1) < np.sqrt(2) * margin, (low, high)
        assert abs((shell.imag**2).mean() - 1) < np.sqrt(2) * margin, (low, high)
        assert abs((shell.real * shell.imag).mean()) < margin, (low, high)


# Use


def test_the_same_call_gives_the_same_bits_whichever_frames_are_asked_for() -> None:
    frames = solve(initial(32))
    assert frames.shape == (20, 32, 32)
    np.testing.assert_array_equal(frames, solve(initial(32)))
    np.testing.assert_array_equal(frames[[4, 19]], solve(initial(32), times=[5, 20]))


def test_enstrophy_tail_is_the_share_of_the_outermost_waves() -> None:
    x, y = Torus(32).nodes  # keeps waves up to 10, so that 8, 9 and 10 are the outermost
    inner, outer = np.cos(2 * np.pi * 7 * x), np.cos(2 * np.pi * (3 * x + 8 * y))
    assert enstrophy_tail(5.0 + inner) < 1e-25
    assert enstrophy_tail(2.0 + inner + 3.0 * outer) == pytest.approx(0.9)
    tails = [enstrophy_tail(solve(initial(n), viscosity=1e-3, times=[5])[0]) for n in (16, 32, 64)]
    assert tails[0] > 10 * tails[1] > 100 * tails[2]


def test_a_flow_that_overflows_is_rejected() -> None:
    def absurd(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return 1e30 * (np.cos(2 * np.pi * x) + np.cos(4 * np.pi * y))

    with np.errstate(all="ignore"), pytest.raises(Rejected, match="not finite"):
        solve(initial(16), times=[1], forcing=absurd)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"vorticity": np.zeros((8, 9))}, r"\(n, n\).*\(8, 9\)"),
        ({"vorticity": np.zeros((3, 3))}, "4 or more"),
        ({"vorticity": np.full((8, 8), np.nan)}, "not finite"),
        ({"viscosity": -1e-5}, "viscosity.*-1e-05"),
        ({"viscosity": float("nan")}, "viscosity"),
        ({"times": []}, "times"),
        ({"times": [0.0, 1.0]}, "times"),
        ({"times": [1.0, 1.0]}, "increase"),
        ({"times": [1.0, float("inf")]}, "times"),
    ],
)
def test_impossible_input_is_named(changed: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"vorticity": np.zeros((8, 8)), "times": [1.0]} | changed
    with pytest.raises(InputError, match=message):
        solve(**arguments)
