"""Operators that are traced in no time."""

import torch
from torch import nn

from cato.data.normalise import Normaliser
from cato.models.contract import Operator, Prediction
from cato.problem import Problem
from cato.surrogate import Surrogate

GRID = Problem("toy", "grid", (6, 5), ("a", "b"), ("u",))
ROLLOUT = Problem("waves", "grid", (6, 5), ("w1", "w2"), ("w",), time="rollout", num_steps=4)
TIMED = Problem("forging", "mesh", (6, 5), ("a",), ("x", "y"), time="conditioned", num_steps=3)
SHAPED = Problem("foil", "mesh", (6, 5), (), ("p",))


class Pointwise(Operator):
    """The same linear map at every node, of positions, inputs and time."""

    def __init__(self, problem):
        super().__init__(None, problem)
        self.linear = nn.Linear(problem.dimension + problem.num_inputs + 1, problem.num_outputs)

    def operate(self, nodes):
        coords, features, time, shape, _ = nodes
        t = torch.zeros_like(coords[..., :1])
        t = t if time is None else t + time[:, None, None]
        return Prediction(self.finish(self.linear(torch.cat((coords, features, t), -1)), shape))

    def finish(self, values, shape):
        return values


class SizeDependent(Pointwise):
    """Does another thing on another mesh."""

    def finish(self, values, shape):
        return values * (2.0 if shape[0] == 6 else 3.0)


class Singular(Pointwise):
    """Singular values have no counterpart in ONNX."""

    def finish(self, values, shape):
        return values * torch.linalg.svdvals(values)[:, None]


def surrogate(kind, problem, seed=0):
    """With random weights, and a normaliser that changes every channel."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    normaliser = Normaliser(problem)
    for name, buffer in normaliser.named_buffers():
        if not name.startswith("coords"):
            buffer.copy_(0.5 + torch.rand(buffer.shape, generator=generator))
    return Surrogate(kind(problem), normaliser)
