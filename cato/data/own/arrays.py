"""Array files: HDF5, NumPy archives and MATLAB files of either format."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from scipy.io import savemat, whosmat

from cato.data.matlab import open_variable
from cato.data.own.tables import ArrayFile
from cato.errors import InputError
from cato.files import atomic_write


def open_npz(path: Path) -> ArrayFile:
    """A NumPy archive; read at once."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            if isinstance(archive, np.ndarray):
                raise InputError(f"{path} is a single array; an .npz with named arrays is needed")
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        if isinstance(error, InputError):
            raise
        reason = "it does not exist" if isinstance(error, FileNotFoundError) else error
        raise InputError(f"{path} cannot be read as .npz: {reason}") from None
    return ArrayFile(path, {n: a.shape for n, a in arrays.items()}, arrays.__getitem__)


def open_h5(path: Path) -> ArrayFile:
    """An HDF5 file; fields in groups are named with slashes."""
    shapes: dict[str, tuple[int, ...]] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape is not None:
            shapes[name] = item.shape

    def read(name: str) -> np.ndarray:
        with h5py.File(path, "r", locking=False) as file:
            dataset = file[name]
            if h5py.check_string_dtype(dataset.dtype):
                return np.asarray(dataset.asstr()[()], dtype=np.str_)
            return dataset[()]

    try:
        with h5py.File(path, "r", locking=False) as file:
            file.visititems(visit)
    except OSError as error:
        raise InputError(f"{path} cannot be read as HDF5: {error}") from None
    return ArrayFile(path, shapes, read)


def open_mat(path: Path) -> ArrayFile:
    """A MATLAB file. Vectors, which MATLAB keeps as 1 × n or n × 1, have one axis."""
    try:
        shapes = _matlab_shapes(path)
    except Exception as error:  # parsers of foreign bytes raise nearly anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{path} cannot be read as a MATLAB file: {reason}") from None

    def read(name: str) -> np.ndarray:
        with open_variable(path, name) as variable:
            array = np.asarray(variable[(slice(None),) * len(variable.shape)])
        return array.reshape(shapes[name])

    return ArrayFile(path, shapes, read)


def _matlab_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    if h5py.is_hdf5(path):
        with h5py.File(path, "r", locking=False) as file:
            found = {
                name: item.shape[::-1]
                for name, item in file.items()
                if isinstance(item, h5py.Dataset) and item.shape is not None
            }
    else:
        found = {name: tuple(shape) for name, shape, _ in whosmat(path)}
    return {
        name: (max(shape),) if len(shape) == 2 and min(shape) == 1 else shape
        for name, shape in found.items()
    }


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays in the format of the path's ending, atomically."""
    with atomic_write(path) as temporary:
        match path.suffix.lower():
            case ".npz":
                with temporary.open("wb") as handle:
                    np.savez_compressed(handle, allow_pickle=False, **arrays)
            case ".mat":
                with temporary.open("wb") as handle:
                    savemat(handle, dict(arrays), do_compression=True, long_field_names=True)
            case _:
                with h5py.File(temporary, "w") as file:
                    for name, array in arrays.items():
                        file.create_dataset(name, data=array, compression="gzip")
