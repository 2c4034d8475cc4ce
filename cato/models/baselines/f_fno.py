"""F-FNO: A. Tran, A. Mathews, L. Xie, C. S. Ong, Factorized Fourier neural operators, ICLR 2023.

    z = Σ_axis F_axis⁻¹[R_axis(k) F_axis[h](k)],     u = W₂ ReLU(W₁ z + b₁) + b₂,     h ← h + u

with one-dimensional transforms along each mesh axis, k below the axis's modes, and a feed-forward
network wider than the state, its matrices normalised by rows with a learned size, as those of the
lift and of the two linear maps that read out. The output is read from the update u of the last
layer and not from h.

On clouds, h ← h + u + b(ξ) on the latent grid of `latent_grid` with a linear map b of its unit
coordinates ξ; the way from the points is the transform without weights, and the output is read from
h. The outputs for given weights are those of the published code.

Deviations: the padding is a fraction of the mesh, and periodic axes have none; time is embedded,
where the published model for plasticity has it as a third axis. See also `latent_grid`: clouds are
scaled to the unit square and have no given shape code, and the synthesis at the points is
conjugate symmetric.
"""

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.config import Count
from cato.models.layers.frames import FourierConfig, GridOperator
from cato.models.layers.latent_grid import GeoFrame
from cato.models.layers.mesh import smaller
from cato.models.layers.nodewise import Linear
from cato.models.layers.spectral import cut, spectrum, synthesis
from cato.models.shapes import Grid
from cato.problem import Problem


@dataclass(frozen=True)
class FFNOConfig(FourierConfig):
    """Settings of F-FNO."""

    modes: tuple[Count, Count] = (16, 16)  # Frequencies kept along each axis, zero included.
    mlp_ratio: Count = 4
    """Hidden width of the feed-forward networks, in units of the width; published: 2 on clouds."""


class AxisSpectralConv(nn.Module):
    """F⁻¹[R(k) F[x](k)] along one axis; a mesh with fewer frequencies uses the lowest weights."""

    def __init__(self, width: int, modes: int, axis: int) -> None:
        super().__init__()
        self.axis = axis
        # Real and imaginary parts, because optimisers and weight files need real numbers.
        self.weight = nn.Parameter(torch.randn(modes, width, width, 2) / sqrt(2 * width))

    def forward(self, x: Grid) -> Grid:
        size = x.shape[self.axis]
        num_kept = smaller(self.weight.shape[0], (size + 1) // 2)
        kept = ((num_kept, 0),)
        with torch.autocast(x.device.type, enabled=False):
            z = spectrum(x.to(self.weight.dtype).transpose(self.axis, -1), kept)
            weight = torch.view_as_complex(cut(self.weight, 0, kept[0]))
            product = z.permute(3, 0, 2, 1).flatten(1, 2) @ weight
            z = product.unflatten(1, (x.shape[0], -1)).permute(1, 3, 2, 0)
            return synthesis(z, kept, (size,)).transpose(self.axis, -1)


class NormedLinear(nn.Module):
    """Linear map of the channels whose matrix has rows of learned length g v / ‖v‖."""

    def __init__(self, num_in: int, num_out: int) -> None:
        super().__init__()
        linear = Linear(num_in, num_out)
        self.direction, self.bias = linear.weight, linear.bias
        self.length = nn.Parameter(linear.weight.detach().norm(dim=1))

    def forward(self, x: Float[Tensor, "B C_in N"]) -> Float[Tensor, "B C_out N"]:
        weight = self.length[:, None] * F.normalize(self.direction, dim=1)
        return weight @ x + self.bias[:, None]


class FactorizedLayer(nn.Module):
    """The update u of one layer."""

    def __init__(self, width: int, modes: tuple[int, ...], hidden: int) -> None:
        super().__init__()
        self.axes = nn.ModuleList(
            AxisSpectralConv(width, m, axis) for axis, m in enumerate(modes, start=2)
        )
        self.hidden = NormedLinear(width, hidden)
        self.out = NormedLinear(hidden, width)

    def forward(self, x: Grid) -> Grid:
        rows, columns = self.axes
        z = (rows(x) + columns(x)).flatten(2)
        return self.out(F.relu(self.hidden(z))).unflatten(2, x.shape[2:])


class FFNO(GridOperator, config=FFNOConfig):
    """Factorized Fourier neural operator."""

    title, family = "F-FNO", "Fourier"
    reference = "Tran et al., Factorized Fourier Neural Operators, ICLR 2023"
    index_inputs: ClassVar = True
    has_first_layer: ClassVar = False

    def __init__(self, config: FFNOConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        width, hidden = config.width, config.mlp_ratio * config.width
        if problem.geometry != "cloud":
            self.lift = NormedLinear(2 + problem.num_inputs, width)
            self.project = nn.Sequential(
                NormedLinear(width, 128), NormedLinear(128, problem.num_outputs)
            )
        self.layers = nn.ModuleList(
            FactorizedLayer(width, config.modes, hidden) for _ in range(config.depth)
        )

    def body(self, x: Grid) -> Grid:
        if isinstance(self.frame, GeoFrame):
            place = self.frame.place_on_grid(x)
            for layer in self.layers:
                x = x + layer(x) + place
            return x
        *layers, last = self.layers
        for layer in layers:
            x = x + layer(x)
        return last(x)
