"""GNOT: Hao et al., "GNOT: A General Neural Operator Transformer for Operator Learning", ICML 2023.

Query points attend to the input function. Both carry [x, a(x)], as in the authors' data for regular
grids, since they are the same points. Per block, with z the embedded input function:

    h ← h + W_o A(LN(h), LN(z))                   cross-attention
    h ← h + LN(Σ_e g_e(x) E_e(h))                 mixture of perceptrons E_e, the experts
    h ← h + W_o A(LN(h), LN(h))                   self-attention
    h ← h + LN(Σ_e g_e(x) E'_e(h))

    A = q̃ + Σ_j (q̃·k̃_j) v_j / Σ_j q̃·k̃_j,        q̃ = softmax(q), k̃ = softmax(k) over the channels

The gates g = softmax(G(x)) depend on the coordinates only, so that experts divide the domain among
themselves; both mixtures of a block share them. Lifts and head are perceptrons with hidden layers
x ← x + σ(W x + b). The outputs for given weights are those of the published code.

Deviations: the time embedding is the one of this library. The attention ignores periodicity.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Le
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.config import Depth, Ratio
from cato.models.contract import Nodes
from cato.models.layers.attention import check_heads, linear_attention
from cato.models.layers.frames import PointConfig, PointOperator
from cato.models.layers.nodewise import MLP, Linear, hidden_width, time_embedding
from cato.models.shapes import Coords, Mask, Points
from cato.problem import Problem


@dataclass(frozen=True)
class GNOTConfig(PointConfig):
    """Settings of GNOT."""

    num_experts: Depth = 3  # Experts of each mixture.
    mlp_ratio: Ratio = 2.0  # Hidden width of an expert and of the gates, in units of the width.
    mlp_layers: Annotated[int, Ge(0), Le(1000)] = 3  # Hidden layers of the lifts and of the head.


class ResidualMLP(nn.Module):
    """x ← σ(W x + b); in each hidden layer x ← x + σ(W x + b); W x + b."""

    def __init__(self, num_in: int, width: int, num_out: int, num_layers: int) -> None:
        super().__init__()
        self.first = Linear(num_in, width)
        self.hidden = nn.ModuleList(Linear(width, width) for _ in range(num_layers))
        self.out = Linear(width, num_out)

    def forward(self, x: Float[Tensor, "B N num_in"]) -> Float[Tensor, "B N num_out"]:
        x = F.gelu(self.first(x))
        for layer in self.hidden:
            x = x + F.gelu(layer(x))
        return self.out(x)


class LinearAttention(nn.Module):
    """W_o A(h, z): every point of h attends to all points of z."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        check_heads(width, heads)
        self.heads = heads
        self.query = Linear(width, width)
        self.key_value = Linear(width, 2 * width)
        self.out = Linear(width, width)

    def forward(self, h: Float[Tensor, "B Q C"], z: Points, mask: Mask = None) -> Tensor:
        q = rearrange(self.query(h), "b n (m c) -> b m n c", m=self.heads).softmax(-1)
        k, v = rearrange(self.key_value(z), "b k (t m c) -> t b m k c", t=2, m=self.heads)
        k = k.softmax(-1)
        if mask is not None:
            k = k * mask[:, None, :, None]
        return self.out(rearrange(q + linear_attention(q, k, v), "b m n c -> b n (m c)"))


class Mixture(nn.Module):
    """Σ_e g_e [W_e' σ(W_e h + b_e) + b_e'], all experts in two products."""

    def __init__(self, width: int, hidden: int, num_experts: int) -> None:
        super().__init__()
        self.hidden = Linear(width, num_experts * hidden)
        self.out = Linear(num_experts * hidden, width, bias=False)
        self.bias = nn.Parameter(torch.zeros(num_experts, width))

    def forward(self, h: Points, gates: Float[Tensor, "B N experts"]) -> Points:
        x = F.gelu(self.hidden(h)).unflatten(-1, (gates.shape[-1], -1))
        return self.out((x * gates[..., None]).flatten(-2)) + gates @ self.bias


class Gates(nn.Sequential):
    """g = softmax(G(x)), with a perceptron G of three layers."""

    def __init__(self, dimension: int, hidden: int, num_experts: int) -> None:
        super().__init__()
        self.scores = nn.Sequential(
            Linear(dimension, hidden), nn.GELU(), MLP(hidden, hidden, num_experts)
        )
        self.softmax = nn.Softmax(dim=-1)


class GNOTBlock(nn.Module):
    """One layer of GNOT."""

    def __init__(self, config: GNOTConfig, dimension: int) -> None:
        super().__init__()
        width, num_experts = config.width, config.num_experts
        hidden = hidden_width(width, config.mlp_ratio)
        self.gates = Gates(dimension, hidden, num_experts)
        self.norm_query, self.norm_input = nn.LayerNorm(width), nn.LayerNorm(width)
        self.cross_attention = LinearAttention(width, config.heads)
        self.cross_mixture = Mixture(width, hidden, num_experts)
        self.norm_cross_mixture = nn.LayerNorm(width)
        self.norm_self = nn.LayerNorm(width)
        self.self_attention = LinearAttention(width, config.heads)
        self.self_mixture = Mixture(width, hidden, num_experts)
        self.norm_self_mixture = nn.LayerNorm(width)

    def forward(self, h: Points, z: Points, coords: Coords, mask: Mask) -> Points:
        gates = self.gates(coords)
        h = h + self.cross_attention(self.norm_query(h), self.norm_input(z), mask)
        h = h + self.norm_cross_mixture(self.cross_mixture(h, gates))
        normed = self.norm_self(h)
        h = h + self.self_attention(normed, normed, mask)
        return h + self.norm_self_mixture(self.self_mixture(h, gates))


class GNOT(PointOperator, config=GNOTConfig):
    """General Neural Operator Transformer."""

    title, family = "GNOT", "linear attention"
    reference = "Hao et al., GNOT: A General Neural Operator Transformer, ICML 2023"

    def __init__(self, config: GNOTConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        width, num_layers = config.width, config.mlp_layers
        self.lift_query = ResidualMLP(self.num_in, width, width, num_layers)
        self.lift_input = ResidualMLP(self.num_in, width, width, num_layers)
        self.time = time_embedding(width, problem)
        self.blocks = nn.ModuleList(
            GNOTBlock(config, problem.dimension) for _ in range(config.depth)
        )
        self.head = ResidualMLP(width, width, problem.num_outputs, num_layers)

    def initial_state(self, nodes: Nodes) -> Points:
        return self.lift_query(nodes.joined)

    def body(self, h: Points, nodes: Nodes) -> Float[Tensor, "B N C_out"]:
        z = self.lift_input(nodes.joined)
        for block in self.blocks:
            h = block(h, z, nodes.coords, nodes.mask)
        return self.head(h)
