"""The pipe, by the knots of its centreline."""

import numpy as np

from cato.benchmarks.editor import Control, Editor, ModelInputs

REACH = 0.8
"""Distance along x between a knot and the point that turns the pipe there."""


class PipeEditor(Editor):
    """Heights of the centreline at its knots, the first fixed, and its slopes there."""

    kind = "points"
    hint = "Drag the round points to bend the pipe, the small ones to turn it."
    box = (-0.4, 10.4, -2.2, 2.2)
    window = (-0.1, 10.1, -2.1, 2.1)

    def controls(self) -> list[Control]:
        """Slope, height, slope, … from the inlet to the outlet."""
        from cato.benchmarks.pipe.solver import KNOTS, RANGES

        height, slope = RANGES["code"]
        controls: list[Control] = []
        for knot, x in enumerate(map(float, KNOTS)):
            if knot:
                label = f"Height of the pipe at x = {x:g}"
                controls.append(Control(label, -height, height, 0.05, "", (x, 0.0)))
            reach = -REACH if knot == len(KNOTS) - 1 else REACH
            controls.append(
                Control(
                    f"Slope of the pipe at x = {x:g}",
                    -slope,
                    slope,
                    0.04,
                    anchor=(x + reach, 0.0),
                    along=(0.0, reach),
                    follows=len(controls) - 1 if knot else None,
                    is_small=True,
                )
            )
        return controls

    def encode(self, drawn: np.ndarray) -> np.ndarray:
        return drawn.ravel()[1:]

    def decode(self, values: np.ndarray) -> np.ndarray:
        """Height and slope at each knot."""
        return np.concatenate([[0.0], values]).reshape(-1, 2)

    def model_inputs(self, values: np.ndarray) -> ModelInputs:
        """The mesh of the pipe."""
        from cato.benchmarks.pipe.solver import mesh

        return ModelInputs.of_mesh(mesh(self.decode(values), self.parameters.shape))
