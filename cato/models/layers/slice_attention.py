"""Physics attention: attention among G learned slices of the points (Transolver, ICML 2024).

Per head, with x and f two projections of the hidden state and n counting points, g slices:

    w_n = softmax(W_slice x_n / τ)                   soft membership of point n in the G slices
    z_g = Σ_n w_ng f_n / Σ_n w_ng                    one token per slice
    z'  = softmax((z W_q)(z W_k)ᵀ / √d_h) z W_v      attention among the tokens
    f'_n = Σ_g w_ng z'_g                             back to the points

and a linear layer mixes the heads. Each head learns its temperature τ, between 0.1 and 5; all heads
share W_slice, W_q, W_k and W_v. The cost is linear in the number of points.
"""

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.models.layers.attention import check_heads
from cato.models.shapes import Mask, Points

_EMPTY = 1e-30
"""Least weight of a slice: one that no point belongs to gets the token 0, and not 0/0."""


class SliceAttention(nn.Module):
    """Physics attention of values f along slices found from x.

    Both projections are the caller's: convolutions on meshes, linear maps on clouds.

    Args:
        width: Channels C of x, f and the result.
        heads: Heads M; must divide the width.
        slices: Slices G per head.
    """

    def __init__(self, width: int, heads: int, slices: int) -> None:
        super().__init__()
        check_heads(width, heads)
        self.heads = heads
        size = width // heads
        self.slice = nn.Linear(size, slices)
        self.temperature = nn.Parameter(torch.full((heads,), 0.5))
        self.query = nn.Linear(size, size, bias=False)
        self.key = nn.Linear(size, size, bias=False)
        self.value = nn.Linear(size, size, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Points, f: Points, mask: Mask = None) -> Points:
        """Attend; points outside the mask belong to no slice."""
        weights = self.slice_weights(x, mask)
        f = rearrange(f, "b n (m c) -> b m n c", m=self.heads)
        # A channel of ones makes one product give the sums and the weights that divide them.
        sums = weights.transpose(2, 3) @ F.pad(f, (0, 1), value=1.0)
        z = sums[..., :-1] / sums[..., -1:].clamp_min(_EMPTY)
        z = F.scaled_dot_product_attention(self.query(z), self.key(z), self.value(z))
        return self.out(rearrange(weights @ z, "b m n c -> b n (m c)"))

    def slice_weights(self, x: Points, mask: Mask = None) -> Float[Tensor, "B M N G"]:
        """Membership w of the points in the slices of each head: sums to one, to zero if masked."""
        # The temperature divides the small weights instead of the large scores.
        tau = self.temperature.clamp(0.1, 5.0)[:, None, None]
        slice_weight, bias = self.slice.weight.T / tau, self.slice.bias / tau
        heads = rearrange(x, "b n (m c) -> (b m) n c", m=self.heads)
        copies = (x.shape[0], 1, 1)
        scores = torch.baddbmm(bias.repeat(copies), heads, slice_weight.repeat(copies))
        weights = torch.softmax(scores, dim=-1).unflatten(0, (x.shape[0], self.heads))
        return weights if mask is None else weights * mask[:, None, :, None]


class PointSliceAttention(nn.Module):
    """Physics attention on a cloud: x and f are linear in the hidden state of the point."""

    def __init__(self, width: int, heads: int, slices: int) -> None:
        super().__init__()
        self.project_x = nn.Linear(width, width)
        self.project_f = nn.Linear(width, width)
        self.attention = SliceAttention(width, heads, slices)

    def forward(self, h: Points, mask: Mask = None) -> Points:
        return self.attention(self.project_x(h), self.project_f(h), mask)
