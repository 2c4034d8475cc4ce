"""Charted axial self-attention (paper, "Charted axial self-attention").

    A(h, ζ) = Σ_k W_O^k ⊕_m softmax((R(ζ_k) q)ᵀ (R(ζ_k) k) / √d_h) v

with the softmax over the nodes of a line along mesh axis k, and the sum over all axes.

In 2-D the two terms are the paper's row and column attention; a mesh of three axes has three.

R is the continuous rotary encoding (paper, "Continuous rotary positional encoding") of a real chart
coordinate p: pair r of a head of size d_h turns by ω_r p with ω_r = s θ^(−2r/d_h), so the score of
two rotated vectors depends on the difference of positions only:
(R(p_i) q)ᵀ R(p_j) k = qᵀ R(p_j − p_i) k.

Our variant rotates the values too, and the result back: R(ζ_i)ᵀ Σ_j a_ij R(ζ_j) v_j. Value j then
reaches node i turned by ζ_j − ζ_i, so every pair of channels has a kernel of its own along the
line, with both signs. The paper's attention has one positive kernel per head.

The paper has s = 1, with which the fastest pair turns by at most 2 rad over the whole chart, too
little to tell neighbours apart; the scale s is our addition (docs/decisions/0003-rotary-scale.md).
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.errors import InputError
from cato.kernels import attention as kernels
from cato.kernels.eager import is_eager
from cato.models.layers.nodewise import Linear
from cato.models.shapes import Mesh
from cato.partition import WHOLE

Turn = Float[Tensor, "B *mesh pairs 2"]  # R(p) at every node, as (cos ω_r p, sin ω_r p).


def frequencies(head_dim: int, base: float) -> Float[Tensor, " pairs"]:
    """ω_r = θ^(−2r/d_h) for the d_h/2 pairs of a head, before scaling."""
    return base ** (-2.0 * torch.arange(head_dim // 2) / head_dim)


def rotation(
    position: Float[Tensor, "*axes"], omega: Float[Tensor, " pairs"]
) -> Float[Tensor, "*axes pairs 2"]:
    """R(p) as (cos ω_r p, sin ω_r p); it depends on the chart only, so all blocks share it."""
    angle = position[..., None] * omega
    return torch.stack((angle.cos(), angle.sin()), dim=-1)


def turn_back(turn: Float[Tensor, "*axes pairs 2"]) -> Float[Tensor, "*axes pairs 2"]:
    """R(p)ᵀ = R(−p)."""
    return torch.stack((turn[..., 0], -turn[..., 1]), dim=-1)


def rotate(
    x: Float[Tensor, "*axes C"], turn: Float[Tensor, "*axes pairs 2"]
) -> Float[Tensor, "*axes C"]:
    """R(p) x: every head's pair of channels (2r, 2r+1) turned by its angle."""
    pairs, turn = x.unflatten(-1, (-1, turn.shape[-2], 2)), turn[..., None, :, :]
    if is_eager(x) and x.dtype == turn.dtype in (torch.float32, torch.float64):
        # One pass over memory instead of seven; exporters do not know complex numbers.
        turned = torch.view_as_complex(pairs) * torch.view_as_complex(turn)
        return torch.view_as_real(turned).flatten(-3)
    (even, odd), (cos, sin) = pairs.unbind(-1), turn.unbind(-1)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-3)


class AxialAttention(nn.Module):
    """Multi-head attention along every line of a structured mesh, summed over the axes.

    The paper's operator attends along all axes. `share_qkv`: one W_Q, W_K, W_V for all of them, as
    the paper writes it, or one set per axis. `turn_values`: rotate the values too, our variant.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        axes: Sequence[int],
        share_qkv: bool = True,
        turn_values: bool = False,
    ) -> None:
        super().__init__()
        if width % heads or (width // heads) % 2:
            raise InputError(
                f"width must be a multiple of 2 × heads, for the rotary pairs; "
                f"got width {width} with {heads} heads"
            )
        self.heads, self.axes, self.turn_values = heads, tuple(axes), turn_values
        self.partition = WHOLE
        self.qkv = Linear(width, 3 * width * (1 if share_qkv else len(axes)), bias=False)
        # W_O of all axes side by side: the sum over axes is one matrix product.
        self.out = Linear(len(axes) * width, width, bias=False)

    def forward(self, h: Mesh, turns: Sequence[Turn]) -> Mesh:
        """Attend along each axis; `turns[k]` is the rotation R(ζ_k).

        On a slab of rows, that of axis 0 is on a slab of columns.
        """
        qkv, turns = self.qkv(h), [turns[axis] for axis in self.axes]
        if self.partition.is_whole:
            return self.out(attend(qkv, turns, self.heads, self.axes, self.turn_values))
        return self.out(self.attend_on_slab(qkv, turns))

    def attend_on_slab(self, qkv: Tensor, turns: Sequence[Turn]) -> Tensor:
        """Lines along axis 0 are whole on slabs of columns, all others on slabs of rows."""
        width = 2 * turns[0].shape[-2] * self.heads
        of_axes = qkv.split(3 * width, dim=-1)
        lines = []
        for number, (axis, turn) in enumerate(zip(self.axes, turns, strict=True)):
            one = of_axes[number % len(of_axes)]  # one for all axes, or one for each
            if axis == 0:
                one = self.partition.to_columns(one)
            line = attend(one, [turn], self.heads, [axis], self.turn_values)
            lines.append(self.partition.to_rows(line, qkv.shape[2]) if axis == 0 else line)
        return torch.cat(lines, dim=-1)


def axial_attention(
    qkv: Float[Tensor, "B *mesh projections"],
    turns: Sequence[Turn],
    heads: int,
    axes: Sequence[int] | None = None,
    turn_values: bool = False,
) -> Float[Tensor, "B *mesh axes_C"]:
    """Attention along mesh `axes`, all by default, side by side.

    `qkv` holds (q, k, v) once for all axes, or once per axis; `turns` one rotation per axis.
    """
    axes = range(len(turns)) if axes is None else axes
    width = 2 * turns[0].shape[-2] * heads
    parts = qkv.split(width, dim=-1)
    per_axis = [parts[:3]] * len(axes) if len(parts) == 3 else zip(*3 * [iter(parts)], strict=True)
    lines = []
    for axis, turn, (q, k, v) in zip(axes, turns, per_axis, strict=True):
        values = rotate(v, turn) if turn_values else v
        line = attend_along(rotate(q, turn), rotate(k, turn), values, axis + 1, heads)
        lines.append(rotate(line, turn_back(turn)) if turn_values else line)
    return torch.cat(lines, dim=-1)


def attend(qkv: Tensor, *arguments: Any) -> Tensor:
    """The same function, on CPUs in compiled loops, which are several times faster."""
    return (kernels.axial_attention if kernels.supported(qkv) else axial_attention)(qkv, *arguments)


def attend_along(q: Mesh, k: Mesh, v: Mesh, axis: int, heads: int) -> Mesh:
    """Softmax attention of every node to the nodes of its line along tensor axis `axis`."""

    def as_lines(x: Tensor) -> Tensor:
        # All lines in one batch axis: PyTorch's fused kernels take 4-D tensors only.
        x = x.movedim(axis, -2)
        return x.reshape(-1, x.shape[-2], heads, x.shape[-1] // heads).transpose(1, 2)

    attended = F.scaled_dot_product_attention(as_lines(q), as_lines(k), as_lines(v))
    lines_last = v.movedim(axis, -2).shape
    return attended.transpose(1, 2).reshape(lines_last).movedim(-2, axis)
