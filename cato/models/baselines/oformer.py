"""OFormer (Li, Meidani, Barati Farimani: "Transformer for Partial Differential Equations' Operator
Learning", TMLR 2023).

Encoder: a linear embedding and L layers of Galerkin-type attention. Per head, with R(x) the
continuous rotary encoding of a point and IN the instance norm (every channel has mean 0 and
variance 1 over the points),

    z = R(x) q ((R(x) IN(k))ᵀ IN(v)) / N,     h ← LN(h), h ← h + W z, h ← LN(h), h ← h + FFN(h)

R turns pairs of channels; each coordinate has an equal share of the pairs, which it turns by
λ x 10000^(−2r/d), r = 0, 1, …, d the number of its channels, λ the number of nodes per unit length.
The score of two points thus depends on their difference. W_Q, W_K and W_V of a head start as
(Ω + I)/C with Ω random orthogonal.

Decoder: random Fourier features of the query points, here the same points, attend to the encoding
in the same way; where outputs are fed back (`rollout`), a residual MLP propagates the latent state
by one step; an MLP reads out.

Deviations: λ is the same in all layers, where the public code starts with larger ones, beyond what
neighbouring nodes can resolve. The norm of k and v is over the points, as in the paper; the public
code norms the channels of a point. Feed-forward networks have one GELU layer and no gate. In a
rollout every step encodes the latest frames again, and the propagator does not see positions. The
coordinates are scaled to the unit box of their sample, since λ and the random frequencies are meant
for a domain of that size. The encoding does not close over periodic seams.
"""

from dataclasses import dataclass
from math import pi
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.config import Count, Positive
from cato.errors import InputError
from cato.models.contract import Nodes
from cato.models.layers.attention import Rotation, TransformerBlock, galerkin_attention
from cato.models.layers.frames import PointConfig, PointOperator
from cato.models.layers.nodewise import MLP, Linear, time_embedding, unit_box
from cato.models.shapes import Coords, Heads, Mask, Points
from cato.problem import Problem


@dataclass(frozen=True)
class OFormerConfig(PointConfig):
    """Settings of OFormer."""

    width: Count = 64  # Channels C of the encoder and of each of its heads; even.
    heads: Count = 4  # Attention heads M, each as wide as the hidden state.
    mlp_ratio: Positive = 2.0  # Hidden width of the feed-forward networks, in units of the width.
    latent: Count = 128  # Channels of the decoder; even.
    fourier_scale: Positive = 8.0
    """Deviation of the random frequencies of the query points, in turns per unit length."""


def rotation(coords: Coords, num_channels: int, nodes_per_length: float) -> Rotation:
    """R for heads of `num_channels`; pairs that the coordinates cannot share stay as they are."""
    num_pairs = num_channels // 2
    share = num_pairs // coords.shape[-1]
    exponent = torch.arange(share, device=coords.device) / max(share, 1)
    angle = (coords[..., None] * (nodes_per_length * 10000.0**-exponent)).flatten(2)
    angle = F.pad(angle, (0, num_pairs - angle.shape[-1]))[:, None]
    return Rotation.by(angle)


def instance_norm(x: Heads, mask: Mask) -> Heads:
    """Mean 0 and variance 1 over the points, for every channel."""
    if mask is None:
        variance, mean = torch.var_mean(x, dim=2, keepdim=True, correction=0)
    else:
        share = mask.to(x.dtype) / mask.sum(1, keepdim=True).clamp_min(1)
        share = share[:, None, :, None]
        mean = (x * share).sum(2, keepdim=True)
        variance = ((x - mean).square() * share).sum(2, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + 1e-5)


class RotaryAttention(nn.Module):
    """Galerkin-type attention from the channels of `h` to those of `source`, at the same points."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % 2:
            raise InputError(f"width and latent must be even, to turn pairs; got {width}")
        self.heads = heads
        self.query, self.key, self.value = (
            Linear(width, heads * width, bias=False) for _ in range(3)
        )
        self.out = Linear(heads * width, width)
        for linear in (self.query, self.key, self.value):
            for block in linear.weight.data.chunk(heads):
                nn.init.orthogonal_(block, gain=1 / width)
                block += torch.eye(width) / width

    def forward(self, h: Points, source: Points, turn: Rotation, mask: Mask) -> Points:
        q, k, v = (
            rearrange(linear(x), "b n (m c) -> b m n c", m=self.heads)
            for linear, x in ((self.query, h), (self.key, source), (self.value, source))
        )
        k = turn(instance_norm(k, mask))
        z = galerkin_attention(turn(q), k, instance_norm(v, mask), mask)
        return self.out(rearrange(z, "b m n c -> b n (m c)"))


class EncoderLayer(TransformerBlock):
    """Attention among the points and feed-forward network; what is added to is normed as well."""

    def __init__(self, config: OFormerConfig) -> None:
        width = config.width
        super().__init__(width, RotaryAttention(width, config.heads), config.mlp_ratio)

    def forward(self, h: Points, *context: Any) -> Points:
        h = self.norm_attention(h)
        h = self.norm_mlp(h + self.attention(h, h, *context))
        return h + self.mlp(h)


class FourierFeatures(nn.Module):
    """[sin, cos](2π B x) with random B, which is not trained."""

    frequency: Tensor

    def __init__(self, dimension: int, num_features: int, scale: float) -> None:
        super().__init__()
        self.register_buffer("frequency", scale * torch.randn(dimension, num_features // 2))

    def forward(self, coords: Coords) -> Points:
        # A sum and not a matrix product, which autocast would round to less than a turn.
        angle = 2 * pi * (coords[..., None] * self.frequency).sum(-2)
        return torch.cat((angle.sin(), angle.cos()), dim=-1)


class Decoder(nn.Module):
    """From the encoding to the outputs at the query points."""

    def __init__(self, config: OFormerConfig, problem: Problem) -> None:
        super().__init__()
        width, dimension = config.latent, problem.dimension
        self.fourier = FourierFeatures(dimension, width, config.fourier_scale)
        self.embed = MLP(width, width, width)
        self.attention = RotaryAttention(width, config.heads)
        self.mlp = MLP(width, round(config.mlp_ratio * width), width)
        self.propagator = None
        if problem.time == "rollout":
            self.propagator = nn.Sequential(nn.LayerNorm(width), MLP(width, width, width))
        self.norm = nn.LayerNorm(width)
        self.out = MLP(width, width, problem.num_outputs)

    def forward(
        self, encoding: Points, coords: Coords, turn: Rotation, mask: Mask
    ) -> Float[Tensor, "B N C_out"]:
        h = self.embed(self.fourier(coords))
        h = h + self.attention(h, encoding, turn, mask)
        h = h + self.mlp(h)
        if self.propagator is not None:
            h = h + self.propagator(h)
        return self.out(self.norm(h))


class OFormer(PointOperator, config=OFormerConfig):
    """Operator transformer with rotary Galerkin attention."""

    title, family = "OFormer", "linear attention"
    reference = "Li, Meidani, Barati Farimani, Transformer for PDEs' Operator Learning, TMLR 2023"
    hidden = ("layers",)

    def __init__(self, config: OFormerConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        width = config.width
        self.nodes_per_length = problem.num_nodes ** (1 / problem.dimension)
        self.lift = Linear(self.num_in, width)
        self.time = time_embedding(width, problem)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.depth))
        self.to_latent = Linear(width, config.latent)
        self.decoder = Decoder(config, problem)

    def positions(self, coords: Coords, mask: Mask) -> Coords:
        return unit_box(coords, mask)

    def body(self, h: Points, nodes: Nodes) -> Float[Tensor, "B N C_out"]:
        coords, mask = nodes.coords, nodes.mask
        turn = rotation(coords, self.config.width, self.nodes_per_length)
        for layer in self.layers:
            h = layer(h, turn, mask)
        turn = rotation(coords, self.config.latent, self.nodes_per_length)
        return self.decoder(self.to_latent(h), coords, turn, mask)
