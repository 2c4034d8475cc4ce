"""Pipe: the flow through a bent pipe, from its mesh."""

from dataclasses import dataclass

import numpy as np

from cato.benchmarks.contract import Benchmark, Sample, Scale, flow_on_mesh
from cato.benchmarks.editor import Control, Editor, ModelInputs
from cato.benchmarks.view import View
from cato.errors import InputError
from cato.problem import Problem

LENGTH = 10.0
KNOTS = np.linspace(0, LENGTH, 5)

# Largest |height| and |slope dy/dx| of the knots: in the original program (slopes U[−1, 1] per
# piece of length 2.5) and in the text of the article.
RANGES = {"code": (1.0, 0.4), "paper": (2.0, 1.0)}
# Distance along x between a knot and the point that turns the pipe there, in the explorer.
REACH = 0.8


def draw_centreline(rng: np.random.Generator, law: str = "code") -> np.ndarray:
    """Height and slope of the centreline at each knot: uniform in `RANGES`, the first height 0."""
    if law not in RANGES:
        raise InputError(f"pipe: law is one of {', '.join(RANGES)}; got {law!r}")
    parameters = rng.uniform(-1, 1, (5, 2)) * RANGES[law]
    parameters[0, 0] = 0
    return parameters


@dataclass(frozen=True)
class PipeMesh:
    """Nodes along and across the pipe; odd, since they are those of quadratic elements."""

    resolution: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.resolution, self.resolution


class PipeEditor(Editor):
    """Heights of the centreline at its knots, the first fixed, and its slopes there."""

    kind = "points"
    hint = "Drag the round points to bend the pipe, the small ones to turn it."
    box = (-0.4, 10.4, -2.2, 2.2)
    window = (-0.1, 10.1, -2.1, 2.1)

    def controls(self) -> list[Control]:
        """Slope, height, slope, … from the inlet to the outlet."""
        height, slope = RANGES["code"]
        controls: list[Control] = []
        for knot, x in enumerate(map(float, KNOTS)):
            if knot:
                label = f"Height of the pipe at x = {x:g}"
                controls.append(Control(label, -height, height, 0.05, "", (x, 0.0)))
            reach = -REACH if knot == len(KNOTS) - 1 else REACH
            label, anchor = f"Slope of the pipe at x = {x:g}", (x + reach, 0.0)
            along, follows = (0.0, reach), len(controls) - 1 if knot else None
            turn = Control(label, -slope, slope, 0.04, "", anchor, along, follows, is_small=True)
            controls.append(turn)
        return controls

    def encode(self, drawn: np.ndarray) -> np.ndarray:
        return drawn.ravel()[1:]

    def decode(self, values: np.ndarray) -> np.ndarray:
        return np.concatenate([[0.0], values]).reshape(-1, 2)

    def model_inputs(self, values: np.ndarray) -> ModelInputs:
        mesh = self.benchmark.solver.mesh(self.decode(values), self.parameters.shape)
        return ModelInputs.of_mesh(mesh)


class Pipe(Benchmark[PipeMesh]):
    """Steady Navier–Stokes in a bent pipe: mesh ↦ horizontal velocity."""

    name = "pipe"
    title = "Pipe flow"
    description = (
        "Steady incompressible flow with viscosity 0.005 through a pipe of length 10 and width 1 "
        "with a random centreline of four cubic pieces: parabolic inflow, no slip on the walls, "
        "free outflow. The operator to learn maps the positions of the mesh nodes to the "
        "horizontal velocity u_x."
    )
    scales = {  # noqa: RUF012
        "paper": Scale(PipeMesh(resolution=129), train=900, validation=100, test=200),
        "small": Scale(PipeMesh(resolution=65), train=400, validation=50, test=100),
        "smoke": Scale(PipeMesh(resolution=33), train=8, validation=4, test=4),
    }
    view = View("Velocity along x", names={"u_x": "$u_x$"})
    editor = PipeEditor
    # The channels are two velocities and pressure.
    published = flow_on_mesh("Pipe", (129, 129), num_channels=3, channel=0)

    def problem_for(self, parameters: PipeMesh) -> Problem:
        normalise = ("coords", "outputs")
        return Problem(self.name, "mesh", parameters.shape, (), ("u_x",), normalise=normalise)

    def draw(self, rng: np.random.Generator, parameters: PipeMesh) -> np.ndarray:
        return draw_centreline(rng)

    def solve(self, drawn: np.ndarray, parameters: PipeMesh) -> Sample:
        solution = self.solver.solve(drawn, parameters.shape)
        diagnostics = solution.diagnostics | {"flux_error": solution.flux_error}
        return Sample.on_mesh(solution.coords, solution.u_x, diagnostics)


BENCHMARK = Pipe()
