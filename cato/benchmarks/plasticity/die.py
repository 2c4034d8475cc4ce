"""The block and the random die of the Plasticity benchmark; lengths in mm, times in ms."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    from scipy.interpolate import PchipInterpolator

LENGTH, HEIGHT = 50.0, 15.0
"""Size of the block."""
NUM_KNOTS, MAX_KNOT = 8, 3.0
DIE_SPEED, DURATION = 3.0, 1.0


def draw_die(rng: np.random.Generator) -> Float[np.ndarray, " K"]:
    """Draw the heights of the die's knots."""
    return rng.uniform(0.0, MAX_KNOT, NUM_KNOTS)


def die_curve(knots: Float[np.ndarray, " K"]) -> "PchipInterpolator":
    """The die's height above the undeformed block, flat beyond the block's ends."""
    from scipy.interpolate import PchipInterpolator

    spacing = LENGTH / (len(knots) - 1)
    x = spacing * np.arange(-1, len(knots) + 1)
    return PchipInterpolator(x, np.pad(knots, 1, mode="edge"))
