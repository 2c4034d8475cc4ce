"""Normalised linear attention: all pairs of points at a cost linear in their number."""

import torch
from jaxtyping import Float
from torch import Tensor


def linear_attention(
    q: Float[Tensor, "B M N E"], k: Float[Tensor, "B M K E"], v: Float[Tensor, "B M K C"]
) -> Float[Tensor, "B M N C"]:
    """Σ_j (q_n·k_j) v_j / Σ_j q_n·k_j, a mean of the values.

    Args:
        q: Features of the M heads' queries; not negative.
        k: Features of the keys; not negative, and zero for a point that nobody should see.
        v: Values.
    """
    k = k / k.shape[2]  # cancels, and keeps the sums over many points in the range of half floats
    total = q @ k.sum(2)[..., None]
    return q @ (k.transpose(2, 3) @ v) / total.clamp_min(torch.finfo(total.dtype).tiny)
