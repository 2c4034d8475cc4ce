"""Charted axial attention on CPUs in compiled loops: the function of `cato.models.cato.attention`.

In PyTorch's operations the rotation of q and k, the transpositions into lines and the concatenation
are passes over memory, and the fused attention runs at a fifth of a core's speed with heads as
small as CATO's. Here one kernel reads a line of the mesh, rotates, attends and writes to its place.

They take float32 and bfloat16; rotations are always float32, and so is all arithmetic.

Threads share the lines. Every number is computed by one thread in one order, so results do not
depend on the number of threads. They are Python threads that release the interpreter: Numba's own
must not be entered from two threads at once, as happens in servers.
"""

import functools
import math
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from cato.errors import InputError
from cato.kernels.eager import is_eager

SHARES_PER_THREAD = 4  # More than one, so that a delayed thread does not hold up the others.
SMALLEST_SHARE = 100_000  # Least number of scores for a thread, about 0.1 ms of work.


@functools.cache
def kernels() -> Any:
    """The module of compiled kernels, or None if Numba does not work."""
    try:
        from cato.kernels import attention_loops
    except ImportError as error:
        warnings.warn(
            f"Numba cannot be imported ({error}); attention falls back to PyTorch's operations, "
            "which are several times slower on CPUs",
            stacklevel=2,
        )
        return None
    return attention_loops


def supported(tensor: Tensor) -> bool:
    """Whether the kernels can take this tensor now."""
    plain = tensor.dtype in (torch.float32, torch.bfloat16)
    return plain and is_eager(tensor) and kernels() is not None


def axial_attention(
    qkv: Float[Tensor, "B *mesh projections"],
    turns: Sequence[Float[Tensor, "B *mesh pairs 2"]],
    heads: int,
    axes: Sequence[int] | None = None,
    turn_values: bool = False,
) -> Float[Tensor, "B *mesh axes_C"]:
    """Attention along mesh `axes`, all by default, side by side.

    `qkv` holds q, k and v of C channels each, once for all axes or once per axis; head m owns
    channels m C / heads to (m + 1) C / heads of each. `turns` has one rotation per axis. With
    `turn_values` values are rotated too, and the result is rotated back.
    """
    axes = tuple(range(len(turns)) if axes is None else axes)
    # The kernels do not check sizes and types.
    turns = [turn.flatten(-2).expand(*qkv.shape[:-1], -1).float() for turn in turns]
    return LineAttention.apply(heads, axes, turn_values, *(x.contiguous() for x in (qkv, *turns)))


class LineAttention(torch.autograd.Function):
    """The kernels as a once differentiable function of qkv and turns, both "B *mesh channels"."""

    @staticmethod
    def forward(
        ctx: Any,
        heads: int,
        axes: tuple[int, ...],
        turn_values: bool,
        qkv: Tensor,
        *turns: Tensor,
    ) -> Tensor:
        bundles = lines_of_axes(qkv, turns, heads, axes, turn_values)
        out = qkv.new_empty(*qkv.shape[:-1], len(axes) * heads * turns[0].shape[-1])
        statistics = [turns[0].new_empty(lines.number, heads, 2, lines.length) for lines in bundles]
        for lines, turn, statistic in zip(bundles, turns, statistics, strict=True):
            arrays = matrix(qkv), matrix(turn), matrix(out), statistic.numpy()
            over_lines(kernels().attend, lines, *arrays)
        ctx.bundles = bundles
        ctx.save_for_backward(qkv, out, *turns, *statistics)
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of qkv, summed over axes that share it, and of every turn."""
        if torch.is_grad_enabled():  # that is, create_graph=True
            raise InputError(
                "the compiled attention cannot be differentiated twice; "
                "convert model and data to float64, which uses PyTorch's operations"
            )
        num_axes = len(ctx.bundles)
        qkv, result, *rest = ctx.saved_tensors
        turns, statistics = rest[:num_axes], rest[num_axes:]
        grad, grad_qkv = matrix(grad_out.to(qkv.dtype).contiguous()), torch.empty_like(qkv)
        grad_turns = [torch.empty_like(turn) for turn in turns]
        parts = zip(ctx.bundles, turns, statistics, grad_turns, strict=True)
        for number, (lines, turn, statistic, grad_turn) in enumerate(parts):
            arrays = matrix(qkv), matrix(turn), matrix(result), grad, statistic.numpy()
            add = number > 0 and lines.first_input == 0
            gradients = matrix(grad_qkv), matrix(grad_turn)
            over_lines(kernels().attend_backward, lines, *arrays, *gradients, add)
        return None, None, None, grad_qkv, *grad_turns


def matrix(x: Tensor) -> np.ndarray:
    """One row per node, in the same memory; bfloat16 as its bits, since NumPy does not have it."""
    rows = x.detach().flatten(0, -2)
    return (rows.view(torch.int16) if rows.dtype == torch.bfloat16 else rows).numpy()


def lines_of_axes(
    qkv: Tensor, turns: Sequence[Tensor], heads: int, axes: Sequence[int], turn_values: bool
) -> list[Any]:
    """How the lines along each of the axes lie in memory."""
    batch, *mesh, channels = qkv.shape
    width = heads * turns[0].shape[-1]
    step = 0 if channels == 3 * width else 3 * width
    assert channels == 3 * width + (len(turns) - 1) * step
    return [
        kernels().Lines(
            number=batch * math.prod(mesh) // mesh[axis],
            length=mesh[axis],
            stride=math.prod(mesh[axis + 1 :]),
            heads=heads,
            first_input=number * step,
            first_output=number * width,
            turn_values=turn_values,
        )
        for number, axis in enumerate(axes)
    ]


def over_lines(kernel: Callable[..., None], lines: Any, *arguments: Any) -> None:
    """Call the kernel for all lines, shared among as many threads as PyTorch uses."""
    num_threads = torch.get_num_threads()
    num_scores = lines.number * lines.heads * lines.length**2
    num_shares = min(SHARES_PER_THREAD * num_threads, num_scores // SMALLEST_SHARE, lines.number)
    if num_threads == 1 or num_shares <= 1:
        kernel(lines, *arguments, 0, lines.number)
        return
    bounds = [lines.number * share // num_shares for share in range(num_shares + 1)]
    pool = threads(num_threads, os.getpid())
    calls = [pool.submit(kernel, lines, *arguments, *share) for share in pairwise(bounds)]
    for call in calls:
        call.result()


@functools.cache
def threads(number: int, process: int) -> ThreadPoolExecutor:
    """The threads of this process; after a fork the parent's are gone."""
    return ThreadPoolExecutor(number, thread_name_prefix="cato-attention")
