"""Positions and times as networks see them."""

from math import log

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.errors import InputError
from cato.models.layers.mlp import MLP
from cato.models.shapes import Coords, Mask, Times
from cato.problem import Problem

_NUM_FREQUENCIES = 16
_TINY = 1e-6
"""Least extent of a domain."""


class TimeEmbedding(nn.Module):
    """Sinusoidal embedding of t ∈ [0, 1], then Linear–SiLU–Linear to the model's width.

    The frequencies run geometrically from half a turn to 10 turns over the whole time span: enough
    to tell the twenty frames of the paper's benchmark apart, and smooth between them.
    """

    frequency: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        frequency = torch.pi * torch.exp(torch.linspace(0, log(20), _NUM_FREQUENCIES))
        self.register_buffer("frequency", frequency, persistent=False)
        self.mlp = MLP(2 * _NUM_FREQUENCIES, width, width, F.silu)

    def forward(self, time: Times) -> Float[Tensor, "B width"]:
        if time is None:
            raise InputError(
                "this problem is conditioned on time: pass time=, one t in [0, 1] per sample"
            )
        angle = time[:, None] * self.frequency
        return self.mlp(torch.cat((angle.sin(), angle.cos()), dim=-1))


def time_embedding(width: int, problem: Problem) -> TimeEmbedding | None:
    """The embedding for time-conditioned problems, None for others."""
    return TimeEmbedding(width) if problem.has_time else None


class ReferenceGrid(nn.Module):
    """Distances of a point to the nodes of a uniform grid on the unit square, cube or interval.

    Args:
        size: Nodes along each side of the grid; 0 for the coordinates themselves.
        dimension: Number D of coordinates.

    Attributes:
        num_features: Number of distances, or of coordinates.
    """

    nodes: Tensor

    def __init__(self, size: int, dimension: int) -> None:
        super().__init__()
        self.size, self.num_features = size, size**dimension if size else dimension
        if size:
            ticks = torch.linspace(0, 1, size)
            nodes = torch.cartesian_prod(*[ticks] * dimension).view(-1, dimension)
            self.register_buffer("nodes", nodes, persistent=False)

    def forward(self, coords: Coords) -> Float[Tensor, "B N F"]:
        if not self.size:
            return coords
        return torch.linalg.vector_norm(coords[:, :, None] - self.nodes, dim=-1)


def unit_box(coords: Coords, mask: Mask = None) -> Coords:
    """Nodes scaled to [0, 1]ᴰ by the bounding box of their sample, padding excluded.

    Each coordinate has its own scale: a pipe ten times as long as wide becomes a square.
    """
    low = high = coords
    if mask is not None:
        low = coords.masked_fill(~mask[..., None], torch.inf)
        high = coords.masked_fill(~mask[..., None], -torch.inf)
    low, high = low.amin(1, keepdim=True), high.amax(1, keepdim=True)
    return (coords - low) / (high - low).clamp_min(_TINY)
