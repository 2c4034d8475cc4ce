"""Mesh sizes that follow from others, in integers: an exporter can follow these to other meshes.

Under an exporter a size is a symbol. Python's `min` and `round` would ask for its value and so fix
a file to the meshes that give the same answer.
"""

from fractions import Fraction

import torch

smaller = torch.sym_min
"""min of two sizes."""
larger = torch.sym_max
"""max of two sizes."""


def ceil_divide(size: int, divisor: int) -> int:
    """The quotient rounded up. Not −(−n // d): ONNX rounds towards zero."""
    return (size + divisor - 1) // divisor


def share_of(share: float, size: int) -> int:
    """`round(share * size)`, halves to even ones as there."""
    exact = Fraction(share).limit_denominator(1000)
    above, below = exact.numerator, exact.denominator
    whole, rest = (above * size) // below, (above * size) % below
    return whole + (2 * rest + whole % 2) // (below + 1)
