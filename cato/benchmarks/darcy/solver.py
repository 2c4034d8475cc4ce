"""Steady Darcy flow through a random medium.

    −∇·(a ∇u) = f  on the unit square,   u = 0  on its boundary.

Expect a smooth hill of pressure with kinks where the permeability a jumps; for a ∈ {3, 12} and
f = 1 its top is u ≈ 0.01. Five-point stencil on the nodes, second order for smooth a; the
permeability of a face is the arithmetic mean of its two nodes. The linear system is solved by
conjugate gradients with Ruge–Stüben algebraic multigrid.
"""

from typing import NamedTuple

import numpy as np
import pyamg
import scipy.sparse as sp

from cato.benchmarks.contract import Rejected
from cato.benchmarks.darcy.medium import Values
from cato.errors import InputError

TOLERANCE = 1e-10  # Largest accepted ‖h²f − Au‖ / ‖h²f‖.


class DarcySolution(NamedTuple):
    """Pressure at all nodes and how it was reached."""

    u: Values
    diagnostics: dict[str, float]


def solve_darcy(a: Values, f: Values | float = 1.0) -> DarcySolution:
    """Pressure for a positive permeability and a source at the nodes x_i = i/(n − 1), n ≥ 4.

    Boundary values of the source are not used. Raises `Rejected` if the residual does not fall
    below `TOLERANCE`.
    """
    num_nodes = a.shape[0]
    if num_nodes < 4 or not (a > 0).all():
        raise InputError(
            f"Darcy: the permeability must be positive on 4 nodes per side or more; "
            f"got {num_nodes} nodes per side with the smallest value {a.min()}"
        )
    interior = (slice(1, -1), slice(1, -1))
    matrix = five_point_matrix(a)
    right = (np.broadcast_to(f, a.shape)[interior] / (num_nodes - 1) ** 2).ravel()

    history: list[float] = []
    multigrid = pyamg.ruge_stuben_solver(matrix)
    # Half the tolerance: CG watches its own recursive residual, which drifts from the true one.
    solution = multigrid.solve(right, tol=TOLERANCE / 2, accel="cg", residuals=history)

    scale = float(np.linalg.norm(right))
    residual = float(np.linalg.norm(right - matrix @ solution)) / (scale or 1.0)
    if not residual < TOLERANCE:  # also catches NaN
        raise Rejected(f"Darcy: residual {residual:.1e} after {len(history) - 1} iterations")
    u = np.zeros_like(a)
    u[interior] = solution.reshape(num_nodes - 2, num_nodes - 2)
    return DarcySolution(u, {"residual": residual, "num_iterations": float(len(history) - 1)})


def five_point_matrix(a: Values) -> sp.csr_array:
    """h² times the operator −∇·(a∇·) on the interior nodes, row-major, with u = 0 outside."""
    a_x = (a[1:, 1:-1] + a[:-1, 1:-1]) / 2
    a_y = (a[1:-1, 1:] + a[1:-1, :-1]) / 2
    centre = a_x[1:] + a_x[:-1] + a_y[:, 1:] + a_y[:, :-1]
    next_row = -a_x[1:-1].ravel()
    next_column = -a_y[:, 1:].copy()
    next_column[:, -1] = 0.0  # the end of a row and the start of the next are not neighbours
    next_column = next_column.ravel()[:-1]
    return sp.diags_array(
        [centre.ravel(), next_row, next_row, next_column, next_column],
        offsets=[0, len(centre), -len(centre), 1, -1],
        format="csr",
    )
