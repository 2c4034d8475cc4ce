"""OFormer (Li, Meidani, Barati Farimani: "Transformer for Partial Differential Equations' Operator
Learning", TMLR 2023).

Encoder: a linear embedding and L layers of Galerkin-type attention. Per head, with R(x) the
continuous rotary encoding of a point and LN° the layer norm without weights,

    z = R(x) q ((R(x) LN°(k))ᵀ LN°(v)) / N,     h ← LN(h), h ← h + W z, h ← LN(h), h ← h + FFN(h)

R turns pairs of channels; each coordinate has an equal share of the pairs, which it turns by
λ x 10000^(−2r/d), r = 0, 1, …, d the number of its channels. With n the number of nodes per unit
length, λ is n² in the first layer, n²/4 in the second and n in the others. The score of two points
thus depends on their difference. W_Q, W_K and W_V of a head start as (Ω + I)/C with Ω random
orthogonal. The FFN has a gate.

Decoder: random Fourier features of the query points, here the same points, attend to the encoding
in the same way, λ = 16 n; where outputs are fed back (`rollout`), a residual MLP propagates the
latent state by one step; an MLP that sees the coordinates reads out. The outputs for given weights
are those of the authors' Darcy network.

Deviations: the paper has an instance norm, over the points, for LN°; the authors' code norms the
channels of a point, as here. In a rollout every step encodes the latest frames again;
otherwise the network is that of Darcy, while the authors' for Navier–Stokes decodes with half the
channels, norms before it reads out, and has other λ. The coordinates are scaled to the unit box of
their sample, since λ and the random frequencies are meant for a domain of that size. The code
starts W_K and W_V of the encoder as any linear map. No dropout. The encoding does not close over
periodic seams.
"""

from dataclasses import dataclass
from itertools import chain, pairwise

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.config import Count, Positive, Ratio
from cato.errors import InputError
from cato.models.contract import Nodes
from cato.models.layers.attention import Rotation, galerkin_attention
from cato.models.layers.frames import PointConfig, PointOperator
from cato.models.layers.nodewise import (
    FourierFeatures,
    GatedMLP,
    Linear,
    hidden_width,
    time_embedding,
    unit_box,
)
from cato.models.shapes import Coords, Heads, Mask, Points
from cato.problem import Problem


@dataclass(frozen=True)
class OFormerConfig(PointConfig):
    """Settings of OFormer."""

    width: Count = 64  # Channels C of the encoder and of each of its heads; even.
    heads: Count = 4  # Attention heads M, each as wide as the hidden state.
    mlp_ratio: Ratio = 1.0  # Hidden width of the feed-forward networks, in units of the width.
    latent: Count = 128  # Channels of the decoder; even.
    fourier_scale: Positive = 0.5
    """Deviation of the random frequencies of the query points, in turns per unit length."""


def rotation(coords: Coords, num_channels: int, fastest: float) -> Rotation:
    """R for heads of `num_channels` with λ = `fastest`.

    Pairs that the coordinates cannot share stay as they are.
    """
    num_pairs = num_channels // 2
    share = num_pairs // coords.shape[-1]
    exponent = torch.arange(share, device=coords.device) / max(share, 1)
    angle = (coords[..., None] * (fastest * 10000.0**-exponent)).flatten(2)
    angle = F.pad(angle, (0, num_pairs - angle.shape[-1]))[:, None]
    return Rotation.by(angle)


def norm_channels(x: Heads) -> Heads:
    """Mean 0 and variance 1 over the channels of a point and head."""
    return F.layer_norm(x, x.shape[-1:])


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
        self.out = Linear(heads * width, width) if heads > 1 else nn.Identity()
        for linear in (self.query, self.key, self.value):
            for block in linear.weight.data.chunk(heads):
                nn.init.orthogonal_(block, gain=1 / width)
                block += torch.eye(width) / width

    def forward(self, h: Points, source: Points, turn: Rotation, mask: Mask) -> Points:
        q, k, v = (
            rearrange(linear(x), "b n (m c) -> b m n c", m=self.heads)
            for linear, x in ((self.query, h), (self.key, source), (self.value, source))
        )
        z = galerkin_attention(turn(q), turn(norm_channels(k)), norm_channels(v), mask)
        return self.out(rearrange(z, "b m n c -> b n (m c)"))


class EncoderLayer(nn.Module):
    """Attention among the points and feed-forward network; what is added to is normed as well."""

    def __init__(self, config: OFormerConfig) -> None:
        super().__init__()
        width = config.width
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = RotaryAttention(width, config.heads)
        self.mlp = GatedMLP(width, hidden_width(width, config.mlp_ratio))

    def forward(self, h: Points, turn: Rotation, mask: Mask) -> Points:
        h = self.norm_attention(h)
        h = self.norm_mlp(h + self.attention(h, h, turn, mask))
        return h + self.mlp(h)


def bare_mlp(*sizes: int) -> nn.Sequential:
    """Linear maps without biases, GELU between them."""
    first, *others = (Linear(*pair, bias=False) for pair in pairwise(sizes))
    return nn.Sequential(first, *chain.from_iterable((nn.GELU(), layer) for layer in others))


class Decoder(nn.Module):
    """From the encoding to the outputs at the query points."""

    def __init__(self, config: OFormerConfig, problem: Problem) -> None:
        super().__init__()
        width, dimension = config.latent, problem.dimension
        self.fourier = FourierFeatures(dimension, width, config.fourier_scale)
        self.embed = bare_mlp(width, width, width)
        self.attention = RotaryAttention(width, config.heads)
        self.mlp = GatedMLP(width, hidden_width(width, config.mlp_ratio))
        self.norm, self.propagator = None, None
        if problem.time == "rollout":
            self.norm = nn.LayerNorm(width)
            self.propagator = bare_mlp(width + dimension, width, width, width)
        self.hidden = bare_mlp(width + dimension, width, max(width // 2, 1))
        self.out = Linear(max(width // 2, 1), problem.num_outputs)

    def forward(
        self, encoding: Points, coords: Coords, turn: Rotation, mask: Mask
    ) -> Float[Tensor, "B N C_out"]:
        h = self.embed(self.fourier(coords))
        h = h + self.attention(h, encoding, turn, mask)
        h = h + self.mlp(h)
        if self.norm is not None and self.propagator is not None:
            h = h + self.propagator(torch.cat((self.norm(h), coords), dim=-1))
        return self.out(F.gelu(self.hidden(torch.cat((h, coords), dim=-1))))


class OFormer(PointOperator, config=OFormerConfig):
    """Operator transformer with rotary Galerkin attention."""

    title, family = "OFormer", "linear attention"
    reference = "Li, Meidani, Barati Farimani, Transformer for PDEs' Operator Learning, TMLR 2023"
    hidden = ("layers",)

    def __init__(self, config: OFormerConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        width = config.width
        self.nodes_per_length = problem.num_nodes ** (1 / problem.dimension)
        self.lift = Linear(self.num_in, width, bias=False)
        self.time = time_embedding(width, problem)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.depth))
        self.to_latent = Linear(width, config.latent, bias=False)
        self.decoder = Decoder(config, problem)

    def positions(self, coords: Coords, mask: Mask) -> Coords:
        return unit_box(coords, mask)

    def body(self, h: Points, nodes: Nodes) -> Float[Tensor, "B N C_out"]:
        coords, mask, n = nodes.coords, nodes.mask, self.nodes_per_length
        for index, layer in enumerate(self.layers):
            fastest = n * {0: n, 1: n / 4}.get(index, 1)
            h = layer(h, rotation(coords, self.config.width, fastest), mask)
        turn = rotation(coords, self.config.latent, 16 * n)
        return self.decoder(self.to_latent(h), coords, turn, mask)
