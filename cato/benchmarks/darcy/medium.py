"""Random porous media: a Gaussian random field on the unit square, cut into two permeabilities.

    φ(x) = Σ_k √λ_k ξ_k ψ_k(x),   √λ_k = τ^(α−1) (π²|k|² + τ²)^(−α/2),   ξ_k ~ N(0, 1),

with the cosines ψ_k(x) = c_k cos(πk₁x₁) cos(πk₂x₂) of unit L² norm: a draw from the normal
distribution of covariance τ^(2α−2) (−Δ + τ²)^(−α) with Neumann boundary and no mean mode. It is the
medium of the Fourier neural operator paper (Li et al., 2020).

Deliberate deviation: the original draws as many modes as there are nodes, evaluates the field at
cell centres by an inverse DCT and interpolates it to the nodes. Here the number of modes is fixed
and the cosine sum is taken at the nodes themselves, so that one seed is one function of x, which
every resolution merely samples.
"""

import numpy as np
from jaxtyping import Float64

Values = Float64[np.ndarray, "n n"]  # At the nodes.
Modes = Float64[np.ndarray, "K K"]  # Of the cosines.

LOW, HIGH = 3.0, 12.0  # The two permeabilities.
NUM_MODES = 421  # Modes along each axis: as many as the original has on its 421 × 421 grid.


def spectrum(num_modes: int = NUM_MODES, *, alpha: float = 2.0, tau: float = 3.0) -> Modes:
    """The standard deviations √λ_k of the cosine coefficients; that of the mean is zero."""
    k = np.arange(num_modes)
    deviations = tau ** (alpha - 1) * (np.pi**2 * (k[:, None] ** 2 + k**2) + tau**2) ** (-alpha / 2)
    deviations[0, 0] = 0.0
    return deviations


def cosine_sum(coefficients: Modes, num_nodes: int) -> Values:
    """Σ_k coefficients_k ψ_k at the nodes x_i = i/(n − 1), boundary included.

    Two small matrix products rather than an FFT: they take any pair of mode and node counts.
    """
    k = np.arange(coefficients.shape[0])
    x = np.arange(num_nodes) / (num_nodes - 1)
    basis = np.where(k == 0, 1.0, np.sqrt(2.0)) * np.cos(np.pi * np.outer(x, k))
    return basis @ coefficients @ basis.T


def gaussian_field(rng: np.random.Generator, num_nodes: int, num_modes: int = NUM_MODES) -> Values:
    """One draw at the nodes of a square grid, with α = 2 and τ = 3.

    The generator is used alike at every resolution: nodes that two grids share get the same value.
    """
    xi = rng.standard_normal((num_modes, num_modes))
    return cosine_sum(spectrum(num_modes) * xi, num_nodes)


def random_medium(rng: np.random.Generator, num_nodes: int) -> Values:
    """Permeability `HIGH` where a Gaussian field is positive and `LOW` elsewhere, at the nodes."""
    return np.where(gaussian_field(rng, num_nodes) >= 0.0, HIGH, LOW)
