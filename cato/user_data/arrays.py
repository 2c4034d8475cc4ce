"""Array files: HDF5, NumPy archives and MATLAB files of either format."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from scipy.io import savemat, whosmat

from cato.data.hdf5 import new_hdf5
from cato.data.matlab import open_variable
from cato.data.npy import npy_header
from cato.errors import InputError
from cato.files import atomic_write
from cato.user_data.axes import ArrayFile
from cato.user_data.parse_errors import parse_errors
from cato.user_data.shapes import Shape


def open_npz(path: Path) -> ArrayFile:
    """A NumPy archive. What is not asked for may be anything, such as pickled objects."""

    def read(name: str) -> np.ndarray:
        with parse_errors(_field(path, name), ".npz"), np.load(path, allow_pickle=False) as archive:
            return archive[name]

    if not path.exists():
        raise InputError(f"{path} does not exist")
    with parse_errors(path, ".npz"), zipfile.ZipFile(path) as archive:
        members = [name for name in archive.namelist() if name.endswith(".npy")]
        shapes = {name.removesuffix(".npy"): _npy_shape(archive, name) for name in members}
    return ArrayFile(path, shapes, read)


def _npy_shape(archive: zipfile.ZipFile, member: str) -> Shape:
    with archive.open(member) as handle:
        return npy_header(handle)[0]


def open_h5(path: Path) -> ArrayFile:
    """An HDF5 file; fields in groups are named with slashes."""
    shapes: dict[str, Shape] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape is not None:
            shapes[name] = item.shape

    def read(name: str) -> np.ndarray:
        with (
            parse_errors(_field(path, name), "HDF5"),
            h5py.File(path, "r", locking=False) as file,
        ):
            dataset = file[name]
            if h5py.check_string_dtype(dataset.dtype):
                return np.asarray(dataset.asstr()[()], dtype=np.str_)
            return dataset[()]

    with parse_errors(path, "HDF5"), h5py.File(path, "r", locking=False) as file:
        file.visititems(visit)
    return ArrayFile(path, shapes, read)


def open_mat(path: Path) -> ArrayFile:
    """A MATLAB file. Vectors, which MATLAB keeps as 1 × n or n × 1, have one axis."""
    with parse_errors(path, "a MATLAB file"):
        shapes = _matlab_shapes(path)

    def read(name: str) -> np.ndarray:
        with (
            parse_errors(_field(path, name), "a MATLAB file"),
            open_variable(path, name) as variable,
        ):
            array = np.asarray(variable[(slice(None),) * len(variable.shape)])
        return array.reshape(shapes[name])

    return ArrayFile(path, shapes, read)


def _matlab_shapes(path: Path) -> dict[str, Shape]:
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


def _field(path: Path, name: str) -> str:
    return f"{path}: field {name!r}"


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays in the format of the path's ending, atomically."""
    suffix = path.suffix.lower()
    if suffix not in (".npz", ".mat"):
        with new_hdf5(path) as file:
            for name, array in arrays.items():
                file.create_dataset(name, data=array, compression="gzip")
        return
    with atomic_write(path) as temporary, temporary.open("wb") as handle:
        if suffix == ".npz":
            np.savez_compressed(handle, allow_pickle=False, **arrays)
        else:
            savemat(handle, dict(arrays), do_compression=True, long_field_names=True)
