"""Convolutions and windows on meshes of two axes, some of which may be periodic."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.models.layers.symbolic_sizes import ceil_divide
from cato.models.shapes import Periodic


class Stencil(nn.Conv2d):
    """A 3 × 3 convolution; periodic axes wrap, the others are continued by zeros.

    A stride of 2 halves the mesh, rounding up.
    """

    def __init__(
        self, num_in: int, num_out: int, periodic: Periodic, *, bias: bool = True, stride: int = 1
    ) -> None:
        rows, columns = (int(wraps) for wraps in periodic)
        padding = (1 - rows, 1 - columns)
        super().__init__(num_in, num_out, 3, stride, padding, bias=bias)
        self.wrap = (columns, columns, rows, rows)  # F.pad begins with the last axis

    def forward(self, x: Float[Tensor, "B C_in H W"]) -> Float[Tensor, "B C_out H2 W2"]:
        return super().forward(F.pad(x, self.wrap, mode="circular") if any(self.wrap) else x)


def pad_to_multiple(
    h: Float[Tensor, "B H W C"], multiples: tuple[int, int], periodic: Periodic
) -> tuple[Tensor, Tensor]:
    """Pad after the last node of each axis, so that windows fit: periodically or with zeros.

    Returns:
        The state with rows and columns padded to the multiples, and with shape (H, W, 1) 1 where it
        is the mesh or its periodic continuation, else 0.
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
