"""Darcy flow: the pressure in a random porous medium."""

from dataclasses import dataclass

import numpy as np

from cato.benchmarks.contract import Benchmark, Sample, Scale
from cato.problem import Problem


@dataclass(frozen=True)
class DarcyGrid:
    """Nodes per side of the samples, every `stride`-th of those the equation is solved on."""

    resolution: int
    stride: int

    @property
    def num_solver_nodes(self) -> int:
        """Nodes per side of the solver's grid."""
        return self.stride * (self.resolution - 1) + 1


class Darcy(Benchmark[DarcyGrid]):
    """−∇·(a∇u) = 1 with a two-valued permeability a; learnt is a ↦ u."""

    name = "darcy"
    title = "Darcy flow"
    description = (
        "Steady pressure u of a flow through a porous medium: −∇·(a∇u) = 1 on the unit square, "
        "u = 0 on its boundary. The permeability a is 12 where a smooth Gaussian random field is "
        "positive and 3 elsewhere. The operator to learn maps a to u. One seed gives the same "
        "medium at every scale and resolution."
    )
    scales = {  # noqa: RUF012
        "paper": Scale(DarcyGrid(resolution=85, stride=5), train=900, validation=100, test=200),
        "small": Scale(DarcyGrid(resolution=29, stride=5), train=900, validation=100, test=200),
        "smoke": Scale(DarcyGrid(resolution=15, stride=2), train=24, validation=8, test=8),
    }

    def problem_for(self, parameters: DarcyGrid) -> Problem:
        """One permeability in, one pressure out, on a uniform grid."""
        shape = (parameters.resolution, parameters.resolution)
        return Problem(self.name, "grid", shape, inputs=("a",), outputs=("u",))

    def coords(self, parameters: DarcyGrid) -> np.ndarray:
        """coords[i, j] = (x_i, y_j) in the unit square, boundary included."""
        x = np.arange(parameters.resolution) / (parameters.resolution - 1)
        return np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1).astype(np.float32)

    def sample(self, rng: np.random.Generator, parameters: DarcyGrid) -> Sample:
        """Draw a medium and solve."""
        # Only processes that solve pay for importing a solver.
        from cato.benchmarks.darcy.solver import random_medium

        return self.solve(random_medium(rng, parameters.num_solver_nodes), parameters)

    def solve(self, a: np.ndarray, parameters: DarcyGrid) -> Sample:
        """Solve on the fine grid that a is given on, keep every `stride`-th node."""
        from cato.benchmarks.darcy.solver import solve_darcy

        solution = solve_darcy(a)
        kept = (slice(None, None, parameters.stride),) * 2
        return Sample(
            inputs=a[kept][..., None].astype(np.float32),
            targets=solution.u[kept][..., None].astype(np.float32),
            diagnostics={
                "residual": solution.residual,
                "num_iterations": float(solution.num_iterations),
            },
        )
