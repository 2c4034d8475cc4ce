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

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from cato.config import Count
from cato.models.layers.attention import PointSliceAttention, SliceAttention
from cato.models.layers.frames import Skeleton, SkeletonConfig
from cato.models.layers.mesh import Stencil
from cato.models.shapes import Periodic


@dataclass(frozen=True)
class TransolverConfig(SkeletonConfig):
    """Settings of Transolver."""

    slices: Count = 64  # Slices G per head.


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


class Transolver(Skeleton, config=TransolverConfig):
    """Transformer with physics attention."""

    title, family = "Transolver", "physics attention"
    reference = "Wu et al., Transolver: A Fast Transformer Solver for PDEs, ICML 2024"
    has_placeholder: ClassVar = True

    def attention(self) -> nn.Module:
        config, problem = self.config, self.problem
        if problem.geometry == "cloud":
            return PointSliceAttention(config.width, config.heads, config.slices)
        return MeshSliceAttention(config, problem.periodic)
