"""Datasets that are read while they are used, because they are larger than the memory.

Samples are read in pieces, consecutive samples that are about `PIECE_BYTES` large, and the pieces
used last are kept. An epoch takes the pieces in random order, several at a time: those of a block
of `BLOCK_BYTES` are shuffled together. This order follows from seed and epoch alone, so a resumed
training takes the same samples. While a block is used, one thread reads the next.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from cato.data.arrays import array_type, require_uniform, sample_shapes
from cato.data.dataset import (
    Batch,
    Dataset,
    Indices,
    InMemory,
    epoch_generator,
    validated,
)
from cato.data.statistics import statistics_of
from cato.data.watch import Watch
from cato.memory import require_memory
from cato.problem import Problem

PIECE_BYTES = 2**21  # Read at once; a disk reads it about as fast as more.
BLOCK_BYTES = 2**26  # Shuffled together.
BLOCKS_KEPT = 3  # The one in use, the next, and what a batch still needs of the last.
SAMPLES_AT_ONCE = 64

Arrays = dict[str, np.ndarray]
Piece = dict[str, Tensor]


@runtime_checkable
class Source(Protocol):
    """Samples in a file, or a folder of files."""

    path: Path
    watch: Watch  # Notices if the files change.
    fingerprint: str  # Changes whenever the samples do.
    coords: np.ndarray | None  # The nodes (*shape, D), if all samples share them.
    is_padded: bool  # Whether samples have a mask.
    chunk: int  # Samples that the file stores together, 1 or more.

    def __len__(self) -> int: ...

    def read(self, indices: np.ndarray) -> Arrays:
        """Arrays of some samples as for `Dataset.from_arrays`, without what all share.

        `indices` ascend.
        """


@dataclass(frozen=True, eq=False)
class Streamed(Dataset):
    """A dataset that is read from its source."""

    problem: Problem
    source: Source
    indices: np.ndarray  # The samples of the source that it consists of.
    what: str  # Prefix of error messages.
    derived: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, problem: Problem, source: Source, what: str) -> "Streamed":
        """All samples of a source."""
        data = cls(problem, source, np.arange(len(source)), what)
        if source.coords is not None and problem.geometry == "grid":
            require_uniform(source.coords[None], f"{what}: coords")
        return data

    def __len__(self) -> int:
        return len(self.indices)

    @cached_property
    def shared_coords(self) -> Tensor | None:
        nodes = self.source.coords
        if nodes is None:
            return None
        flat = nodes.reshape(self.problem.num_nodes, self.problem.dimension)
        return torch.from_numpy(np.require(flat, array_type(self.problem, "coords"), ["C", "W"]))

    @property
    def is_padded(self) -> bool:
        return self.source.is_padded

    # -- pieces -----------------------------------------------------------------------------------

    @cached_property
    def sample_bytes(self) -> int:
        """Size of a sample in memory."""
        shapes = sample_shapes(self.problem)
        if self.source.coords is not None:
            del shapes["coords"]
        types = {name: np.dtype(array_type(self.problem, name)) for name in shapes}
        return sum(int(np.prod(shapes[name])) * types[name].itemsize for name in shapes) or 1

    @cached_property
    def piece(self) -> int:
        """Samples of a piece: whole chunks of the file, unless a chunk is larger than a block."""
        chunk = self.source.chunk
        if chunk * self.sample_bytes > BLOCK_BYTES:
            return max(1, BLOCK_BYTES // self.sample_bytes)
        return max(1, PIECE_BYTES // (chunk * self.sample_bytes)) * chunk

    @cached_property
    def pieces_per_block(self) -> int:
        """Pieces that are shuffled together."""
        return max(1, BLOCK_BYTES // (self.piece * self.sample_bytes))

    @property
    def lookahead(self) -> int:  # type: ignore[override]
        return self.pieces_per_block * self.piece

    @cached_property
    def _pieces(self) -> "_Cache":
        return _Cache(self._read, BLOCKS_KEPT * self.pieces_per_block)

    def _read(self, number: int) -> Piece:
        """A piece, validated as data in memory are."""
        wanted = self.indices[number * self.piece : (number + 1) * self.piece]
        ascending, places = np.unique(wanted, return_inverse=True)
        self.source.watch.require_same()
        arrays = self.source.read(ascending)
        self.source.watch.require_same()
        if not np.array_equal(ascending, wanted):
            arrays = {name: array[places] for name, array in arrays.items()}
        return validated(self.problem, arrays, f"{self.what}, from sample {ascending[0]}")

    # -- samples ----------------------------------------------------------------------------------

    def batch(self, indices: Indices) -> Batch:
        places = self._places(indices)
        numbers, rows = np.divmod(places, self.piece)
        pieces = self._pieces.read(numbers.tolist())
        samples = [(pieces[n], r) for n, r in zip(numbers.tolist(), rows.tolist(), strict=True)]
        names = samples[0][0] if samples else ()
        values = {name: torch.stack([piece[name][row] for piece, row in samples]) for name in names}
        nodes = self.shared_coords
        if nodes is not None:
            values["coords"] = nodes.expand(len(samples), *nodes.shape)
        return Batch(**values)

    def prefetch(self, indices: Indices) -> None:
        numbers = np.unique(self._places(indices) // self.piece)
        self._pieces.prefetch(numbers.tolist()[: 2 * self.pieces_per_block])

    def subset(self, indices: Indices) -> "Streamed":
        chosen = self.indices[self._places(indices)]
        return Streamed(self.problem, self.source, chosen, self.what)

    def on(self, problem: Problem) -> "Streamed":
        return Streamed(problem, self.source, self.indices, self.what, self.derived)

    def _places(self, indices: Indices) -> np.ndarray:
        if isinstance(indices, slice):
            return np.arange(len(self))[indices]
        return np.arange(len(self))[np.asarray(indices, dtype=np.int64)]

    def mean_target(self) -> Tensor:
        mean = statistics_of(self).moments["outputs by node"].filled()
        return mean.to(torch.float64 if "outputs" in self.problem.float64 else torch.float32)

    def order(self, seed: int, epoch: int) -> Tensor:
        return block_order(len(self), self.piece, self.pieces_per_block, seed, epoch)

    # -- everything at once -----------------------------------------------------------------------

    def in_memory(self) -> InMemory:
        """All samples; raises if they do not fit."""
        size = self.sample_bytes * len(self)
        require_memory(2 * size, f"{self.what}: reading all samples at once", "use fewer samples")
        nodes = self.shared_coords
        if not len(self):  # such as the test split of cross-validation
            return self._empty()
        batches = list(self.batches(SAMPLES_AT_ONCE))
        masks = [batch.mask for batch in batches if batch.mask is not None]
        return InMemory(
            self.problem,
            torch.cat([batch.coords for batch in batches]) if nodes is None else nodes,
            torch.cat([batch.inputs for batch in batches]),
            torch.cat([batch.targets for batch in batches]),
            torch.cat(masks) if masks else None,
        )

    def _empty(self) -> InMemory:
        problem, nodes = self.problem, self.shared_coords
        frames = () if problem.time == "steady" else (problem.num_steps,)

        def zeros(name: str, *shape: int) -> Tensor:
            return torch.from_numpy(np.zeros((0, *shape), array_type(problem, name)))

        return InMemory(
            problem,
            zeros("coords", problem.num_nodes, problem.dimension) if nodes is None else nodes,
            zeros("inputs", problem.num_nodes, problem.num_inputs),
            zeros("targets", *frames, problem.num_nodes, problem.num_outputs),
            torch.zeros(0, problem.num_nodes, dtype=torch.bool) if self.is_padded else None,
        )

    @property
    def coords(self) -> Tensor:  # type: ignore[override]
        nodes = self.shared_coords
        return self.in_memory().coords if nodes is None else nodes

    @property
    def inputs(self) -> Tensor:  # type: ignore[override]
        return self.in_memory().inputs

    @property
    def targets(self) -> Tensor:  # type: ignore[override]
        return self.in_memory().targets

    @property
    def mask(self) -> Tensor | None:  # type: ignore[override]
        return self.in_memory().mask if self.is_padded else None


def block_order(
    num_samples: int, piece: int, pieces_per_block: int, seed: int, epoch: int
) -> Tensor:
    """Every sample once: the pieces in random order, samples shuffled within blocks of pieces."""
    generator = epoch_generator(seed, epoch)
    pieces = torch.arange(num_samples).split(piece)
    shuffled = [pieces[k] for k in torch.randperm(len(pieces), generator=generator)]
    blocks = [
        torch.cat(shuffled[first : first + pieces_per_block])
        for first in range(0, len(shuffled), pieces_per_block)
    ]
    return torch.cat([b[torch.randperm(len(b), generator=generator)] for b in blocks])


class _Cache:
    """The pieces used last. One thread reads, also those that were asked for in advance."""

    def __init__(self, read: Callable[[int], Piece], capacity: int) -> None:
        self._read, self._capacity = read, capacity
        self._pieces: OrderedDict[int, Future[Piece]] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cato-data")

    def read(self, numbers: Iterable[int]) -> dict[int, Piece]:
        """Some pieces by number."""
        wanted = list(dict.fromkeys(numbers))
        futures = self._asked_for(wanted)
        try:
            return {number: future.result() for number, future in futures.items()}
        except BaseException:
            for number in wanted:
                self._pieces.pop(number, None)  # to be read again if they are asked for again
            raise

    def prefetch(self, numbers: Iterable[int]) -> None:
        """Begin to read."""
        self._asked_for(list(numbers))

    def _asked_for(self, numbers: list[int]) -> dict[int, Future[Piece]]:
        for number in numbers:
            if number not in self._pieces:
                self._pieces[number] = self._thread.submit(self._read, number)
            self._pieces.move_to_end(number)
        while len(self._pieces) > max(self._capacity, len(numbers)):
            self._pieces.popitem(last=False)[1].cancel()
        return {number: self._pieces[number] for number in numbers}
