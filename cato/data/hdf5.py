"""Writing HDF5 files so that a full disk is a one-line error."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import h5py

from cato.files import atomic_write


class _DeferredErrors(io.FileIO):
    """A file that remembers a failed write instead of raising.

    HDF5 crashes the process if it cannot write while it closes a file. So it never learns about the
    failure, and we raise the error after it has closed the file.
    """

    error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.error = self.error or error
            return memoryview(data).nbytes

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self.error = self.error or error
            return size or 0


@contextmanager
def hdf5_stream(path: Path) -> Iterator[BinaryIO]:
    """A binary stream for an HDF5 library to write to; it is at `path` if the block succeeds."""
    with atomic_write(path) as temporary, _DeferredErrors(str(temporary), "w+") as raw:
        stream = io.BufferedRandom(raw)
        try:
            yield stream
            stream.flush()
        finally:
            if raw.error is not None:  # whatever HDF5 made of it is a consequence
                raise raw.error


@contextmanager
def new_hdf5(path: Path, **options: Any) -> Iterator[h5py.File]:
    """An HDF5 file to fill, which is at `path` if the block succeeds."""
    with hdf5_stream(path) as stream, h5py.File(stream, "w", **options) as file:
        yield file
