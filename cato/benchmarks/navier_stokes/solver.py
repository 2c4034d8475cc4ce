"""Two-dimensional incompressible flow on the unit torus, as an equation for the vorticity w.

    ∂w/∂t + u ∂w/∂x + v ∂w/∂y = ν Δw + f,    w = ∂v/∂x − ∂u/∂y,    ∂u/∂x + ∂v/∂y = 0,

with f = 0.1 (sin 2π(x + y) + cos 2π(x + y)) and a Gaussian random w at t = 0: the flow of the
Fourier neural operator paper (Li et al., 2020). Good viscosities are ν = 1e-3 to 1e-5. Expect the
cloudy initial field to be drawn into diagonal bands that speed up (for ν = 1e-5 the deviation of w
grows from 0.2 at t = 1 to 1.8 at t = 20), bend, and roll up with thin filaments between them.
Arrays are indexed w[i, j] = w(x_i, y_j) with x_i = i/n, y_j = j/n.

Fourier–Galerkin method: products are taken at the nodes, and the waves kept, |k₁|, |k₂| < n/3, are
those that n nodes multiply without aliasing (the 2/3 rule). As the velocity is free of divergence,

    u ∂w/∂x + v ∂w/∂y = (∂²/∂x² − ∂²/∂y²) uv + ∂²/∂x∂y (v² − u²),

one evaluation takes four FFTs instead of five. Viscosity is integrated exactly and all else by the
classical fourth-order Runge–Kutta method; the step follows the largest velocity.

Deliberate deviations: the original steps with dt = 1e-4 by Crank–Nicolson and explicit Euler, first
order in time, and draws as many random waves as its grid carries. Here one seed is one function of
x and y, of which every grid keeps the waves that it can carry. The variance of the random field is
that of the original's code, 2·7³ (−Δ + 49)^(−5/2); its paper has 7^(3/2) for the factor.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, isfinite

import numpy as np
import scipy.fft
from jaxtyping import Complex, Float, Float64

from cato.benchmarks.contract import Rejected
from cato.errors import InputError

Waves = Complex[np.ndarray, "n K"]  # Coefficients, see `Torus`.
Values = Float64[np.ndarray, "n n"]  # At the nodes.

# Largest |k₁| and |k₂| of a random initial field: what the original's 256 × 256 nodes carry.
NUM_RANDOM_WAVES = 127
# Step × largest wavenumber × largest |u| + |v|. Runge–Kutta is stable up to 2.83; the rest is
# reserve for a flow that accelerates until the step is chosen again.
COURANT = 1.8
STEP_LIFETIME = 0.25  # Time after which the step is chosen again.

Precision = type[np.float32] | type[np.float64]

Field = Callable[[np.ndarray, np.ndarray], np.ndarray]  # A function of x and y, both (n, n).


def diagonal_forcing(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The forcing of the benchmark, 0.1 (sin 2π(x + y) + cos 2π(x + y))."""
    phase = 2 * np.pi * (x + y)
    return 0.1 * (np.sin(phase) + np.cos(phase))


def random_deviations(k_x: np.ndarray, k_y: np.ndarray) -> np.ndarray:
    """Standard deviation of the real and of the imaginary part of a random coefficient ŵ_k.

    7^(3/2) (4π²|k|² + 49)^(−5/4), where half of each wave's variance is in either part; none for
    the mean.
    """
    deviations = 7**1.5 * (4 * np.pi**2 * (k_x**2 + k_y**2) + 49) ** -1.25
    return np.where((k_x == 0) & (k_y == 0), 0.0, deviations)


def draw_vorticity(rng: np.random.Generator, num_nodes: int) -> Values:
    """One random initial field at the nodes of the torus.

    The generator is used alike at every resolution, and a wave that two grids carry (|k₁|, |k₂| <
    n/2) has the same coefficient on both.
    """
    top = NUM_RANDOM_WAVES
    k_x, k_y = np.arange(-top, top + 1)[:, None], np.arange(top + 1)
    real, imaginary = rng.standard_normal((2, 2 * top + 1, top + 1))
    drawn = random_deviations(k_x, k_y) * (real + 1j * imaginary)
    drawn[:top, 0] = drawn[:top:-1, 0].conj()  # the field is real: ŵ(−k) is the conjugate of ŵ(k)

    carried = min(top, (num_nodes - 1) // 2)
    coefficients = np.zeros((num_nodes, num_nodes // 2 + 1), complex)
    coefficients[np.arange(-carried, carried + 1), : carried + 1] = drawn[
        top - carried : top + carried + 1, : carried + 1
    ]
    return scipy.fft.irfft2(coefficients, s=(num_nodes, num_nodes), norm="forward")


@dataclass(frozen=True)
class Torus:
    """The unit torus with n × n nodes, and real fields on it as sums of waves |k₁|, |k₂| < n/3.

    Coefficients c_k of Σ_k c_k exp(2πi k·x) are stored for k₂ ≥ 0 in an array of shape (n, K), the
    rows in FFT order; those between the highest and the lowest k₁ are zero.
    """

    num_nodes: int

    @property
    def top(self) -> int:
        return (self.num_nodes - 1) // 3  # the largest |k₁| and |k₂|

    @property
    def nodes(self) -> tuple[Values, Values]:
        along = np.arange(self.num_nodes) / self.num_nodes
        x, y = np.meshgrid(along, along, indexing="ij")
        return x, y

    @property
    def wavenumbers(self) -> tuple[Float64[np.ndarray, "n 1"], Float64[np.ndarray, "1 K"]]:
        """2πk₁ and 2πk₂ of every coefficient."""
        k_x = 2 * np.pi * scipy.fft.fftfreq(self.num_nodes, d=1 / self.num_nodes)
        return k_x[:, None], 2 * np.pi * np.arange(self.top + 1.0)[None]

    def values(self, coefficients: Complex[np.ndarray, "*C n K"]) -> Float[np.ndarray, "*C n n"]:
        columns = scipy.fft.ifft(coefficients, axis=-2, norm="forward")
        return scipy.fft.irfft(columns, n=self.num_nodes, axis=-1, norm="forward")

    def coefficients(self, values: Float[np.ndarray, "*C n n"]) -> Complex[np.ndarray, "*C n K"]:
        """The waves of a field given at the nodes; those that the torus does not keep are lost."""
        rows = scipy.fft.rfft(values, axis=-1, norm="forward")[..., : self.top + 1]
        result = scipy.fft.fft(rows, axis=-2, norm="forward")
        result[..., self.top + 1 : -self.top, :] = 0.0
        return result


class VorticityEquation:
    """dŵ/dt = linear · ŵ + nonlinear(ŵ) for the Fourier coefficients ŵ of the vorticity."""

    def __init__(self, torus: Torus, viscosity: float, forcing: Field, dtype: Precision) -> None:
        # Real factors are stored as complex ones: NumPy is four times slower on a mixed product.
        self.dtype = np.result_type(dtype, np.complex64)
        self.torus = torus
        k_x, k_y = torus.wavenumbers
        k_squared = k_x**2 + k_y**2
        self.linear = -viscosity * k_squared  # rate at which viscosity damps every wave
        k_squared[0, 0] = 1.0  # the mean moves nothing: both numerators are zero there
        self._velocity = (1j * np.stack([k_y / k_squared, -k_x / k_squared])).astype(self.dtype)
        self._shear = (k_x**2 - k_y**2).astype(self.dtype)
        self._stretch = (k_x * k_y).astype(self.dtype)
        self._forcing = torus.coefficients(forcing(*torus.nodes)).astype(self.dtype)

    def velocity(self, w: Waves) -> Float[np.ndarray, "2 n n"]:
        """u and v at the nodes, from the stream function ψ: −Δψ = w, u = ∂ψ/∂y, v = −∂ψ/∂x."""
        return self.torus.values(self._velocity * w)

    def nonlinear(self, w: Waves) -> Waves:
        """Transport and forcing."""
        u, v = self.velocity(w)
        uv, vv_minus_uu = self.torus.coefficients(np.stack([u * v, (v - u) * (v + u)]))
        return self._shear * uv + self._stretch * vv_minus_uu + self._forcing


class IntegratingFactorRK4:
    """The classical Runge–Kutta method for exp(−t · linear) ŵ, which viscosity does not change."""

    def __init__(self, equation: VorticityEquation, dt: float) -> None:
        self.equation, self.dt = equation, dt
        self._half = np.exp(equation.linear * dt / 2).astype(equation.dtype)

    def step(self, w: Waves) -> Waves:
        rate, dt, half = self.equation.nonlinear, self.dt, self._half
        w_half = half * w
        k1 = half * rate(w)
        k2 = rate(w_half + (dt / 2) * k1)
        k3 = rate(w_half + (dt / 2) * k2)
        k4 = rate(half * (w_half + dt * k3))
        return half * (w_half + (dt / 6) * (k1 + 2 * (k2 + k3))) + (dt / 6) * k4


def advance(equation: VorticityEquation, w: Waves, duration: float) -> Waves:
    """The coefficients after some time; the step is chosen anew every `STEP_LIFETIME`."""
    top_wavenumber = 2 * np.pi * equation.torus.top
    num_spans = max(1, ceil(duration / STEP_LIFETIME - 1e-6))  # 0.75000001 is three spans
    span = duration / num_spans
    for _ in range(num_spans):
        speed = float(np.abs(equation.velocity(w)).sum(axis=0).max())
        num_steps = max(1, ceil(span * top_wavenumber * speed / COURANT))
        stepper = IntegratingFactorRK4(equation, span / num_steps)
        for _ in range(num_steps):
            w = stepper.step(w)
        if not np.isfinite(w).all():
            raise Rejected(f"Navier–Stokes: not finite after {num_steps} steps of {stepper.dt:.1e}")
    return w


def solve(
    vorticity: np.ndarray,
    *,
    viscosity: float = 1e-5,
    times: Sequence[float] = range(1, 21),
    forcing: Field = diagonal_forcing,
    dtype: Precision = np.float32,
) -> Float[np.ndarray, "T n n"]:
    """Vorticity at the given times, from the field (n, n) at t = 0.

    Of the initial field and the forcing only the waves |k₁|, |k₂| < n/3 are kept. The mean of the
    vorticity moves nothing and stays. `dtype` is that of the computation and of the frames. Raises
    `Rejected` if the flow does not stay finite.
    """
    frames = iterate(vorticity, viscosity=viscosity, times=times, forcing=forcing, dtype=dtype)
    return np.stack(list(frames))


def iterate(
    vorticity: np.ndarray,
    *,
    viscosity: float = 1e-5,
    times: Sequence[float] = range(1, 21),
    forcing: Field = diagonal_forcing,
    dtype: Precision = np.float32,
) -> Iterator[Float[np.ndarray, "n n"]]:
    """The frames of `solve` one by one, each computed when it is requested."""
    vorticity = np.asarray(vorticity)
    _check(vorticity, viscosity, times)
    torus = Torus(len(vorticity))
    equation = VorticityEquation(torus, viscosity, forcing, dtype)
    w = torus.coefficients(vorticity.astype(dtype))
    now = 0.0
    for time in times:
        w = advance(equation, w, time - now)
        yield torus.values(w).astype(dtype)
        now = time


def enstrophy_tail(vorticity: Float[np.ndarray, "n n"]) -> float:
    """Share of the enstrophy ½∫w² in the outermost quarter of the waves kept: how well resolved.

    Below 1e-4 filaments are smooth on the grid; from 1e-3 on they ring visibly.
    """
    torus = Torus(len(vorticity))
    k_x, k_y = (np.abs(k) for k in torus.wavenumbers)
    power = np.abs(torus.coefficients(vorticity - vorticity.mean())) ** 2
    power[:, 1:] *= 2.0  # each stands for its conjugate too
    outer = np.maximum(k_x, k_y) > 0.75 * 2 * np.pi * torus.top
    return float(power[outer].sum() / power.sum())


def _check(vorticity: np.ndarray, viscosity: float, times: Sequence[float]) -> None:
    if vorticity.ndim != 2 or vorticity.shape[0] != vorticity.shape[1] or len(vorticity) < 4:
        raise InputError(
            f"the initial vorticity must be (n, n) with n of 4 or more; got {vorticity.shape}"
        )
    if not np.isfinite(vorticity).all():
        raise InputError("the initial vorticity holds values that are not finite; remove them")
    if not (isfinite(viscosity) and viscosity >= 0):
        raise InputError(f"the viscosity must be 0 or more; got {viscosity}")
    if len(times) == 0 or not (np.diff([0.0, *times]) > 0).all() or not isfinite(times[-1]):
        raise InputError(f"the times must be positive and increase; got {list(times)}")
