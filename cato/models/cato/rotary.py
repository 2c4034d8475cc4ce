"""Continuous rotary position encoding (paper, "Continuous rotary positional encoding").

The position p is a real chart coordinate. Pair r of a head of size d_h turns by ω_r p with
ω_r = s θ^(−2r/d_h), so the score of two rotated vectors depends on the difference of positions
only: (R(p_i) q)ᵀ R(p_j) k = qᵀ R(p_j − p_i) k.

The paper has s = 1, with which the fastest pair turns by at most 2 rad over the whole chart, too
little to tell neighbours apart; the scale s is our addition (docs/decisions/0003-rotary-scale.md).
"""

import torch
from jaxtyping import Float
from torch import Tensor

Turn = Float[Tensor, "B *mesh pairs 2"]
"""R(p) at every node, as (cos ω_r p, sin ω_r p)."""


def frequencies(head_dim: int, base: float) -> Float[Tensor, " pairs"]:
    """ω_r = θ^(−2r/d_h) for the d_h/2 pairs of a head, before scaling."""
    r = torch.arange(head_dim // 2)
    return base ** (-2.0 * r / head_dim)


def rotation(
    position: Float[Tensor, "*axes"], omega: Float[Tensor, " pairs"]
) -> Float[Tensor, "*axes pairs 2"]:
    """R(p) as (cos ω_r p, sin ω_r p); it depends on the chart only, so all blocks share it."""
    angle = position[..., None] * omega
    return torch.stack((angle.cos(), angle.sin()), dim=-1)


def rotate(
    x: Float[Tensor, "*axes C"], turn: Float[Tensor, "*axes pairs 2"]
) -> Float[Tensor, "*axes C"]:
    """R(p) x: every head's pair of channels (2r, 2r+1) turned by its angle."""
    even, odd = x.unflatten(-1, (-1, turn.shape[-2], 2)).unbind(-1)
    cos, sin = turn[..., None, :, :].unbind(-1)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-3)
