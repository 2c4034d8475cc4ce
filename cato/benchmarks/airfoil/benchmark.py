"""Airfoil: transonic flow around a random foil, from its mesh."""

from dataclasses import dataclass

import numpy as np

from cato.benchmarks.airfoil.editor import AirfoilEditor
from cato.benchmarks.contract import Benchmark, PaperNumbers, Rejected, Sample, Scale
from cato.benchmarks.published import flow_on_mesh
from cato.benchmarks.view import View, Window
from cato.problem import Problem


@dataclass(frozen=True)
class FoilMesh:
    """Nodes of the C-grid around the foil and away from it."""

    around: int
    normal: int

    @property
    def shape(self) -> tuple[int, int]:
        """Nodes along and across the C."""
        return self.around, self.normal


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
    # The C-grid reaches 40 chords; the foil is at 0 ≤ x ≤ 1, the supersonic pockets just around.
    view = View("Mach number", names={"mach": "Mach number"}, window=Window(*AirfoilEditor.window))
    editor = AirfoilEditor
    # The channels are density, two velocities, pressure and Mach number.
    published = flow_on_mesh("NACA_Cylinder", (221, 51), num_channels=5, channel=4)
    paper = PaperNumbers(0.0041, "saot", 0.0049, public_millions={"transolver": 2.81, "saot": 6.06})

    def problem_for(self, parameters: FoilMesh) -> Problem:
        """Only the mesh in, the Mach number out. Axis 0 runs around the foil."""
        return Problem(
            self.name, "mesh", parameters.shape, inputs=(), outputs=("mach",), normalise=()
        )

    def draw(self, rng: np.random.Generator, parameters: FoilMesh) -> np.ndarray:
        """The displacements of the control points."""
        from cato.benchmarks.airfoil.mesh import draw_parameters

        return draw_parameters(rng)

    def solve(self, drawn: np.ndarray, parameters: FoilMesh) -> Sample:
        """The flow around the foil of these control displacements."""
        from cato.benchmarks.airfoil.solver import CHANNELS, solve

        solution = solve(drawn, parameters.shape)
        if not solution.converged:
            raise Rejected(f"the residual stayed at {solution.residual:.1e}")
        diagnostics = {
            "residual": float(solution.residual),
            "num_iterations": float(solution.num_iterations),
            "lift": float(solution.lift),
            "drag": float(solution.drag),
        }
        mach = solution.fields[..., CHANNELS.index("mach")]
        return Sample.on_mesh(solution.coords, mach, diagnostics)
