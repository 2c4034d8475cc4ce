"""Depthwise convolutions on CPUs whose weight gradient runs in a compiled loop.

PyTorch computes the convolution and the gradient of its input fast, but takes ten times as long for
the gradient of the weights, a quarter of a training step of CATO with stencils of 7 × 7 nodes.
"""

import os
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.kernels.attention import kernels, threads
from cato.kernels.eager import is_eager

SMALLEST_STENCIL = 5  # Nodes along an axis from which on the loop is faster than PyTorch.


class DepthwiseConv2d(nn.Conv2d):
    """A convolution of each channel with its own stencil."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding: Any = self.padding
        if (
            bias is not None
            and is_eager(input, weight, bias)
            and input.dtype == weight.dtype == torch.float32
            and weight.shape[-1] >= SMALLEST_STENCIL
            and kernels() is not None
        ):
            return _Depthwise.apply(input, weight, bias, padding)
        return super()._conv_forward(input, weight, bias)


class _Depthwise(torch.autograd.Function):
    """The convolution and its gradients, which can be differentiated again."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "B C H W"],
        weight: Float[Tensor, "C 1 k l"],
        bias: Float[Tensor, " C"],
        padding: tuple[int, int],
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.padding = padding
        return F.conv2d(x, weight, bias, padding=padding, groups=len(weight))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        in_loop = needs_weight and not torch.is_grad_enabled()
        found = torch.ops.aten.convolution_backward(
            *(grad, x, weight, [len(weight)], [1, 1], ctx.padding, [1, 1], False, [0, 0]),
            *(len(weight), [needs_x, needs_weight and not in_loop, False]),
        )
        return (
            found[0],
            weight_gradient(x, grad, weight, ctx.padding) if in_loop else found[1],
            grad.sum((0, 2, 3)) if needs_bias else None,
            None,
        )


def weight_gradient(
    x: Float[Tensor, "B C H W"], grad: Tensor, weight: Tensor, padding: tuple[int, int]
) -> Tensor:
    """Σ x(b, c, i + k − p, j + l − q) ∂y(b, c, i, j) over samples and nodes."""
    from cato.kernels import depthwise_loops as loops  # imports Numba

    nodes, slopes = (t.detach().movedim(1, -1).contiguous().numpy() for t in (x, grad))
    _, _, rows, columns = weight.shape
    found = weight.new_zeros(rows, columns, len(weight))
    one_row = partial(loops.weight_gradient, nodes, slopes, found.numpy(), *padding)
    num_threads = torch.get_num_threads()
    if num_threads == 1:
        for row in range(rows):
            one_row(row)
    else:  # a row of the stencil each, so that results do not depend on the number of threads
        for _ in threads(num_threads, os.getpid()).map(one_row, range(rows)):
            pass
    return found.permute(2, 0, 1).unsqueeze(1)
