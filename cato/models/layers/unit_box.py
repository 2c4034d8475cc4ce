"""Positions in units of their own domain, for models that expect coordinates of the size of 1."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_TINY = 1e-6
"""Least extent of a domain."""


def unit_box(
    coords: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None = None
) -> Float[Tensor, "B N D"]:
    """Nodes scaled to [0, 1]ᴰ by the bounding box of their sample, in which padding does not count.

    Each coordinate has its own scale: a pipe ten times as long as wide becomes a square.
    """
    low = high = coords
    if mask is not None:
        low = coords.masked_fill(~mask[..., None], torch.inf)
        high = coords.masked_fill(~mask[..., None], -torch.inf)
    low, high = low.amin(1, keepdim=True), high.amax(1, keepdim=True)
    return (coords - low) / (high - low).clamp_min(_TINY)
