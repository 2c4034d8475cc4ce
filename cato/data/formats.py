"""File formats: headers of NumPy arrays, HDF5 files to write, variables of MATLAB files to read."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, Any, BinaryIO

import h5py
import numpy as np
from numpy.lib import format as npy
from scipy.io import loadmat, whosmat

from cato.errors import InputError
from cato.files import atomic_write
from cato.sandbox import require_room


def npy_header(stream: IO[bytes] | io.BufferedIOBase) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether the order is Fortran's, and type; leaves the stream at the values.

    Bytes that are not such a header raise nearly any exception.
    """
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    return readers[npy.read_magic(stream)](stream)


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


def require_self_contained(file: h5py.File) -> None:
    """Raise if an HDF5 file takes values from other files.

    Missing parts of a virtual dataset would be read as its fill value, and a changed part would
    leave the checksum of this file as it is; external storage and links may name any file.
    """
    found: list[str] = []

    def visit_link(name: str, link: Any) -> None:
        if isinstance(link, h5py.ExternalLink):
            found.append(f"{name!r} is a link to {link.filename}")

    def visit_item(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.is_virtual:
            found.append(f"{name!r} is a virtual dataset")
        elif isinstance(item, h5py.Dataset) and item.external:
            found.append(f"{name!r} is stored in {item.external[0][0]}")

    file.visititems_links(visit_link)
    file.visititems(visit_item)
    if found:
        raise InputError(
            f"{found[0]}: its values are in another file, which may be missing or change; copy "
            f"the data into one HDF5 file"
        )


def require_written(dataset: h5py.Dataset, what: str) -> None:
    """Raise if parts of a dataset were never written: HDF5 reads them as zeros."""
    is_whole = dataset.id.get_space_status() == h5py.h5d.SPACE_STATUS_ALLOCATED
    if dataset.size and not is_whole:
        raise InputError(
            f"{what} was never written to its end, and the rest would be read as "
            f"{dataset.fillvalue}; write all of its values"
        )


@contextmanager
def open_hdf5(path: Path) -> Iterator[h5py.File]:
    """A user's HDF5 file for reading; one that takes values from other files is refused."""
    # Without HDF5's lock, which read-only and network disks refuse.
    with h5py.File(path, "r", locking=False) as file:
        try:
            require_self_contained(file)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        yield file


def consecutive(indices: np.ndarray) -> list[slice]:
    """Ascending indices as slices of consecutive ones, which HDF5 reads fastest."""
    breaks = np.flatnonzero(np.diff(indices) != 1) + 1
    runs = np.split(indices, breaks) if len(indices) else []
    return [slice(int(run[0]), int(run[-1]) + 1) for run in runs]


class Reversed:
    """A variable of an open MATLAB v7.3 file; only the indexed part is read.

    Such a file is HDF5 behind a 512-byte preamble; MATLAB is column-major and HDF5 row-major, so a
    dataset has the axes of its variable in reverse.
    """

    def __init__(self, dataset: h5py.Dataset, read_as: type | None = None) -> None:
        self._dataset, self._read_as = dataset, read_as
        self.shape: tuple[int, ...] = dataset.shape[::-1]
        self.dtype: np.dtype = dataset.dtype

    def __getitem__(self, index: tuple[slice | int, ...]) -> np.ndarray:
        """Read a part; one index per axis."""
        found = self._dataset if self._read_as is None else self._dataset.astype(self._read_as)
        ranges = [range(n)[i] for n, i in zip(self.shape, index, strict=True)]
        count = prod(len(r) for r in ranges if isinstance(r, range))
        require_room(found.dtype.itemsize * count, f"variable {self._dataset.name!r}")
        return found[index[::-1]].T


@contextmanager
def open_variable(
    path: Path, name: str, read_as: type | None = None
) -> Iterator[np.ndarray | Reversed]:
    """The array called `name` with its axes as MATLAB shows them; up to v7 it is read whole.

    Files of v7.3 are read as the type `read_as`, which saves memory; the file's own by default.
    The file's signature, not its name, says which of MATLAB's two formats it has. Damaged files
    raise the exceptions of their parser.
    """
    if h5py.is_hdf5(path):
        # Without HDF5's lock, which read-only and network disks refuse.
        with h5py.File(path, "r", locking=False) as file:
            require_self_contained(file)
            _require_listed(name, [key for key in file if not key.startswith("#")])  # MATLAB's own
            if not isinstance(file[name], h5py.Dataset):
                raise InputError(f"{name!r} is a struct or sparse")
            require_written(file[name], f"variable {name!r}")
            yield Reversed(file[name], read_as)
    else:
        shapes = {variable: shape for variable, shape, _ in whosmat(path)}
        _require_listed(name, list(shapes))
        require_room(8 * prod(shapes[name]), f"{path}: {name!r}")  # at most: of double precision
        array = loadmat(path, variable_names=[name])[name]
        if not isinstance(array, np.ndarray):
            raise InputError(f"{name!r} is sparse")
        yield array


def _require_listed(name: str, found: list[str]) -> None:
    if name not in found:
        raise InputError(f"has no such variable, only {', '.join(sorted(found)) or 'none at all'}")
