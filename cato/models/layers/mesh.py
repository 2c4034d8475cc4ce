"""Mesh sizes, and convolutions and windows on meshes of two axes, some of which may be periodic.

Sizes that follow from others are computed in integers: under an exporter a size is a symbol, and
Python's `min` and `round` would fix a file to the meshes that give the same answer.
"""

from fractions import Fraction

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.models.shapes import Periodic

smaller = torch.sym_min  # min of two sizes.
larger = torch.sym_max  # max of two sizes.


def ceil_divide(size: int, divisor: int) -> int:
    """The quotient rounded up. Not −(−n // d): ONNX rounds towards zero."""
    return (size + divisor - 1) // divisor


def share_of(share: float, size: int) -> int:
    """`round(share * size)`, halves to even ones as there."""
    exact = Fraction(share).limit_denominator(1000)
    above, below = exact.numerator, exact.denominator
    whole, rest = (above * size) // below, (above * size) % below
    return whole + (2 * rest + whole % 2) // (below + 1)


class Stencil(nn.Conv2d):
    """A 3 × 3 convolution; periodic axes wrap, the others are continued by zeros.

    A stride of 2 halves the mesh, rounding up.
    """

    def __init__(
        self, num_in: int, num_out: int, periodic: Periodic, *, bias: bool = True, stride: int = 1
    ) -> None:
        rows, columns = (int(wraps) for wraps in periodic)
        super().__init__(num_in, num_out, 3, stride, (1 - rows, 1 - columns), bias=bias)
        self.wrap = (columns, columns, rows, rows)  # F.pad begins with the last axis

    def forward(self, x: Float[Tensor, "B C_in H W"]) -> Float[Tensor, "B C_out H2 W2"]:
        return super().forward(F.pad(x, self.wrap, mode="circular") if any(self.wrap) else x)


def pad_to_multiple(
    h: Float[Tensor, "B H W C"], multiples: tuple[int, int], periodic: Periodic
) -> tuple[Tensor, Tensor]:
    """Pad after the last node of each axis, so that windows fit: periodically or with zeros.

    Also returns, with shape (H, W, 1), 1 on the mesh and its periodic continuation, else 0.
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
