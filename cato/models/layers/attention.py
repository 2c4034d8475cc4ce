"""What attention layers share: heads, linear attention, rotary encoding, the pre-norm block."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cato.errors import InputError
from cato.models.layers.mlp import MLP
from cato.models.shapes import Heads, Mask, Mesh


def check_heads(width: int, heads: int) -> None:
    """Raise if the heads cannot share the width evenly."""
    if width % heads:
        raise InputError(f"width must be a multiple of heads; got {width} with {heads} heads")


class TransformerBlock(nn.Module):
    """h ← h + A(LN(h)), h ← h + MLP(LN(h)).

    Args:
        width: Channels C.
        attention: A; called with the normed state and the further arguments of the block.
        mlp_ratio: Hidden width of the MLP, in units of the width.
    """

    def __init__(self, width: int, attention: nn.Module, mlp_ratio: float) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(width)
        self.attention = attention
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp = MLP(width, round(mlp_ratio * width), width)

    def forward(self, h: Mesh, *context: Any) -> Mesh:
        h = h + self.attention(self.norm_attention(h), *context)
        return h + self.mlp(self.norm_mlp(h))


def linear_attention(
    q: Float[Tensor, "B M Q E"], k: Heads, v: Float[Tensor, "B M N C"]
) -> Float[Tensor, "B M Q C"]:
    """Σ_j (q_n·k_j) v_j / Σ_j q_n·k_j, a mean of the values, at a cost linear in the points.

    Args:
        q: Features of the queries; not negative.
        k: Features of the keys; not negative, and zero for a point to be ignored.
        v: Values.
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
        """The rotation by these angles."""
        return cls(angle.cos(), angle.sin())

    def __call__(self, x: Heads) -> Heads:
        """R x, where channels r and r + E/2 are a pair."""
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * self.cos - b * self.sin, a * self.sin + b * self.cos), dim=-1)
