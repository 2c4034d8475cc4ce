"""CATO on grids and structured meshes (paper, Methodology).

Lift, learned chart, L blocks of charted axial attention with a local operator, final norm, a
solution head û and a flux head q̂ that estimates ∇u.

What the paper leaves open is a setting: MLP ratio, stencil size, chart width, sharing of the
projections between axes, rotary base and scale. The lift and the blocks use GELU. Layer norms, the
local operator and each axis of attention can be left out, for the paper's theory and the ablations.

`variant` "ours" differs from the paper in two ways (docs/decisions/0011-turned-values.md):
attention rotates the values too, and a coordinate with a period L turns pair r by (r + 1) 2π x / L,
which closes over the seam as a chart onto an interval cannot.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn import functional as F

from cato.config import Axes, Count, Positive, Ratio
from cato.errors import InputError
from cato.kernels.depthwise import DepthwiseConv2d
from cato.models.cato.attention import AxialAttention, Turn, frequencies, rotation
from cato.models.cato.chart import Chart, ChartKind
from cato.models.contract import Nodes, Operator, Prediction
from cato.models.layers.frames import PointConfig
from cato.models.layers.nodewise import MLP, Linear, hidden_width, time_embedding
from cato.models.shapes import Coords, Mesh, Shape
from cato.partition import WHOLE, Partition
from cato.problem import Problem

_CONVOLUTIONS: dict[int, Any] = {1: nn.Conv1d, 2: DepthwiseConv2d, 3: nn.Conv3d}


@dataclass(frozen=True)
class CatoConfig(PointConfig):
    """Settings of CATO."""

    variant: Literal["paper", "ours"] = "paper"
    """The published block, or ours: values are rotated too, and periodic coordinates turn by their
    phase."""
    heads: Count = 4  # Attention heads M; width must be a multiple of twice this.
    mlp_ratio: Ratio = 2.0  # Hidden width of the block's MLP, in units of the width.
    kernel: Annotated[int, Ge(0)] = 3
    """Nodes k along each axis of the local operator's stencil; odd, or 0 for no local operator."""
    norm: bool = True  # Layer norms; identities otherwise, as in the paper's theory.
    axes: Axes = ()  # Mesh axes to attend along: 0 columns, 1 rows. Default: all.
    chart: ChartKind = "learned"
    """Coordinates in which attention measures distance: learned, or others for ablation."""
    chart_hidden: Count = 64  # Hidden width of the learned chart.
    share_qkv: bool = True  # One set of query, key and value projections for all axes.
    rotary_base: Positive = 100.0  # Base θ of the rotary frequencies.
    rotary_scale: Positive = 10.0
    """Turn of the fastest rotary pair, in radians per unit of chart coordinate."""
    learn_rotary_scale: bool = False  # Train the rotary scale, starting from `rotary_scale`.


class LocalOperator(nn.Module):
    """L(h) = PWConv(GELU(DWConv(h))): a learned stencil of k nodes along every mesh axis.

    Periodic axes wrap; the others see zeros beyond the boundary.
    """

    def __init__(self, width: int, kernel: int, periodic: Sequence[bool]) -> None:
        super().__init__()
        reach = kernel // 2
        padding = tuple(0 if wraps else reach for wraps in periodic)
        convolution = _CONVOLUTIONS[len(periodic)]
        self.depthwise = convolution(width, width, kernel, padding=padding, groups=width)
        self.pointwise = Linear(width, width)
        self.reach, self.rows_wrap, self.partition = reach, periodic[0], WHOLE
        self.wrapped = [axis for axis, wraps in enumerate(periodic, start=1) if wraps]

    def spread_over(self, partition: Partition) -> None:
        """Take the rows beyond a slab from its neighbours instead of padding."""
        self.partition = partition
        self.depthwise.padding = (0, *self.depthwise.padding[1:])
        self.wrapped = [axis for axis in self.wrapped if axis != 1]

    def with_halo(self, h: Mesh) -> Tensor:
        """A slab with the rows around it; zeros beyond the boundary."""
        before, after = self.partition.halo(h, self.reach, self.rows_wrap)
        missing = [self.reach - rows.shape[1] for rows in (before, after)]
        return F.pad(torch.cat((before, h, after), 1), (*[0, 0] * (h.ndim - 2), *missing))

    def with_ends(self, h: Tensor) -> Tensor:
        """Periodic axes continued on both sides; `F.pad` would move the channels to the front."""
        for axis in self.wrapped:
            last = h.narrow(axis, h.shape[axis] - self.reach, self.reach)
            h = torch.cat((last, h, h.narrow(axis, 0, self.reach)), axis)
        return h

    def forward(self, h: Mesh) -> Mesh:
        surrounded = self.with_ends(h if self.partition.is_whole else self.with_halo(h))
        # A channels-last view: the convolution takes it without a copy.
        mixed = self.depthwise(surrounded.movedim(-1, 1))
        return self.pointwise(F.gelu(mixed).movedim(1, -1))


class CatoBlock(nn.Module):
    """One layer of CATO (paper, "Charted Axial Transformer Operator Block").

    H̃       = H + A(LN(H), ζ) + L(LN(H))
    H^(ℓ+1) = H̃ + MLP(LN(H̃))

    The norms are identities in the paper's theory; `local` None omits L.
    """

    def __init__(
        self,
        norms: tuple[nn.Module, nn.Module],
        attention: AxialAttention,
        local: LocalOperator | None,
        mlp: MLP,
    ) -> None:
        super().__init__()
        self.norm_attention, self.norm_mlp = norms
        self.attention = attention
        self.local = local
        self.mlp = mlp

    def forward(self, h: Mesh, turns: Sequence[Turn]) -> Mesh:
        normed = self.norm_attention(h)
        h = h + self.attention(normed, turns) + (self.local(normed) if self.local else 0)
        return h + self.mlp(self.norm_mlp(h))


class Cato(Operator, config=CatoConfig):
    """Charted Axial Transformer Operator."""

    title, family = "CATO", "charted attention"
    reference = "CATO: Charted Attention for Neural PDE Operators"
    geometries: ClassVar = ("grid", "mesh")
    why_not_cloud: ClassVar = "its attention runs along the axes of a mesh"
    blocks: nn.ModuleList
    chart: Chart
    flux_head: nn.Linear
    omega: Tensor

    def __init__(self, config: CatoConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        if config.kernel and config.kernel % 2 == 0:
            raise InputError(f"kernel must be odd, so that it has a centre; got {config.kernel}")
        width, axes = config.width, config.axes or tuple(range(len(problem.shape)))
        if not set(axes) <= set(range(len(problem.shape))) or len(set(axes)) < len(axes):
            raise InputError(
                f"axes must be different axes of the mesh, 0 to {len(problem.shape) - 1}; "
                f"got {', '.join(map(str, axes))}"
            )
        norm = partial(nn.LayerNorm, width) if config.norm else nn.Identity
        self.lift = MLP(problem.dimension + problem.num_inputs, width, width)
        self.time = time_embedding(width, problem)
        self.chart = Chart(problem.dimension, config.chart, config.chart_hidden)
        self.chart_kind = None if config.chart == "none" else config.chart
        self.is_ours = config.variant == "ours"
        self.blocks = nn.ModuleList(
            CatoBlock(
                (norm(), norm()),
                AxialAttention(width, config.heads, axes, config.share_qkv, self.is_ours),
                LocalOperator(width, config.kernel, problem.periodic) if config.kernel else None,
                MLP(width, hidden_width(width, config.mlp_ratio), width),
            )
            for _ in range(config.depth)
        )
        self.norm = norm()
        self.solution_head = Linear(width, problem.num_outputs)
        self.flux_head = Linear(width, problem.num_outputs * problem.dimension)
        omega = frequencies(width // config.heads, config.rotary_base)
        self.register_buffer("omega", omega, persistent=False)
        scale = torch.tensor(config.rotary_scale)
        if config.learn_rotary_scale:
            self.rotary_scale = nn.Parameter(scale)
        else:
            self.register_buffer("rotary_scale", scale, persistent=False)

    def spread_over(self, partition: Partition) -> None:
        """Compute on the slab of a partition from now on."""
        if self.config.chart == "normalised":
            raise InputError(
                "the chart 'normalised' needs the bounding box of the whole mesh, which a process "
                "with a part of it does not have; use --model.chart learned"
            )
        self.partition = partition
        for module in self.modules():
            if isinstance(module, AxialAttention):
                module.partition = partition
            elif isinstance(module, LocalOperator):
                module.spread_over(partition)

    def operate(self, nodes: Nodes) -> Prediction:
        # The residual stream and the outputs stay in float32 inside autocast.
        h = self.lift(nodes.joined).to(nodes.joined.dtype)
        if self.time is not None:
            h = h + self.time(nodes.time)[:, None]
        h = h.unflatten(1, nodes.shape)
        turns = self.rotations(nodes.coords, nodes.shape)
        for block in self.blocks:
            h = block(h, turns)
        with torch.autocast(h.device.type, enabled=False):
            h = self.norm(h.flatten(1, -2))
            values, flux = self.solution_head(h), self.flux_head(h)
        flux = flux.unflatten(-1, (self.problem.num_outputs, self.problem.dimension))
        return Prediction(values, flux)

    def rotations(self, coords: Coords, shape: Shape) -> list[Turn]:
        """R(ζ_k) for every mesh axis k; the same for all blocks."""
        chart = self.chart(coords).unflatten(1, shape)
        turns = [rotation(zeta, self.rotary_scale * self.omega) for zeta in chart.unbind(-1)]
        if self.is_ours:
            whole = torch.arange(1, len(self.omega) + 1).to(coords)
            for k, period in enumerate(self.problem.period):
                if period is not None:
                    phase = 2 * torch.pi / period * coords[..., k]
                    turns[k] = rotation(phase.unflatten(1, shape), whole)
        return [self.partition.to_columns(turns[0]), *turns[1:]]
