"""Elasticity: the stress in a stretched cell with a void, from a cloud of its points."""

from dataclasses import dataclass

import numpy as np

from cato.benchmarks.contract import Benchmark, PaperNumbers, Sample, Scale
from cato.benchmarks.elasticity.editor import ElasticityEditor
from cato.benchmarks.elasticity.void import draw_void
from cato.benchmarks.published import Layout, Published
from cato.benchmarks.view import View
from cato.problem import Problem

SAMPLES = {"train": slice(0, 1000), "test": slice(-200, None)}


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
    view = View("Von Mises stress")
    editor = ElasticityEditor
    published = Published(
        (
            Layout("Random_UnitCell_sigma_10.npy", (972, None), SAMPLES),
            Layout("Random_UnitCell_XY_10.npy", (972, 2, None), SAMPLES),
        ),
        lambda sigma, xy: (xy, None, sigma[..., None]),
    )
    paper = PaperNumbers(
        0.0070, "transolver", 0.0081, public_millions={"transolver": 0.71, "saot": 2.04}
    )

    def problem_for(self, parameters: CellMesh) -> Problem:
        """Only the points in, one stress out."""
        return Problem(
            self.name,
            "cloud",
            (parameters.num_points,),
            inputs=(),
            outputs=("stress",),
            normalise=("outputs",),
        )

    def draw(self, rng: np.random.Generator, parameters: CellMesh) -> np.ndarray:
        """The Fourier coefficients of the void's edge."""
        return draw_void(rng)

    def solve(self, drawn: np.ndarray, parameters: CellMesh) -> Sample:
        """The stress in the cell with the void of these Fourier coefficients."""
        from cato.benchmarks.elasticity.solver import solve

        solution = solve(drawn)
        diagnostics = {
            "residual": solution.residual,
            "num_iterations": float(solution.iterations),
        }
        return Sample.on_mesh(solution.points, solution.stress, diagnostics)
