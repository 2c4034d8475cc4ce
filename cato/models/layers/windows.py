"""Meshes whose size is no multiple of the windows cut from them."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from cato.models.layers.symbolic_sizes import ceil_divide


def pad_to_multiple(
    h: Float[Tensor, "B H W C"], multiples: tuple[int, int], periodic: tuple[bool, ...]
) -> tuple[Tensor, Tensor]:
    """Padding behind the last node of each axis: the mesh again where periodic, else zeros.

    Args:
        h: State on the mesh.
        multiples: What the padded numbers of rows and columns are multiples of.
        periodic: Which axes close on themselves.

    Returns:
        The padded state, and with shape (H, W, 1) 1 where it is the mesh or its periodic
        continuation, else 0.
    """
    inside = h.new_ones((*h.shape[1:3], 1))
    for axis, (multiple, wraps) in enumerate(zip(multiples, periodic, strict=True), start=1):
        size = h.shape[axis]
        padded = multiple * ceil_divide(size, multiple)
        if wraps:
            index = torch.arange(padded, device=h.device) % size
            h, inside = h.index_select(axis, index), inside.index_select(axis - 1, index)
        else:
            pad = (0, 0) * (3 - axis) + (0, padded - size)
            h, inside = F.pad(h, pad), F.pad(inside, pad)
    return h, inside
