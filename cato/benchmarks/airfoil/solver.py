"""Airfoil: steady transonic flow without friction around a deformed NACA 0012.

The Euler equations of an ideal gas (γ = 1.4, ρ∞ = p∞ = 1) at Mach number 0.8 and no angle of
attack, no flow through the foil, free stream 40 chords away. What varies is the foil, see
`mesh`; the benchmark's target is the Mach number. `euler` has the discretisation.

The original solver is vertex-centred with a minmod limiter. Ours is cell-centred, and a node gets
the mean of the four cells around it, ghosts included. The mesh is the original's, with a coarse
nose: at 221 × 51 nodes the drag of NACA 0012 is 0.0143 (reference: about 0.0084), that without
shocks, at Mach 0.5, is 0.0075 instead of 0, and Mach numbers differ by 1.6 % (relative L2) from
those at 441 × 101. All of it falls under refinement.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from cato.benchmarks.airfoil.euler import GAMMA, advance, fill_ghosts, linearise, net_flux, relax
from cato.benchmarks.airfoil.mesh import SHAPE, Displacements, mesh, num_wake_cells
from cato.errors import InputError

CHANNELS = ("rho", "u", "v", "p", "mach")
ACCEPTED_RESIDUAL = 1e-5

# Symmetric Gauss–Seidel sweeps per step: with 4 strong shocks need half as many steps again.
NUM_SWEEPS = 6
# Local time step over the time of a wave across the cell. Growth by 1.1 breaks down at times.
FIRST_CFL, LAST_CFL, CFL_GROWTH = 5.0, 1e3, 1.05
REFRESH = 4  # Steps between two linearisations.


@dataclass(frozen=True)
class Solution:
    """A flow on the nodes of its mesh."""

    coords: Float[np.ndarray, "H W 2"]  # Node positions (x, y).
    fields: Float[np.ndarray, "H W 5"]  # `CHANNELS` on the nodes.
    # Euclidean norm, over cells and equations, of the net flux out of each cell, in units of ρ∞ c∞
    # times one chord. Not finite if the iteration broke down.
    residual: float
    num_iterations: int  # Steps of pseudo-time.
    lift: float  # Lift coefficient.
    drag: float  # Drag coefficient, all of it from pressure.

    @property
    def converged(self) -> bool:
        return self.residual <= ACCEPTED_RESIDUAL


def solve(
    parameters: Displacements,
    shape: tuple[int, int] = SHAPE,
    mach: float = 0.8,
    alpha: float = 0.0,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
) -> Solution:
    """Flow around the foil with the control displacements of `Airfoil.draw`, from the free stream.

    `alpha` is the angle of attack in degrees. The iteration stops at the residual `tolerance`, or
    after `max_iterations` all the same; look at `Solution.converged`.
    """
    if not 0 < mach < 2:
        raise InputError(f"the Mach number of the free stream must be in (0, 2); got {mach}")
    coords = mesh(parameters, shape)
    angle = np.deg2rad(alpha)
    direction = np.array([np.cos(angle), np.sin(angle)])
    velocity = mach * np.sqrt(GAMMA) * direction
    grid = Grid(coords)
    cells, residual, num_iterations = _march(
        grid, np.array([1.0, *velocity, 1.0]), tolerance, max_iterations
    )
    pressure = cells[grid.wall, 1:3, 3].mean(axis=1)
    force = -pressure @ grid.normals[1, grid.wall, 2] / (0.5 * velocity @ velocity)
    lift, drag = float(force @ [-direction[1], direction[0]]), float(force @ direction)
    return Solution(coords, _node_fields(cells, grid), residual, num_iterations, lift, drag)


class Grid:
    """The cells between the nodes of a C-grid, indexed as `cato.benchmarks.airfoil.euler` does."""

    def __init__(self, coords: Float[np.ndarray, "H W 2"]) -> None:
        height, width = coords.shape[:2]
        self.num_wake = num_wake_cells((height, width))  # columns at either side of the wake
        self.wall = np.zeros(height + 3, dtype=bool)  # whether a column starts at the foil
        self.wall[self.num_wake + 2 : -self.num_wake - 2] = True
        along, across = np.diff(coords, axis=0), np.diff(coords, axis=1)
        self.normals = np.zeros((2, height + 3, width + 3, 2))  # area vectors of the faces
        self.normals[0, 2:-1, 2:-2] = np.stack([-across[..., 1], across[..., 0]], axis=-1)
        self.normals[1, 2:-2, 2:-1] = np.stack([along[..., 1], -along[..., 0]], axis=-1)


def _march(
    grid: Grid, stream: np.ndarray, tolerance: float, max_iterations: int
) -> tuple[np.ndarray, float, int]:
    """Cells with their ghosts, residual and number of steps at the end of pseudo-time."""
    normals, wall = grid.normals, grid.wall
    cells = np.tile(stream, (*normals.shape[1:3], 1))
    flux, step = np.zeros_like(cells), np.zeros_like(cells)
    slopes = np.zeros((2, *cells.shape))
    diagonal = np.zeros((*cells.shape, 4))
    coupling = np.zeros((*cells.shape[:2], 4, 4, 4))
    cfl = FIRST_CFL
    for iteration in range(max_iterations + 1):
        fill_ghosts(cells, stream, wall)
        net_flux(cells, normals, wall, slopes, flux)
        residual = float(np.linalg.norm(flux[2:-2, 2:-2])) / np.sqrt(GAMMA)
        if residual <= tolerance or iteration == max_iterations or not np.isfinite(residual):
            break
        if iteration % REFRESH == 0:
            linearise(cells, normals, wall, cfl, diagonal, coupling)
            inverse = np.linalg.inv(diagonal[2:-2, 2:-2])
        relax(inverse, coupling, flux, NUM_SWEEPS, step)
        advance(cells, step)
        cfl = min(cfl * CFL_GROWTH, LAST_CFL)
    return cells, float(residual), iteration


def _node_fields(cells: np.ndarray, grid: Grid) -> np.ndarray:
    """Mean of the four cells around each node, and its Mach number."""
    near = cells[1:-1, 1:-1]
    nodes = (near[1:, 1:] + near[1:, :-1] + near[:-1, 1:] + near[:-1, :-1]) / 4
    # The trailing edge is two nodes at one place, each of which has seen one side of the foil.
    edge = [grid.num_wake, -1 - grid.num_wake]
    nodes[edge, 0] = nodes[edge, 0].mean(axis=0)
    density, u, v, pressure = np.moveaxis(nodes, -1, 0)
    with np.errstate(invalid="ignore"):  # where the iteration broke down
        mach = np.sqrt((u**2 + v**2) * density / (GAMMA * pressure))
    return np.concatenate([nodes, mach[..., None]], axis=-1)
