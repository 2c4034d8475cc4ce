"""Navier–Stokes: the vorticity of a forced flow on the torus, from its past."""

import time
from dataclasses import dataclass

import numpy as np

from cato.benchmarks.contract import Benchmark, Layout, Published, Sample, Scale, plane_grid
from cato.benchmarks.editor import Control, Editor, ModelInputs
from cato.benchmarks.view import View
from cato.problem import Problem

# Frames at t = 1 … 10 are given, those at t = 11 … 20 are to be predicted.
NUM_PAST, NUM_FUTURE = 10, 10
PAST_TIMES = range(1, NUM_PAST + 1)


@dataclass(frozen=True)
class TorusGrid:
    """Nodes per side of the samples, every `stride`-th of those the flow is computed on."""

    resolution: int
    stride: int

    @property
    def num_solver_nodes(self) -> int:
        return self.stride * self.resolution

    def past(self, frames: np.ndarray) -> np.ndarray:
        """The first frames (T, n, n) of the solver, as input channels of a sample."""
        kept = frames[:NUM_PAST, :: self.stride, :: self.stride].astype(np.float32)
        return np.ascontiguousarray(np.moveaxis(kept, 0, -1))


class NavierStokesEditor(Editor):
    """A random initial vorticity, stronger or weaker and coarser or finer than the benchmark's."""

    kind = "sliders"
    hint = (
        "Choose the vortices at t = 0. The solver computes ten frames, and the model continues "
        "from there."
    )
    needs_solver = True

    def controls(self) -> list[Control]:
        return [
            Control("Strength of the vortices", 0.25, 3.0, 0.05, "× the benchmark's"),
            Control("Size of the vortices", 0.5, 2.0, 0.05, "× the benchmark's"),
            Control("Seed", 0, 9999, 1),
        ]

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Another seed, with strength and size of the benchmark."""
        return np.array([1.0, 1.0, float(rng.integers(10_000))])

    def decode(self, values: np.ndarray) -> np.ndarray:
        strength, size, seed = values
        field = self.benchmark.draw(np.random.default_rng(int(seed)), self.parameters)
        if size != 1:
            num_nodes, random_deviations = len(field), self.benchmark.solver.random_deviations
            k_x = np.fft.fftfreq(num_nodes, 1 / num_nodes)[:, None]
            k_y = np.arange(num_nodes // 2 + 1)
            # The same variance, from waves that are `size` times as long.
            wanted = size * random_deviations(size * k_x, size * k_y)
            ratio = wanted / np.where((k_x == 0) & (k_y == 0), 1, random_deviations(k_x, k_y))
            field = np.fft.irfft2(ratio * np.fft.rfft2(field), s=field.shape)
        return strength * field

    def model_inputs(self, values: np.ndarray) -> ModelInputs:
        frames = self.benchmark.solver.solve(self.decode(values), times=PAST_TIMES)
        return ModelInputs(self.parameters.past(frames), self.shared_coords())


class NavierStokes(Benchmark[TorusGrid]):
    """∂w/∂t + u·∇w = νΔw + f on the unit torus: ten frames ↦ the next one."""

    name = "navier_stokes"
    title = "Navier–Stokes"
    description = (
        "Vorticity w of an incompressible flow on the unit torus with viscosity 1e-5 and the "
        "forcing 0.1 (sin 2π(x + y) + cos 2π(x + y)), from a random initial vorticity. Ten frames, "
        "one time unit apart, are given; the operator to learn maps ten frames to the next and is "
        "applied to its own answers ten times. One seed gives the same initial vorticity at every "
        "resolution."
    )
    scales = {  # noqa: RUF012
        "paper": Scale(TorusGrid(resolution=64, stride=4), train=900, validation=100, test=200),
        "small": Scale(TorusGrid(resolution=32, stride=4), train=400, validation=50, test=100),
        "smoke": Scale(TorusGrid(resolution=16, stride=2), train=8, validation=4, test=4),
    }
    view = View(
        "Vorticity w",
        is_signed=True,
        names={"w": "vorticity"} | {f"w(t={t})": f"vorticity at t = {t}" for t in PAST_TIMES},
        first_time=NUM_PAST + 1,
    )
    editor = NavierStokesEditor
    published = Published(
        (
            Layout(
                "NavierStokes_V1e-5_N1200_T20.mat",
                (None, 64, 64, NUM_PAST + NUM_FUTURE),
                {"train": slice(0, 1000), "test": slice(-200, None)},
                "u",
            ),
        ),
        lambda u: (None, u[..., :NUM_PAST], np.moveaxis(u[..., NUM_PAST:], -1, 1)[..., None]),
    )

    def problem_for(self, parameters: TorusGrid) -> Problem:
        return Problem(
            self.name,
            "grid",
            (parameters.resolution, parameters.resolution),
            inputs=tuple(f"w(t={t})" for t in PAST_TIMES),
            outputs=("w",),
            periodic=(True, True),
            period=(1.0, 1.0),
            time="rollout",
            num_steps=NUM_FUTURE,
            normalise=(),
        )

    def coords(self, parameters: TorusGrid) -> np.ndarray:
        """coords[i, j] = (i, j) / n: the torus has no boundary."""
        x = np.arange(parameters.resolution) / parameters.resolution
        return plane_grid(x, x)

    def draw(self, rng: np.random.Generator, parameters: TorusGrid) -> np.ndarray:
        return self.solver.draw_vorticity(rng, parameters.num_solver_nodes)

    def solve(self, drawn: np.ndarray, parameters: TorusGrid) -> Sample:
        """All frames; timed from t = 10 on, where the model starts too."""
        frames_of = self.solver.iterate(drawn, times=range(1, NUM_PAST + NUM_FUTURE + 1))
        past = [next(frames_of) for _ in PAST_TIMES]
        began = time.perf_counter()
        frames = np.stack([*past, *frames_of])
        seconds = time.perf_counter() - began
        future = frames[NUM_PAST:, :: parameters.stride, :: parameters.stride, None]
        return Sample(
            inputs=parameters.past(frames),
            targets=np.ascontiguousarray(future.astype(np.float32)),
            diagnostics={"enstrophy_tail": self.solver.enstrophy_tail(frames[-1])},
            seconds=seconds,
        )


BENCHMARK = NavierStokes()
