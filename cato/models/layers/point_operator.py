"""The frame of networks for nodes with channels last (the transformers).

    h = lift([x, f]) (+ time embedding),    u = body(h)

A model builds `lift` and `time` in its constructor and writes `body`.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from cato.config import Count
from cato.errors import InputError
from cato.models.contract import Nodes, Operator, Prediction
from cato.models.layers.embedding import TimeEmbedding
from cato.models.shapes import Coords, Mask, Points
from cato.problem import Problem


@dataclass(frozen=True)
class PointConfig:
    """Settings that all networks for points share."""

    width: Count = 64
    """Channels C of the hidden state."""
    depth: Count = 4
    """Number of layers L."""
    heads: Count = 4
    """Attention heads M; must divide the width."""


class PointOperator(Operator):
    """Lift, time embedding, and a network on the nodes.

    Attributes:
        lift: Maps coordinates and inputs of a node to the hidden state.
        time: Embedding of the time, added to the hidden state; None if the problem has no time.
        num_in: Number of coordinates and inputs of a node.
    """

    lift: nn.Module
    time: TimeEmbedding | None

    def __init__(self, config: Any, problem: Problem) -> None:
        super().__init__(config, problem)
        self.num_in = problem.dimension + problem.num_inputs

    def operate(self, nodes: Nodes) -> Prediction:
        nodes = nodes._replace(coords=self.positions(nodes.coords, nodes.mask))
        h = self.initial_state(nodes)
        if self.time is not None:
            h = self.add_time(h, self.time(nodes.time)[:, None])
        return Prediction(self.body(h, nodes))

    def positions(self, coords: Coords, mask: Mask) -> Float[Tensor, "B N F"]:
        """The coordinates as the network sees them; unchanged by default."""
        return coords

    def initial_state(self, nodes: Nodes) -> Points:
        """The hidden state before the first layer."""
        return self.lift(nodes.joined)

    def add_time(self, h: Points, time: Float[Tensor, "B 1 E"]) -> Points:
        """The hidden state shifted by the embedded time."""
        return h + time

    @abstractmethod
    def body(self, h: Points, nodes: Nodes) -> Float[Tensor, "B N C_out"]:
        """The layers and the read-out."""


def require_two_axes(model: str, problem: Problem) -> None:
    """Raise for meshes that a 2-D convolution cannot work on."""
    if problem.geometry != "cloud" and len(problem.shape) != 2:
        raise InputError(
            f"{model} works on meshes with two axes; {problem.name!r} has shape {problem.shape}. "
            f"Pass the nodes as a cloud"
        )
