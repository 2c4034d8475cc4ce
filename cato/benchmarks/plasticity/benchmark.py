"""Plasticity: the deformation of a metal block under a die, from the shape of the die."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cato.benchmarks.contract import Benchmark, Fields, Layout, Published, Sample, Scale, plane_grid
from cato.benchmarks.editor import Control, Editor, ModelInputs
from cato.benchmarks.view import View
from cato.problem import Problem

LENGTH, HEIGHT = 50.0, 15.0  # Size of the block in mm.
NUM_KNOTS, MAX_KNOT = 8, 3.0
DIE_SPEED, DURATION = 3.0, 1.0  # In mm/ms and ms.
NUM_FRAMES = 20


@dataclass(frozen=True)
class BlockMesh:
    """Nodes along and across the block."""

    columns: int
    rows: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.columns, self.rows


class PlasticityEditor(Editor):
    """The heights of the die at its knots."""

    kind = "points"
    hint = f"Shape the die that moves down by {DIE_SPEED * DURATION:g} mm in {DURATION:g} ms."
    box = (-2.5, 52.5, -1.0, 20.5)
    window = (-3.5, 53.5, -0.5, 18.5)

    def controls(self) -> list[Control]:
        """Points from left to right, on the upper edge of the block at height 0."""
        points = [(float(x), HEIGHT) for x in np.linspace(0, LENGTH, NUM_KNOTS)]
        return [
            Control(f"Die at x = {point[0]:.3g} mm", 0.0, MAX_KNOT, 0.1, "mm", point)
            for point in points
        ]

    def model_inputs(self, values: np.ndarray) -> ModelInputs:
        shape = self.problem.shape
        height = self.benchmark.solver.die_curve(values)(np.linspace(0.0, LENGTH, shape[0]))
        inputs = np.broadcast_to(height[:, None, None], (*shape, 1)).astype(np.float32)
        return ModelInputs(inputs, self.shared_coords())

    def describe(self) -> dict[str, Any]:
        """Also the block, and how far the die moves."""
        travel = self.benchmark.view.die_travel
        return super().describe() | {"die": {"length": LENGTH, "height": HEIGHT, "travel": travel}}


def assemble_published(die: np.ndarray, output: np.ndarray) -> Fields:
    """The height of the die for every node of a column; time before the mesh.

    The four channels keep their order: position (x, y), then displacement (dx, dy), in the
    file's own frame. The coordinates are the reference grid of the generated benchmark, which
    numbers columns and rows and is not tied to that frame.
    """
    heights = np.broadcast_to(die[:, :, None, None], (*output.shape[:3], 1))
    return None, heights, np.moveaxis(output, 3, 1)


FILE, SAMPLES = "plas_N987_T20.mat", {"train": slice(0, 900), "test": slice(-80, None)}


class Plasticity(Benchmark[BlockMesh]):
    """Elastic-plastic block under a falling die: (die, time) ↦ deformed mesh."""

    name = "plasticity"
    title = "Plasticity"
    description = (
        "A metal block of 50 × 15 mm, clamped at the bottom, is pressed by a rigid frictionless "
        "die that comes down at 3 m/s; the metal is elastic and perfectly plastic. The shape of "
        "the die is random. The operator to learn maps the height of the die above every column "
        "of the mesh and a time to the positions and displacements of the mesh nodes, in mm, at "
        "20 times."
    )
    scales = {  # noqa: RUF012
        "paper": Scale(BlockMesh(columns=101, rows=31), train=820, validation=80, test=80),
        "small": Scale(BlockMesh(columns=51, rows=16), train=400, validation=50, test=80),
        "smoke": Scale(BlockMesh(columns=21, rows=7), train=8, validation=4, test=4),
    }
    headline = {"displacement": ("dx", "dy")}  # noqa: RUF012
    view = View(
        "Displacement",
        "mm",
        first_time=DURATION / NUM_FRAMES,
        time_step=DURATION / NUM_FRAMES,
        time_unit="ms",
        die_travel=DIE_SPEED * DURATION,
        names={"die": "height of the die"},
    )
    editor = PlasticityEditor
    published = Published(
        (
            Layout(FILE, (None, 101), SAMPLES, "input", 987),
            Layout(FILE, (None, 101, 31, NUM_FRAMES, 4), SAMPLES, "output", 987),
        ),
        assemble_published,
        normalise=("inputs",),
    )

    def problem_for(self, parameters: BlockMesh) -> Problem:
        return Problem(
            self.name,
            "mesh",
            parameters.shape,
            inputs=("die",),
            outputs=("x", "y", "dx", "dy"),
            time="conditioned",
            num_steps=NUM_FRAMES,
            normalise=("inputs", "outputs"),
        )

    def coords(self, parameters: BlockMesh) -> np.ndarray:
        """The undeformed mesh, in units of the block's length."""
        x = np.linspace(0, 1, parameters.columns)
        return plane_grid(x, np.linspace(0, HEIGHT / LENGTH, parameters.rows))

    def draw(self, rng: np.random.Generator, parameters: BlockMesh) -> np.ndarray:
        return rng.uniform(0.0, MAX_KNOT, NUM_KNOTS)

    def solve(self, drawn: np.ndarray, parameters: BlockMesh) -> Sample:
        solution = self.solver.solve(drawn, parameters.shape, NUM_FRAMES)
        die = np.broadcast_to(solution.die_height[:, None, None], (*parameters.shape, 1))
        return Sample(
            inputs=die.astype(np.float32),
            targets=solution.fields.astype(np.float32),
            diagnostics={
                "energy_error": solution.energy.error,
                "max_penetration": solution.max_penetration,
                "max_plastic_strain": solution.max_plastic_strain,
            },
        )


BENCHMARK = Plasticity()
