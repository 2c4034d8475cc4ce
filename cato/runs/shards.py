"""Checkpoints whose tensors are sharded over processes, by `torch.distributed.checkpoint`.

Every process writes and reads its own part, so that none needs memory for the whole. The parts are
safetensors, whose headers say where they belong: nothing is pickled, and any number of processes,
of any strategy, can read what another number has written.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist
from safetensors import SafetensorError
from torch import Tensor
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from cato.errors import InputError
from cato.runs.checkpoint import Checkpoints, Kind, finish_checkpoint, sums_of


def save_shards(
    saved: Checkpoints,
    kind: Kind,
    step: int,
    tensors: Mapping[str, Tensor],
    state: dict[str, Any],
) -> None:
    """Write a checkpoint; all processes call it."""
    about = saved.folder / f"{kind}-{step:08d}.json"
    folder, rank, size = about.with_suffix(""), dist.get_rank(), dist.get_world_size()
    if rank == 0:
        shutil.rmtree(folder, ignore_errors=True)  # of a training that was killed here
    dist.barrier()
    with _as_input_error(folder, "written"):
        writer = dcp.HuggingFaceStorageWriter(str(folder), save_distributed=True)
        dcp.save(dict(tensors), storage_writer=writer)
    found: list[Any] = [None] * size  # each process reads some of the files again
    dist.all_gather_object(found, sums_of(sorted(folder.iterdir())[rank::size]))
    if rank == 0:
        sums = {name: one for part in found for name, one in part.items()}
        finish_checkpoint(saved, kind, about, {"shards": sums}, state)


def read_shards(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Fill tensors, which may be sharded over the current processes; all processes call it."""
    with _as_input_error(folder, "read"):
        dcp.load(dict(tensors), storage_reader=dcp.HuggingFaceStorageReader(str(folder)))


def shapes_in(folder: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of all tensors by name."""
    with _as_input_error(folder, "read"):
        found: Any = dcp.HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    return {name: tuple(one.size) for name, one in found.items()}


@contextmanager
def _as_input_error(folder: Path, done: str) -> Iterator[None]:
    """Failures of any process, in one line."""
    try:
        yield
    except (CheckpointException, OSError, SafetensorError) as error:
        causes = error.failures.values() if isinstance(error, CheckpointException) else [error]
        reason = next(str(one[0] if isinstance(one, tuple) else one) for one in causes)
        raise InputError(f"{folder} cannot be {done} ({reason.splitlines()[0]})") from error
