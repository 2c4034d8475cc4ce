"""Nearest neighbours in point clouds: the search and the gather along its result.

The search compares all pairs, a block of query points at a time, so its memory does not grow with
N². Distances are summed from coordinate differences and not from ‖x‖² + ‖y‖² − 2xᵀy: the latter
loses the small distances to rounding, and altogether under bf16 autocast.

Clouds from meshes have many points at the same distance. Among those the first in the cloud is the
nearest, and distances take no operation that processors round differently (no fused multiply-add):
so every runtime finds the same neighbours, and an exported file those of its model.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

_MAX_PAIRS = 2**20  # Pairs of points whose distances are held at a time.
_STEP = 2.0**-50
"""How much farther the next point of the cloud is taken to be, relatively: four times what double
precision resolves, and for 2²⁴ points still less than float32 does."""


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
    `period` is the length after which each coordinate repeats, or None. Padding, marked by False in
    the mask, is a neighbour of itself only.

    Returns:
        Indices of the neighbours, and where there was none because the cloud has fewer points. The
        index is then the point's own.
    """
    batch, num_points, _ = coords.shape
    num_neighbours = min(num_neighbours, num_points)
    exporting = torch.compiler.is_exporting()
    # Pieces would fix the number of points in an exported file.
    rows = num_points if exporting else max(1, _MAX_PAIRS // (batch * num_points))
    nearest, far = [], []
    start = 0
    while start < num_points:  # a range would make torch.compile specialise on the number of points
        distance = _distances(coords, start, rows, period, mask)
        if coords.device.type == "cpu" and not exporting:
            # Bits order as the numbers do, and are sorted faster: there is no NaN among integers.
            bits, index = distance.view(torch.int64).topk(num_neighbours, largest=False)
            distance = bits.view(distance.dtype)
        else:
            distance, index = distance.topk(num_neighbours, largest=False)
        nearest.append(index)
        far.append(distance == torch.inf)
        start += rows
    index, absent = torch.cat(nearest, dim=1), torch.cat(far, dim=1)
    return torch.where(absent, index[..., :1], index), absent


def _distances(
    coords: Float[Tensor, "B N D"],
    start: int,
    rows: int,
    period: Sequence[float | None],
    mask: Bool[Tensor, "B N"] | None,
) -> Float[Tensor, "B Q N"]:
    """Squared distances of Q = `rows` points from all: no two of a row equal, own ones negative."""
    columns = coords.mT.contiguous()
    queries = columns[..., start : start + rows]
    squared = coords.new_full((), torch.finfo(coords.dtype).tiny)  # coincident points differ, too
    for x, y, length in zip(queries.unbind(1), columns.unbind(1), period, strict=True):
        difference = wrap(x[:, :, None] - y[:, None], length)
        squared = difference.mul_(difference).add_(squared)
    if mask is not None:
        squared.masked_fill_(~mask[:, None], torch.inf)
    # Doubles have room for the order of the points; MPS has none, ties there fall as they may.
    precision = torch.float32 if coords.device.type == "mps" else torch.float64
    number = torch.arange(coords.shape[1], device=coords.device)
    order = 1 + _STEP * number.to(precision)
    order = torch.where(number[start : start + rows, None] == number, -1.0, order)
    return squared.to(precision).mul_(order)


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
