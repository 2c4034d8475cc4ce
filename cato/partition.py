"""A structured mesh spread over processes: each owns a slab of rows.

A row is the nodes of one index along mesh axis 0. What a node computes by itself needs no
communication; what it computes from others has three forms:

- lines along axis 0: an all-to-all turns slabs of rows into slabs of columns, indices along axis 1,
  and back (`to_columns`, `to_rows`);
- neighbours: the rows next to a slab are copied from their owners (`halo`);
- sums over the mesh: every process gets the parts of all (`total`, `largest`, `norm`).

Every process computes the same loss from its slab and those sums. Differentiated there, it gives
the derivative by what that process contributes: the gradient of a weight is the sum over the
processes. Hence an exchange sends gradients back to where the values came from, and a sum passes
them on to its own part only.

With one process everything here is the identity.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from cato.errors import InputError

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Partition:
    """The slab of this process, number `rank` of the `size` processes of `group`."""

    num_rows: int = 0  # Of the whole mesh; not used by one process.
    rank: int = 0
    size: int = 1
    group: Any = None

    @property
    def is_whole(self) -> bool:
        """Whether this process has the whole mesh."""
        return self.size == 1

    # -- who owns what ----------------------------------------------------------------------

    def share(self, rank: int, count: int) -> range:
        """The rows or columns of a process, out of `count`; sizes differ by one at most."""
        return range(rank * count // self.size, (rank + 1) * count // self.size)

    @property
    def rows(self) -> range:
        """The rows of this process."""
        return self.share(self.rank, self.num_rows)

    def shape(self, shape: Shape) -> Shape:
        """Shape of the slab of a mesh."""
        return shape if self.is_whole else (len(self.rows), *shape[1:])

    def slab(self, nodes: Tensor, axis: int = -2) -> Tensor:
        """The nodes of this process; `axis` counts those of the whole mesh, row-major."""
        if self.is_whole:
            return nodes
        per_row = nodes.shape[axis] // self.num_rows
        return nodes.narrow(axis, per_row * self.rows.start, per_row * len(self.rows))

    @torch.no_grad()
    def whole(self, slab: Tensor, axis: int = -2) -> Tensor:
        """The nodes of all processes."""
        if self.is_whole:
            return slab
        per_row = slab.shape[axis] // len(self.rows)
        sizes = [per_row * len(self.share(rank, self.num_rows)) for rank in range(self.size)]
        shapes = [_resized(slab, axis, size) for size in sizes]
        return torch.cat(self._exchange([slab] * self.size, shapes), axis)

    # -- lines ------------------------------------------------------------------------------

    def to_columns(self, field: Tensor) -> Tensor:
        """(B, own rows, all columns, …) → (B, all rows, own columns, …)."""
        if self.is_whole:
            return field
        columns = [self.share(rank, field.shape[2]) for rank in range(self.size)]
        parts = [field[:, :, part.start : part.stop] for part in columns]
        own = field[:, :, : len(columns[self.rank])]
        counts = [len(self.share(rank, self.num_rows)) for rank in range(self.size)]
        return torch.cat(self._exchange(parts, [_resized(own, 1, n) for n in counts]), 1)

    def to_rows(self, field: Tensor, num_columns: int) -> Tensor:
        """(B, all rows, own columns, …) → (B, own rows, all columns, …)."""
        if self.is_whole:
            return field
        parts = [
            field[:, rows.start : rows.stop]
            for rows in (self.share(rank, self.num_rows) for rank in range(self.size))
        ]
        own = parts[self.rank]
        counts = [len(self.share(rank, num_columns)) for rank in range(self.size)]
        return torch.cat(self._exchange(parts, [_resized(own, 2, n) for n in counts]), 2)

    # -- neighbours -------------------------------------------------------------------------

    def halo(self, field: Tensor, reach: int, wraps: bool) -> tuple[Tensor, Tensor]:
        """The `reach` rows before and after the own ones of (B, own rows, …).

        Fewer, down to none, at the boundary of an axis that does not wrap.
        """
        if self.is_whole or not reach:
            return field[:, :0], field[:, :0]
        parts, counts, places = self._halo_plan(reach, wraps, field.device)
        sent = [field.index_select(1, rows) for rows in parts]
        found = torch.cat(self._exchange(sent, [_resized(field, 1, n) for n in counts]), 1)
        before, after = (found.index_select(1, order) for order in places)
        return before, after

    @cache  # noqa: B019 - a process has one partition or a few
    def _halo_plan(
        self, reach: int, wraps: bool, device: torch.device
    ) -> tuple[list[Tensor], list[int], list[Tensor]]:
        """Own rows to send to each process, number to get from each, and their order.

        A process sends what the other wants in the other's order, so that what arrives is ordered
        by its owner and then by place.
        """
        wanted = [self._around(rank, reach, wraps) for rank in range(self.size)]
        own = self.rows
        parts = [[row - own.start for row in b + a if row in own] for b, a in wanted]
        before, after = wanted[self.rank]
        mine = before + after
        owners = [self._owner(row) for row in mine]
        arriving = sorted(range(len(mine)), key=lambda place: owners[place])
        places = [arriving.index(place) for place in range(len(mine))]
        counts = [owners.count(rank) for rank in range(self.size)]
        orders = places[: len(before)], places[len(before) :]
        indices = partial(torch.tensor, dtype=torch.long, device=device)
        return [indices(part) for part in parts], counts, [indices(order) for order in orders]

    def _around(self, rank: int, reach: int, wraps: bool) -> tuple[list[int], list[int]]:
        """Rows before and after those of a process."""
        rows, n = self.share(rank, self.num_rows), self.num_rows
        before, after = range(rows.start - reach, rows.start), range(rows.stop, rows.stop + reach)
        if wraps:
            return [row % n for row in before], [row % n for row in after]
        return [row for row in before if row >= 0], [row for row in after if row < n]

    def _owner(self, row: int) -> int:
        return next(r for r in range(self.size) if row in self.share(r, self.num_rows))

    # -- sums over the mesh -----------------------------------------------------------------

    def total(self, part: Tensor) -> Tensor:
        """The sum of the parts of all processes."""
        return part if self.is_whole else self._all(part).sum(0)

    def largest(self, part: Tensor) -> Tensor:
        """The largest of the parts of all processes."""
        return part if self.is_whole else self._all(part).amax(0)

    def norm(self, part: Tensor) -> Tensor:
        """The Euclidean norm of vectors whose parts have these norms."""
        return part if self.is_whole else torch.linalg.vector_norm(self._all(part), dim=0)

    def _all(self, part: Tensor) -> Tensor:
        """The parts of all processes, in order; differentiable in the own one."""
        parts = [torch.empty_like(part) for _ in range(self.size)]
        dist.all_gather(parts, part.detach().contiguous(), group=self.group)
        parts[self.rank] = part
        return torch.stack(parts)

    def _exchange(self, parts: Sequence[Tensor], shapes: Sequence[Shape]) -> list[Tensor]:
        """Send part k to process k; returns what the others sent, of these shapes."""
        sizes = [torch.Size(shape).numel() for shape in shapes]
        sent = torch.cat([part.flatten() for part in parts])
        received = AllToAll.apply(sent, [part.numel() for part in parts], sizes, self.group)
        return [x.view(shape) for x, shape in zip(received.split(sizes), shapes, strict=True)]


WHOLE = Partition()


class AllToAll(torch.autograd.Function):
    """A flat tensor in pieces, one for each process; gradients take the way back."""

    @staticmethod
    def forward(ctx: Any, sent: Tensor, sizes: list[int], sizes_back: list[int], group: Any) -> Any:
        ctx.sizes, ctx.sizes_back, ctx.group = sizes, sizes_back, group
        received = sent.new_empty(sum(sizes_back))
        dist.all_to_all_single(received, sent, sizes_back, sizes, group=group)
        return received

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        back = AllToAll.apply(grad.contiguous(), ctx.sizes_back, ctx.sizes, ctx.group)
        return back, None, None, None


def require_divisible(shape: Shape, num_slabs: int) -> None:
    """Raise if a mesh cannot be spread over that many processes."""
    if len(shape) < 2:
        raise InputError(
            f"a mesh of one axis has no rows and columns to spread over {num_slabs} processes; "
            f"leave out --train.mesh-parallel"
        )
    if min(shape[:2]) < num_slabs:
        raise InputError(
            f"a mesh of {' × '.join(map(str, shape))} nodes has fewer rows or columns than "
            f"{num_slabs} processes; use --train.mesh-parallel {min(shape[:2])} or less"
        )


def _resized(like: Tensor, axis: int, size: int) -> Shape:
    shape = list(like.shape)
    shape[axis] = size
    return tuple(shape)
