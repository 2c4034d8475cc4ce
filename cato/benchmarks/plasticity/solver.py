"""Plasticity: a metal block pressed from above by a rigid die of random shape.

    ρ u_tt = div σ(u)   in the block [0, 50] × [0, 15] mm,   plane stress,
    u = 0 on the bottom,   free sides,   frictionless contact y ≤ 15 + d(x) − 3t with the die.

The metal is elastic and perfectly plastic (J2, Jaumann rate): E = 200 GPa, ν = 0.3, σ_Y = 70 MPa,
ρ = 7850 kg/m³. All this and the 3 m/s of the die are the original's. Ours, where the original is
not known: the die d is the monotone cubic (PCHIP) through 8 equally spaced knots drawn from
U[0, 3 mm], continued flat beyond the block, which makes its end slopes zero; it travels 3 mm in
1 ms; the T frames are the times k/T ms, k = 1 … T, so the undeformed block is not among them.

Units are mm, ms and g, hence N, MPa and N mm. The time stepping is in
`explicit_plane_stress`: about 25 000 steps for a sample, no mass scaling.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.interpolate import PchipInterpolator

from cato.benchmarks.contract import Rejected
from cato.benchmarks.plasticity.benchmark import DIE_SPEED, DURATION, HEIGHT, LENGTH
from cato.benchmarks.plasticity.explicit_plane_stress import (
    COLLAPSED,
    REACHED_END,
    STRAINED,
    advance,
    stable_step,
)
from cato.errors import InputError

MAX_PLASTIC_STRAIN = 3.0  # Beyond it an element is a thin flash that no longer resolves anything.
MAX_ENERGY_ERROR = 0.01
MAX_PENETRATION = 1e-3  # In mm, 1/500 of an element.
MAX_SLOWDOWN = 50.0  # How far the stable step may fall below that of the undeformed block.
FAILURES = {STRAINED: "a thin flash of extreme strain", COLLAPSED: "a collapsed element"}


class Material(NamedTuple):
    """Linear elasticity with perfect J2 plasticity; stresses in MPa, density in g/mm³."""

    young: float = 200e3
    poisson: float = 0.3
    yield_stress: float = 70.0
    density: float = 7.85e-3


METAL = Material()


class Nodes(NamedTuple):
    """Arrays (rows, columns) of the plane's complex numbers; velocity is half a step behind."""

    position: np.ndarray
    velocity: np.ndarray
    force: np.ndarray
    mass: np.ndarray


class Elements(NamedTuple):
    """Arrays (rows − 1, columns − 1): stress, history, and work done since the start.

    `artificial` is the part that viscosity and hourglass forces took, not included in `work`.
    """

    centre: np.ndarray
    deviator: np.ndarray
    thickness: np.ndarray
    plastic_strain: np.ndarray
    hourglass: np.ndarray
    work: np.ndarray
    artificial: np.ndarray


class Die(NamedTuple):
    """Rigid surface that moves down: row k has the powers 3, 2, 1, 0 of x − k · spacing."""

    coefficients: np.ndarray
    spacing: float
    speed: float


class Stepping(NamedTuple):
    """Step as a fraction of the stable one, and what must not be passed."""

    safety: float
    min_dt: float
    max_strain: float


class Energy(NamedTuple):
    """Balance in N mm per mm of thickness: external = kinetic + internal + artificial."""

    external: float
    kinetic: float
    internal: float
    artificial: float

    @property
    def error(self) -> float:
        """What is missing in the balance, relative to the external work."""
        missing = self.external - self.kinetic - self.internal - self.artificial
        return abs(missing) / max(self.external, np.finfo(float).tiny)


@dataclass(frozen=True)
class Solution:
    """The motion of the block, and what is needed to judge it."""

    # Position and displacement in mm, each (x, y), by node column H and node row W, with row 0 at
    # the bottom.
    fields: Float[np.ndarray, "T H W 4"]
    times: Float[np.ndarray, " T"]  # Of the frames, in ms.
    die_height: Float[np.ndarray, " H"]  # Above the undeformed block at the columns, in mm.
    max_plastic_strain: float  # Largest equivalent plastic strain of an element.
    max_penetration: float  # Deepest overlap of any node with the die in any frame, in mm.
    energy: Energy  # Energy balance of the whole motion.
    num_steps: int  # Number of time steps.


def die_curve(knots: Float[np.ndarray, " K"]) -> PchipInterpolator:
    """The die's height above the undeformed block, flat beyond the block's ends."""
    spacing = LENGTH / (len(knots) - 1)
    x = spacing * np.arange(-1, len(knots) + 1)
    return PchipInterpolator(x, np.pad(knots, 1, mode="edge"))


def make_die(knots: Float[np.ndarray, " K"]) -> Die:
    """The die touching the undeformed block where its height is zero."""
    coefficients = die_curve(knots).c.T[1:-1].copy()
    coefficients[:, 3] += HEIGHT
    return Die(coefficients, LENGTH / (len(knots) - 1), DIE_SPEED)


def make_block(shape: tuple[int, int], material: Material) -> tuple[Nodes, Elements]:
    """The undeformed block at rest, with (columns, rows) nodes and unit thickness."""
    columns, rows = shape
    x, y = np.linspace(0.0, LENGTH, columns), np.linspace(0.0, HEIGHT, rows)
    share_x, share_y = np.full(columns, 2.0), np.full(rows, 2.0)
    share_x[[0, -1]] = share_y[[0, -1]] = 1.0
    element_mass = material.density * LENGTH * HEIGHT / ((columns - 1) * (rows - 1))
    nodes = Nodes(
        position=x + 1j * y[:, None],
        velocity=np.zeros((rows, columns), complex),
        force=np.zeros((rows, columns), complex),
        mass=element_mass / 4.0 * share_y[:, None] * share_x,
    )
    cells = (rows - 1, columns - 1)
    elements = Elements(
        centre=np.zeros(cells),
        deviator=np.zeros(cells, complex),
        thickness=np.ones(cells),
        plastic_strain=np.zeros(cells),
        hourglass=np.zeros(cells, complex),
        work=np.zeros(cells),
        artificial=np.zeros(cells),
    )
    return nodes, elements


def solve(
    knots: Float[np.ndarray, " K"],
    shape: tuple[int, int] = (101, 31),
    num_frames: int = 20,
    material: Material = METAL,
    safety: float = 0.9,
) -> Solution:
    """Press the die with these heights (mm) at equally spaced knots into the block.

    `shape` counts node columns and rows; (51, 16) is the quick size. `safety` is the time step as a
    fraction of the stable one. Raises `Rejected` if an element is strained past what it resolves,
    or a check of the result fails.
    """
    _check(knots, shape, num_frames, safety)
    nodes, elements = make_block(shape, material)
    die, curve = make_die(knots), die_curve(knots)
    start = nodes.position.copy()
    min_dt = safety * stable_step(material, nodes, elements) / MAX_SLOWDOWN
    stepping = Stepping(safety, min_dt, MAX_PLASTIC_STRAIN)
    times = DURATION * np.arange(num_frames + 1) / num_frames
    fields = np.empty((num_frames, *shape, 4))
    dt, num_steps, external, penetration = 0.0, 0, 0.0, 0.0
    for frame, (before, now) in enumerate(pairwise(times)):
        status, steps, dt, work = advance(material, nodes, elements, die, before, now, dt, stepping)
        if status != REACHED_END:
            raise Rejected(f"plasticity: {FAILURES[status]} at {now:.2f} ms")
        num_steps, external = num_steps + steps, external + work
        z, u = nodes.position.T, (nodes.position - start).T
        fields[frame] = np.stack([z.real, z.imag, u.real, u.imag], axis=-1)
        surface = HEIGHT + curve(np.clip(z.real, 0.0, LENGTH)) - DIE_SPEED * now
        penetration = max(penetration, float((z.imag - surface).max()))

    kinetic = float(0.5 * (nodes.mass * np.abs(nodes.velocity) ** 2).sum())
    internal, artificial = float(elements.work.sum()), float(elements.artificial.sum())
    energy = Energy(external, kinetic, internal, artificial)
    if not energy.error <= MAX_ENERGY_ERROR:  # NaN fails too
        raise Rejected(f"plasticity: energy balance is off by {energy.error:.1%}")
    if penetration > MAX_PENETRATION:
        raise Rejected(f"plasticity: a node is {penetration:.1g} mm inside the die")
    max_strain = float(elements.plastic_strain.max())
    die_height = curve(start[0].real)
    return Solution(fields, times[1:], die_height, max_strain, penetration, energy, num_steps)


def _check(knots: np.ndarray, shape: tuple[int, int], num_frames: int, safety: float) -> None:
    if len(knots) < 2 or not np.all((knots >= 0.0) & np.isfinite(knots)):
        raise InputError(f"a die needs 2 or more knots that are not below the block; got {knots}")
    if min(shape) < 2:
        raise InputError(f"a block needs at least 2 columns and 2 rows of nodes; got shape {shape}")
    if num_frames < 1:
        raise InputError(f"num_frames must be at least 1; got {num_frames}")
    if not 0.0 < safety < 1.0:
        raise InputError(f"safety must lie between 0 and 1 for a stable step; got {safety}")
