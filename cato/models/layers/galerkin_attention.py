"""Attention without softmax, at a cost linear in the number of points (Cao, NeurIPS 2021)."""

from jaxtyping import Bool, Float
from torch import Tensor


def galerkin_attention(
    q: Float[Tensor, "B M Q E"],
    k: Float[Tensor, "B M N E"],
    v: Float[Tensor, "B M N C"],
    mask: Bool[Tensor, "B N"] | None = None,
) -> Float[Tensor, "B M Q C"]:
    """Q (Kᵀ V) / N, where N counts the keys that `mask` does not mark False.

    Kᵀ V / N is an inner product of the columns of K and V, as functions on the domain: a quadrature
    with equal weights, which does not grow with the number of points.
    """
    if mask is None:
        return q @ (k.transpose(2, 3) @ (v / v.shape[2]))
    share = mask.to(v.dtype) / mask.sum(1, keepdim=True).clamp_min(1)
    return q @ (k.transpose(2, 3) @ (v * share[:, None, :, None]))
