"""Linear maps of the last axis on CPUs by oneDNN, in float32.

PyTorch multiplies float32 matrices with MKL, which leaves half of the width of AMD's vectors unused
and is no faster elsewhere. oneDNN comes with PyTorch and takes what the processor has: on a
processor with 512-bit vectors of another maker than Intel's it is twice as fast. PyTorch itself
uses it for bfloat16.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from cato.kernels.eager import is_eager

HAS_ONEDNN = torch.backends.mkldnn.is_available()
FEWEST_ROWS = 64  # Below, the time goes to calls and not to arithmetic.


def linear(
    x: Float[Tensor, "*axes C_in"],
    weight: Float[Tensor, "C_out C_in"],
    bias: Float[Tensor, " C_out"] | None = None,
) -> Float[Tensor, "*axes C_out"]:
    """W x + b at every node, like `torch.nn.functional.linear`."""
    parameters = [weight] if bias is None else [weight, bias]
    if not supported(x, *parameters):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (x, *parameters)):
        return Linear.apply(x, weight, bias)
    return times_transposed(x, weight, bias)


def supported(x: Tensor, *parameters: Tensor) -> bool:
    """Whether oneDNN multiplies these as they are."""
    return (
        is_eager(x, *parameters)  # first, so that compilers do not see a condition on sizes
        and all(tensor.dtype == torch.float32 for tensor in (x, *parameters))
        and x.numel() >= FEWEST_ROWS * x.shape[-1] > 0
        and HAS_ONEDNN
        and not torch.is_autocast_enabled("cpu")
    )


def times_transposed(x: Tensor, y: Tensor, bias: Tensor | None = None) -> Tensor:
    """x yᵀ, plus a bias."""
    return torch.ops.mkldnn._linear_pointwise(x, y, bias, "none", [], None)


def product(x: Tensor, y: Tensor) -> Tensor:
    """The matrix x y."""
    return times_transposed(x, y.mT)


class Linear(torch.autograd.Function):
    """The map and its gradients, which can be differentiated again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return times_transposed(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = grad_bias = None
        rows, grad_rows = x.flatten(0, -2), grad.flatten(0, -2)
        multiply = torch.mm if torch.is_grad_enabled() else product
        if ctx.needs_input_grad[0]:
            grad_x = multiply(grad_rows, weight).view_as(x)
        if ctx.needs_input_grad[1] and len(weight) <= weight.shape[1]:
            grad_weight = multiply(grad_rows.mT, rows)
        elif ctx.needs_input_grad[1]:  # oneDNN prefers wide results
            grad_weight = multiply(rows.mT, grad_rows).mT
        if ctx.needs_input_grad[2]:
            grad_bias = grad_rows.sum(0)
        return grad_x, grad_weight, grad_bias
