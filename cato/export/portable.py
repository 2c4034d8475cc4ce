"""The module that is exported: physical values on the mesh in, physical values on the mesh out.

Arrays have the layout of files: samples first, mesh axes, channels last. The mesh size follows from
the inputs if the model allows any.

    coords  (batch, *mesh, D)
    inputs  (batch, *mesh, C_in), if the problem has input channels
    time    (batch,), t ∈ [0, 1], if the problem is conditioned on time
    outputs (batch, *mesh, C_out), for rollouts (batch, steps, *mesh, C_out)

A rollout is exported as a whole: given frames in, all later frames out. A conditioned problem takes
one time per sample, also between the frames of the training; for all frames of a sample, pass a
batch of its copies.

Clouds are exported without mask: all clouds of a batch have the same number of points.
"""

from copy import deepcopy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan

from cato.problem import Problem
from cato.surrogate import Surrogate, next_past

Arrays = dict[str, Tensor]
"""Inputs of a file by name."""


class Portable(nn.Module):
    """A copy of a surrogate on the CPU, without gradients, that takes arrays with mesh axes."""

    def __init__(self, surrogate: Surrogate) -> None:
        super().__init__()
        self.surrogate = deepcopy(surrogate).cpu().eval().requires_grad_(False)
        self.surrogate.model.freeze()

    @property
    def problem(self) -> Problem:
        """The problem that the surrogate solves."""
        return self.surrogate.problem

    def forward(
        self,
        coords: Float[Tensor, "B *mesh D"],
        inputs: Float[Tensor, "B *mesh C_in"] | None = None,
        time: Float[Tensor, " B"] | None = None,
    ) -> Float[Tensor, "B *T_mesh C_out"]:
        """Solve; see the module docstring for the arrays."""
        shape = tuple(coords.shape[1:-1])
        if inputs is None:
            inputs = coords[..., :0]
        # Tells the exporter that all arrays have the same sizes.
        assert inputs.shape[:-1] == coords.shape[:-1]
        nodes, features = coords.flatten(1, -2), inputs.flatten(1, -2)
        if self.problem.has_time:
            solution = self.surrogate(nodes, features, time=time, shape=shape).values
        elif self.problem.time == "rollout" and torch.compiler.is_exporting():
            solution = self._loop(nodes, features, shape)
        else:
            solution = self.surrogate.solve(nodes, features, shape=shape)
        return solution.unflatten(-2, shape)

    def _loop(
        self,
        nodes: Float[Tensor, "B N D"],
        inputs: Float[Tensor, "B N C_in"],
        shape: tuple[int, ...],
    ) -> Float[Tensor, "B T N C_out"]:
        """`Surrogate.solve` as a loop in the graph, which contains the model once, not T times."""

        def step(past: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
            frame = self.surrogate(nodes, past, shape=shape).values
            return next_past(past, frame), frame.clone()

        _, frames = scan(step, inputs, torch.zeros(self.problem.num_steps))
        return frames.movedim(0, 1)


def mesh_axes(problem: Problem) -> tuple[str, ...]:
    """Names of the mesh axes."""
    if problem.geometry == "cloud":
        return ("points",)
    return tuple(f"n{axis}" for axis in range(1, len(problem.shape) + 1))


def layout(problem: Problem) -> dict[str, Any]:
    """Axes and channels of the arrays of a file, JSON-ready."""
    mesh = mesh_axes(problem)
    axes = ["batch", *mesh, "channel"]
    arrays: dict[str, Any] = {
        "coords": {"axes": axes, "channels": list("xyz"[: problem.dimension])}
    }
    if problem.num_inputs:
        arrays["inputs"] = {"axes": axes, "channels": list(problem.inputs)}
    if problem.has_time:
        arrays["time"] = {"axes": ["batch"], "range": [0.0, 1.0]}
    steps = ["step"] if problem.time == "rollout" else []
    outputs = {"axes": ["batch", *steps, *mesh, "channel"], "channels": list(problem.outputs)}
    return {"inputs": arrays, "outputs": {"outputs": outputs}}


def computes(problem: Problem) -> str:
    """Description of the outputs."""
    if problem.time == "rollout":
        return f"the whole rollout of {problem.num_steps} steps"
    if problem.time == "conditioned":
        return (
            f"the solution at the given time, t in [0, 1]; "
            f"the {problem.num_steps} training frames are evenly spaced in it"
        )
    return "the steady solution"
