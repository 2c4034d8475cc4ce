"""The learned geometry chart (paper, "Learnable geometry chart").

    ζ = Φ_chart(x) = tanh(V₂ SiLU(V₁ x + c₁) + c₂) ∈ [−1, 1]^D

The chart places every node in a latent coordinate system in which attention measures distance.
Component ζ_k serves the attention along mesh axis k, so that on an undeformed mesh, where
coordinate k varies along axis k, the raw and normalised charts are meaningful too.
"""

from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

from cato.models.layers.nodewise import Linear, unit_box
from cato.models.shapes import Coords, Mask

ChartKind = Literal["learned", "normalised", "raw", "none"]


class Chart(nn.Module):
    """Maps D physical coordinates to as many chart coordinates.

    Kinds: `learned`, the paper's; `normalised`, each sample's bounding box scaled to [−1, 1]^D;
    `raw`, the coordinates as they are; `none`, every node at 0, so that attention ignores
    positions. All but the first are for ablation.
    """

    def __init__(self, dimension: int, kind: ChartKind = "learned", hidden: int = 64) -> None:
        super().__init__()
        self.kind = kind
        if kind == "learned":
            self.hidden = Linear(dimension, hidden)
            self.out = Linear(hidden, dimension)

    def forward(self, x: Coords, mask: Mask = None) -> Coords:
        """Chart coordinates ζ of the nodes; points outside the mask leave the box unchanged."""
        if self.kind == "learned":
            with torch.autocast(x.device.type, enabled=False):  # positions need all their digits
                return torch.tanh(self.out(F.silu(self.hidden(x))))
        if self.kind == "raw":
            return x
        if self.kind == "none":
            return torch.zeros_like(x)
        return 2 * unit_box(x, mask) - 1  # a coordinate that all points share is −1
