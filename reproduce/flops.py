"""Counting the floating-point operations of any PyTorch code, without doing them.

PyTorch's `FlopCounterMode` on tensors without data, with formulas of ours where it is silent or
wrong. A multiply-add counts as 2. Counted are the products of matrices, convolutions, attention,
Fourier transforms and triangular factorisations; operations on single elements (activations, norms,
softmax, rotations) are not.

Beyond PyTorch's counter:
- a product of complex matrices counts as four real ones;
- a fast Fourier transform of n nodes counts as 5 n log₂ n, of real values half of that;
- attention on CPUs counts as its two products, four in the backward, without the recomputation of
  scores that fused kernels do;
- the backward of a grouped convolution counts as two forwards (PyTorch: one for each group more);
- a triangular solve counts as n² for each column, a Cholesky factorisation as n³ / 3.
"""

from collections.abc import Callable
from math import log2, prod
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

aten = torch.ops.aten


def count_flops(work: Callable[[], Any]) -> int:
    """Operations of a call.

    Whatever the work creates has no data, and existing tensors are read for their shapes only.
    Code that leaves PyTorch for compiled kernels must take PyTorch's operations inside a dispatch
    mode, as CATO's attention does.
    """
    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        FlopCounterMode(display=False, custom_mapping=FORMULAS) as counter,
    ):
        work()
    return round(counter.get_total_flops())


def _product(a: Tensor, b: Tensor, *_: Any, **__: Any) -> int:
    """Of matrices or batches of them: (…, m, k) by (…, k, n)."""
    return 2 * a.numel() * b.shape[-1] * (4 if a.is_complex() else 1)


def _product_and_sum(_: Tensor, a: Tensor, b: Tensor, *__: Any, **___: Any) -> int:
    return _product(a, b)


def _convolution_backward(grad: Tensor, x: Tensor, weight: Tensor, *rest: Any, **_: Any) -> int:
    """Gradients of input and weight: each as much as the forward."""
    transposed, mask = rest[4], rest[7]
    forward = conv_flop_count([*x.shape], [*weight.shape], [*grad.shape], transposed)
    return forward * sum(mask[:2])


def _real_transform(x: Tensor, axes: list[int], *_: Any, **__: Any) -> float:
    return 2.5 * x.numel() * log2(prod(x.shape[axis] for axis in axes))


def _real_inverse(_: Tensor, axes: list[int], *__: Any, out_val: Tensor, **___: Any) -> float:
    return _real_transform(out_val, axes)


def _complex_transform(z: Tensor, axes: list[int], *_: Any, **__: Any) -> float:
    return 2 * _real_transform(z, axes)


def _attention(q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> int:
    """Scores q kᵀ and their products with v; tensors are (B, heads, nodes, channels)."""
    return 2 * q.shape[:-1].numel() * k.shape[-2] * (q.shape[-1] + v.shape[-1])


def _attention_backward(_: Tensor, q: Tensor, k: Tensor, v: Tensor, *__: Any, **___: Any) -> int:
    return 2 * _attention(q, k, v)


def _cholesky(a: Tensor, *_: Any, **__: Any) -> int:
    return a.numel() * a.shape[-1] // 3


def _triangular_solve(a: Tensor, b: Tensor, *_: Any, **__: Any) -> int:
    """n² for every column of b, or for every row where a stands on the right of it."""
    return b.numel() * a.shape[-1]


FORMULAS: dict[Any, Any] = {
    aten.mm: _product,
    aten.bmm: _product,
    aten.addmm: _product_and_sum,
    aten.baddbmm: _product_and_sum,
    aten.convolution_backward: _convolution_backward,
    aten._fft_r2c: _real_transform,
    aten._fft_c2r: _real_inverse,
    aten._fft_c2c: _complex_transform,
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    aten.linalg_cholesky_ex: _cholesky,
    aten.linalg_solve_triangular: _triangular_solve,
}
for _formula in FORMULAS.values():
    _formula._get_raw = True  # the counter hands over tensors, not shapes
