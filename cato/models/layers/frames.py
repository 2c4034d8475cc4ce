"""The frames of models: lift, time embedding, a network on the nodes or on a regular grid.

    h = lift([x, f]) (+ time embedding),    u = body(h)

`PointOperator` is for nodes with channels last (the transformers); a model builds `lift` and `time`
in its constructor and writes `body`, which also reads out.

`GridOperator` is for regular 2-D grids of channels-first features (the FNO family). A model writes
a `body` that maps (B, C, H, W) to the same shape for any H and W; u = W₂ GELU(W₁ body(h) + b₁) + b₂
with 128 channels. On grids and meshes h is padded with zeros past the end of every axis that is not
periodic, so that a periodic network may forget the far end; on point clouds the body works on the
latent grid of `cato.models.layers.latent_grid`.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.config import Count, Depth, Fraction, Ratio
from cato.errors import InputError
from cato.models.contract import Nodes, Operator, Prediction
from cato.models.layers.attention import TransformerBlock
from cato.models.layers.latent_grid import GeoConfig, GeoFrame
from cato.models.layers.mesh import share_of
from cato.models.layers.nodewise import (
    MLP,
    ChannelLinear,
    ChannelMLP,
    Linear,
    ReferenceGrid,
    TimeEmbedding,
    start_small,
    time_embedding,
)
from cato.models.shapes import Coords, Grid, Mask, Periodic, Points, Signal
from cato.problem import Problem


@dataclass(frozen=True)
class PointConfig:
    """Settings that all networks for points share."""

    width: Count = 64  # Channels C of the hidden state.
    depth: Depth = 4  # Number of layers L.
    heads: Count = 4  # Attention heads M; must divide the width.


class PointOperator(Operator):
    """Lift, time embedding, and a network on the nodes."""

    two_axes: ClassVar[bool] = False  # Whether its meshes have two axes, for 2-D convolutions.
    lift: nn.Module  # Maps coordinates and inputs of a node to the hidden state.
    time: TimeEmbedding | None  # Added to the hidden state; None if the problem has no time.

    def __init__(self, config: Any, problem: Problem) -> None:
        super().__init__(config, problem)
        if self.two_axes and problem.geometry != "cloud" and len(problem.shape) != 2:
            raise InputError(
                f"{self.title} works on meshes with two axes; {problem.name!r} has shape "
                f"{problem.shape}. Pass the nodes as a cloud"
            )
        # Coordinates and inputs of a node.
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
        return self.lift(nodes.joined)

    def add_time(self, h: Points, time: Float[Tensor, "B 1 E"]) -> Points:
        return h + time

    @abstractmethod
    def body(self, h: Points, nodes: Nodes) -> Float[Tensor, "B N C_out"]:
        """The layers and the read-out."""


@dataclass(frozen=True)
class SkeletonConfig(PointConfig):
    """Settings of all networks with Transolver's skeleton."""

    mlp_ratio: Ratio = 1.0  # Hidden width of the block's MLP, in units of the width.
    reference_grid: Annotated[int, Ge(0)] = 0
    """Nodes along each side of a grid on the unit square; its distances replace the coordinates.
    0 keeps the coordinates."""


class Skeleton(PointOperator):
    """Lift, pre-norm blocks with the attention of the model, final norm, linear head.

    Where the problem has no input function, a learned placeholder can stand for it.
    """

    two_axes: ClassVar = True
    has_placeholder: ClassVar = False

    def __init__(self, config: SkeletonConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        width = config.width
        self.place = ReferenceGrid(config.reference_grid, problem.dimension)
        self.lift = MLP(self.place.num_features + problem.num_inputs, 2 * width, width)
        self.placeholder = None
        if self.has_placeholder and not problem.num_inputs:
            self.placeholder = nn.Parameter(torch.rand(width) / width)
        self.time = time_embedding(width, problem)
        self.blocks = nn.ModuleList(
            TransformerBlock(width, self.attention(), config.mlp_ratio) for _ in range(config.depth)
        )
        self.norm = nn.LayerNorm(width)
        self.head = Linear(width, problem.num_outputs)
        self.apply(start_small)

    @abstractmethod
    def attention(self) -> nn.Module:
        """The attention of one block."""

    def positions(self, coords: Coords, mask: Mask) -> Float[Tensor, "B N F"]:
        return self.place(coords)

    def initial_state(self, nodes: Nodes) -> Points:
        h = self.lift(nodes.joined)
        return h if self.placeholder is None else h + self.placeholder

    def body(self, h: Points, nodes: Nodes) -> Float[Tensor, "B N C_out"]:
        if self.problem.geometry != "cloud":
            h = h.unflatten(1, nodes.shape)
        for block in self.blocks:
            h = block(h, nodes.mask)
        return self.head(self.norm(h)).flatten(1, -2)


@dataclass(frozen=True)
class GridConfig:
    """Settings that all grid networks share."""

    width: Count = 64  # Channels C of the hidden state.
    padding: Fraction = 0.1
    """Zeros after the end of every axis that is not periodic, as a fraction of its nodes."""
    geo: GeoConfig = field(default_factory=GeoConfig)  # Latent grid for point clouds.


@dataclass(frozen=True)
class FourierConfig(GridConfig):
    """Settings that FNO and its relatives share."""

    depth: Depth = 4  # Number of layers L.
    modes: tuple[Count, Count] = (12, 12)
    """Frequencies kept along each axis, on either side of zero."""


class MeshFrame(nn.Module):
    """Applies a network for regular grids to a grid or structured mesh, padded and cropped."""

    def __init__(self, periodic: Periodic, padding: float) -> None:
        super().__init__()
        self.periodic = periodic
        self.padding = padding

    def forward(
        self, h: Signal, network: Callable[[Grid], Tensor], nodes: Nodes
    ) -> Float[Tensor, "B C_body N"]:
        height, width = nodes.shape
        rows, columns = (
            0 if closed else share_of(self.padding, n)
            for closed, n in zip(self.periodic, nodes.shape, strict=True)
        )
        x = network(F.pad(h.unflatten(2, nodes.shape), (0, columns, 0, rows)))
        return x[..., :height, :width].flatten(2)


class GridOperator(Operator):
    """Lift, a network on a regular grid, projection.

    `periodic` says which axes of the grid that `body` sees are periodic. The others are padded, so
    a body that convolves in Fourier space can ignore it.
    """

    hidden: ClassVar[tuple[str, ...]] = ("layers",)
    has_first_layer: ClassVar[bool] = True  # Of the frame for clouds, see `GeoFrame`.

    def __init__(self, config: Any, problem: Problem) -> None:
        super().__init__(config, problem)
        if problem.dimension != 2:
            raise InputError(
                f"{type(self).__name__} works in two dimensions; "
                f"problem {problem.name!r} has {problem.dimension}. Choose a model for points"
            )
        self.lift: nn.Module = ChannelLinear(2 + problem.num_inputs, config.width)
        self.time = time_embedding(config.width, problem)
        self.frame: GeoFrame | MeshFrame
        if problem.geometry == "cloud":
            self.frame = GeoFrame(config.width, config.geo, self.has_first_layer)
        else:
            self.frame = MeshFrame(problem.periodic, config.padding)
        self.periodic = self.frame.periodic
        self.project: nn.Module = ChannelMLP(config.width, 128, problem.num_outputs)

    def operate(self, nodes: Nodes) -> Prediction:
        h = self.lift(nodes.joined.transpose(1, 2))
        if self.time is not None:
            h = h + self.time(nodes.time)[..., None]
        h = self.frame(h, self.body, nodes)
        return Prediction(self.project(h).transpose(1, 2))

    @abstractmethod
    def body(self, x: Grid) -> Grid:
        """The network."""
