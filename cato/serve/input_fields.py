"""Editors of benchmarks whose input is a field on a fixed grid: a medium, an initial vorticity."""

from typing import Any

import numpy as np

from cato.benchmarks.editor import Control, Editor, Given
from cato.benchmarks.navier_stokes.benchmark import NUM_PAST
from cato.errors import InputError

HIGH, LOW = 12.0, 3.0
"""Permeabilities of the Darcy benchmark."""


class DarcyEditor(Editor):
    """The medium as painted on the solver's grid: 1 where it is permeable, 0 elsewhere."""

    name = "darcy"
    kind = "paint"
    hint = "Paint the porous medium: fluid passes the light parts four times as easily."
    label = "Pressure u"

    def controls(self) -> list[Control]:
        """None: it is painted."""
        return []

    def neutral(self) -> np.ndarray:
        """The same permeability everywhere."""
        num_nodes = self.parameters.num_solver_nodes
        return np.zeros((num_nodes, num_nodes), np.uint8)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """A random medium."""
        from cato.benchmarks.darcy.solver import random_medium

        return (random_medium(rng, self.parameters.num_solver_nodes) == HIGH).astype(np.uint8)

    def check(self, values: np.ndarray) -> np.ndarray:
        """Zeros and ones at the nodes of the solver's grid."""
        expected = self.neutral().shape
        if values.shape != expected:
            raise InputError(
                f"darcy: the medium must have shape {list(expected)}; got {list(values.shape)}"
            )
        if not np.isin(values, (0, 1)).all():
            raise InputError("darcy: the medium must be 1 (permeable) or 0 everywhere")
        return values.astype(np.uint8)

    def physical(self, values: np.ndarray) -> np.ndarray:
        """The permeability."""
        return np.where(values == 1, HIGH, LOW)

    def given(self, values: np.ndarray) -> Given:
        """The permeability at every `stride`-th node."""
        stride = self.parameters.stride
        kept = self.physical(values)[::stride, ::stride, None]
        return Given(kept.astype(np.float32), self.benchmark.coords(self.parameters))

    def describe(self) -> dict[str, Any]:
        """The grid that is painted on, and what the two colours mean."""
        num_nodes = self.parameters.num_solver_nodes
        return super().describe() | {"paint": {"size": num_nodes, "low": LOW, "high": HIGH}}


class NavierStokesEditor(Editor):
    """A random initial vorticity, stronger or weaker and coarser or finer than the benchmark's."""

    name = "navier_stokes"
    kind = "sliders"
    hint = (
        "Choose the vortices at t = 0. The solver computes ten frames, the model goes on alone "
        "from there."
    )
    label = "Vorticity w"
    is_signed = True
    needs_solver = True

    def controls(self) -> list[Control]:
        """Strength, size and number of the draw."""
        return [
            Control("Strength of the vortices", 0.25, 3.0, 0.05, "× the benchmark's"),
            Control("Size of the vortices", 0.5, 2.0, 0.05, "× the benchmark's"),
            Control("Number of the draw", 0, 9999, 1),
        ]

    def neutral(self) -> np.ndarray:
        """The benchmark's own distribution."""
        return np.array([1.0, 1.0, 0.0])

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Another field of the benchmark's own distribution."""
        return np.array([1.0, 1.0, float(rng.integers(10_000))])

    def physical(self, values: np.ndarray) -> np.ndarray:
        """The initial vorticity; with strength and size 1 that of `draw_vorticity`, exactly."""
        from cato.benchmarks.navier_stokes.solver import draw_vorticity, random_deviations

        strength, size, seed = values
        num_nodes = self.parameters.stride * self.parameters.resolution
        field = draw_vorticity(np.random.default_rng(int(seed)), num_nodes)
        if size != 1:
            k_x = np.fft.fftfreq(num_nodes, 1 / num_nodes)[:, None]
            k_y = np.arange(num_nodes // 2 + 1)
            # The same variance, from waves that are `size` times as long.
            wanted = size * random_deviations(size * k_x, size * k_y)
            ratio = wanted / np.where((k_x == 0) & (k_y == 0), 1, random_deviations(k_x, k_y))
            field = np.fft.irfft2(ratio * np.fft.rfft2(field), s=field.shape)
        return strength * field

    def given(self, values: np.ndarray) -> Given:
        """Ten frames of the solver."""
        from cato.benchmarks.navier_stokes.solver import solve

        stride = self.parameters.stride
        frames = solve(self.physical(values), times=range(1, NUM_PAST + 1))
        kept = frames[:, ::stride, ::stride].astype(np.float32)
        coords = self.benchmark.coords(self.parameters)
        return Given(np.ascontiguousarray(np.moveaxis(kept, 0, -1)), coords)
