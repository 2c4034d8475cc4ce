"""Editors of benchmarks whose input is a shape: a foil, a pipe, a die, a void."""

from typing import Any

import numpy as np

from cato.benchmarks.editor import Control, Editor, Given


class AirfoilEditor(Editor):
    """The heights of the seven free control points of the box around the foil."""

    name = "airfoil"
    kind = "points"
    hint = "Drag the control points of the box: the foil inside is deformed with it."
    label = "Mach number"
    box = (-0.35, 1.35, -0.45, 0.45)
    view = (-0.5, 1.6, -0.8, 0.8)

    def controls(self) -> list[Control]:
        """Points below from left to right, without the first, then above from right to left."""
        from cato.benchmarks.airfoil.mesh import AMPLITUDE, BOX_HEIGHT, BOX_KNOTS

        below = [(float(x), -BOX_HEIGHT / 2) for x in BOX_KNOTS[1:]]
        above = [(float(x), BOX_HEIGHT / 2) for x in BOX_KNOTS[::-1]]
        return [
            Control(
                f"Point {'above' if y > 0 else 'below'} x = {x:g}",
                -AMPLITUDE,
                AMPLITUDE,
                0.0025,
                "chords",
                (x, y),
            )
            for x, y in below + above
        ]

    def neutral(self) -> np.ndarray:
        """NACA 0012."""
        return np.zeros(7)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """A random foil."""
        from cato.benchmarks.airfoil.mesh import draw_parameters

        return draw_parameters(rng)

    def given(self, values: np.ndarray) -> Given:
        """The mesh around the foil."""
        from cato.benchmarks.airfoil.mesh import mesh

        return self._no_inputs(mesh(values, (self.parameters.around, self.parameters.normal)))

    def describe(self) -> dict[str, Any]:
        """The sides of the box too: numbers of controls, and the corner that stays."""
        from cato.benchmarks.airfoil.mesh import BOX_HEIGHT, BOX_KNOTS

        fixed = (float(BOX_KNOTS[0]), -BOX_HEIGHT / 2)
        return super().describe() | {"sides": [[fixed, 0, 1, 2], [6, 5, 4, 3], [fixed, 6], [2, 3]]}


class PipeEditor(Editor):
    """Heights of the centreline at its knots, the first fixed, and its slopes there."""

    name = "pipe"
    kind = "points"
    hint = "Drag the round points to bend the pipe, the small ones to turn it."
    label = "Velocity along x"
    box = (-0.4, 10.4, -2.2, 2.2)
    view = (-0.1, 10.1, -2.1, 2.1)
    reach = 0.8
    """How far along x the point that turns the pipe is from its knot."""

    def controls(self) -> list[Control]:
        """Slope, height, slope, … from the inlet to the outlet."""
        from cato.benchmarks.pipe.solver import KNOTS, RANGES

        height, slope = RANGES["code"]
        controls: list[Control] = []
        for knot, x in enumerate(map(float, KNOTS)):
            if knot:
                label = f"Height of the pipe at x = {x:g}"
                controls.append(Control(label, -height, height, 0.05, "", (x, 0.0)))
            reach = -self.reach if knot == len(KNOTS) - 1 else self.reach
            label = f"Slope of the pipe at x = {x:g}"
            follows = len(controls) - 1 if knot else None
            place, along = (x + reach, 0.0), (0.0, reach)
            controls.append(Control(label, -slope, slope, 0.04, "", place, along, follows))
        return controls

    def neutral(self) -> np.ndarray:
        """A straight pipe."""
        return np.zeros(9)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """A random centreline."""
        from cato.benchmarks.pipe.solver import draw_centreline

        return draw_centreline(rng).ravel()[1:]

    def physical(self, values: np.ndarray) -> np.ndarray:
        """Height and slope at each knot."""
        return np.concatenate([[0.0], values]).reshape(-1, 2)

    def given(self, values: np.ndarray) -> Given:
        """The mesh of the pipe."""
        from cato.benchmarks.pipe.solver import mesh

        return self._no_inputs(mesh(self.physical(values), self.problem.shape))  # type: ignore[arg-type]


class PlasticityEditor(Editor):
    """The heights of the die at its knots."""

    name = "plasticity"
    kind = "points"
    hint = "Shape the die that comes down on the block by 3 mm in one millisecond."
    label = "Displacement"
    unit = "mm"
    box = (-2.5, 52.5, -1.0, 20.5)
    view = (-3.5, 53.5, -0.5, 18.5)

    def controls(self) -> list[Control]:
        """Points from left to right, on the upper edge of the block at height 0."""
        from cato.benchmarks.plasticity.solver import HEIGHT, LENGTH, MAX_KNOT, NUM_KNOTS

        return [
            Control(f"Die at x = {x:.3g} mm", 0.0, MAX_KNOT, 0.1, "mm", (float(x), HEIGHT))
            for x in np.linspace(0, LENGTH, NUM_KNOTS)
        ]

    def neutral(self) -> np.ndarray:
        """A flat die."""
        return np.full(len(self.controls()), 1.5)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """A random die."""
        from cato.benchmarks.plasticity.solver import draw_die

        return draw_die(rng)

    def given(self, values: np.ndarray) -> Given:
        """The height of the die above every column of the mesh."""
        from cato.benchmarks.plasticity.solver import LENGTH, die_curve

        shape = self.problem.shape
        height = die_curve(values)(np.linspace(0.0, LENGTH, shape[0]))
        inputs = np.broadcast_to(height[:, None, None], (*shape, 1)).astype(np.float32)
        return Given(inputs, self.benchmark.coords(self.parameters))


class ElasticityEditor(Editor):
    """Fourier coefficients of the void's edge, of cos kθ and sin kθ for k = 1, 2, …"""

    name = "elasticity"
    kind = "void"
    hint = "Drag the edge of the void in the stretched rubber cell."
    label = "Von Mises stress"
    box = (-0.02, 1.02, -0.02, 1.02)
    view = (-0.02, 1.02, -0.02, 1.02)
    num_points = 11
    """Points on the edge: as many values as a sum of five waves and a mean has."""

    def controls(self) -> list[Control]:
        """One per coefficient; the page moves points of the edge instead."""
        from cato.benchmarks.elasticity.solver import NUM_WAVES

        waves = [(k, wave) for k in range(1, NUM_WAVES + 1) for wave in ("cos", "sin")]
        return [Control(f"{wave} {k}θ", -6.0, 6.0, 0.1) for k, wave in waves]

    def neutral(self) -> np.ndarray:
        """A circle."""
        return np.zeros(len(self.controls()))

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """A random void."""
        from cato.benchmarks.elasticity.solver import draw_void

        return draw_void(rng).ravel()

    def physical(self, values: np.ndarray) -> np.ndarray:
        """A row for each wave."""
        return values.reshape(-1, 2)

    def given(self, values: np.ndarray) -> Given:
        """The points of the cell."""
        from cato.benchmarks.elasticity.solver import NUM_POINTS, morph, reference_cell

        # All nodes, as the solver does it: a part of them could be rounded otherwise.
        nodes = morph(reference_cell(0).mesh.doflocs, self.physical(values))
        return self._no_inputs(nodes[:, :NUM_POINTS].T)

    def triangles(self) -> np.ndarray:
        """The solver's elements: the points are their corners."""
        from cato.benchmarks.elasticity.solver import reference_cell

        return reference_cell(0).mesh.t[:3].T.astype(np.uint32)

    def describe(self) -> dict[str, Any]:
        """The law of the edge too: r = inner + (outer − inner) / (1 + exp r̃)."""
        void = {"points": self.num_points, "inner": 0.2, "outer": 0.4, "reach": 3.0}
        return super().describe() | {"void": void}
