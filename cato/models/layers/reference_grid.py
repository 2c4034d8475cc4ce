"""Positions told by distances to fixed places (Transolver and its descendants)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class ReferenceGrid(nn.Module):
    """Distances of a point to the nodes of a uniform grid on the unit square, cube or interval.

    Args:
        size: Nodes along each side of the grid.
        dimension: Number D of coordinates.
    """

    nodes: Tensor

    def __init__(self, size: int, dimension: int) -> None:
        super().__init__()
        ticks = torch.linspace(0, 1, size)
        nodes = torch.cartesian_prod(*[ticks] * dimension).view(-1, dimension)
        self.register_buffer("nodes", nodes, persistent=False)

    def forward(self, coords: Float[Tensor, "B N D"]) -> Float[Tensor, "B N R"]:
        """Distances to the R = sizeᴰ nodes."""
        return torch.linalg.vector_norm(coords[:, :, None] - self.nodes, dim=-1)
