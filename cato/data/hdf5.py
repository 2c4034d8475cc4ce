"""HDF5 files, written so that a full disk is an error in words."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py

from cato.files import atomic_write


@contextmanager
def new_hdf5(path: Path, **options: Any) -> Iterator[h5py.File]:
    """A file to fill, which is at `path` if the block succeeds.

    It is filled in memory, as all of it is read later: HDF5 crashes the process at a full disk.
    """
    memory = io.BytesIO()
    with h5py.File(memory, "w", **options) as file:
        yield file
    with atomic_write(path) as temporary:
        temporary.write_bytes(memory.getbuffer())
