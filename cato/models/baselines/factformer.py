"""FactFormer: attention factorised over the axes of the mesh.

Zijie Li, Dule Shu, Amir Barati Farimani, "Scalable Transformer for PDE Surrogate Modeling",
NeurIPS 2023. Every layer first adds random Fourier features of the node's place on the mesh. For
every axis k the normed hidden state is averaged over the other axes and passed through a gated MLP;
the result φ_k, a function of one variable, gives a kernel without softmax,

    κ_k(x, ξ) = (R(x) W_q φ_k(x)) · (R(ξ) W_k φ_k(ξ)),

with rotary encoding R of the place on the axis. The kernels of all axes act in turn on the values
v = W_v LN(h), that is, their Kronecker product acts on the whole mesh:

    z(x) = Σ_ξ κ_1(x_1, ξ_1) … κ_D(x_D, ξ_D) v(ξ),      h ← h + W' GELU(W GroupNorm(z)).

The group norm, one group for each head, has no weights and takes the size of the kernels and the
number of nodes out again. The read-out sees h next to a refinement of it by convolutions on the
mesh of half the nodes. The outputs for given weights are those of the authors' Darcy network.

Deviations:

- The linear map before the average is applied after it: they commute, and lines are short. The
  authors' code has two such maps in a row; one does the same.
- Coordinates enter through the lift, next to the inputs, since some problems have no other.
- A periodic axis is closed: the frequencies of its encodings are whole turns per period, and the
  convolutions wrap.
- The authors' networks for time series read out by a latent MLP that makes several steps, without a
  refinement. Here every step encodes the latest frames again, and the read-out is that of Darcy.
- Meshes of one or three axes have no refinement.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import ClassVar

import torch
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.config import Count, Positive
from cato.errors import InputError
from cato.models.contract import Nodes
from cato.models.layers.attention import Rotation
from cato.models.layers.frames import PointConfig, PointOperator
from cato.models.layers.mesh import Stencil
from cato.models.layers.nodewise import (
    ChannelLinear,
    FourierFeatures,
    GatedMLP,
    Linear,
    time_embedding,
)
from cato.models.shapes import Grid, Mesh, Periodic, Points
from cato.problem import Problem

_FASTEST = 64.0  # Radians that the fastest rotary pair turns over an axis; the authors' value.
_BASE = 10_000.0  # Ratio of the fastest to the slowest rotary frequency; the authors' value.
_GAIN = 0.02  # Initial size of queries and keys; the authors' value.
_EPS = 1e-8  # Added to the variance by the group norm; the authors' value.
_GROUPS = 8  # Groups of channels that the read-out norms; the authors' value.

Places = Float[Tensor, "*mesh D"]  # Places in [0, 1] of the nodes on every axis.


@dataclass(frozen=True)
class FactFormerConfig(PointConfig):
    """Settings of FactFormer."""

    heads: Count = 4  # Attention heads M: kernels for each axis.
    head_dim: Count = 32
    """Channels of the values of a head; heads × head_dim need not be the width."""
    kernel_ratio: Count = 2  # Channels of the queries and keys of a head, in units of `head_dim`.
    fourier_scale: Positive = 1.0
    """Deviation of the random frequencies of the place, in turns over an axis."""


class AxisKernel(nn.Module):
    """κ of one axis from the hidden state averaged over all other axes."""

    def __init__(self, width: int, heads: int, kernel_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.pooled = Linear(width, width, bias=False)
        self.norm = nn.LayerNorm(width)
        self.mlp = GatedMLP(width, width)
        self.query_key = Linear(width, 2 * heads * kernel_dim, bias=False)
        for weight in self.query_key.weight.data.chunk(2):
            nn.init.xavier_uniform_(weight, gain=_GAIN)

    def forward(self, mean: Float[Tensor, "B n C"], turn: Rotation) -> Float[Tensor, "B M n n"]:
        """The matrix κ(x_i, x_j) of every head."""
        phi = self.mlp(self.norm(self.pooled(mean)))
        q, k = rearrange(self.query_key(phi), "b n (t m d) -> t b m n d", t=2, m=self.heads)
        return turn(q) @ turn(k).mT


def apply_kernels(
    kernels: Sequence[Tensor], v: Float[Tensor, "B M *mesh c"]
) -> Float[Tensor, "B M *mesh c"]:
    """(κ_1 ⊗ … ⊗ κ_D) v, one axis after the other."""
    for kernel in kernels:  # contracts the first mesh axis and moves it to the end
        rest = v.shape[3:]
        v = (kernel @ v.flatten(3)).unflatten(3, rest).movedim(2, -2)
    return v


def group_norm(z: Float[Tensor, "B M *mesh c"]) -> Float[Tensor, "B M *mesh c"]:
    """Mean 0 and variance 1 over the nodes and channels of every head."""
    z = z.to(torch.promote_types(z.dtype, torch.float32))  # autocast would lose small variances
    variance, mean = torch.var_mean(z, dim=list(range(2, z.ndim)), keepdim=True)
    return (z - mean) * torch.rsqrt(variance + _EPS)


class PlaceFeatures(nn.Module):
    """A linear map of random Fourier features of the place on the mesh.

    On periodic axes, frequencies are whole turns per period.
    """

    def __init__(self, width: int, scale: float, periodic: Periodic) -> None:
        super().__init__()
        self.fourier = FourierFeatures(len(periodic), width, scale)
        for frequency, wraps in zip(self.fourier.frequency, periodic, strict=True):
            if wraps:
                frequency.round_()
        self.out = Linear(2 * (width // 2), width)

    def forward(self, places: Places) -> Float[Tensor, "*mesh C"]:
        return self.out(self.fourier(places))


class FactFormerBlock(nn.Module):
    """One layer of FactFormer."""

    def __init__(self, config: FactFormerConfig, periodic: Periodic) -> None:
        super().__init__()
        width, heads = config.width, config.heads
        self.heads = heads
        self.place = PlaceFeatures(width, config.fourier_scale, periodic)
        self.norm = nn.LayerNorm(width)
        self.value = Linear(width, heads * config.head_dim, bias=False)
        self.axes = nn.ModuleList(
            AxisKernel(width, heads, config.kernel_ratio * config.head_dim) for _ in periodic
        )
        self.mlp = nn.Sequential(
            Linear(heads * config.head_dim, width, bias=False),
            nn.GELU(),
            Linear(width, width, bias=False),
        )

    def forward(self, h: Mesh, places: Places, turns: Sequence[Rotation]) -> Mesh:
        h = h + self.place(places)
        h_normed = self.norm(h)
        v = rearrange(self.value(h_normed), "b ... (m c) -> b m ... c", m=self.heads)
        z = apply_kernels(self.kernels(h_normed, turns), v)
        return h + self.mlp(rearrange(group_norm(z), "b m ... c -> b ... (m c)"))

    def kernels(self, h: Mesh, turns: Sequence[Rotation]) -> list[Tensor]:
        """The kernel matrices (B, M, n, n) of all axes; `h` is normed already."""
        mesh = range(1, h.ndim - 1)
        means = [h.mean([a for a in mesh if a != axis]) if len(mesh) > 1 else h for axis in mesh]
        return [
            kernel(mean, turn) for kernel, mean, turn in zip(self.axes, means, turns, strict=True)
        ]


class Refinement(nn.Module):
    """Convolutions on a mesh of half the nodes, and on the mesh of the input again."""

    def __init__(self, width: int, periodic: Periodic) -> None:
        super().__init__()
        half = width // 2
        self.down = nn.Sequential(
            Stencil(width, half, periodic, stride=2), nn.GELU(), Stencil(half, half, periodic)
        )
        self.up = nn.Sequential(
            Stencil(half, half, periodic), nn.GELU(), Stencil(half, width, periodic)
        )

    def forward(self, h: Grid) -> Grid:
        coarse = self.down(F.instance_norm(h))
        fine = repeat(coarse, "b c i j -> b c (i p) (j q)", p=2, q=2)
        return self.up(fine[..., : h.shape[2], : h.shape[3]])


class ReadOut(nn.Module):
    """W₂ GELU(W₁ GroupNorm([U h, h])) + b₂ with the refinement U, on meshes of two axes."""

    def __init__(self, width: int, num_outputs: int, periodic: Periodic) -> None:
        super().__init__()
        self.refine = Refinement(width, periodic) if len(periodic) == 2 else None
        num_in = width if self.refine is None else 2 * width
        self.norm = nn.GroupNorm(gcd(_GROUPS, num_in), num_in)
        self.hidden = ChannelLinear(num_in, width, bias=False)
        self.out = ChannelLinear(width, num_outputs)

    def forward(self, h: Float[Tensor, "B C *mesh"]) -> Float[Tensor, "B C_out *mesh"]:
        if self.refine is not None:
            h = torch.cat((self.refine(h), h), dim=1)
        return self.out(F.gelu(self.hidden(self.norm(h))))


class FactFormer(PointOperator, config=FactFormerConfig):
    """Factorised transformer for grids and structured meshes of 1 to 3 axes."""

    title, family = "FactFormer", "axial attention"
    reference = (
        "Li, Shu, Barati Farimani, Scalable Transformer for PDE Surrogate Modeling, NeurIPS 2023"
    )
    geometries: ClassVar = ("grid", "mesh")
    why_not_cloud: ClassVar[str] = "its kernels belong to the axes of a mesh"

    def __init__(self, config: FactFormerConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        width = config.width
        self.kernel_dim = config.kernel_ratio * config.head_dim
        if self.kernel_dim % 2:
            raise InputError(
                f"kernel_ratio × head_dim must be even, for rotary pairs; got {self.kernel_dim}"
            )
        self.lift = Linear(self.num_in, width)
        self.time = time_embedding(width, problem)
        self.blocks = nn.ModuleList(
            FactFormerBlock(config, problem.periodic) for _ in range(config.depth)
        )
        self.head = ReadOut(width, problem.num_outputs, problem.periodic)

    def body(self, h: Points, nodes: Nodes) -> Float[Tensor, "B N C_out"]:
        axes = [
            axis_places(n, wraps, nodes.coords)
            for n, wraps in zip(nodes.shape, self.problem.periodic, strict=True)
        ]
        places = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
        turns = [
            rotation(place, self.kernel_dim, wraps)
            for place, wraps in zip(axes, self.problem.periodic, strict=True)
        ]
        h = h.unflatten(1, nodes.shape)
        for block in self.blocks:
            h = block(h, places, turns)
        return self.head(h.movedim(-1, 1)).flatten(2).mT


def axis_places(num_nodes: int, periodic: bool, like: Tensor) -> Float[Tensor, " n"]:
    """Places in [0, 1] of the nodes of an axis, with the type and device of `like`."""
    place = torch.arange(num_nodes, dtype=like.dtype, device=like.device)
    return place / (num_nodes if periodic else num_nodes - 1)


def rotation(place: Float[Tensor, " n"], kernel_dim: int, periodic: bool) -> Rotation:
    """R at places on an axis of length 1."""
    r = torch.arange(kernel_dim // 2, dtype=place.dtype, device=place.device)
    omega = _FASTEST * _BASE ** (-2 * r / kernel_dim)
    if periodic:
        omega = 2 * torch.pi * torch.round(omega / (2 * torch.pi))
    return Rotation.by(place[:, None] * omega)
