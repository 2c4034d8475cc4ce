"""Pipe: the flow through a bent pipe, from its mesh."""

from dataclasses import dataclass

import numpy as np

from cato.benchmarks.contract import Benchmark, PaperNumbers, Sample, Scale
from cato.benchmarks.pipe.editor import PipeEditor
from cato.benchmarks.published import flow_on_mesh
from cato.benchmarks.view import View
from cato.problem import Problem


@dataclass(frozen=True)
class PipeMesh:
    """Nodes along and across the pipe; odd, since they are those of quadratic elements."""

    resolution: int

    @property
    def shape(self) -> tuple[int, int]:
        """Nodes along and across the pipe."""
        return self.resolution, self.resolution


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
    view = View("Velocity along x", names={"u_x": "$u_x$"})
    editor = PipeEditor
    # The channels are two velocities and pressure.
    published = flow_on_mesh("Pipe", (129, 129), num_channels=3, channel=0)
    paper = PaperNumbers(0.0038, "gnot", 0.0047, public_millions={"transolver": 3.07, "saot": 5.42})

    def problem_for(self, parameters: PipeMesh) -> Problem:
        """Only the mesh in, one velocity out. Axis 0 runs along the pipe."""
        return Problem(
            self.name,
            "mesh",
            parameters.shape,
            inputs=(),
            outputs=("u_x",),
            normalise=("coords", "outputs"),
        )

    def draw(self, rng: np.random.Generator, parameters: PipeMesh) -> np.ndarray:
        """Heights and slopes of the centreline at its knots."""
        from cato.benchmarks.pipe.solver import draw_centreline

        return draw_centreline(rng)

    def solve(self, drawn: np.ndarray, parameters: PipeMesh) -> Sample:
        """The flow through the pipe with these heights and slopes at its knots."""
        from cato.benchmarks.pipe.solver import solve

        solution = solve(drawn, parameters.shape)
        diagnostics = {
            "residual": solution.residual,
            "num_iterations": float(solution.iterations),
            "flux_error": solution.flux_error,
        }
        return Sample.on_mesh(solution.coords, solution.u_x, diagnostics)
