"""Elasticity: stress in a stretched rubber cell with a void of random shape.

A unit square with a star-shaped void in its middle is clamped at its bottom and pulled at its top
by the dead traction (0, 100). The rubber is an incompressible Mooney–Rivlin solid in plane stress,

    W = C₁(I₁ − 3) + C₂(I₂ − 3),   I₁ = tr C + C₃₃,   I₂ = det C + C₃₃ tr C,   C₃₃ = 1/det C,

with C = FᵀF, F = 1 + ∇u in the plane, C₁ = 1.863e5 and C₂ = 9.79e3: the sheet thins so as to keep
its volume, and no pressure is needed. The target is the von Mises stress at 972 points. Strains
stay below 1 %, close to linear elasticity with E = 6(C₁ + C₂) and ν = ½. Expect a stress of about
190 ± 140 with its largest values, 1000 or more, at the sides of the void.

What varies is the void, see `benchmark`.

Quadratic isoparametric triangles, by scikit-fem, on a reference mesh around a circle of radius 0.3
whose nodes are moved along their rays until the circle is the void. The Cauchy stress is
L2-projected on piecewise linear functions. One more refinement changes it by about 1 % away from
the two clamped corners. In these the exact stress is infinite, and the computed one grows by a
quarter with every refinement: there the data belong to this mesh, as the original's do to its own.

The mesh in mesh.npz was made once with gmsh 4.15.2: the quarter [½, 1]² outside the
circle with 9 edges on the arc, 8 on each outer side, 3 on each inner one and size 0.0705 inside
(algorithm 6, 20 smoothing steps), mirrored twice. Its 268 vertices and 704 edges are the points.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
import skfem
from jaxtyping import Float, Int
from scipy import sparse
from skfem.helpers import dot, grad, mul

from cato.benchmarks.contract import Rejected
from cato.benchmarks.elasticity.benchmark import CENTRE, MIN_RADIUS, RADIUS_RANGE
from cato.benchmarks.newton import Equations, NewtonSolution, State

Void = Float[np.ndarray, "waves 2"]  # Fourier coefficients of its edge.
Matrices = Float[np.ndarray, "2 2 *q"]  # At the quadrature points.

C1, C2 = 1.863e5, 9.79e3
TRACTION = 100.0
NUM_POINTS = 972
REFERENCE_RADIUS = 0.3

_QUADRATURE_ORDER = 4


@dataclass(frozen=True)
class Solution(NewtonSolution):
    """Stress in one cell; residuals are out-of-balance forces, relative to the load."""

    points: Float[np.ndarray, "972 2"]  # Positions in the unloaded cell.
    stress: Float[np.ndarray, " 972"]  # Von Mises stress there.


def void_radius(void: Void, angle: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Distance r(θ) from the centre of the cell to the edge of its void."""
    phase = np.arange(1, len(void) + 1)[:, None] * angle
    exponent = void[:, 0] @ np.cos(phase) + void[:, 1] @ np.sin(phase)
    return MIN_RADIUS + RADIUS_RANGE / (1 + np.exp(exponent))


def solve(void: Void, traction: float = TRACTION, refine: int = 0) -> Solution:
    """Stress in the cell with the void drawn by `Elasticity.draw`.

    The traction is the upward force per unit length of the top; `refine` is how many times to halve
    the elements, where the 972 points stay the same. Raises `Rejected` if the void folds the mesh
    or Newton's iteration does not converge.
    """
    cell = UnitCell(void, traction, refine)
    displacement, residuals = cell.newton(np.zeros(2 * cell.basis.N), cell.free)
    points = cell.basis.mesh.doflocs[:, :NUM_POINTS].T.copy()
    return Solution(points, von_mises(cell.stress(displacement)), residuals=residuals)


class UnitCell(Equations):
    """The discrete equations of equilibrium of one cell.

    A displacement is the vector of its x and then its y components at the nodes, in scikit-fem's
    numbering. Arguments are those of `solve`.
    """

    name = "elasticity"
    # A stable body has a positive definite Jacobian: every diagonal entry is a good pivot.
    pivoting = {"diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}  # noqa: RUF012

    def __init__(self, void: Void, traction: float = TRACTION, refine: int = 0) -> None:
        reference = reference_cell(refine)
        mesh = replace(reference.mesh, doflocs=morph(reference.mesh.doflocs, void))
        self.basis = skfem.Basis(mesh, skfem.ElementTriP2(), intorder=_QUADRATURE_ORDER)
        self.free = reference.free
        self.load = traction * reference.load
        self.scale = float(np.linalg.norm(self.load))
        if (self.basis.mapping.detDF(self.basis.X) <= 0).any():
            raise Rejected("elasticity: the void is too ragged; it folds the mesh")

    def deformation(self, displacement: State) -> np.ndarray:
        """F = 1 + ∇u at the quadrature points: indices (component, derivative, element, point)."""
        gradient = [self.basis.interpolate(u).grad for u in np.split(displacement, 2)]
        return np.stack(gradient) + np.eye(2)[:, :, None, None]

    def residual(self, state: State) -> State:
        """Out-of-balance forces, the gradient of the energy."""
        stress = first_piola(self.deformation(state))
        forces = [_internal.assemble(self.basis, stress=component) for component in stress]
        return np.concatenate(forces) - self.load

    def jacobian(self, state: State) -> sparse.csr_matrix:
        moduli = tangent_moduli(self.deformation(state))
        xx, xy, yy = (
            _stiffness.assemble(self.basis, moduli=moduli[a, :, b])
            for a, b in ((0, 0), (0, 1), (1, 1))
        )
        return sparse.bmat([[xx, xy], [xy.T, yy]], format="csr")

    def stress(self, displacement: State) -> Float[np.ndarray, "3 972"]:
        """Cauchy stress σ_xx, σ_yy and σ_xy at the points, L2-projected."""
        corners = self.basis.with_element(skfem.ElementTriP1())
        cauchy = cauchy_stress(self.deformation(displacement))
        components = cauchy[0, 0], cauchy[1, 1], cauchy[0, 1]
        return np.stack([corners.project(values)[:NUM_POINTS] for values in components])


def _invariants(F: Matrices) -> tuple[np.ndarray, ...]:
    """det F, |F|², the cofactor matrix G = ∂det F/∂F, and α, β of P = ∂W/∂F = αF + βG."""
    J, square = F[0, 0] * F[1, 1] - F[0, 1] * F[1, 0], (F**2).sum(axis=(0, 1))
    G = np.stack([np.stack([F[1, 1], -F[1, 0]]), np.stack([-F[0, 1], F[0, 0]])])
    return J, square, G, 2 * (C1 + C2 / J**2), 2 * (C2 * J - (C1 + C2 * square) / J**3)


def first_piola(F: Matrices) -> Matrices:
    """P = ∂W/∂F."""
    _, _, G, alpha, beta = _invariants(F)
    return alpha * F + beta * G


def tangent_moduli(F: Matrices) -> Float[np.ndarray, "2 2 2 2 *q"]:
    """∂P_ai/∂F_bj at the indices (a, i, b, j)."""
    J, square, G, alpha, beta = _invariants(F)
    mixed = np.einsum("ai...,bj...->aibj...", F, -4 * C2 * G / J**3)
    bulk = 2 * (C2 + 3 * (C1 + C2 * square) / J**4)
    turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    return (
        np.einsum("ab,ij,...->aibj...", np.eye(2), np.eye(2), alpha)
        + np.einsum("ab,ij,...->aibj...", turn, turn, beta)
        + mixed
        + np.einsum("aibj...->bjai...", mixed)
        + np.einsum("ai...,bj...->aibj...", G, bulk * G)
    )


def cauchy_stress(F: Matrices) -> Matrices:
    """σ = P Fᵀ, for the volume ratio is 1."""
    return np.einsum("ai...,bi...->ab...", first_piola(F), F)


def von_mises(stress: Float[np.ndarray, "3 *q"]) -> Float[np.ndarray, "*q"]:
    """Von Mises stress of σ_xx, σ_yy and σ_xy in plane stress."""
    xx, yy, xy = stress
    return np.sqrt(xx**2 - xx * yy + yy**2 + 3 * xy**2)


def morph(nodes: Float[np.ndarray, "2 n"], void: Void) -> Float[np.ndarray, "2 n"]:
    """Move nodes along their rays so that the circle becomes the void; the square stays."""
    ray = nodes - CENTRE
    distance = np.hypot(*ray)
    ray = ray / distance
    edge = void_radius(void, np.arctan2(ray[1], ray[0]))
    outer = 0.5 / np.abs(ray).max(axis=0)
    depth = (distance - REFERENCE_RADIUS) / (outer - REFERENCE_RADIUS)
    return CENTRE + ray * (edge + depth * (outer - edge))


_stiffness = skfem.BilinearForm(lambda u, v, w: dot(mul(w.moduli, grad(u)), grad(v)))
_internal = skfem.LinearForm(lambda v, w: dot(w.stress, grad(v)))


class Reference(NamedTuple):
    """What all cells share: mesh around the circle, free entries, load at traction 1."""

    mesh: skfem.MeshTri2
    free: Int[np.ndarray, " free"]
    load: State


@lru_cache(maxsize=4)
def reference_cell(refine: int = 0) -> Reference:
    """The cell around the circle, from the shipped mesh."""
    file = resources.files("cato.benchmarks.elasticity") / "mesh.npz"
    with file.open("rb") as handle, np.load(handle, allow_pickle=False) as data:
        mesh = skfem.MeshTri(data["points"].T, data["triangles"].T, sort_t=False)
    for _ in range(1 + refine):
        mesh = _rounded(mesh.refined().oriented())
    top, bottom = (mesh.facets_satisfying(lambda x, y=y: np.isclose(x[1], y)) for y in (1, 0))
    basis = skfem.FacetBasis(mesh, skfem.ElementTriP2(), facets=top)
    clamped = basis.get_dofs(bottom).flatten()
    free = np.setdiff1d(np.arange(2 * basis.N), np.concatenate([clamped, basis.N + clamped]))
    upward = skfem.LinearForm(lambda v, w: 1.0 * v).assemble(basis)
    load = np.concatenate([np.zeros(basis.N), upward])
    return Reference(_rounded(skfem.MeshTri2.from_mesh(mesh)), free, load)


def _rounded(mesh: Any) -> Any:
    """The mesh with the nodes of the void's edge on the circle instead of its chords."""
    edge = mesh.facets_satisfying(
        lambda x: np.hypot(*(x - CENTRE)) < REFERENCE_RADIUS + 0.1, boundaries_only=True
    )
    nodes = mesh.dofs.get_facet_dofs(edge).flatten()
    doflocs = mesh.doflocs.copy()
    ray = doflocs[:, nodes] - CENTRE
    doflocs[:, nodes] = CENTRE + REFERENCE_RADIUS * ray / np.hypot(*ray)
    return replace(mesh, doflocs=doflocs)
