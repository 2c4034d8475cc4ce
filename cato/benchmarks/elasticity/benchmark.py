"""Elasticity: the stress in a stretched cell with a void, from a cloud of its points.

The edge of the void is r = 0.2 + 0.2/(1 + exp r̃) with r̃ ~ N(0, 4²(−Δ + 9)⁻¹) on the circle. Of r̃
we keep the ten modes cos kθ, sin kθ, k = 1…5: the published data set has ten coefficients per
sample, and many more modes make voids so ragged that 972 points cannot resolve them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cato.benchmarks.contract import Benchmark, Bound, Layout, Published, Sample, Scale
from cato.benchmarks.editor import Control, Editor, ModelInputs
from cato.benchmarks.view import View
from cato.problem import Problem

NUM_WAVES = 5
CENTRE = 0.5  # Both coordinates of the middle of the cell.
MIN_RADIUS, RADIUS_RANGE = 0.2, 0.2
# Points on the edge in the explorer: as many as a sum of waves and a mean has coefficients.
NUM_HANDLES = 2 * NUM_WAVES + 1
SAMPLES = {"train": slice(0, 1000), "test": slice(-200, None)}


@dataclass(frozen=True)
class CellMesh:
    """The one reference mesh that is shipped."""

    num_points: int = 972


class ElasticityEditor(Editor):
    """Fourier coefficients of the void's edge, of cos kθ and sin kθ for k = 1, 2, …"""

    kind = "void"
    hint = "Drag the edge of the void in the stretched rubber cell."
    box = (-0.02, 1.02, -0.02, 1.02)
    window = (-0.02, 1.02, -0.02, 1.02)

    def controls(self) -> list[Control]:
        """One per coefficient; the page moves points of the edge instead."""
        waves = [(k, wave) for k in range(1, NUM_WAVES + 1) for wave in ("cos", "sin")]
        return [Control(f"{wave} {k}θ", -6.0, 6.0, 0.1) for k, wave in waves]

    def decode(self, values: np.ndarray) -> np.ndarray:
        return values.reshape(-1, 2)

    def model_inputs(self, values: np.ndarray) -> ModelInputs:
        solver = self.benchmark.solver
        # Move all nodes, like the solver: moving only some could round differently.
        nodes = solver.morph(solver.reference_cell(0).mesh.doflocs, self.decode(values))
        return ModelInputs.of_mesh(nodes[:, : solver.NUM_POINTS].T)

    def triangles(self) -> np.ndarray:
        """The solver's elements: the points are their corners."""
        return self.benchmark.solver.reference_cell(0).mesh.t[:3].T.astype(np.uint32)

    def describe(self) -> dict[str, Any]:
        """Also the law of the edge, r = inner + (outer − inner) / (1 + exp r̃), |r̃| ≤ reach."""
        radii = {"inner": MIN_RADIUS, "outer": MIN_RADIUS + RADIUS_RANGE}
        void = {"points": NUM_HANDLES, "centre": CENTRE, **radii, "reach": 3.0}
        return super().describe() | {"void": void}


class Elasticity(Benchmark[CellMesh]):
    """Hyperelastic unit cell with a random void: points ↦ stress."""

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
    bounds = {"x1": Bound(0.0, 1.0), "x2": Bound(0.0, 1.0)}  # noqa: RUF012
    view = View("Von Mises stress")
    editor = ElasticityEditor
    published = Published(
        (
            Layout("Random_UnitCell_sigma_10.npy", (972, None), SAMPLES),
            Layout("Random_UnitCell_XY_10.npy", (972, 2, None), SAMPLES),
        ),
        lambda sigma, xy: (xy, None, sigma[..., None]),
    )

    def problem_for(self, parameters: CellMesh) -> Problem:
        shape, outputs = (parameters.num_points,), ("stress",)
        return Problem(self.name, "cloud", shape, (), outputs, normalise=("outputs",))

    def draw(self, rng: np.random.Generator, parameters: CellMesh) -> np.ndarray:
        """Fourier coefficients (K, 2) of r̃: those of cos kθ and of sin kθ, for k = 1, 2, …"""
        k = np.arange(1, NUM_WAVES + 1)[:, None]
        # cos kθ/√π and sin kθ/√π are the orthonormal eigenfunctions of −Δ on the circle.
        return rng.standard_normal((NUM_WAVES, 2)) * 4 / np.sqrt(np.pi * (k**2 + 9))

    def solve(self, drawn: np.ndarray, parameters: CellMesh) -> Sample:
        solution = self.solver.solve(drawn)
        return Sample.on_mesh(solution.points, solution.stress, solution.diagnostics)


BENCHMARK = Elasticity()
