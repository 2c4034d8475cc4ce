"""Poisson's equation with a source of four waves: a seventh benchmark, as small as possible."""

from dataclasses import dataclass

import numpy as np

from cato.benchmarks.contract import Benchmark, Layout, Published, Sample, Scale, plane_grid
from cato.benchmarks.editor import Control, Editor, ModelInputs
from cato.benchmarks.view import View
from cato.problem import Problem

WAVES = ((1, 1), (1, 2), (2, 1), (2, 2))


@dataclass(frozen=True)
class ToyGrid:
    """Nodes per side."""

    resolution: int

    @property
    def axis(self) -> np.ndarray:
        """Positions of the nodes along a side."""
        return np.linspace(0, 1, self.resolution)


class ToyEditor(Editor):
    """The amplitudes of the waves."""

    kind = "sliders"
    hint = "Mix the source."

    def controls(self) -> list[Control]:
        return [Control(f"Wave {j}, {k}", -1.0, 1.0, 0.1) for j, k in WAVES]

    def model_inputs(self, values: np.ndarray) -> ModelInputs:
        from cato.benchmarks.toy.solver import solve

        source, _ = solve(values, self.parameters.axis)
        return ModelInputs(source[..., None].astype(np.float32), self.shared_coords())


class Toy(Benchmark[ToyGrid]):
    """−Δu = f on the unit square with u = 0 on its boundary: f ↦ u."""

    name = "toy"
    title = "Toy Poisson"
    description = "−Δu = f on the unit square, f a sum of four waves. The operator maps f to u."
    scales = {  # noqa: RUF012
        "paper": Scale(ToyGrid(13), train=8, validation=4, test=4),
        "small": Scale(ToyGrid(11), train=8, validation=4, test=4),
        "smoke": Scale(ToyGrid(9), train=6, validation=2, test=2),
    }
    view = View("Toy potential", is_signed=True, names={"u": "potential"})
    editor = ToyEditor
    published = Published(
        (
            Layout(
                "toy.npy",
                (None, 2, 13, 13),
                {"train": slice(0, 12), "test": slice(-4, None)},
                at_least=16,
            ),
        ),
        lambda fields: (None, fields[:, 0, ..., None], fields[:, 1, ..., None]),
    )

    def problem_for(self, parameters: ToyGrid) -> Problem:
        shape = (parameters.resolution, parameters.resolution)
        return Problem(self.name, "grid", shape, inputs=("f",), outputs=("u",))

    def coords(self, parameters: ToyGrid) -> np.ndarray:
        return plane_grid(parameters.axis, parameters.axis)

    def draw(self, rng: np.random.Generator, parameters: ToyGrid) -> np.ndarray:
        return rng.uniform(-1, 1, len(WAVES))

    def solve(self, drawn: np.ndarray, parameters: ToyGrid) -> Sample:
        from cato.benchmarks.toy.solver import solve

        source, solution = (field[..., None] for field in solve(drawn, parameters.axis))
        return Sample(
            source.astype(np.float32), solution.astype(np.float32), diagnostics={"residual": 0.0}
        )


BENCHMARK = Toy()
