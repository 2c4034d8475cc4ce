"""Pipe: steady incompressible flow through a bent pipe.

    u·∇u − ν∇²u + ∇p = 0,   ∇·u = 0,   ν = 0.005.

The pipe is 10 long and 1 wide (Reynolds number 200). Its centreline y = c(x) is made of four cubic
Hermite pieces through five knots, the first at height 0. Nodes are uniform in x, and y = c(x) + η
with η uniform in [−½, ½]. At the inlet u = (1 − 4η², 0), on the walls u = 0, and the outlet is free
(ν ∂u/∂n − p n = 0), which also fixes the level of the pressure.

Taylor–Hood elements Q2–Q1 on isoparametric quadrilaterals, by scikit-fem: the Q2 nodes are the
mesh, so 129 × 129 nodes are 64 × 64 elements. Order 3 in the velocity and 2 in the pressure (L2
norm). Full Newton iteration from the inlet parabola, 5 to 8 steps. The mean flux over each column
of elements is 2/3 to round-off; through a single line of nodes it is so up to the discretisation
error.

The setting is that of Li et al., "Fourier neural operator with learned deformations" (2023), the
source of the paper's Pipe benchmark. Its text and its program draw the centreline differently:
see `benchmark.RANGES`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
import skfem
from jaxtyping import Float, Int
from scipy import sparse
from scipy.integrate import simpson
from scipy.interpolate import CubicHermiteSpline
from skfem.helpers import dot, grad

from cato.benchmarks.newton import Equations, NewtonSolution, State
from cato.benchmarks.pipe.benchmark import KNOTS, LENGTH
from cato.errors import InputError

Centreline = Float[np.ndarray, "5 2"]  # Height and slope at each knot.
Nodes = Float[np.ndarray, "H W 2"]  # Positions (x, y).
Field = Float[np.ndarray, "H W"]  # Values at the nodes.

WIDTH = 1.0
VISCOSITY = 0.005
INLET_FLUX = 2 / 3

# Where x is affine in ξ, as here, 4 × 4 Gauss points integrate every term exactly.
_QUADRATURE_ORDER = 7


@dataclass(frozen=True)
class Solution(NewtonSolution):
    """A flow on the nodes of its mesh; the first axis runs along the pipe, the second across."""

    coords: Nodes  # Node positions (x, y).
    u_x: Field  # Velocity along x, the benchmark's target.
    u_y: Field  # Velocity along y.
    p: Field  # Pressure over density.
    flux_error: float  # Largest relative deviation from 2/3 of the flux through a line of nodes.


def mesh(parameters: Centreline, shape: tuple[int, int] = (129, 129)) -> Nodes:
    """Node positions of the pipe with these heights and slopes at its knots."""
    if min(shape) < 5 or any(size % 2 == 0 for size in shape):
        raise InputError(
            f"pipe: shape counts the nodes of quadratic elements, odd and at least 5; got {shape}"
        )
    x = np.linspace(0, LENGTH, shape[0])
    across = np.linspace(-WIDTH / 2, WIDTH / 2, shape[1])
    centre = CubicHermiteSpline(KNOTS, parameters[:, 0], parameters[:, 1])(x)
    return np.stack(np.broadcast_arrays(x[:, None], centre[:, None] + across), axis=-1)


def solve(parameters: Centreline, shape: tuple[int, int] = (129, 129)) -> Solution:
    """Flow through the pipe with these heights and slopes, as drawn by `draw_centreline`.

    `shape` counts nodes along and across, both odd. Raises `Rejected` if Newton's iteration fails.
    """
    flow = Flow(mesh(parameters, shape))
    across = np.linspace(-1, 1, shape[1])
    start = flow.state(u_x=np.broadcast_to(1 - across**2, shape))
    state, residuals = flow.newton(start, flow.free)
    u_x, u_y, p = flow.fields(state)
    flux = simpson(u_x, dx=WIDTH / (shape[1] - 1), axis=1)
    flux_error = float(np.abs(flux / INLET_FLUX - 1).max())
    return Solution(flow.coords, u_x, u_y, p, flux_error, residuals=residuals)


class Flow(Equations):
    """The discrete equations on one mesh.

    A state is the vector of u_x and u_y at the nodes and of p at the element corners, in
    scikit-fem's numbering; `state` and `fields` translate from and to arrays on the mesh.
    """

    name = "pipe"
    # Pivots stay on the diagonal unless ten times smaller than the best: 1.6 times as fast.
    pivoting = {"diag_pivot_thresh": 0.1}  # noqa: RUF012

    def __init__(self, coords: Nodes) -> None:
        self.coords = coords
        reference, self.node = _reference(coords.shape[:2])
        doflocs = np.empty_like(reference.doflocs)
        doflocs[:, self.node.ravel()] = coords.reshape(-1, 2).T
        self.basis = skfem.Basis(
            replace(reference, doflocs=doflocs), skfem.ElementQuad2(), intorder=_QUADRATURE_ORDER
        )
        corners = self.basis.with_element(skfem.ElementQuad1())
        self.viscous = _viscous.assemble(self.basis)
        self.divergence = [form.assemble(self.basis, corners) for form in _divergence]

    @cached_property
    def free(self) -> Int[np.ndarray, " dofs"]:
        """Entries of a state that neither the inlet nor a wall prescribes."""
        prescribed = np.concatenate([self.node[0], self.node[:, 0], self.node[:, -1]])
        fixed = np.concatenate([prescribed, self.basis.N + prescribed])
        return np.setdiff1d(np.arange(2 * self.basis.N + self.divergence[0].shape[0]), fixed)

    def state(self, **fields: Field) -> State:
        """The state with the given fields, out of u_x, u_y and p; the others are 0."""
        state = np.zeros(2 * self.basis.N + self.divergence[0].shape[0])
        parts = dict(zip(("u_x", "u_y", "p"), self._split(state), strict=True))
        for name, values in fields.items():
            step = 2 if name == "p" else 1
            parts[name][self.node[::step, ::step]] = values[::step, ::step]
        return state

    def fields(self, state: State) -> tuple[Field, ...]:
        u_x, u_y, p = self._split(state)
        return u_x[self.node], u_y[self.node], _halve_steps(p[self.node[::2, ::2]])

    def residual(self, state: State) -> State:
        """Weak momentum equations at every node, then continuity at every corner."""
        *velocity, p = self._split(state)
        u = [self.basis.interpolate(component) for component in velocity]
        momentum = [
            self.viscous @ component
            + _convection.assemble(self.basis, force=u[0] * u[a].grad[0] + u[1] * u[a].grad[1])
            + self.divergence[a].T @ p
            for a, component in enumerate(velocity)
        ]
        continuity = sum(self.divergence[a] @ component for a, component in enumerate(velocity))
        return np.concatenate([*momentum, continuity])

    def jacobian(self, state: State) -> sparse.csr_matrix:
        u = [self.basis.interpolate(component) for component in self._split(state)[:2]]
        momentum = self.viscous + _transport.assemble(self.basis, u_x=u[0], u_y=u[1])
        strain = [
            [_reaction.assemble(self.basis, rate=u[a].grad[b]) for b in range(2)] for a in range(2)
        ]
        d_x, d_y = self.divergence
        blocks = [
            [momentum + strain[0][0], strain[0][1], d_x.T],
            [strain[1][0], momentum + strain[1][1], d_y.T],
            [d_x, d_y, None],
        ]
        return sparse.bmat(blocks, format="csr")

    def _split(self, state: State) -> Sequence[np.ndarray]:
        return np.split(state, [self.basis.N, 2 * self.basis.N])


_viscous = skfem.BilinearForm(lambda u, v, w: VISCOSITY * dot(grad(u), grad(v)))
_transport = skfem.BilinearForm(lambda u, v, w: (w.u_x * u.grad[0] + w.u_y * u.grad[1]) * v)
_reaction = skfem.BilinearForm(lambda u, v, w: w.rate * u * v)
_convection = skfem.LinearForm(lambda v, w: w.force * v)
_divergence = (
    skfem.BilinearForm(lambda u, q, w: -u.grad[0] * q),
    skfem.BilinearForm(lambda u, q, w: -u.grad[1] * q),
)


def _halve_steps(values: Float[np.ndarray, "h w"]) -> Field:
    """Corner values and, between them, their means: what Q1 takes at the Q2 nodes."""
    for axis in range(2):
        twice = np.repeat(values, 2, axis=axis)
        last = twice.shape[axis] - 1
        values = (np.delete(twice, last, axis) + np.delete(twice, 0, axis)) / 2
    return values


@lru_cache(maxsize=4)
def _reference(shape: tuple[int, int]) -> tuple[skfem.MeshQuad2, Int[np.ndarray, "H W"]]:
    """A mesh of the unit square and scikit-fem's number of each of its nodes."""
    corners = [np.linspace(0, 1, size // 2 + 1) for size in shape]
    reference = skfem.MeshQuad2.from_mesh(skfem.MeshQuad.init_tensor(*corners))
    i, j = np.rint(reference.doflocs * (np.array(shape)[:, None] - 1)).astype(int)
    node = np.empty(shape, dtype=int)
    node[i, j] = np.arange(reference.doflocs.shape[1])
    return reference, node
