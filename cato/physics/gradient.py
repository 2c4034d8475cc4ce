"""Mesh-consistent gradient of nodal fields on structured meshes (paper, section "Physical Loss").

Along every mesh axis k, the difference Δ_k u of a field and the difference Δ_k x of the node
positions are tied by the gradient:

    Δ_k u ≈ Δ_k x · ∇u,        k = 1 … D,

one D × D linear system per node, on a mesh with as many axes as coordinates. Its matrix, with rows
Δ_k x, depends on the mesh alone: `inverse_metric` inverts it once and checks the mesh, and
`gradient` is then a few tensor operations. Linear fields are exact on any mesh, smooth fields on
smooth meshes second order up to and including the boundary.

Differences are centred as in the paper, u_{i+1} − u_{i−1}. What the paper leaves open:

- at a boundary, twice the second-order one-sided difference, −3u_0 + 4u_1 − u_2, keeps all nodes;
- periodic axes wrap. Where a coordinate repeats after a length L, every edge is taken to the
  nearest image, e − L·round(e/L), and Δ_k x is the sum of two edges. Taking the image of Δ_k x
  itself would be wrong on an axis of 3 or 4 nodes, where it spans half a period;
- a folded or collapsed mesh, where the system is singular, is an error.
"""

from functools import reduce
from itertools import permutations, product
from math import prod
from operator import add, mul

import torch
from jaxtyping import Float
from torch import Tensor

from cato.errors import InputError
from cato.kernels.neighbours import wrap
from cato.partition import WHOLE, Partition
from cato.problem import MIN_NODES

SMALLEST_SINE = 1e-6
"""Mesh directions count as parallel when det / (product of lengths) is below this. It measures
angles only, so thin cells of any aspect ratio pass."""

NODES_PER_CHUNK = 2**16  # Nodes that `inverse_metric` handles at once, to bound its memory.


def gradient(
    u: Float[Tensor, "B N C"],
    metric: Float[Tensor, "#B N D D"],
    shape: tuple[int, ...],
    periodic: tuple[bool, ...],
    partition: Partition = WHOLE,
) -> Float[Tensor, "B N C D"]:
    """The gradient of every channel at every node; differentiable in u.

    Args:
        u: Nodal values, the nodes in row-major order of `shape`.
        metric: From `inverse_metric`, one per sample or one for all.
        shape: Nodes along each mesh axis, of the whole mesh.
        periodic: Which mesh axes close on themselves.
        partition: What part of the nodes `u` and `metric` are.
    """
    field = u.unflatten(1, partition.shape(shape))
    deltas = [
        _central(_edges(field, axis, wraps), axis, wraps)
        if axis > 1 or partition.is_whole
        else _over_slabs(field, wraps, partition)
        for axis, wraps in enumerate(periodic, start=1)
    ]
    deltas = [delta.flatten(1, len(shape)) for delta in deltas]
    # Written out rather than as a matrix product, which is slow for a million 2 × 2 matrices.
    rows = metric.unsqueeze(-1).unbind(2)
    partials = [reduce(add, map(mul, row.unbind(2), deltas)) for row in rows]
    return torch.stack(partials, -1)


@torch.no_grad()
def inverse_metric(
    coords: Float[Tensor, "*S N D"],
    shape: tuple[int, ...],
    periodic: tuple[bool, ...],
    period: tuple[float | None, ...],
    first: int = 0,
) -> Float[Tensor, "M N D D"]:
    """The inverse, at every node, of the matrix with rows Δ_k x: ∇u = inverse · (Δ_1 u, …, Δ_D u).

    Computed in float64 on the CPU, returned in the precision and on the device of `coords`.

    Args:
        coords: Node positions of one mesh for all samples (N, D), which gives M = 1, or of one mesh
            per sample (M, N, D).
        shape, periodic: As for `gradient`.
        period: For each coordinate, the length after which it repeats, or None.
        first: Number of the first sample, for messages.

    Raises:
        InputError: A mesh is folded, collapsed or not finite; names the sample and the node.
    """
    num_nodes, dimension = coords.shape[-2:]
    if len(shape) != dimension or prod(shape) != num_nodes or min(shape) < MIN_NODES:
        raise InputError(
            f"a mesh gradient needs one axis per coordinate and {MIN_NODES} nodes or more along "
            f"each; got shape {shape} for {num_nodes} nodes with {dimension} coordinates"
        )
    meshes = coords.reshape(-1, num_nodes, dimension)
    numbers = range(first, first + len(meshes))
    names = [f"mesh of sample {s}" for s in numbers] if coords.ndim > 2 else ["the mesh"]
    inverses = torch.empty(*meshes.shape, dimension, dtype=coords.dtype, device=coords.device)
    step = max(1, NODES_PER_CHUNK // num_nodes)
    for start in range(0, len(meshes), step):
        chunk = slice(start, start + step)
        x = meshes[chunk].to("cpu", torch.float64).unflatten(1, shape)
        rounding = 2 * torch.finfo(coords.dtype).eps * x.abs()
        deltas = _checked_differences(x, rounding, periodic, period, names[chunk])
        inverses[chunk] = _inverse(deltas).flatten(1, len(shape)).to(coords)
    return inverses


def _edges(field: Tensor, axis: int, wraps: bool) -> Tensor:
    """u_{i+1} − u_i between neighbours along an axis, the wrapping edge last."""
    closed = torch.cat([field, field.narrow(axis, 0, 1)], axis) if wraps else field
    return closed.diff(dim=axis)


def _central(edges: Tensor, axis: int, wraps: bool) -> Tensor:
    """Δ at every node: the sum of the edges before and after it.

    At a boundary the missing edge is extrapolated, e_{−1} = 2e_0 − e_1, so that
    Δ_0 = 3e_0 − e_1 = −3u_0 + 4u_1 − u_2.
    """
    first, last = edges.narrow(axis, 0, 1), edges.narrow(axis, -1, 1)
    if wraps:
        extended = torch.cat([last, edges], axis)
    else:
        before = 2 * first - edges.narrow(axis, 1, 1)
        after = 2 * last - edges.narrow(axis, -2, 1)
        extended = torch.cat([before, edges, after], axis)
    num_nodes = extended.shape[axis] - 1
    return extended.narrow(axis, 0, num_nodes) + extended.narrow(axis, 1, num_nodes)


def _over_slabs(field: Tensor, wraps: bool, partition: Partition) -> Tensor:
    """Δ along the first mesh axis of a slab of rows.

    Two rows on either side are enough for all three of a one-sided difference, even if a slab is
    one row. Where they end within the mesh, the one-sided differences at their ends are dropped.
    """
    before, after = partition.halo(field, 2, wraps)
    wide = torch.cat([before, field, after], 1)
    central = _central(_edges(wide, 1, False), 1, False)
    return central.narrow(1, before.shape[1], field.shape[1])


def _inverse(deltas: list[Tensor]) -> Tensor:
    """Inverse of the matrices with rows Δ_k x."""
    if len(deltas) == 1:
        return 1 / deltas[0].unsqueeze(-1)
    if len(deltas) == 2:
        (a, b), (c, d) = (delta.unbind(-1) for delta in deltas)
        adjugate = torch.stack([torch.stack([d, -b], -1), torch.stack([-c, a], -1)], -2)
        return adjugate / (a * d - b * c)[..., None, None]
    return torch.linalg.inv(torch.stack(deltas, -2))


def _checked_differences(
    x: Float[Tensor, "S *shape D"],
    rounding: Float[Tensor, "S *shape D"],
    periodic: tuple[bool, ...],
    period: tuple[float | None, ...],
    names: list[str],
) -> list[Float[Tensor, "S *shape D"]]:
    """Δ_k x along every axis of meshes that are neither folded nor collapsed.

    At every node, each choice of one neighbour per axis spans a corner of a cell. All corners must
    turn the same way as most of their mesh. The determinant of centred differences is the sum of
    its corner determinants, hence safe; the one-sided ones are checked separately.
    """
    _reject(~x.isfinite().all(-1), "a coordinate is not finite", periodic, names)
    deltas, neighbours = [], []
    for axis, wraps in enumerate(periodic, start=1):
        components = zip(_edges(x, axis, wraps).unbind(-1), period, strict=True)
        edges = torch.stack([wrap(edge, length) for edge, length in components], -1)
        first, last = edges.narrow(axis, 0, 1), edges.narrow(axis, -1, 1)
        # At a boundary the only neighbour stands for both.
        backward = torch.cat([last if wraps else first, edges], axis).narrow(axis, 0, x.shape[axis])
        forward = edges if wraps else torch.cat([edges, last], axis)
        neighbours.append((backward, forward))
        deltas.append(_central(edges, axis, wraps))
    turns = torch.stack([_turn(corner, rounding) for corner in product(*neighbours)], 1)
    orientation = torch.where(turns.flatten(1).sum(1) < 0, -1, 1).view(-1, 1, *[1] * len(periodic))
    collapsed, folded = (turns == 0).sum(1), (turns == -orientation).sum(1)
    _reject(folded, "a cell is folded over: it turns against most of the mesh", periodic, names)
    _reject(collapsed, "neighbouring nodes coincide or a cell has collapsed", periodic, names)
    singular = _turn(tuple(deltas), rounding) != orientation.squeeze(1)
    what = "the one-sided difference is singular: the spacing triples, or the mesh line turns back"
    _reject(singular, what, periodic, names)
    return deltas


def _turn(vectors: tuple[Tensor, ...], rounding: Tensor) -> Tensor:
    """Sign of the determinant of D vectors, 0 if small against their lengths or the rounding."""
    sizes = [vector.abs() for vector in vectors]
    noise = _permanent([size + rounding for size in sizes]) - _permanent(sizes)
    volume = _determinant(vectors)
    lengths = prod(vector.norm(dim=-1) for vector in vectors)
    spans = volume.abs() > SMALLEST_SINE * lengths + noise
    return torch.where(spans, volume.sign(), 0).to(torch.int8)


def _determinant(vectors: tuple[Tensor, ...]) -> Tensor:
    if len(vectors) == 1:
        return vectors[0].squeeze(-1)
    if len(vectors) == 2:
        (a, b), (c, d) = (vector.unbind(-1) for vector in vectors)
        return a * d - b * c
    return (vectors[0] * torch.linalg.cross(vectors[1], vectors[2])).sum(-1)


def _permanent(vectors: list[Tensor]) -> Tensor:
    """The determinant with all its signs +."""
    orders = permutations(range(len(vectors)))
    terms = [prod(v[..., d] for v, d in zip(vectors, order, strict=True)) for order in orders]
    return torch.stack(terms).sum(0)  # type: ignore[arg-type]


def _reject(bad: Tensor, what: str, periodic: tuple[bool, ...], names: list[str]) -> None:
    """Raise for the node with most faults in the first mesh that has any."""
    if not bad.any():
        return
    sample = int(bad.flatten(1).any(1).nonzero()[0])
    faults = bad[sample]
    node = tuple(int(i) for i in torch.unravel_index(faults.int().argmax(), faults.shape))
    message = f"{names[sample]}, node {node}: {what}, so no gradient exists there"
    num_faulty = int((faults > 0).sum())
    if num_faulty > 1:
        message += f" (and at {num_faulty - 1} more of {faults.numel()} nodes)"
    message += "; fix the mesh, or train without the gradient terms of the loss"
    seam = [k for k, wraps in enumerate(periodic) if wraps and node[k] in (0, faults.shape[k] - 1)]
    if seam:
        message += (
            f". Axis {seam[0]} is periodic: its first node must not be repeated at its end, and a "
            f"coordinate that repeats along it needs a period"
        )
    raise InputError(message)
