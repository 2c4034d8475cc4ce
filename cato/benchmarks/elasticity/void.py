"""The random void of the Elasticity benchmark.

Its edge is r = 0.2 + 0.2/(1 + exp r̃) with r̃ ~ N(0, 4²(−Δ + 9)⁻¹) on the circle. Of r̃ we keep the
ten modes cos kθ, sin kθ, k = 1…5: the published data set has ten coefficients per sample, and many
more modes make voids so ragged that 972 points cannot resolve them.
"""

import numpy as np
from jaxtyping import Float

NUM_WAVES = 5
CENTRE = 0.5
"""Both coordinates of the middle of the cell."""
MIN_RADIUS, RADIUS_RANGE = 0.2, 0.2


def draw_void(rng: np.random.Generator) -> Float[np.ndarray, "waves 2"]:
    """Fourier coefficients of r̃: those of cos kθ and of sin kθ, for k = 1, 2, …"""
    k = np.arange(1, NUM_WAVES + 1)[:, None]
    # cos kθ/√π and sin kθ/√π are the orthonormal eigenfunctions of −Δ on the circle.
    return rng.standard_normal((NUM_WAVES, 2)) * 4 / np.sqrt(np.pi * (k**2 + 9))


def void_radius(
    void: Float[np.ndarray, "waves 2"], angle: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Distance r(θ) from the centre of the cell to the edge of its void."""
    phase = np.arange(1, len(void) + 1)[:, None] * angle
    exponent = void[:, 0] @ np.cos(phase) + void[:, 1] @ np.sin(phase)
    return MIN_RADIUS + RADIUS_RANGE / (1 + np.exp(exponent))
