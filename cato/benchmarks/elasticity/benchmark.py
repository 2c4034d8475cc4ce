"""Elasticity: the stress in a stretched cell with a void, from a cloud of its points."""

from dataclasses import dataclass

import numpy as np

from cato.benchmarks.contract import Benchmark, Sample, Scale
from cato.problem import Problem


@dataclass(frozen=True)
class CellMesh:
    """The one reference mesh that is shipped."""

    num_points: int = 972


class Elasticity(Benchmark[CellMesh]):
    """Hyperelastic unit cell with a random void; learnt is points ↦ stress."""

    name = "elasticity"
    title = "Elasticity"
    description = (
        "An incompressible hyperelastic (Mooney–Rivlin, plane stress) unit cell with a void of "
        "random shape, clamped at the bottom and pulled at the top. The operator to learn maps "
        "the positions of 972 points of the material, without any connectivity, to the von Mises "
        "stress at them."
    )
    scales = {  # noqa: RUF012
        "paper": Scale(CellMesh(), train=900, validation=100, test=200),
        "small": Scale(CellMesh(), train=400, validation=50, test=100),
        "smoke": Scale(CellMesh(), train=8, validation=4, test=4),
    }

    def problem_for(self, parameters: CellMesh) -> Problem:
        """Nothing in but the points, one stress out."""
        return Problem(
            self.name,
            "cloud",
            (parameters.num_points,),
            inputs=(),
            outputs=("stress",),
            normalise=("outputs",),
        )

    def sample(self, rng: np.random.Generator, parameters: CellMesh) -> Sample:
        """Draw a void and solve."""
        from cato.benchmarks.elasticity.solver import draw_void

        return self.solve(draw_void(rng), parameters)

    def solve(self, void: np.ndarray, parameters: CellMesh) -> Sample:
        """The stress in the cell with the void of these Fourier coefficients."""
        from cato.benchmarks.elasticity.solver import solve

        solution = solve(void)
        return Sample(
            inputs=np.zeros((parameters.num_points, 0), np.float32),
            targets=solution.stress[:, None].astype(np.float32),
            coords=solution.points.astype(np.float32),
            diagnostics={
                "residual": solution.residual,
                "num_iterations": float(solution.iterations),
            },
        )
