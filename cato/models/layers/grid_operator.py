"""The frame of networks for regular 2-D grids of channels-first features (the FNO family).

    h = Linear([x, f]) (+ time embedding),    u = W₂ GELU(W₁ body(h) + b₁) + b₂ with 128 channels.

A model writes its `body`, which maps (B, C, H, W) to the same shape for any H and W. On grids and
meshes the hidden state is padded with zeros past the end of every axis that is not periodic, so
that a periodic network may forget the far end; on point clouds the body works on the latent grid of
`cato.models.layers.latent_grid`.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.nn import functional as F

from cato.config import Count, Fraction
from cato.errors import InputError
from cato.models.contract import Nodes, Operator, Prediction
from cato.models.layers.embedding import time_embedding
from cato.models.layers.latent_grid import GeoConfig, GeoFrame
from cato.models.layers.mlp import ChannelLinear, ChannelMLP
from cato.models.layers.symbolic_sizes import share_of
from cato.models.shapes import Grid, Periodic, Signal
from cato.problem import Problem

_HEAD_WIDTH = 128
"""Hidden channels of the projection to the outputs."""


@dataclass(frozen=True)
class GridConfig:
    """Settings that all grid networks share."""

    width: Count = 64
    """Channels C of the hidden state."""
    padding: Fraction = 0.1
    """Zeros after the end of every axis that is not periodic, as a fraction of its nodes."""
    geo: GeoConfig = field(default_factory=GeoConfig)
    """Latent grid for point clouds."""


class MeshFrame(nn.Module):
    """Applies a network for regular grids to a grid or structured mesh.

    Args:
        periodic: Which axes are periodic and not padded.
        padding: Zeros after the end of the other axes, as a fraction of their nodes.
    """

    def __init__(self, periodic: Periodic, padding: float) -> None:
        super().__init__()
        self.periodic = periodic
        self.padding = padding

    def forward(self, h: Signal, network: Callable[[Grid], Grid], nodes: Nodes) -> Signal:
        """Nodes to padded grid, network, crop."""
        height, width = nodes.shape
        rows, columns = (
            0 if closed else share_of(self.padding, n)
            for closed, n in zip(self.periodic, nodes.shape, strict=True)
        )
        x = network(F.pad(h.unflatten(2, nodes.shape), (0, columns, 0, rows)))
        return x[..., :height, :width].flatten(2)


class GridOperator(Operator):
    """Lift, a network on a regular grid, projection.

    Attributes:
        periodic: Which axes of the grid that `body` sees are periodic. The others are padded, so a
            body that convolves in Fourier space can ignore this.
    """

    def __init__(self, config: Any, problem: Problem) -> None:
        super().__init__(config, problem)
        if problem.dimension != 2:
            raise InputError(
                f"{type(self).__name__} works in two dimensions; "
                f"problem {problem.name!r} has {problem.dimension}. Choose a model for points"
            )
        self.lift = ChannelLinear(2 + problem.num_inputs, config.width)
        self.time = time_embedding(config.width, problem)
        self.frame: GeoFrame | MeshFrame
        if problem.geometry == "cloud":
            self.frame = GeoFrame(config.width, config.geo)
        else:
            self.frame = MeshFrame(problem.periodic, config.padding)
        self.periodic = self.frame.periodic
        self.project = ChannelMLP(config.width, _HEAD_WIDTH, problem.num_outputs)

    def operate(self, nodes: Nodes) -> Prediction:
        h = self.lift(nodes.joined.transpose(1, 2))
        if self.time is not None:
            h = h + self.time(nodes.time)[..., None]
        h = self.frame(h, self.body, nodes)
        return Prediction(self.project(h).transpose(1, 2))

    @abstractmethod
    def body(self, x: Grid) -> Grid:
        """The network on the grid."""

    def hidden_matrices(self) -> list[nn.Parameter]:
        """All matrices but those of the lift, time, frame and projection."""
        outer = (self.lift, self.time, self.frame, self.project)
        taken = {id(p) for module in outer if module is not None for p in module.parameters()}
        return [p for p in self.parameters() if p.ndim == 2 and id(p) not in taken]
