"""Galerkin transformer (Cao: "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021).

Per head, with the coordinates x appended to the channels of q, k and v,

    z = [q, x] ([LN(k), x]ᵀ [LN(v), x]) / N

and a layer is h ← h + W z, h ← h + FFN(h), without softmax and without any other norm. W_Q, W_K and
W_V start as 0.01 times the identity plus a Xavier-uniform matrix of gain 0.01.

Grids and meshes: convolutions with linear interpolations between them bring the inputs onto a mesh
that is `downscale` times coarser, where the layers act; a convolution between two interpolations
brings the result back; two Fourier layers and an MLP, which also see the coordinates, read it out.
Clouds: an MLP lifts, an MLP reads out. The outputs on meshes for given weights are those of the
authors' Darcy network.

Deviations: the coordinates are inputs too, since some problems have no other, and are scaled to the
unit box of their sample wherever they appear, since products of far-away positions would drown
everything; convolutions and interpolations close over the seam of periodic axes; no dropout, also
not the one half that the authors' code drops of KᵀV, in evaluation as well; zero Dirichlet values
are learnt and not imposed.
"""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import ClassVar

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.config import Count
from cato.errors import InputError
from cato.models.contract import Nodes
from cato.models.layers.attention import check_heads, galerkin_attention
from cato.models.layers.frames import PointConfig, PointOperator
from cato.models.layers.mesh import Stencil, ceil_divide, larger, share_of
from cato.models.layers.nodewise import MLP, ChannelLinear, Linear, time_embedding, unit_box
from cato.models.layers.spectral import FourierLayer
from cato.models.shapes import Coords, Grid, Heads, Mask, Periodic, Points, Shape
from cato.problem import Problem

_EPSILON = 1e-7  # Added to variances: the small initial weights make keys and values small too.


@dataclass(frozen=True)
class GalerkinConfig(PointConfig):
    """Settings of the Galerkin transformer."""

    hidden: Count = 128  # Hidden width of the layers' feed-forward networks.
    downscale: Count = 2  # Grids and meshes: nodes along an axis for one node that attends.
    decoder_width: Count = 32  # Grids and meshes: channels of the Fourier layers that read out.
    modes: Count = 12  # Grids and meshes: frequencies that the Fourier layers keep along each axis.


def interpolation(size: int, new_size: int, wraps: bool, like: Tensor) -> Tensor:
    """The matrix of linear interpolation from `size` to `new_size` equidistant nodes of an axis.

    The end nodes are kept; on an axis that wraps, the first node is, and the last is followed by
    the first.
    """
    # Lengths are tensors because exporters divide plain sizes in less than double precision.
    precise = partial(torch.full, (), dtype=torch.float64, device=like.device)
    length, new_length = (size, new_size) if wraps else (size - 1, larger(new_size - 1, 1))
    spacing = precise(length) / precise(new_length)
    place = spacing * torch.arange(new_size, device=like.device, dtype=torch.float64)
    distance = place[:, None] - torch.arange(size, device=like.device)
    if wraps:
        period = precise(size)
        distance = (distance + period / 2) % period - period / 2
    return (1 - distance.abs()).clamp_min(0).to(like.dtype)


def interpolate(h: Grid, shape: Shape, periodic: Periodic) -> Float[Tensor, "B C new_H new_W"]:
    """The same function on a mesh of another shape, by linear interpolation along both axes."""
    rows, columns = (
        interpolation(size, new_size, wraps, h)
        for size, new_size, wraps in zip(h.shape[2:], shape, periodic, strict=True)
    )
    return rows @ h @ columns.T


class HeadNorm(nn.Module):
    """Layer norm of the channels of each head, with separate scales and shifts."""

    def __init__(self, heads: int, size: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(heads, 1, size))
        self.shift = nn.Parameter(torch.zeros(heads, 1, size))

    def forward(self, x: Heads) -> Heads:
        return F.layer_norm(x, x.shape[-1:], eps=_EPSILON) * self.scale + self.shift


class GalerkinLayer(nn.Module):
    """Galerkin attention and feed-forward network, each with a residual connection."""

    def __init__(self, config: GalerkinConfig, dimension: int) -> None:
        super().__init__()
        width, self.heads = config.width, config.heads
        check_heads(width, config.heads)
        size = width // config.heads
        self.query = Linear(width, width)
        self.key = Linear(width, width)
        self.value = Linear(width, width)
        for linear in (self.query, self.key, self.value):
            nn.init.xavier_uniform_(linear.weight, gain=0.01)
            linear.weight.data += 0.01 * torch.eye(width)
            nn.init.zeros_(linear.bias)
        self.norm_key = HeadNorm(config.heads, size)
        self.norm_value = HeadNorm(config.heads, size)
        self.out = Linear(width + config.heads * dimension, width)
        self.mlp = MLP(width, config.hidden, width, F.relu)

    def forward(self, h: Points, coords: Coords, mask: Mask = None) -> Points:
        q, k, v = (
            rearrange(linear(h), "b n (m c) -> b m n c", m=self.heads)
            for linear in (self.query, self.key, self.value)
        )
        places = coords[:, None].expand(-1, self.heads, -1, -1)
        q, k, v = (
            torch.cat((x, places), dim=-1) for x in (q, self.norm_key(k), self.norm_value(v))
        )
        z = galerkin_attention(q, k, v, mask)
        h = h + self.out(rearrange(z, "b m n c -> b n (m c)"))
        return h + self.mlp(h)


class Downscaler(nn.Module):
    """A convolution, an interpolation, three convolutions in a row of which all results are kept,
    and an interpolation onto the coarse mesh."""

    def __init__(self, num_in: int, width: int, periodic: Periodic) -> None:
        super().__init__()
        self.periodic = periodic
        third = width // 3
        self.first = Stencil(num_in, width, periodic, bias=False)
        widths = (width, third, third, width - 2 * third)
        self.others = nn.ModuleList(
            Stencil(*pair, periodic, bias=False) for pair in pairwise(widths)
        )

    def forward(
        self, h: Float[Tensor, "B C_in H W"], between: Shape, coarse: Shape
    ) -> Float[Tensor, "B C coarse_H coarse_W"]:
        h = interpolate(F.relu(self.first(h)), between, self.periodic)
        parts = []
        for stencil in self.others:
            h = F.relu(stencil(h))
            parts.append(h)
        return interpolate(torch.cat(parts, dim=1), coarse, self.periodic)


class Upscaler(nn.Module):
    """An interpolation, a convolution and an interpolation onto the fine mesh."""

    def __init__(self, width: int, periodic: Periodic) -> None:
        super().__init__()
        self.periodic = periodic
        self.stencil = Stencil(width, width, periodic, bias=False)

    def forward(self, h: Grid, between: Shape, fine: Shape) -> Float[Tensor, "B C fine_H fine_W"]:
        h = self.stencil(interpolate(h, between, self.periodic))
        return interpolate(F.silu(F.silu(h)), fine, self.periodic)


class SpectralDecoder(nn.Module):
    """Two Fourier layers and an MLP, on the hidden state and the coordinates."""

    def __init__(self, config: GalerkinConfig, problem: Problem) -> None:
        super().__init__()
        width, modes = config.decoder_width, (config.modes, config.modes)
        self.lift = ChannelLinear(config.width + problem.dimension, width)
        self.layers = nn.ModuleList(FourierLayer(width, width, modes) for _ in range(2))
        self.out = MLP(width, 4 * width, problem.num_outputs, F.silu)

    def forward(self, h: Grid, coords: Float[Tensor, "B D H W"]) -> Float[Tensor, "B N C_out"]:
        h = self.lift(torch.cat((h, coords), dim=1))
        for layer in self.layers:
            h = F.silu(layer(h))
        return self.out(h.flatten(2).mT)


class Galerkin(PointOperator, config=GalerkinConfig):
    """Transformer with Galerkin-type attention."""

    title, family = "Galerkin", "linear attention"
    two_axes: ClassVar = True
    hidden = ("layers",)
    reference = "Cao, Choose a Transformer: Fourier or Galerkin, NeurIPS 2021"

    def __init__(self, config: GalerkinConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        width, dimension = config.width, problem.dimension
        self.time = time_embedding(width, problem)
        self.layers = nn.ModuleList(GalerkinLayer(config, dimension) for _ in range(config.depth))
        if problem.geometry == "cloud":
            self.lift = MLP(self.num_in, width, width)
            self.decoder = MLP(width + dimension, width, problem.num_outputs)
        else:
            if width < 3:
                raise InputError(f"width must be at least 3 on grids and meshes; got {width}")
            self.downscaler = Downscaler(self.num_in, width, problem.periodic)
            self.upscaler = Upscaler(width, problem.periodic)
            self.spectral_decoder = SpectralDecoder(config, problem)

    def positions(self, coords: Coords, mask: Mask) -> Coords:
        return unit_box(coords, mask)

    def initial_state(self, nodes: Nodes) -> Points:
        if self.problem.geometry == "cloud":
            return self.lift(nodes.joined)
        inputs = nodes.joined.mT.unflatten(2, nodes.shape)
        return self.downscaler(inputs, *self.coarser(nodes.shape)).flatten(2).mT

    def body(self, h: Points, nodes: Nodes) -> Float[Tensor, "B N_out C_out"]:
        coords, shape = nodes.coords, nodes.shape
        if self.problem.geometry == "cloud":
            h = self.transform(h, coords, nodes.mask)
            return self.decoder(torch.cat((h, coords), dim=-1))
        (between, coarse), fine = self.coarser(shape), coords.mT.unflatten(2, shape)
        places = interpolate(fine, coarse, self.problem.periodic).flatten(2).mT
        h = self.transform(h, places, None).mT.unflatten(2, coarse)
        return self.spectral_decoder(self.upscaler(h, between, shape), fine)

    def coarser(self, shape: Shape) -> tuple[Shape, Shape]:
        """A mesh halfway to the one on which nodes attend, and that one."""
        share = self.config.downscale**-0.5
        # Even, so that half a turn of a torus remains a shift by nodes.
        between = tuple(2 * larger(1, share_of(share / 2, size)) for size in shape)
        return between, tuple(ceil_divide(size, self.config.downscale) for size in shape)

    def transform(self, h: Points, coords: Coords, mask: Mask) -> Points:
        for layer in self.layers:
            h = layer(h, coords, mask)
        return h
