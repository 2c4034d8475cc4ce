"""The foils of the Airfoil benchmark and the C-grids around them.

A foil is NACA 0012 with a closed trailing edge, on 0 ≤ x ≤ 1, deformed by moving the eight control
points of a box (1.5 long, 0.2 high, centred at x = ½) up or down: four below and four above, with
cubic Lagrange interpolation along x and linear interpolation along y. The first point, below and
before the nose, stays.

The first mesh axis runs along the C: from the far end of the wake to the trailing edge, over the
upper side to the nose, back along the lower side, and along the wake again, so that nodes i and
−1 − i of the first row coincide in the wake. The second axis runs straight from the foil or the
wake to the outer boundary: half a circle around (1, 0), and two lines. 5/22 of the cells lie along
either wake and 12/22 along the foil.

The setting is that of Li et al., "Fourier neural operator with learned deformations" (2023), the
source of the paper's Airfoil benchmark, at its 221 × 51 nodes. For other sizes the first spacing
and its growth are scaled so that meshes refine each other nearly cell by cell (ours).
"""

import numpy as np
from jaxtyping import Float
from numpy.polynomial import Polynomial

from cato.errors import InputError

Points = Float[np.ndarray, "N 2"]
Displacements = Float[np.ndarray, "7"]  # Of the free control points.

NUM_PARAMETERS = 7
AMPLITUDE = 0.05  # Largest displacement of a control point.
SHAPE = (221, 51)

BOX_HEIGHT = 0.2
BOX_KNOTS = 0.5 + 1.5 * np.array([-1 / 2, -1 / 6, 1 / 6, 1 / 2])
RADIUS = 40.0  # Of the outer half circle, and where the wake ends.
GROWTH = 1.02  # Ratio of neighbouring spacings over the first three quarters of a line of 50 cells.


def num_wake_cells(shape: tuple[int, int]) -> int:
    """Number of cells along either side of the wake."""
    if shape[0] < 45 or (shape[0] - 1) % 22 or shape[1] < 11:
        raise InputError(
            f"an airfoil mesh has 22k + 1 nodes along the C (k ≥ 2) and at least 11 across it; "
            f"got {shape[0]} × {shape[1]}. Take 221 × 51 or 111 × 26"
        )
    return 5 * (shape[0] - 1) // 22


def mesh(
    parameters: Displacements, shape: tuple[int, int] = SHAPE
) -> Float[np.ndarray, "{shape[0]} {shape[1]} 2"]:
    """Nodes of the C-grid around the foil of the given control displacements."""
    if not np.isfinite(parameters).all():
        raise InputError(f"the control displacements of a foil must be finite; got {parameters}")
    num_wake = num_wake_cells(shape)
    num_foil = shape[0] - 1 - 2 * num_wake
    outline = foil(num_foil)
    first = float(np.hypot(*(outline[1] - outline[0])))
    outline = deformed(outline, parameters)
    weight = stretched(first / (RADIUS - 1), num_wake)[:0:-1, None]
    wake = (1 - weight) * outline[0] + weight * [RADIUS, 0.0]
    inner = np.concatenate([wake, outline, wake[::-1]])
    weight = stretched(2 / (num_foil * RADIUS), shape[1] - 1)[:, None]
    return (1 - weight) * inner[:, None] + weight * outer_boundary(num_wake, num_foil)[:, None]


def foil(num_cells: int) -> Points:
    """Nodes of NACA 0012, from the trailing edge over the upper side and back below.

    They are uniform in x, with one more in the cell at the nose, a quarter into it.
    """
    x = np.linspace(0, 1, num_cells // 2)
    x = np.concatenate([[0, x[1] / 4], x[1:]])
    polynomial = -0.1260 * x - 0.3516 * x**2 + 0.2843 * x**3 - 0.1036 * x**4
    y = 0.6 * (0.2969 * np.sqrt(x) + polynomial)
    y[-1] = 0  # exactly: the polynomial leaves round-off
    return np.stack([np.r_[x[:0:-1], x], np.r_[y[:0:-1], -y]], axis=-1)


def deformed(points: Points, parameters: Displacements) -> Points:
    """Move points inside the box with its control points."""
    x, y = points.T
    below = Polynomial.fit(BOX_KNOTS, np.r_[0.0, parameters[:3]], 3)(x)
    above = Polynomial.fit(BOX_KNOTS, parameters[:2:-1], 3)(x)
    height = 0.5 + y / BOX_HEIGHT
    return np.stack([x, y + (1 - height) * below + height * above], axis=-1)


def stretched(first: float, num_cells: int) -> Float[np.ndarray, "{num_cells}+1"]:
    """Nodes from 0 to 1 with spacings that grow slowly, and in the last quarter as needed."""
    from scipy.optimize import brentq  # slow to import

    growth = GROWTH ** (50 / num_cells)
    num_slow = 3 * (num_cells + 1) // 4 - 1
    slow = first * growth ** np.arange(num_slow + 1)
    powers = np.arange(num_cells - num_slow)
    missing = 1 - slow[:-1].sum()
    fast = brentq(lambda ratio: slow[-1] * (ratio**powers).sum() - missing, 1.0, 100.0)
    nodes = np.cumsum(np.concatenate([[0.0], slow[:-1], slow[-1] * fast**powers]))
    nodes[-1] = 1.0
    return nodes


def outer_boundary(num_wake: int, num_foil: int) -> Points:
    """Nodes of the far field: a line above the wake, half a circle, a line below."""
    x = np.linspace(1, RADIUS, num_wake + 1)[1:]
    angle = np.linspace(np.pi / 2, 3 * np.pi / 2, num_foil + 1)
    circle = [1, 0] + RADIUS * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    line = np.stack([x, np.full_like(x, RADIUS)], axis=-1)
    return np.concatenate([line[::-1], circle, line * [1, -1]])
