"""The CATO block (paper, "Charted Axial Transformer Operator Block").

H̃       = H + A(LN(H), ζ) + L(LN(H))
H^(ℓ+1) = H̃ + MLP(LN(H̃))
"""

from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.nn import functional as F

from cato.models.cato.attention import AxialAttention, Turn
from cato.models.layers.nodewise import MLP
from cato.models.shapes import Mesh

_CONVOLUTIONS: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


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
        self.pointwise = nn.Linear(width, width)
        # F.pad counts axes from the last to the first, two numbers each.
        self.wrap = [n for wraps in reversed(periodic) for n in 2 * [reach if wraps else 0]]

    def forward(self, h: Mesh) -> Mesh:
        h = h.movedim(-1, 1)  # a channels-last view: the convolution takes it without a copy
        if any(self.wrap):
            h = F.pad(h, self.wrap, mode="circular")
        return self.pointwise(F.gelu(self.depthwise(h)).movedim(1, -1))


class CatoBlock(nn.Module):
    """One layer of CATO; the norms are identities in the paper's theory, `local` None omits L."""

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
