"""The initial vorticity of the Navier–Stokes benchmark, by three numbers."""

import numpy as np

from cato.benchmarks.editor import Control, Editor, ModelInputs


class NavierStokesEditor(Editor):
    """A random initial vorticity, stronger or weaker and coarser or finer than the benchmark's."""

    kind = "sliders"
    hint = (
        "Choose the vortices at t = 0. The solver computes ten frames, and the model continues "
        "from there."
    )
    needs_solver = True

    def controls(self) -> list[Control]:
        """Strength, size and seed."""
        return [
            Control("Strength of the vortices", 0.25, 3.0, 0.05, "× the benchmark's", start=1.0),
            Control("Size of the vortices", 0.5, 2.0, 0.05, "× the benchmark's", start=1.0),
            Control("Seed", 0, 9999, 1),
        ]

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Another seed, with strength and size of the benchmark."""
        return np.array([1.0, 1.0, float(rng.integers(10_000))])

    def decode(self, values: np.ndarray) -> np.ndarray:
        """The initial vorticity; with strength and size 1 exactly that of `draw_vorticity`."""
        from cato.benchmarks.navier_stokes.solver import random_deviations

        strength, size, seed = values
        field = self.benchmark.draw(np.random.default_rng(int(seed)), self.parameters)
        if size != 1:
            num_nodes = len(field)
            k_x = np.fft.fftfreq(num_nodes, 1 / num_nodes)[:, None]
            k_y = np.arange(num_nodes // 2 + 1)
            # The same variance, from waves that are `size` times as long.
            wanted = size * random_deviations(size * k_x, size * k_y)
            ratio = wanted / np.where((k_x == 0) & (k_y == 0), 1, random_deviations(k_x, k_y))
            field = np.fft.irfft2(ratio * np.fft.rfft2(field), s=field.shape)
        return strength * field

    def model_inputs(self, values: np.ndarray) -> ModelInputs:
        """The past frames, from the solver."""
        from cato.benchmarks.navier_stokes.solver import solve

        frames = solve(self.decode(values), times=range(1, self.problem.num_inputs + 1))
        return ModelInputs(self.parameters.past(frames), self.shared_coords())
