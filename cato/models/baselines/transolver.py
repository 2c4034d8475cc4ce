"""Transolver (Wu, Luo, Wang, Wang, Long: "Transolver: A Fast Transformer Solver for PDEs on General
Geometries", ICML 2024).

Lift to the width, L pre-norm blocks of physics attention, final norm, linear head:

    h ← h + Physics-Attention(LN(h))
    h ← h + MLP(LN(h))

The attention is `SliceAttention`. Its two projections x and f are 3 × 3 convolutions on grids and
meshes and linear maps on clouds. The public settings replace the coordinates by the distances to
the nodes of an 8 × 8 grid on the unit square for Darcy and Navier–Stokes (`reference_grid`). Linear
layers start from a normal distribution of deviation 0.02, cut at ±2, and without bias.

Deviations: the convolutions wrap along periodic axes, where the public code pads with zeros; the
time embedding is the one of this library; the placeholder of a missing input function exists only
where the problem has no input function.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge
from jaxtyping import Bool, Float
from torch import Tensor, nn

from cato.config import Count, Positive
from cato.errors import InputError
from cato.models.contract import Operator, Prediction
from cato.models.layers.initialisation import start_small
from cato.models.layers.mlp import MLP
from cato.models.layers.reference_grid import ReferenceGrid
from cato.models.layers.slice_attention import PointSliceAttention, SliceAttention
from cato.models.layers.stencil import Stencil
from cato.models.layers.time import TimeEmbedding
from cato.problem import Problem


@dataclass(frozen=True)
class TransolverConfig:
    """Settings of Transolver."""

    width: Count = 64
    """Channels C of the hidden state."""
    depth: Count = 4
    """Number of blocks L."""
    heads: Count = 4
    """Attention heads M; must divide the width."""
    slices: Count = 64
    """Slices G per head."""
    mlp_ratio: Positive = 1.0
    """Hidden width of the block's MLP, in units of the width."""
    reference_grid: Annotated[int, Ge(0)] = 0
    """Nodes along each side of a grid on the unit square, the distances to which are fed to the
    model in place of the coordinates; 0 feeds the coordinates."""


class MeshSliceAttention(nn.Module):
    """Physics attention on a mesh: x and f are 3 × 3 convolutions, computed as one."""

    def __init__(self, config: TransolverConfig, periodic: tuple[bool, ...]) -> None:
        super().__init__()
        self.project = Stencil(config.width, 2 * config.width, periodic)
        self.attention = SliceAttention(config.width, config.heads, config.slices)

    def forward(self, h: Float[Tensor, "B H W C"], mask: None = None) -> Float[Tensor, "B H W C"]:
        """Attend; a mesh has no mask."""
        # Channels-last views on both sides: the convolution works without a copy.
        x, f = self.project(h.movedim(-1, 1)).movedim(1, -1).flatten(1, -2).chunk(2, dim=-1)
        return self.attention(x, f).view_as(h)


class TransolverBlock(nn.Module):
    """One layer of Transolver."""

    def __init__(self, config: TransolverConfig, problem: Problem) -> None:
        super().__init__()
        width = config.width
        self.norm_attention = nn.LayerNorm(width)
        self.attention = (
            PointSliceAttention(width, config.heads, config.slices)
            if problem.geometry == "cloud"
            else MeshSliceAttention(config, problem.periodic)
        )
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp = MLP(width, round(config.mlp_ratio * width), width)

    def forward(
        self, h: Float[Tensor, "B *mesh C"], mask: Bool[Tensor, "B N"] | None
    ) -> Float[Tensor, "B *mesh C"]:
        """The two residual updates."""
        h = h + self.attention(self.norm_attention(h), mask)
        return h + self.mlp(self.norm_mlp(h))


class Transolver(Operator):
    """Transformer with physics attention."""

    def __init__(self, config: TransolverConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        if problem.geometry != "cloud" and len(problem.shape) != 2:
            raise InputError(
                f"Transolver convolves on meshes with two axes; got shape {problem.shape}. "
                f"Pass the nodes as a cloud"
            )
        width, dimension = config.width, problem.dimension
        size = config.reference_grid
        num_positions = size**dimension if size else dimension
        self.place = ReferenceGrid(size, dimension) if size else nn.Identity()
        self.lift = MLP(num_positions + problem.num_inputs, 2 * width, width)
        self.placeholder = None if problem.num_inputs else nn.Parameter(torch.rand(width) / width)
        self.time = TimeEmbedding(width) if problem.has_time else None
        self.blocks = nn.ModuleList(TransolverBlock(config, problem) for _ in range(config.depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, problem.num_outputs)
        self.apply(start_small)

    def forward(
        self,
        coords: Float[Tensor, "B N D"],
        features: Float[Tensor, "B N C_in"],
        *,
        time: Float[Tensor, " B"] | None = None,
        shape: tuple[int, ...] | None = None,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Prediction:
        """Apply the operator; see `Operator.forward`. The outputs at padding mean nothing."""
        is_cloud = self.problem.geometry == "cloud"
        coords, features = self.hide_padding(coords, features, mask)
        h = self.lift(torch.cat((self.place(coords), features), dim=-1))
        if self.placeholder is not None:
            h = h + self.placeholder
        if self.time is not None:
            h = h + self.time(time)[:, None]
        if not is_cloud:
            h = h.unflatten(1, shape or self.problem.shape)
        for block in self.blocks:
            h = block(h, mask)
        return Prediction(self.head(self.norm(h)).view(*coords.shape[:2], -1))
