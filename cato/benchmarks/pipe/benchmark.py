"""Pipe: the flow through a bent pipe, from its mesh."""

from dataclasses import dataclass

import numpy as np

from cato.benchmarks.contract import Benchmark, Sample, Scale
from cato.problem import Problem


@dataclass(frozen=True)
class PipeMesh:
    """Nodes along and across the pipe; odd, since they are those of quadratic elements."""

    resolution: int


class Pipe(Benchmark[PipeMesh]):
    """Steady Navier–Stokes in a bent pipe; learnt is mesh ↦ horizontal velocity."""

    name = "pipe"
    title = "Pipe flow"
    description = (
        "Steady incompressible flow with viscosity 0.005 through a pipe of length 10 and width 1 "
        "with a random centreline of four cubic pieces: parabolic inflow, no slip on the walls, "
        "free outflow. The operator to learn maps the positions of the mesh nodes to the "
        "horizontal velocity u_x."
    )
    scales = {  # noqa: RUF012
        "paper": Scale(PipeMesh(resolution=129), train=900, validation=100, test=200),
        "small": Scale(PipeMesh(resolution=65), train=400, validation=50, test=100),
        "smoke": Scale(PipeMesh(resolution=33), train=8, validation=4, test=4),
    }

    def problem_for(self, parameters: PipeMesh) -> Problem:
        """Nothing in but the mesh, one velocity out. Axis 0 runs along the pipe."""
        return Problem(
            self.name,
            "mesh",
            (parameters.resolution, parameters.resolution),
            inputs=(),
            outputs=("u_x",),
            normalise=("coords", "outputs"),
        )

    def sample(self, rng: np.random.Generator, parameters: PipeMesh) -> Sample:
        """Draw a centreline and solve."""
        from cato.benchmarks.pipe.solver import draw_centreline

        return self.solve(draw_centreline(rng), parameters)

    def solve(self, centreline: np.ndarray, parameters: PipeMesh) -> Sample:
        """The flow through the pipe with these heights and slopes at its knots."""
        from cato.benchmarks.pipe.solver import solve

        shape = (parameters.resolution, parameters.resolution)
        solution = solve(centreline, shape)
        return Sample(
            inputs=np.zeros((*shape, 0), np.float32),
            targets=solution.u_x[..., None].astype(np.float32),
            coords=solution.coords.astype(np.float32),
            diagnostics={
                "residual": solution.residual,
                "num_iterations": float(solution.iterations),
                "flux_error": solution.flux_error,
            },
        )
