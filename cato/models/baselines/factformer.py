"""FactFormer: attention factorised over the axes of the mesh.

Zijie Li, Dule Shu, Amir Barati Farimani, "Scalable Transformer for PDE Surrogate Modeling",
NeurIPS 2023. For every axis k the normed hidden state is averaged over the other axes and passed
through an MLP; the result φ_k, a function of one variable, gives a kernel without softmax,

    κ_k(x, ξ) = (R(x) W_q φ_k(x)) · (R(ξ) W_k φ_k(ξ)) / √d,

with rotary encoding R of the node's place on the axis. The kernels of all axes act in turn on the
values v = W_v LN(h), that is, their Kronecker product acts on the whole mesh:

    z(x) = ∫ … ∫ κ_1(x_1, ξ_1) … κ_D(x_D, ξ_D) v(ξ) dξ,      h ← h + MLP(GroupNorm(z)).

Deviations:

- The linear map before the average is applied after it: they commute, and lines are short. The
  authors' code has two such maps in a row; one does the same.
- The integral is a mean over the nodes, not a sum, and the group norm, one group for each head,
  has no weights, which the next layer contains.
- Coordinates enter through the lift. The authors' Darcy network also adds random Fourier features
  of them before every layer, and refines by a strided convolution before the read-out.
- On a periodic axis the rotary frequencies are rounded to whole turns per period, so that the
  kernel closes over the seam.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.config import Count
from cato.errors import InputError
from cato.models.contract import Nodes
from cato.models.layers.attention import Rotation
from cato.models.layers.frames import PointConfig, PointOperator
from cato.models.layers.nodewise import MLP, Linear, time_embedding
from cato.models.shapes import Mesh, Points
from cato.problem import Problem

_FASTEST = 64.0  # Radians that the fastest rotary pair turns over an axis; the authors' value.
_BASE = 10_000.0  # Ratio of the fastest to the slowest rotary frequency; the authors' value.
_EPS = 1e-8  # Added to the variance by the group norm: kernels that average shrink the values far.


@dataclass(frozen=True)
class FactFormerConfig(PointConfig):
    """Settings of FactFormer."""

    heads: Count = 4  # Attention heads M: kernels for each axis.
    head_dim: Count = 32
    """Channels of the values of a head; heads × head_dim need not be the width."""
    kernel_ratio: Count = 2  # Channels d of the queries and keys of a head, in units of `head_dim`.


class AxisKernel(nn.Module):
    """κ of one axis from the hidden state averaged over all other axes."""

    def __init__(self, width: int, heads: int, kernel_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.pooled = Linear(width, width, bias=False)
        self.norm = nn.LayerNorm(width)
        self.mlp = MLP(width, width, width)
        self.query_key = Linear(width, 2 * heads * kernel_dim, bias=False)

    def forward(self, mean: Float[Tensor, "B n C"], turn: Rotation) -> Float[Tensor, "B M n n"]:
        """The matrix κ(x_i, x_j) / n of every head: a mean over the nodes of the axis."""
        phi = self.mlp(self.norm(self.pooled(mean)))
        q, k = rearrange(self.query_key(phi), "b n (t m d) -> t b m n d", t=2, m=self.heads)
        return turn(q) @ turn(k).mT / (sqrt(q.shape[-1]) * q.shape[-2])


def apply_kernels(
    kernels: Sequence[Tensor], v: Float[Tensor, "B M *mesh c"]
) -> Float[Tensor, "B M *mesh c"]:
    """(κ_1 ⊗ … ⊗ κ_D) v, one axis after the other."""
    for kernel in kernels:  # contracts the first mesh axis and moves it to the end
        rest = v.shape[3:]
        v = (kernel @ v.flatten(3)).unflatten(3, rest).movedim(2, -2)
    return v


class FactFormerBlock(nn.Module):
    """One layer of FactFormer."""

    def __init__(self, config: FactFormerConfig, num_axes: int) -> None:
        super().__init__()
        width, heads = config.width, config.heads
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.value = Linear(width, heads * config.head_dim, bias=False)
        self.axes = nn.ModuleList(
            AxisKernel(width, heads, config.kernel_ratio * config.head_dim) for _ in range(num_axes)
        )
        self.mlp = MLP(heads * config.head_dim, width, width)

    def forward(self, h: Mesh, turns: Sequence[Rotation]) -> Mesh:
        h_normed = self.norm(h)
        v = rearrange(self.value(h_normed), "b ... (m c) -> b m ... c", m=self.heads)
        z = apply_kernels(self.kernels(h_normed, turns), v)
        z = F.layer_norm(z.flatten(2), (z[0, 0].numel(),), eps=_EPS).view_as(z)
        return h + self.mlp(rearrange(z, "b m ... c -> b ... (m c)"))

    def kernels(self, h: Mesh, turns: Sequence[Rotation]) -> list[Tensor]:
        """The kernel matrices (B, M, n, n) of all axes; `h` is normed already."""
        mesh = range(1, h.ndim - 1)
        means = [h.mean([a for a in mesh if a != axis]) if len(mesh) > 1 else h for axis in mesh]
        return [
            kernel(mean, turn) for kernel, mean, turn in zip(self.axes, means, turns, strict=True)
        ]


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
            FactFormerBlock(config, len(problem.shape)) for _ in range(config.depth)
        )
        self.norm = nn.LayerNorm(width)
        self.head = MLP(width, width, problem.num_outputs)

    def body(self, h: Points, nodes: Nodes) -> Float[Tensor, "B N C_out"]:
        turns = [
            rotation(n, self.kernel_dim, wraps, nodes.coords)
            for n, wraps in zip(nodes.shape, self.problem.periodic, strict=True)
        ]
        h = h.unflatten(1, nodes.shape)
        for block in self.blocks:
            h = block(h, turns)
        return self.head(self.norm(h.flatten(1, -2)))


def rotation(num_nodes: int, kernel_dim: int, periodic: bool, like: Tensor) -> Rotation:
    """R at the nodes of an axis of length 1, with the type and device of `like`."""
    r = torch.arange(kernel_dim // 2, dtype=like.dtype, device=like.device)
    omega = _FASTEST * _BASE ** (-2 * r / kernel_dim)
    if periodic:
        omega = 2 * torch.pi * torch.round(omega / (2 * torch.pi))
    place = torch.arange(num_nodes, dtype=like.dtype, device=like.device)
    place = place / (num_nodes if periodic else num_nodes - 1)
    return Rotation.by(place[:, None] * omega)
