"""U-FNO: G. Wen, Z. Li, K. Azizzadenesheli, A. Anandkumar, S. Benson, U-FNO: an enhanced Fourier
neural operator based deep-learning model for multiphase flow, Advances in Water Resources, 2022.

Fourier layers h ← σ(K h + W h + b) as in FNO, followed by U-Fourier layers that add a U-Net,

    h ← σ(K h + W h + b + U h),      σ = ReLU,

which sees the frequencies that K cuts off and has three levels of halved resolution.

The outputs for given weights are those of the authors' code, which has time as a third axis, for
data that are constant along it.

Deviations: a mesh of any size is halved by rounding up, and the way back is cropped to the size of
the skip; on periodic axes the convolutions wrap. The padding is a fraction of the mesh, and zero:
the authors' code pads the inputs by 8 nodes, the first axis with zeros, the others with copies of
the last node.
"""

from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.config import Depth
from cato.models.layers.frames import FourierConfig, GridOperator
from cato.models.layers.mesh import Stencil
from cato.models.layers.nodewise import ChannelLinear
from cato.models.layers.spectral import FourierLayer
from cato.models.shapes import Grid, Periodic, Shape
from cato.problem import Problem

_SLOPE = 0.1  # Slope of LeakyReLU below zero.


@dataclass(frozen=True)
class UFNOConfig(FourierConfig):
    """Settings of U-FNO."""

    depth: Depth = 3  # Number of Fourier layers.
    u_depth: Depth = 3  # Number of U-Fourier layers that follow.


class Convolution(nn.Sequential):
    """3 × 3 convolution, batch norm, LeakyReLU; a stride of 2 halves the mesh, rounding up."""

    def __init__(self, width: int, periodic: Periodic, stride: int = 1) -> None:
        super().__init__()
        self.convolve = Stencil(width, width, periodic, bias=False, stride=stride)
        self.norm = nn.BatchNorm2d(width)
        self.activation = nn.LeakyReLU(_SLOPE)


class Expansion(nn.Module):
    """4 × 4 transposed convolution with stride 2 and LeakyReLU, on the mesh of the skip."""

    def __init__(self, num_in: int, num_out: int, periodic: Periodic) -> None:
        super().__init__()
        rows, columns = (int(wraps) for wraps in periodic)
        self.wrap = (columns, columns, rows, rows)  # F.pad begins with the last axis
        # A node wrapped around the seam is two fine nodes, which are cut off again.
        padding = (1 + 2 * rows, 1 + 2 * columns)
        self.convolve = nn.ConvTranspose2d(num_in, num_out, 4, 2, padding)

    def forward(self, x: Float[Tensor, "B C_in h w"], skip: Grid) -> Float[Tensor, "B C_out H W"]:
        x = F.pad(x, self.wrap, mode="circular") if any(self.wrap) else x
        x = self.convolve(x)[..., : skip.shape[2], : skip.shape[3]]
        return torch.cat((skip, F.leaky_relu(x, _SLOPE)), dim=1)


class UNet(nn.Module):
    """Three levels down and up again; the mesh and the channels come back as they were."""

    def __init__(self, width: int, periodic: Periodic) -> None:
        super().__init__()
        halve = partial(Convolution, width, periodic, stride=2)
        coarser = (nn.Sequential(halve(), Convolution(width, periodic)) for _ in range(2))
        self.down = nn.ModuleList([halve(), *coarser])
        self.up = nn.ModuleList(
            Expansion(n, width, periodic) for n in (width, 2 * width, 2 * width)
        )
        self.out = Stencil(2 * width, width, periodic)

    def forward(self, x: Grid) -> Grid:
        skips = []
        for down in self.down:
            skips.append(x)
            x = down(x)
        for up, skip in zip(self.up, reversed(skips), strict=True):
            x = up(x, skip)
        return self.out(x)


class UFourierLayer(FourierLayer):
    """K x + W x + b + U x."""

    def __init__(self, width: int, modes: Shape, periodic: Periodic) -> None:
        super().__init__(width, width, modes)
        self.unet = UNet(width, periodic)

    def forward(self, x: Grid) -> Grid:
        return super().forward(x) + self.unet(x)


class UFNO(GridOperator, config=UFNOConfig):
    """Fourier neural operator with U-Net branches."""

    title, family = "U-FNO", "Fourier"
    reference = (
        "Wen et al., U-FNO: an Enhanced Fourier Neural Operator, Advances in Water Resources 2022"
    )

    def __init__(self, config: UFNOConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        width, modes = config.width, config.modes
        self.project = nn.Sequential(
            ChannelLinear(width, 128), nn.ReLU(), ChannelLinear(128, problem.num_outputs)
        )
        self.layers = nn.ModuleList(
            [FourierLayer(width, width, modes) for _ in range(config.depth)]
            + [UFourierLayer(width, modes, self.periodic) for _ in range(config.u_depth)]
        )

    def body(self, x: Grid) -> Grid:
        for layer in self.layers:
            x = F.relu(layer(x))
        return x
