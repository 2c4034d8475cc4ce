"""Airfoil: transonic flow around a random foil, from its mesh."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cato.benchmarks.airfoil.mesh import AMPLITUDE, BOX_HEIGHT, BOX_KNOTS, NUM_PARAMETERS, mesh
from cato.benchmarks.contract import Benchmark, Rejected, Sample, Scale, flow_on_mesh
from cato.benchmarks.editor import Control, Editor, ModelInputs
from cato.benchmarks.view import View, Window
from cato.problem import Problem


@dataclass(frozen=True)
class FoilMesh:
    """Nodes of the C-grid around the foil and away from it."""

    around: int
    normal: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.around, self.normal


class AirfoilEditor(Editor):
    """The displacements of the seven free control points."""

    kind = "points"
    hint = "Drag the control points of the box: the foil inside is deformed with it."
    box = (-0.35, 1.35, -0.45, 0.45)
    window = (-0.5, 1.6, -0.8, 0.8)

    def controls(self) -> list[Control]:
        """Points below from left to right, without the first, then above from right to left."""
        below = [("below", float(x), -BOX_HEIGHT / 2) for x in BOX_KNOTS[1:]]
        above = [("above", float(x), BOX_HEIGHT / 2) for x in BOX_KNOTS[::-1]]
        return [
            Control(f"Point {side} x = {x:g}", -AMPLITUDE, AMPLITUDE, 0.0025, "chords", (x, y))
            for side, x, y in below + above
        ]

    def model_inputs(self, values: np.ndarray) -> ModelInputs:
        return ModelInputs.of_mesh(mesh(values, self.parameters.shape))

    def describe(self) -> dict[str, Any]:
        """Also the sides of the box: indices of controls, and the corner that stays."""
        fixed = (float(BOX_KNOTS[0]), -BOX_HEIGHT / 2)
        return super().describe() | {"sides": [[fixed, 0, 1, 2], [6, 5, 4, 3], [fixed, 6], [2, 3]]}


class Airfoil(Benchmark[FoilMesh]):
    """Steady Euler equations around a deformed NACA 0012: mesh ↦ Mach number."""

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

    def problem_for(self, parameters: FoilMesh) -> Problem:
        return Problem(
            self.name, "mesh", parameters.shape, inputs=(), outputs=("mach",), normalise=()
        )

    def draw(self, rng: np.random.Generator, parameters: FoilMesh) -> np.ndarray:
        """Independent uniform displacements of the free control points, in the editor's order."""
        return rng.uniform(-AMPLITUDE, AMPLITUDE, NUM_PARAMETERS)

    def solve(self, drawn: np.ndarray, parameters: FoilMesh) -> Sample:
        solution = self.solver.solve(drawn, parameters.shape)
        if not solution.converged:
            raise Rejected(f"the residual stayed at {solution.residual:.1e}")
        names = ("residual", "num_iterations", "lift", "drag")
        diagnostics = {name: float(getattr(solution, name)) for name in names}
        mach = solution.fields[..., self.solver.CHANNELS.index("mach")]
        return Sample.on_mesh(solution.coords, mach, diagnostics)


BENCHMARK = Airfoil()
