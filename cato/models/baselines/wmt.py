"""WMT: G. Gupta, X. Xiao, P. Bogdan, Multiwavelet-based operator learning for differential
equations, NeurIPS 2021.

The channels of a node are read as coefficients of k × k Legendre polynomials on its cell. Fixed
orthonormal filters split them, level by level, into the coefficients s of cells of twice the size
and the details d that these leave out. A layer is an operator in non-standard form with the same
small networks on all levels,

    d ← A d + B s,     s ← s' + C d,     s ← T s on the coarsest level,

where s' comes from the next coarser level, followed by the inverse filters. A cuts the spectrum, B
and C are 3 × 3 convolutions, all with ReLU and a linear map; T is linear. ReLU between the layers.

Deviations: details have all three kinds of a tensor product (row, column, both), each with its own
spectral convolution in A; the published code has only the last kind, so its filters do not invert.
Without the first two, and where no mesh has fewer frequencies than modes (the published code counts
the highest one twice there), the outputs for given weights are those of the published code. Its
network for time series, three-dimensional and with a batch norm after every layer, is not here.
Every axis is padded to its own power of two, with zeros; a periodic one is moved there by Fourier
interpolation, and the convolutions wrap along it.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.config import Count, Fraction
from cato.errors import InputError
from cato.models.layers.frames import FourierConfig, GridOperator
from cato.models.layers.latent_grid import GeoConfig
from cato.models.layers.mesh import Stencil
from cato.models.layers.nodewise import ChannelLinear
from cato.models.layers.spectral import SpectralConv, resample
from cato.models.shapes import Grid, Periodic, Shape
from cato.problem import Problem


@dataclass(frozen=True)
class WMTConfig(FourierConfig):
    """Settings of WMT."""

    width: Count = 36  # Channels of the hidden state; a multiple of the square of `polynomials`.
    padding: Fraction = 0.0
    """Zeros after the end of every axis that is not periodic, before it is made a power of two."""
    geo: GeoConfig = field(default_factory=lambda: GeoConfig(latent=(64, 64)))
    """How point clouds are seen; the latent grid should have powers of two."""
    polynomials: Count = 3  # Legendre polynomials k along each axis of a cell.


def multiwavelet_filter(k: int) -> np.ndarray:
    """The orthogonal 2k × 2k matrix from the coefficients of two cells to (s, d) of their union.

    Row i < k holds the products of the i-th normalised Legendre polynomial of the union with those
    of the halves, by Gauss–Legendre quadrature; the other rows complete them.
    """
    nodes, weights = np.polynomial.legendre.leggauss(k)

    def basis(x: np.ndarray) -> np.ndarray:
        """The polynomials on [0, 1], one per row."""
        degree = np.arange(k)[:, None]
        return np.sqrt(2 * degree + 1) * np.polynomial.legendre.legvander(2 * x - 1, k - 1).T

    x, w = (nodes + 1) / 2, weights / 2
    halves = [basis((x + shift) / 2) * w @ basis(x).T / np.sqrt(2) for shift in (0, 1)]
    scaling = np.concatenate(halves, axis=1)
    # Polynomials that change sign between the halves are independent of those that do not.
    jumps = np.concatenate((-np.eye(k), np.eye(k)), axis=1)
    q, r = np.linalg.qr(np.concatenate((scaling, jumps)).T)
    return (q * np.sign(np.diag(r))).T


class Multiwavelet(nn.Module):
    """The filters of one level in two dimensions, and back."""

    matrix: Tensor

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k
        s, d = np.split(multiwavelet_filter(k), 2)
        matrix = np.concatenate([np.kron(a, b) for a, b in ((s, s), (s, d), (d, s), (d, d))])
        self.register_buffer("matrix", torch.tensor(matrix, dtype=torch.float32), persistent=False)

    def split(self, x: Grid) -> tuple[Float[Tensor, "B C H2 W2"], Float[Tensor, "B C3 H2 W2"]]:
        """Coefficients s of the coarser cells and their details d, the three kinds in turn."""
        batch, width, rows, columns = x.shape
        x = x.reshape(batch, -1, self.k, self.k, rows // 2, 2, columns // 2, 2)
        x = x.permute(0, 1, 5, 2, 7, 3, 4, 6)  # coefficients of all four cells, then the mesh
        x = self.matrix @ x.reshape(batch, width // self.k**2, 4 * self.k**2, -1)
        x = x.unflatten(2, (4, -1)).transpose(1, 2)  # the kinds come before the channels
        x = x.reshape(batch, 4 * width, rows // 2, columns // 2)
        return x[:, :width], x[:, width:]

    def join(self, s: Float[Tensor, "B C H2 W2"], d: Float[Tensor, "B C3 H2 W2"]) -> Grid:
        """Inverse of `split`."""
        batch, width, rows, columns = s.shape
        x = torch.cat((s, d), dim=1).reshape(batch, 4, -1, self.k**2, rows * columns)
        x = self.matrix.T @ x.transpose(1, 2).flatten(2, 3)
        x = x.reshape(batch, -1, 2, self.k, 2, self.k, rows, columns)
        x = x.permute(0, 1, 3, 5, 6, 2, 7, 4)
        return x.reshape(batch, width, 2 * rows, 2 * columns)


class SpectralKernel(nn.Module):
    """A: a spectral convolution of every kind of detail, ReLU, a linear map of them all."""

    def __init__(self, width: int, modes: Shape) -> None:
        super().__init__()
        self.kinds = nn.ModuleList(SpectralConv(width, width, modes) for _ in range(3))
        self.out = ChannelLinear(3 * width, 3 * width)

    def forward(self, d: Float[Tensor, "B C3 H W"]) -> Float[Tensor, "B C3 H W"]:
        parts = zip(self.kinds, d.chunk(3, dim=1), strict=True)
        return self.out(F.relu(torch.cat([conv(part) for conv, part in parts], dim=1)))


class LocalKernel(nn.Sequential):
    """B or C: a 3 × 3 convolution, ReLU, a linear map."""

    def __init__(self, num_in: int, width: int, num_out: int, periodic: Periodic) -> None:
        super().__init__()
        self.stencil = Stencil(num_in, width, periodic)
        self.activation = nn.ReLU()
        self.out = ChannelLinear(width, num_out)


class MultiwaveletLayer(nn.Module):
    """The operator of the module's docstring, on meshes whose sides are powers of two."""

    def __init__(self, config: WMTConfig, periodic: Periodic) -> None:
        super().__init__()
        width = config.width
        self.wavelet = Multiwavelet(config.polynomials)
        self.a = SpectralKernel(width, config.modes)
        self.b = LocalKernel(width, width, 3 * width, periodic)
        self.c = LocalKernel(3 * width, width, width, periodic)
        self.t = ChannelLinear(width, width)

    def forward(self, s: Grid) -> Grid:
        if min(s.shape[2:]) == 1:
            return self.t(s)
        s, d = self.wavelet.split(s)
        return self.wavelet.join(self.forward(s) + self.c(d), self.a(d) + self.b(s))


class WMT(GridOperator, config=WMTConfig):
    """Multiwavelet transform operator."""

    title, family = "WMT", "wavelet"
    reference = "Gupta, Xiao, Bogdan, Multiwavelet-based Operator Learning, NeurIPS 2021"

    def __init__(self, config: WMTConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        if config.width % config.polynomials**2:
            raise InputError(
                f"width must be a multiple of the {config.polynomials}² polynomials of a cell; "
                f"got {config.width}"
            )
        self.project = nn.Sequential(
            ChannelLinear(config.width, 128), nn.ReLU(), ChannelLinear(128, problem.num_outputs)
        )
        self.layers = nn.ModuleList(
            MultiwaveletLayer(config, self.periodic) for _ in range(config.depth)
        )

    def body(self, x: Grid) -> Grid:
        shape = tuple(x.shape[2:])
        sides = tuple(1 << (n - 1).bit_length() for n in shape)
        wrapped = tuple(
            side if wraps else n for side, n, wraps in zip(sides, shape, self.periodic, strict=True)
        )
        x = resample(x, wrapped)
        x = F.pad(x, (0, sides[1] - wrapped[1], 0, sides[0] - wrapped[0]))
        *layers, last = self.layers
        for layer in layers:
            x = F.relu(layer(x))
        return resample(last(x)[..., : wrapped[0], : wrapped[1]], shape)
