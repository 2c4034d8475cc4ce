"""Arrays of MATLAB files with their axes as MATLAB shows them, in either of its formats.

Up to v7 a file is MATLAB's own format, and a variable is read whole. A v7.3 file is HDF5 behind a
512-byte preamble; MATLAB is column-major and HDF5 row-major, so a dataset has the axes of its
variable in reverse. The file's signature, not its name, says which of the two it is.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
from scipy.io import loadmat, whosmat

from cato.errors import InputError

Index = tuple[slice | int, ...]


class Reversed:
    """A variable of an open v7.3 file; only the indexed part is read."""

    def __init__(self, dataset: h5py.Dataset) -> None:
        self._dataset = dataset
        self.shape: tuple[int, ...] = dataset.shape[::-1]
        self.dtype: np.dtype = dataset.dtype

    def __getitem__(self, index: Index) -> np.ndarray:
        """Read float32; one index per axis."""
        return self._dataset.astype(np.float32)[index[::-1]].T


@contextmanager
def open_variable(path: Path, name: str) -> Iterator[np.ndarray | Reversed]:
    """The array called `name`; damaged files raise the exceptions of their parser."""
    if h5py.is_hdf5(path):
        # Without HDF5's lock, which read-only and network disks refuse.
        with h5py.File(path, "r", locking=False) as file:
            _require_listed(name, (key for key in file if not key.startswith("#")))  # MATLAB's own
            dataset = file[name]
            if not isinstance(dataset, h5py.Dataset):
                raise InputError(f"{name!r} is a struct or sparse")
            yield Reversed(dataset)
    else:
        _require_listed(name, (variable for variable, *_ in whosmat(path)))
        array = loadmat(path, variable_names=[name])[name]
        if not isinstance(array, np.ndarray):
            raise InputError(f"{name!r} is sparse")
        yield array


def _require_listed(name: str, found: Iterable[str]) -> None:
    names = sorted(found)
    if name not in names:
        raise InputError(f"has no such variable, only {', '.join(names) or 'none at all'}")
