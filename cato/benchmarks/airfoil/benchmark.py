"""Airfoil: transonic flow around a random foil, from its mesh."""

from dataclasses import dataclass

import numpy as np

from cato.benchmarks.contract import Benchmark, Sample, Scale
from cato.problem import Problem


@dataclass(frozen=True)
class FoilMesh:
    """Nodes of the C-grid around the foil and away from it."""

    around: int
    normal: int


class Airfoil(Benchmark[FoilMesh]):
    """Steady Euler equations around a deformed NACA 0012; learnt is mesh ↦ Mach number."""

    name = "airfoil"
    title = "Airfoil"
    description = (
        "Steady inviscid compressible flow at Mach 0.8 and no incidence around a NACA 0012 foil "
        "deformed at random by a free-form box. The C-grid follows the foil and the cut behind "
        "it. The operator to learn maps the positions of the mesh nodes to the Mach number."
    )
    scales = {  # noqa: RUF012
        "paper": Scale(FoilMesh(around=221, normal=51), train=900, validation=100, test=200),
        "small": Scale(FoilMesh(around=111, normal=26), train=400, validation=50, test=100),
        "smoke": Scale(FoilMesh(around=45, normal=11), train=8, validation=4, test=4),
    }

    def problem_for(self, parameters: FoilMesh) -> Problem:
        """Nothing in but the mesh, the Mach number out. Axis 0 runs around the foil."""
        return Problem(
            self.name,
            "mesh",
            (parameters.around, parameters.normal),
            inputs=(),
            outputs=("mach",),
            normalise=(),
        )

    def sample(self, rng: np.random.Generator, parameters: FoilMesh) -> Sample:
        """Draw a foil and solve."""
        from cato.benchmarks.airfoil.solver import draw_parameters

        return self.solve(draw_parameters(rng), parameters)

    def solve(self, displacements: np.ndarray, parameters: FoilMesh) -> Sample:
        """The flow around the foil of these control displacements."""
        from cato.benchmarks.airfoil.solver import CHANNELS, solve
        from cato.benchmarks.rejected import Rejected

        shape = (parameters.around, parameters.normal)
        solution = solve(displacements, shape)
        if not solution.converged:
            raise Rejected(f"the residual stayed at {solution.residual:.1e}")
        mach = solution.fields[..., CHANNELS.index("mach")]
        return Sample(
            inputs=np.zeros((*shape, 0), np.float32),
            targets=mach[..., None].astype(np.float32),
            coords=solution.coords.astype(np.float32),
            diagnostics={
                "residual": float(solution.residual),
                "num_iterations": float(solution.num_iterations),
                "lift": float(solution.lift),
                "drag": float(solution.drag),
            },
        )
