"""Transolver (Wu, Luo, Wang, Wang, Long: "Transolver: A Fast Transformer Solver for PDEs on General
Geometries", ICML 2024).

Lift to the width, L blocks h ← h + A(LN(h)), h ← h + MLP(LN(h)), final norm, linear head, with the
physics attention A of `SliceAttention`. The public settings replace the coordinates by the
distances to the nodes of an 8 × 8 grid on the unit square for Darcy and Navier–Stokes. Linear
layers start from a normal distribution of deviation 0.02, cut at ±2, and without bias.

Deviations: the convolutions wrap along periodic axes, where the public code pads with zeros; the
time embedding is the one of this library; the placeholder of a missing input function exists only
where the problem has no input function.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from jaxtyping import Float
from torch import Tensor, nn

from cato.config import Count, Positive
from cato.models.contract import Nodes
from cato.models.layers.attention import PointSliceAttention, SliceAttention, TransformerBlock
from cato.models.layers.frames import PointConfig, PointOperator
from cato.models.layers.mesh import Stencil
from cato.models.layers.nodewise import MLP, ReferenceGrid, start_small, time_embedding
from cato.models.shapes import Coords, Mask, Periodic, Points
from cato.problem import Problem


@dataclass(frozen=True)
class SkeletonConfig(PointConfig):
    """Settings of all networks with Transolver's skeleton."""

    mlp_ratio: Positive = 1.0
    """Hidden width of the block's MLP, in units of the width."""
    reference_grid: Annotated[int, Ge(0)] = 0
    """Nodes along each side of a grid on the unit square; its distances replace the coordinates.
    0 keeps the coordinates."""


@dataclass(frozen=True)
class TransolverConfig(SkeletonConfig):
    """Settings of Transolver."""

    slices: Count = 64
    """Slices G per head."""


class MeshSliceAttention(nn.Module):
    """Physics attention on a mesh: x and f are 3 × 3 convolutions, computed as one."""

    def __init__(self, config: TransolverConfig, periodic: Periodic) -> None:
        super().__init__()
        self.project = Stencil(config.width, 2 * config.width, periodic)
        self.attention = SliceAttention(config.width, config.heads, config.slices)

    def forward(self, h: Float[Tensor, "B H W C"], mask: None = None) -> Float[Tensor, "B H W C"]:
        # Channels-last views on both sides: the convolution works without a copy.
        x, f = self.project(h.movedim(-1, 1)).movedim(1, -1).flatten(1, -2).chunk(2, dim=-1)
        return self.attention(x, f).view_as(h)


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
        self.head = nn.Linear(width, problem.num_outputs)
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


class Transolver(Skeleton):
    """Transformer with physics attention."""

    title, family = "Transolver", "physics attention"
    reference = "Wu et al., Transolver: A Fast Transformer Solver for PDEs, ICML 2024"
    has_placeholder: ClassVar = True

    def attention(self) -> nn.Module:
        config, problem = self.config, self.problem
        if problem.geometry == "cloud":
            return PointSliceAttention(config.width, config.heads, config.slices)
        return MeshSliceAttention(config, problem.periodic)
