"""The void in the elastic cell, by points on its edge."""

from typing import Any

import numpy as np

from cato.benchmarks.editor import Control, Editor, ModelInputs
from cato.benchmarks.elasticity.void import CENTRE, MIN_RADIUS, NUM_WAVES, RADIUS_RANGE

NUM_HANDLES = 2 * NUM_WAVES + 1
"""Points on the edge: as many as a sum of waves and a mean has coefficients."""


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
        """A row for each wave."""
        return values.reshape(-1, 2)

    def model_inputs(self, values: np.ndarray) -> ModelInputs:
        """The points of the cell."""
        from cato.benchmarks.elasticity.solver import NUM_POINTS, morph, reference_cell

        # Move all nodes, like the solver: moving only some could round differently.
        nodes = morph(reference_cell(0).mesh.doflocs, self.decode(values))
        return ModelInputs.of_mesh(nodes[:, :NUM_POINTS].T)

    def triangles(self) -> np.ndarray:
        """The solver's elements: the points are their corners."""
        from cato.benchmarks.elasticity.solver import reference_cell

        return reference_cell(0).mesh.t[:3].T.astype(np.uint32)

    def describe(self) -> dict[str, Any]:
        """Also the law of the edge, r = inner + (outer − inner) / (1 + exp r̃), |r̃| ≤ reach."""
        void = {
            "points": NUM_HANDLES,
            "centre": CENTRE,
            "inner": MIN_RADIUS,
            "outer": MIN_RADIUS + RADIUS_RANGE,
            "reach": 3.0,
        }
        return super().describe() | {"void": void}
