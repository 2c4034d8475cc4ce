"""The foil, by the control points of the box around it."""

from typing import Any

import numpy as np

from cato.benchmarks.editor import Control, Editor, ModelInputs


class AirfoilEditor(Editor):
    """The displacements of the seven free control points."""

    kind = "points"
    hint = "Drag the control points of the box: the foil inside is deformed with it."
    box = (-0.35, 1.35, -0.45, 0.45)
    window = (-0.5, 1.6, -0.8, 0.8)

    def controls(self) -> list[Control]:
        """Points below from left to right, without the first, then above from right to left."""
        from cato.benchmarks.airfoil.mesh import AMPLITUDE, BOX_HEIGHT, BOX_KNOTS

        below = [("below", float(x), -BOX_HEIGHT / 2) for x in BOX_KNOTS[1:]]
        above = [("above", float(x), BOX_HEIGHT / 2) for x in BOX_KNOTS[::-1]]
        return [
            Control(f"Point {side} x = {x:g}", -AMPLITUDE, AMPLITUDE, 0.0025, "chords", (x, y))
            for side, x, y in below + above
        ]

    def model_inputs(self, values: np.ndarray) -> ModelInputs:
        """The mesh around the foil."""
        from cato.benchmarks.airfoil.mesh import mesh

        return ModelInputs.of_mesh(mesh(values, self.parameters.shape))

    def describe(self) -> dict[str, Any]:
        """Also the sides of the box: indices of controls, and the corner that stays."""
        from cato.benchmarks.airfoil.mesh import BOX_HEIGHT, BOX_KNOTS

        fixed = (float(BOX_KNOTS[0]), -BOX_HEIGHT / 2)
        return super().describe() | {"sides": [[fixed, 0, 1, 2], [6, 5, 4, 3], [fixed, 6], [2, 3]]}
