"""U-NO: M. A. Rahman, Z. E. Ross, K. Azizzadenesheli, U-NO: U-shaped neural operators, TMLR 2023.

Operator blocks that change the resolution of the mesh and the number of channels,

    h ← σ(K h + W h + b),      both terms read out on the new mesh,  σ = GELU,

first to 3/4, 1/2 and 1/4 of the nodes along each axis with 1.5, 3 and 6 times the channels, then
back up; each result on the way up is concatenated with that of the same size on the way down. An
MLP of two layers lifts, another one reads out from the result and what was lifted. This is the
authors' network for Navier–Stokes on a mesh of 64 × 64 nodes.

Deviations: W h is moved to the new mesh by Fourier interpolation, as K h is, in place of bicubic
interpolation with its ends aligned: so the blocks map functions on a torus, whatever the mesh.
Modes are in proportion to the meshes; the authors keep nearly all that the smaller mesh has, which
is 28 of 64 nodes in units of `modes`. Coordinates are the only positions, where the authors add
sines and cosines of them on a torus. Point clouds read out through C channels. The authors'
networks for Darcy go to 1/2 and 1/4 of the nodes, or to 1/8, with an instance norm in some blocks.
With Fourier interpolation in its linear maps, our modes and no sines and cosines, the published
code has our outputs for given weights.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.config import Count
from cato.models.layers.frames import GridConfig, GridOperator
from cato.models.layers.mesh import larger, share_of
from cato.models.layers.nodewise import ChannelLinear, ChannelMLP
from cato.models.layers.spectral import SpectralConv, resample
from cato.models.shapes import Grid, Shape
from cato.problem import Problem

_RESOLUTIONS = (1.0, 0.75, 0.5, 0.25)  # Nodes of the levels along each axis, in units of the mesh.
_WIDTHS = (1.0, 1.5, 3.0, 6.0)  # Channels of the levels, in units of the width.


@dataclass(frozen=True)
class UNOConfig(GridConfig):
    """Settings of U-NO."""

    width: Count = 32  # Channels C at full resolution; the coarsest level has six times as many.
    modes: tuple[Count, Count] = (12, 12)
    """Frequencies that the finest mesh would keep along each axis, on either side of zero."""


class OperatorBlock(nn.Module):
    """σ(K x + W x + b) on another mesh."""

    def __init__(self, num_in: int, num_out: int, modes: Shape) -> None:
        super().__init__()
        self.spectral = SpectralConv(num_in, num_out, modes)
        self.pointwise = ChannelLinear(num_in, num_out)

    def forward(
        self, x: Float[Tensor, "B C_in H W"], shape: Shape
    ) -> Float[Tensor, "B C_out H2 W2"]:
        return F.gelu(self.spectral(x, shape) + resample(self.pointwise(x), shape))


class UNO(GridOperator, config=UNOConfig):
    """U-shaped neural operator."""

    title, family = "U-NO", "Fourier"
    reference = "Rahman, Ross, Azizzadenesheli, U-NO: U-shaped Neural Operators, TMLR 2023"
    hidden = ("down", "middle", "up", "out")

    def __init__(self, config: UNOConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        narrow = max(config.width // 2, 1)
        self.lift = nn.Sequential(
            ChannelMLP(2 + problem.num_inputs, narrow, config.width), nn.GELU()
        )
        widths = [round(config.width * factor) for factor in _WIDTHS]
        modes = [tuple(max(1, round(r * m)) for m in config.modes) for r in _RESOLUTIONS]
        self.down = nn.ModuleList(
            OperatorBlock(fine, coarse, coarse_modes)
            for (fine, coarse), coarse_modes in zip(pairwise(widths), modes[1:], strict=True)
        )
        self.middle = OperatorBlock(widths[-1], widths[-1], modes[-1])
        # All but the first block on the way back see the skip of their level, too.
        self.up = nn.ModuleList(
            OperatorBlock(coarse if level == 2 else 2 * coarse, fine, modes[level + 1])
            for level, (fine, coarse) in reversed(list(enumerate(pairwise(widths))))
        )
        if problem.geometry == "cloud":  # its frame goes on with C channels
            self.out: nn.Module = ChannelLinear(2 * config.width, config.width)
        else:
            self.out = nn.Identity()
            self.project = ChannelMLP(2 * config.width, 4 * config.width, problem.num_outputs)

    def body(self, x: Grid) -> Float[Tensor, "B C_body H W"]:
        shapes = level_shapes(tuple(x.shape[2:]))
        skips = []
        for down, shape in zip(self.down, shapes[1:], strict=True):
            skips.append(x)
            x = down(x, shape)
        x = self.middle(x, shapes[-1])
        for up, skip in zip(self.up, reversed(skips), strict=True):
            x = torch.cat((skip, up(x, tuple(skip.shape[2:]))), dim=1)
        return self.out(x)


def level_shapes(shape: Shape) -> list[Shape]:
    """The meshes of all levels, finest first."""
    return [tuple(larger(2, share_of(r, n)) for n in shape) for r in _RESOLUTIONS]
