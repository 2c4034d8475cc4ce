"""SAOT: Zhou et al., "SAOT: An Enhanced Locality-Aware Spectral Transformer for Solving PDEs",
AAAI 2026.

The skeleton is Transolver's, h ← h + A(LN(h)), h ← h + MLP(LN(h)), with spectral attention A of two
branches and a gate:

    F = h + rFFT⁻¹ Ψ(rFFT h)                     Ψ: two-layer complex MLP, the same at all
                                                 frequencies, block-diagonal in the channels
    s = BN(stencil(Haar(BN(W_r h))))             C / 2ⁿ channels become C at half resolution;
                                                 clouds: Haar(ReLU(BN(W_r h)))
    W = W_o [h, Haar⁻¹(attention(LN(s)))]        linear attention with features elu + 1
    g = σ(W_g [F, W]),   A = g F + (1 − g) W     channel by channel

A cloud is one axis of points in their stored order, without the stencil. On a cloud SAOT is
therefore *not* equivariant to permutations of the points, and it cannot skip padding. Odd axes get
a further node whose coordinates and inputs are zero. The Fourier branch treats every axis as
periodic. All this is as published, and so are the outputs for given weights.

Deviations: the stencil wraps along periodic axes, where the published code continues by zeros; the
reference grid takes the coordinates of the nodes, where the published code takes a uniform grid
that includes the further nodes; the biases of Ψ, the same at all frequencies and so a spike at the
first node, start at zero; layers before a batch norm have no bias, as it would have no effect; the
published placeholder on clouds, a second bias of the lift, is left out; the time embedding is the
one of this library.
"""

from dataclasses import dataclass
from itertools import chain
from math import sqrt
from typing import ClassVar

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.config import Count
from cato.errors import InputError
from cato.models.contract import Nodes, Prediction
from cato.models.layers.attention import linear_attention
from cato.models.layers.frames import Skeleton, SkeletonConfig
from cato.models.layers.mesh import Stencil
from cato.models.layers.nodewise import Linear
from cato.models.shapes import Mesh, Periodic
from cato.problem import Problem


@dataclass(frozen=True)
class SAOTConfig(SkeletonConfig):
    """Settings of SAOT."""

    heads: Count = 8
    """Blocks of channels in the Fourier branch, and attention heads in the wavelet branch. Must
    divide the width, which on two mesh axes is also a multiple of 4."""


def haar(x: Mesh) -> Float[Tensor, "B *half C2"]:
    """Orthonormal Haar transform: sums, then differences, of pairs of nodes along every axis.

    The axes are even. The channels of n axes multiply by 2ⁿ.
    """
    for axis in range(1, x.ndim - 1):
        even, odd = x.unflatten(axis, (-1, 2)).unbind(axis + 1)
        x = torch.cat((even + odd, even - odd), dim=-1) * sqrt(0.5)
    return x


def inverse_haar(x: Float[Tensor, "B *half C2"]) -> Mesh:
    """Inverse of `haar`."""
    for axis in reversed(range(1, x.ndim - 1)):
        total, difference = x.chunk(2, dim=-1)
        pairs = torch.stack((total + difference, total - difference), dim=axis + 1) * sqrt(0.5)
        x = pairs.flatten(axis, axis + 1)
    return x


class ComplexLinear(nn.Module):
    """z ↦ z W + b for complex z, W and b, block-diagonal; real and imaginary parts alternate."""

    def __init__(self, num_blocks: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(2, num_blocks, size, size))
        self.bias = nn.Parameter(torch.zeros(num_blocks, 1, 2 * size))

    def forward(self, z: Float[Tensor, "K M S2"]) -> Float[Tensor, "K M S2"]:
        """Apply the K blocks, each as one real product with (Re W, Im W; −Im W, Re W)."""
        real, imag = self.weight
        rows = torch.stack((real, imag), dim=-1), torch.stack((-imag, real), dim=-1)
        return torch.baddbmm(self.bias, z, torch.stack(rows, dim=2).flatten(3).flatten(1, 2))


class FourierBranch(nn.Module):
    """F = h + rFFT⁻¹ Ψ(rFFT h), at full precision."""

    def __init__(self, width: int, num_blocks: int) -> None:
        super().__init__()
        self.num_blocks = num_blocks
        self.hidden = ComplexLinear(num_blocks, width // num_blocks)
        self.out = ComplexLinear(num_blocks, width // num_blocks)

    def forward(self, h: Mesh) -> Mesh:
        axes = tuple(range(1, h.ndim - 1))
        with torch.autocast(h.device.type, enabled=False):
            h = h.to(torch.promote_types(h.dtype, torch.float32))
            spectrum = torch.fft.rfftn(h, dim=axes, norm="ortho")
            z = torch.view_as_real(spectrum).flatten(0, -3)
            z = rearrange(z, "m (k s) p -> k m (s p)", k=self.num_blocks)
            z = self.out(F.relu(self.hidden(z)))
            z = rearrange(z, "k m (s p) -> m (k s) p", p=2).contiguous()
            spectrum = torch.view_as_complex(z).view_as(spectrum)
            return h + torch.fft.irfftn(spectrum, s=h.shape[1:-1], dim=axes, norm="ortho")


class ChannelNorm(nn.BatchNorm1d):
    """Batch norm of the last axis."""

    def forward(self, x: Float[Tensor, "*axes C"]) -> Float[Tensor, "*axes C"]:
        return super().forward(x.reshape(-1, x.shape[-1])).view(x.shape)


class Filter(nn.Module):
    """BN(stencil(s)) of the coefficients s on a mesh of two axes."""

    def __init__(self, width: int, periodic: Periodic) -> None:
        super().__init__()
        self.stencil = Stencil(width, width, periodic, bias=False)
        self.norm = ChannelNorm(width)

    def forward(self, s: Float[Tensor, "B H W C"]) -> Float[Tensor, "B H W C"]:
        return self.norm(self.stencil(s.movedim(-1, 1)).movedim(1, -1))


class WaveletBranch(nn.Module):
    """W = W_o [h, Haar⁻¹(attention(LN(s)))], attention among the coefficients of n axes.

    The stencil wraps along periodic axes. `periodic` is None on a cloud, which has a ReLU instead.
    """

    def __init__(self, width: int, heads: int, num_axes: int, periodic: Periodic | None) -> None:
        super().__init__()
        self.heads = heads
        reduced = width // 2**num_axes
        self.reduce = Linear(width, reduced, bias=False)
        self.norm_reduce = ChannelNorm(reduced)
        self.activation = nn.ReLU() if periodic is None else nn.Identity()
        self.filter = nn.Identity() if periodic is None else Filter(width, periodic)
        self.norm = nn.LayerNorm(width)
        self.qkv = Linear(width, 3 * width)
        self.out = Linear(width + reduced, width)

    def forward(self, h: Mesh) -> Mesh:
        s = self.filter(haar(self.activation(self.norm_reduce(self.reduce(h)))))
        qkv = self.qkv(self.norm(s)).flatten(1, -2)
        q, k, v = rearrange(qkv, "b n (t m c) -> t b m n c", t=3, m=self.heads)
        s_new = linear_attention(F.elu(q) + 1, F.elu(k) + 1, v)
        s_new = rearrange(s_new, "b m n c -> b n (m c)").view(s.shape)
        return self.out(torch.cat((h, inverse_haar(s_new)), dim=-1))


class SpectralAttention(nn.Module):
    """A = g F + (1 − g) W. Arguments as for `WaveletBranch`."""

    def __init__(self, width: int, heads: int, num_axes: int, periodic: Periodic | None) -> None:
        super().__init__()
        self.fourier = FourierBranch(width, heads)
        self.wavelet = WaveletBranch(width, heads, num_axes, periodic)
        self.gate = Linear(2 * width, width)

    def forward(self, h: Mesh, mask: None = None) -> Mesh:
        f, w = self.fourier(h), self.wavelet(h)
        gate = torch.sigmoid(self.gate(torch.cat((f, w), dim=-1)))
        return gate * f + (1 - gate) * w


class SAOT(Skeleton, config=SAOTConfig):
    """Spectral Attention Operator Transformer."""

    title, family = "SAOT", "spectral attention"
    reference = "Zhou et al., SAOT: An Enhanced Locality-Aware Spectral Transformer, AAAI 2026"
    permutation_equivariant: ClassVar = False

    def __init__(self, config: SAOTConfig, problem: Problem) -> None:
        width, heads, num_axes = config.width, config.heads, len(problem.shape)
        if width % heads or width % 2**num_axes:
            raise InputError(
                f"width must be a multiple of heads and of {2**num_axes}, the wavelets of "
                f"{num_axes} mesh axes; got {width} with {heads} heads"
            )
        super().__init__(config, problem)

    def attention(self) -> nn.Module:
        config, problem = self.config, self.problem
        periodic = None if problem.geometry == "cloud" else problem.periodic
        return SpectralAttention(config.width, config.heads, len(problem.shape), periodic)

    def operate(self, nodes: Nodes) -> Prediction:
        shape, even = nodes.shape, tuple(n + n % 2 for n in nodes.shape)
        pad = (0, 0, *chain.from_iterable((0, n % 2) for n in reversed(shape)))
        coords, features = (
            F.pad(x.unflatten(1, shape), pad).flatten(1, -2) for x in (nodes.coords, nodes.features)
        )
        nodes = nodes._replace(coords=coords, features=features, shape=even)
        values = super().operate(nodes).values.unflatten(1, even)
        for axis, size in enumerate(shape, start=1):
            values = values.narrow(axis, 0, size)
        return Prediction(values.flatten(1, -2))

    def hide_padding(self, nodes: Nodes) -> Nodes:
        if nodes.mask is not None:
            raise InputError(
                "SAOT transforms all points as one sequence, so padding would change the others; "
                "pass clouds of equal size without a mask, or choose another model"
            )
        return nodes
