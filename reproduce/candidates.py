"""Candidates for a better block of CATO that the screen of the recipe tries.

Each changes the block in one place and is measured by `make study-recipe-screen`. A winner moves
into `cato.models.cato` as a setting marked as ours; the others stay here, so that what was tried
can be tried again.

gate        attention results are multiplied by σ(W h̄) before W_O, so that a node can refuse them
filters     the stencil's result gets, along every axis, a convolution over the whole line with one
            spectrum per channel, as in spectral layers
sequential  attention along one axis after another, each with its own norm, instead of their sum
gated mlp   W₂ (GELU(W₁ h) ⊙ W₃ h), with two thirds of the hidden width: as many parameters
modulated   the time scales and shifts the outputs of all norms, besides being added to the lift
metric      the lift also sees the shape and size of the cells, Δ_k x / √|det Δx| and log |det Δx|
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cato.errors import InputError
from cato.models.cato.attention import AxialAttention, Turn, attend
from cato.models.cato.grid import Cato, CatoBlock, CatoConfig, LocalOperator
from cato.models.contract import Nodes, Prediction
from cato.models.layers.nodewise import MLP, GatedMLP, Linear
from cato.models.shapes import Coords, Mesh, Points, Shape
from cato.problem import Problem

NAME = "cato_candidate"
Structure = Literal["gate", "filters", "sequential", "gated mlp", "modulated", "metric"]
_NUM_MODES = 12  # Frequencies of a filter along each axis, as in FNO.


@dataclass(frozen=True)
class CandidateConfig(CatoConfig):
    """Settings of CATO and what is changed in its blocks."""

    structure: Structure = "gate"


class GatedAttention(AxialAttention):
    """Axial attention with a gate for every channel of every axis."""

    def __init__(self, width: int, heads: int, axes: Sequence[int], turn_values: bool) -> None:
        super().__init__(width, heads, axes, turn_values=turn_values)
        self.gate = Linear(width, len(axes) * width)

    def forward(self, h: Mesh, turns: Sequence[Turn]) -> Mesh:
        turns = [turns[axis] for axis in self.axes]
        lines = attend(self.qkv(h), turns, self.heads, self.axes, self.turn_values)
        return self.out(lines * torch.sigmoid(self.gate(h)))


class FilteredOperator(LocalOperator):
    """L(h) = PWConv(GELU(DWConv(h) + Σ_k F_k h)), F_k a filter along all of axis k.

    The filters start at zero. Axes that are not periodic are padded with zeros to twice their
    length, so that their ends do not meet.
    """

    def __init__(self, width: int, kernel: int, periodic: Sequence[bool]) -> None:
        super().__init__(width, kernel, periodic)
        self.periodic = tuple(periodic)
        self.spectra = nn.ParameterList(
            nn.Parameter(torch.zeros(_NUM_MODES, width, 2)) for _ in periodic
        )

    def forward(self, h: Mesh) -> Mesh:
        mixed = self.depthwise(self.with_ends(h).movedim(-1, 1)).movedim(1, -1)
        for axis, wraps in enumerate(self.periodic):
            mixed = mixed + self.filtered(h, axis, wraps)
        return self.pointwise(F.gelu(mixed))

    def filtered(self, h: Mesh, axis: int, wraps: bool) -> Mesh:
        """F_k h."""
        lines = h.movedim(axis + 1, -1)
        num_nodes = lines.shape[-1]
        length = num_nodes if wraps else 2 * num_nodes
        modes = torch.fft.rfft(lines, n=length)[..., :_NUM_MODES]
        spectrum = torch.view_as_complex(self.spectra[axis])[: modes.shape[-1]].T
        kept = torch.fft.irfft(modes * spectrum, n=length)[..., :num_nodes]
        return kept.movedim(-1, axis + 1)


class SequentialBlock(CatoBlock):
    """H ← H + A_k(LN_k(H)) for one axis k after another, with L next to the first."""

    def __init__(
        self, block: CatoBlock, axes: Sequence[int], width: int, heads: int, turn_values: bool
    ) -> None:
        super().__init__(
            (block.norm_attention, block.norm_mlp), block.attention, block.local, block.mlp
        )
        self.attentions = nn.ModuleList(
            AxialAttention(width, heads, (axis,), turn_values=turn_values) for axis in axes
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in axes)
        del self.attention, self.norm_attention

    def forward(self, h: Mesh, turns: Sequence[Turn]) -> Mesh:
        local = self.local
        for norm, attention in zip(self.norms, self.attentions, strict=True):
            normed = norm(h)
            h = h + attention(normed, turns) + (local(normed) if local else 0)
            local = None
        return h + self.mlp(self.norm_mlp(h))


class ModulatedNorm(nn.Module):
    """(1 + a) ⊙ LN(h) + b with (a, b) = W φ(t), which starts at zero."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.modulation = Linear(width, 2 * width)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)
        self.time: Tensor | None = None  # φ(t), set by `Candidate.operate`

    def forward(self, h: Mesh) -> Mesh:
        assert self.time is not None
        scale, shift = self.modulation(F.silu(self.time)).chunk(2, dim=-1)
        ones = (1,) * (h.ndim - 2)
        scale, shift = (x.reshape(len(x), *ones, -1) for x in (scale, shift))
        return (1 + scale) * self.norm(h) + shift


def metric_terms(coords: Coords, shape: Shape, periodic: Sequence[bool]) -> Points:
    """Shape and size of the cells at every node: D² + 1 numbers, from centred differences."""
    nodes = coords.unflatten(1, shape)
    steps = []
    for axis, wraps in enumerate(periodic, start=1):
        ahead, behind = nodes.roll(-1, axis), nodes.roll(1, axis)
        if not wraps:
            last = nodes.shape[axis] - 1
            ahead = torch.cat((ahead.narrow(axis, 0, last), nodes.narrow(axis, last, 1)), axis)
            behind = torch.cat((nodes.narrow(axis, 0, 1), behind.narrow(axis, 1, last)), axis)
        step = ahead - behind
        if wraps:  # the seam's step, which spans the whole axis, is that of its neighbours
            seam = (step.narrow(axis, 1, 1), step.narrow(axis, -2, 1))
            step = torch.cat((seam[0], step.narrow(axis, 1, step.shape[axis] - 2), seam[1]), axis)
        steps.append(step)
    jacobian = torch.stack(steps, -2).flatten(1, -3)
    area = torch.linalg.det(jacobian).abs().clamp_min(1e-12)[..., None]
    shapes = jacobian.flatten(-2) * area ** (-1 / len(shape))
    return torch.cat((shapes, area.log()), dim=-1)


class Candidate(Cato, config=CandidateConfig):
    """CATO with a changed block."""

    title = "CATO with a changed block"

    def __init__(self, config: CandidateConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        width, axes = config.width, tuple(range(len(problem.shape)))
        self.modulated: list[ModulatedNorm] = []
        if config.structure == "modulated" and self.time is None:
            raise InputError("only problems conditioned on time have norms to modulate by it")
        self.sees_metric = config.structure == "metric"
        if self.sees_metric:
            num_terms = problem.dimension**2 + 1
            self.lift = MLP(problem.dimension + problem.num_inputs + num_terms, width, width)
        for number, block in enumerate(self.blocks):
            assert isinstance(block, CatoBlock)
            match config.structure:
                case "gate":
                    block.attention = GatedAttention(width, config.heads, axes, self.is_ours)
                case "filters":
                    block.local = FilteredOperator(width, config.kernel, problem.periodic)
                case "sequential":
                    self.blocks[number] = SequentialBlock(
                        block, axes, width, config.heads, self.is_ours
                    )
                case "gated mlp":
                    hidden = round(2 / 3 * config.mlp_ratio * width)
                    block.mlp = cast(MLP, GatedMLP(width, hidden))
                case "modulated":
                    self.modulated += [ModulatedNorm(width), ModulatedNorm(width)]
                    block.norm_attention, block.norm_mlp = self.modulated[-2:]

    def operate(self, nodes: Nodes) -> Prediction:
        if self.modulated and self.time is not None:
            time = self.time(nodes.time)
            for norm in self.modulated:
                norm.time = time
        if self.sees_metric:
            metric = metric_terms(nodes.coords, nodes.shape, self.problem.periodic)
            nodes = nodes._replace(features=torch.cat((nodes.features, metric), dim=-1))
        return super().operate(nodes)
