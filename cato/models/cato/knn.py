"""Nearest neighbours in point clouds: the search and the gather along its result.

The search compares all pairs, a block of query points at a time, so its memory does not grow with
N². Distances are summed from coordinate differences and not from ‖x‖² + ‖y‖² − 2xᵀy: the latter
loses the small distances to rounding, and altogether under bf16 autocast.

Among points at exactly the same distance the choice depends on their order.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

_MAX_PAIRS = 2**22
"""Pairs of points whose distances are held at a time."""


def wrap(difference: Tensor, period: float | None) -> Tensor:
    """The difference to the nearest image of a coordinate that repeats after `period`."""
    if period is None:
        return difference
    return difference - period * torch.round(difference / period)


@torch.no_grad()
def nearest_neighbours(
    coords: Float[Tensor, "B N D"],
    num_neighbours: int,
    period: Sequence[float | None],
    mask: Bool[Tensor, "B N"] | None = None,
) -> tuple[Int[Tensor, "B N K"], Bool[Tensor, "B N K"]]:
    """The K = min(`num_neighbours`, N) points nearest to each point, itself first.

    A point counts as its own neighbour, so that no neighbourhood is empty, however small the cloud.

    Args:
        coords: Node positions.
        num_neighbours: How many to look for.
        period: For each coordinate, the length after which it repeats, or None.
        mask: False marks padding, which is nobody's neighbour but its own.

    Returns:
        Indices of the neighbours, and where there was none because the cloud has fewer points. The
        index is then the point's own.
    """
    batch, num_points, _ = coords.shape
    rows = max(1, _MAX_PAIRS // (batch * num_points))
    num_neighbours = min(num_neighbours, num_points)
    nearest, far = [], []
    start = 0
    while start < num_points:  # a range would make torch.compile specialise on the number of points
        squared = _squared_distances(coords[:, start : start + rows], coords, period)
        if mask is not None:
            squared.masked_fill_(~mask[:, None], torch.inf)
        squared.diagonal(start, dim1=1, dim2=2).fill_(-1)  # first even among coincident points
        distance, index = squared.topk(num_neighbours, largest=False)
        nearest.append(index)
        far.append(distance.isinf())
        start += rows
    index, absent = torch.cat(nearest, dim=1), torch.cat(far, dim=1)
    return torch.where(absent, index[..., :1], index), absent


def _squared_distances(
    queries: Float[Tensor, "B Q D"], points: Float[Tensor, "B N D"], period: Sequence[float | None]
) -> Float[Tensor, "B Q N"]:
    squared = queries.new_zeros(len(queries), queries.shape[1], points.shape[1])
    for x, y, length in zip(queries.unbind(-1), points.unbind(-1), period, strict=True):
        difference = wrap(x[:, :, None] - y[:, None], length)
        squared.addcmul_(difference, difference)
    return squared


def gather_neighbours(
    values: Float[Tensor, "B N C"], index: Int[Tensor, "B N K"]
) -> Float[Tensor, "B N K C"]:
    """The rows of `values` at the neighbours of each point.

    Rows of the whole batch are selected at once: both this and its gradient move contiguous rows,
    which is ten times faster on a CPU than `torch.gather`.
    """
    batch, num_points, _ = values.shape
    first = num_points * torch.arange(batch, device=index.device)
    rows = values.flatten(0, 1).index_select(0, (index + first[:, None, None]).flatten())
    return rows.unflatten(0, index.shape)
