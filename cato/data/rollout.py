"""What a step of a rollout sees: static inputs, controls up to the new frame, past frames.

The inputs of a sample hold the controls of all frames (`Problem.controls`); a step gets those of
its own frames. Irregular time steps are a control too, `STEP_SIZE`: the network learns increments
that depend on Δt.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from cato.problem import Problem

STEP_SIZE = "time step"
"""Name of the control that holds, for every frame, the time since the frame before it."""


class RolloutInputs(NamedTuple):
    """The inputs of a rollout by their roles; channels are last."""

    static: Float[Tensor, "*batch N P"]
    controls: Float[Tensor, "*batch N FK"]  # Frame by frame.
    past: Float[Tensor, "*batch N HC"]  # The oldest frame first.

    @classmethod
    def of(cls, problem: Problem, inputs: Float[Tensor, "*batch N C_in"]) -> "RolloutInputs":
        """The parts of the inputs of a sample."""
        first, last = problem.static, inputs.shape[-1] - problem.num_past
        return cls(inputs[..., :first], inputs[..., first:last], inputs[..., last:])

    def at(
        self, problem: Problem, step: int, past: Float[Tensor, "*batch N HC"]
    ) -> Float[Tensor, "*batch N C_step"]:
        """The inputs of a step, counted from 0, after these past frames."""
        if not problem.static and not problem.controls:
            return past
        return torch.cat((self.known(problem, step), past), dim=-1)

    def known(self, problem: Problem, step: int) -> Float[Tensor, "*batch N K_step"]:
        """What a step sees besides past frames: static inputs, and controls up to its frame."""
        num_controls = len(problem.controls)
        first, last = step * num_controls, (step + problem.history) * num_controls
        return torch.cat((self.static, self.controls[..., first:last]), dim=-1)


def next_past(
    past: Float[Tensor, "*batch N HC"], frame: Float[Tensor, "*batch N C"]
) -> Float[Tensor, "*batch N HC"]:
    """Past frames of the next step: the oldest is dropped, the new one appended."""
    return torch.cat((past[..., frame.shape[-1] :], frame), dim=-1)


def fewer_steps(
    problem: Problem, inputs: Float[Tensor, "*batch N C_in"]
) -> Float[Tensor, "*batch N C_fewer"]:
    """The inputs of a rollout of more steps as those of `problem`: without later controls."""
    surplus = inputs.shape[-1] - problem.num_inputs
    if surplus <= 0:
        return inputs
    last = problem.num_inputs - problem.num_past
    return torch.cat((inputs[..., :last], inputs[..., last + surplus :]), dim=-1)
