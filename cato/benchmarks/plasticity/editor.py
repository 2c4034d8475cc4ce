"""The die, by the heights of its knots."""

from typing import Any

import numpy as np

from cato.benchmarks.editor import Control, Editor, ModelInputs
from cato.benchmarks.plasticity.die import (
    DIE_SPEED,
    DURATION,
    HEIGHT,
    LENGTH,
    MAX_KNOT,
    NUM_KNOTS,
    die_curve,
)


class PlasticityEditor(Editor):
    """The heights of the die at its knots."""

    kind = "points"
    hint = f"Shape the die that moves down by {DIE_SPEED * DURATION:g} mm in {DURATION:g} ms."
    box = (-2.5, 52.5, -1.0, 20.5)
    window = (-3.5, 53.5, -0.5, 18.5)

    def controls(self) -> list[Control]:
        """Points from left to right, on the upper edge of the block at height 0."""
        return [
            Control(
                f"Die at x = {x:.3g} mm",
                0.0,
                MAX_KNOT,
                0.1,
                "mm",
                anchor=(float(x), HEIGHT),
                start=MAX_KNOT / 2,
            )
            for x in np.linspace(0, LENGTH, NUM_KNOTS)
        ]

    def model_inputs(self, values: np.ndarray) -> ModelInputs:
        """The height of the die above every column of the mesh."""
        shape = self.problem.shape
        height = die_curve(values)(np.linspace(0.0, LENGTH, shape[0]))
        inputs = np.broadcast_to(height[:, None, None], (*shape, 1)).astype(np.float32)
        return ModelInputs(inputs, self.shared_coords())

    def describe(self) -> dict[str, Any]:
        """Also the block, and how far the die moves."""
        travel = self.benchmark.view.die_travel
        return super().describe() | {"die": {"length": LENGTH, "height": HEIGHT, "travel": travel}}
