"""Darcy flow: the pressure in a random porous medium."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cato.benchmarks.contract import (
    Benchmark,
    Bound,
    Layout,
    Published,
    Sample,
    Scale,
    plane_grid,
)
from cato.benchmarks.darcy.medium import HIGH, LOW, random_medium
from cato.benchmarks.editor import Editor, ModelInputs
from cato.benchmarks.view import View
from cato.errors import InputError
from cato.problem import Problem


@dataclass(frozen=True)
class DarcyGrid:
    """Nodes per side of the samples, every `stride`-th of those the equation is solved on."""

    resolution: int
    stride: int

    @property
    def num_solver_nodes(self) -> int:
        return self.stride * (self.resolution - 1) + 1


class DarcyEditor(Editor):
    """The medium as painted on the solver's grid: 1 where it is permeable, 0 elsewhere."""

    kind = "paint"
    hint = "Paint the porous medium: fluid passes the light parts four times as easily."

    def encode(self, drawn: np.ndarray) -> np.ndarray:
        return (drawn == HIGH).astype(np.uint8)

    def decode(self, values: np.ndarray) -> np.ndarray:
        return np.where(values == 1, HIGH, LOW)

    def check(self, values: np.ndarray) -> np.ndarray:
        expected = (self.parameters.num_solver_nodes,) * 2
        if values.shape != expected:
            raise InputError(
                f"darcy: the medium must have shape {list(expected)}; got {list(values.shape)}"
            )
        if not np.isin(values, (0, 1)).all():
            raise InputError("darcy: the medium must be 1 (permeable) or 0 everywhere")
        return values.astype(np.uint8)

    def model_inputs(self, values: np.ndarray) -> ModelInputs:
        stride = self.parameters.stride
        kept = self.decode(values)[::stride, ::stride, None]
        return ModelInputs(kept.astype(np.float32), self.shared_coords())

    def describe(self) -> dict[str, Any]:
        """Also the grid that is painted on, and names for values 0 and 1."""
        names = [f"Tight (a = {LOW:g})", f"Permeable (a = {HIGH:g})"]
        size = self.parameters.num_solver_nodes
        return super().describe() | {
            "paint": {"size": size, "label": "Porous medium", "names": names}
        }


def published_layouts(file: str, split: str, num_samples: int) -> tuple[Layout, Layout]:
    """Permeability and pressure of one file on 421 × 421 nodes, of which every fifth is used."""
    every_fifth, samples = np.s_[:, ::5, ::5], {split: slice(0, num_samples)}
    coeff = Layout(file, (None, 421, 421), samples, "coeff", num_samples, every_fifth)
    return coeff, replace(coeff, name="sol")


class Darcy(Benchmark[DarcyGrid]):
    """−∇·(a∇u) = 1 with a two-valued permeability a: a ↦ u."""

    name = "darcy"
    title = "Darcy flow"
    description = (
        "Steady pressure u of a flow through a porous medium: −∇·(a∇u) = 1 on the unit square, "
        "u = 0 on its boundary. The permeability a is 12 where a smooth Gaussian random field is "
        "positive and 3 elsewhere. The operator to learn maps a to u. One seed gives the same "
        "medium at every scale and resolution."
    )
    scales = {  # noqa: RUF012
        "paper": Scale(DarcyGrid(resolution=85, stride=5), train=900, validation=100, test=200),
        "small": Scale(DarcyGrid(resolution=29, stride=5), train=900, validation=100, test=200),
        "smoke": Scale(DarcyGrid(resolution=15, stride=2), train=24, validation=8, test=8),
    }
    bounds = {"a": Bound(low=0.0, excludes_low=True)}  # noqa: RUF012
    view = View(label="Pressure u", names={"a": "permeability a"})
    editor = DarcyEditor
    published = Published(
        (
            *published_layouts("piececonst_r421_N1024_smooth1.mat", "train", 1000),
            *published_layouts("piececonst_r421_N1024_smooth2.mat", "test", 200),
        ),
        lambda coeff, sol: (None, coeff[..., None], sol[..., None]),
    )

    def problem_for(self, parameters: DarcyGrid) -> Problem:
        shape = (parameters.resolution, parameters.resolution)
        return Problem(self.name, "grid", shape, inputs=("a",), outputs=("u",))

    def coords(self, parameters: DarcyGrid) -> np.ndarray:
        """coords[i, j] = (x_i, y_j) in the unit square, boundary included."""
        x = np.arange(parameters.resolution) / (parameters.resolution - 1)
        return plane_grid(x, x)

    def draw(self, rng: np.random.Generator, parameters: DarcyGrid) -> np.ndarray:
        return random_medium(rng, parameters.num_solver_nodes)

    def solve(self, drawn: np.ndarray, parameters: DarcyGrid) -> Sample:
        solution = self.solver.solve_darcy(drawn)
        kept = (slice(None, None, parameters.stride),) * 2
        return Sample(
            inputs=drawn[kept][..., None].astype(np.float32),
            targets=solution.u[kept][..., None].astype(np.float32),
            diagnostics=solution.diagnostics,
        )


BENCHMARK = Darcy()
