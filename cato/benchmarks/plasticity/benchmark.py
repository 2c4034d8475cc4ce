"""Plasticity: the deformation of a metal block under a die, from the shape of the die."""

from dataclasses import dataclass

import numpy as np

from cato.benchmarks.contract import Benchmark, Sample, Scale
from cato.problem import Problem

NUM_FRAMES = 20


@dataclass(frozen=True)
class BlockMesh:
    """Nodes along and across the block."""

    columns: int
    rows: int


class Plasticity(Benchmark[BlockMesh]):
    """Elastic-plastic block under a falling die; learnt is (die, time) ↦ deformed mesh."""

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

    def problem_for(self, parameters: BlockMesh) -> Problem:
        """One die height in, position and displacement out, at requested times."""
        return Problem(
            self.name,
            "mesh",
            (parameters.columns, parameters.rows),
            inputs=("die",),
            outputs=("x", "y", "dx", "dy"),
            time="conditioned",
            num_steps=NUM_FRAMES,
            normalise=("inputs", "outputs"),
        )

    def coords(self, parameters: BlockMesh) -> np.ndarray:
        """The undeformed mesh, in units of the block's length."""
        from cato.benchmarks.plasticity.solver import HEIGHT, LENGTH

        x = np.linspace(0, 1, parameters.columns)
        y = np.linspace(0, HEIGHT / LENGTH, parameters.rows)
        return np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).astype(np.float32)

    def sample(self, rng: np.random.Generator, parameters: BlockMesh) -> Sample:
        """Draw a die and press."""
        from cato.benchmarks.plasticity.solver import draw_die

        return self.solve(draw_die(rng), parameters)

    def solve(self, knots: np.ndarray, parameters: BlockMesh) -> Sample:
        """The motion of the block under the die with these knot heights."""
        from cato.benchmarks.plasticity.solver import solve

        shape = (parameters.columns, parameters.rows)
        solution = solve(knots, shape, NUM_FRAMES)
        die = np.broadcast_to(solution.die_height[:, None, None], (*shape, 1))
        return Sample(
            inputs=die.astype(np.float32),
            targets=solution.fields.astype(np.float32),
            diagnostics={
                "energy_error": solution.energy.error,
                "max_penetration": solution.max_penetration,
                "max_plastic_strain": solution.max_plastic_strain,
            },
        )
