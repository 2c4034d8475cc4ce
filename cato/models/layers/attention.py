"""What attention layers share: heads, linear attention, rotary encoding, blocks, slices."""

from typing import Any, NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.errors import InputError
from cato.models.layers.nodewise import MLP, Linear, hidden_width
from cato.models.shapes import Heads, Mask, Mesh, Points


def check_heads(width: int, heads: int) -> None:
    """Raise if the heads cannot share the width evenly."""
    if width % heads:
        raise InputError(f"width must be a multiple of heads; got {width} with {heads} heads")


class TransformerBlock(nn.Module):
    """h ← h + A(LN(h)), h ← h + MLP(LN(h)).

    The attention A is called with the normed state and the further arguments of the block.
    """

    def __init__(self, width: int, attention: nn.Module, mlp_ratio: float) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(width)
        self.attention = attention
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp = MLP(width, hidden_width(width, mlp_ratio), width)

    def forward(self, h: Mesh, *context: Any) -> Mesh:
        h = h + self.attention(self.norm_attention(h), *context)
        return h + self.mlp(self.norm_mlp(h))


def linear_attention(
    q: Float[Tensor, "B M Q E"], k: Heads, v: Float[Tensor, "B M N C"]
) -> Float[Tensor, "B M Q C"]:
    """Σ_j (q_n·k_j) v_j / Σ_j q_n·k_j, a mean of the values, at a cost linear in the points.

    q and k are not negative; k is zero for a point to be ignored.
    """
    k = k / k.shape[2]  # cancels, and keeps the sums over many points in the range of half floats
    total = q @ k.sum(2)[..., None]
    return q @ (k.transpose(2, 3) @ v) / total.clamp_min(torch.finfo(total.dtype).tiny)


def galerkin_attention(
    q: Float[Tensor, "B M Q E"], k: Heads, v: Float[Tensor, "B M N C"], mask: Mask = None
) -> Float[Tensor, "B M Q C"]:
    """Q (Kᵀ V) / N without softmax (Cao, NeurIPS 2021), where N counts the keys in the mask.

    Kᵀ V / N is an inner product of the columns of K and V, as functions on the domain: a quadrature
    with equal weights, which does not grow with the number of points.
    """
    if mask is None:
        return q @ (k.transpose(2, 3) @ (v / v.shape[2]))
    share = mask.to(v.dtype) / mask.sum(1, keepdim=True).clamp_min(1)
    return q @ (k.transpose(2, 3) @ (v * share[:, None, :, None]))


class Rotation(NamedTuple):
    """Rotary encoding R: pair r of channels is turned by an angle that depends on the position."""

    cos: Float[Tensor, "*places pairs"]
    sin: Float[Tensor, "*places pairs"]

    @classmethod
    def by(cls, angle: Float[Tensor, "*places pairs"]) -> "Rotation":
        return cls(angle.cos(), angle.sin())

    def __call__(self, x: Heads) -> Heads:
        """R x, where channels r and r + E/2 are a pair."""
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * self.cos - b * self.sin, a * self.sin + b * self.cos), dim=-1)


_EMPTY = 1e-5  # Added to the weight of a slice; the authors' value.


class SliceAttention(nn.Module):
    """Physics attention: attention among G learned slices of the points (Transolver, ICML 2024).

    Per head, with n counting points and g slices:

        w_n = softmax(W_slice x_n / τ)                   soft membership of point n in the G slices
        z_g = Σ_n w_ng f_n / (Σ_n w_ng + 10⁻⁵)           one token per slice, near 0 if it is empty
        z'  = softmax((z W_q)(z W_k)ᵀ / √d_h) z W_v      attention among the tokens
        f'_n = Σ_g w_ng z'_g                             back to the points

    and a linear layer mixes the heads. x and f are two projections of the hidden state by the
    caller: convolutions on meshes, linear maps on clouds. Each head learns its temperature τ,
    between 0.1 and 5; all heads share W_slice, W_q, W_k and W_v.
    """

    def __init__(self, width: int, heads: int, slices: int) -> None:
        super().__init__()
        check_heads(width, heads)
        self.heads = heads
        size = width // heads
        self.slice = Linear(size, slices)
        self.temperature = nn.Parameter(torch.full((heads,), 0.5))
        self.query = Linear(size, size, bias=False)
        self.key = Linear(size, size, bias=False)
        self.value = Linear(size, size, bias=False)
        self.out = Linear(width, width)

    def forward(self, x: Points, f: Points, mask: Mask = None) -> Points:
        weights = self.slice_weights(x, mask)
        f = rearrange(f, "b n (m c) -> b m n c", m=self.heads)
        # A channel of ones makes one product give the sums and the weights that divide them.
        sums = weights.transpose(2, 3) @ F.pad(f, (0, 1), value=1.0)
        z = sums[..., :-1] / (sums[..., -1:] + _EMPTY)
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
        self.project_x = Linear(width, width)
        self.project_f = Linear(width, width)
        self.attention = SliceAttention(width, heads, slices)

    def forward(self, h: Points, mask: Mask = None) -> Points:
        return self.attention(self.project_x(h), self.project_f(h), mask)
