"""Array files: HDF5, NumPy archives, MATLAB files of either format, and PyTorch tensors."""

import zipfile
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from scipy.io import savemat, whosmat

from cato.data.formats import (
    new_hdf5,
    npy_header,
    open_hdf5,
    open_variable,
    require_written,
)
from cato.errors import InputError
from cato.files import atomic_write
from cato.sandbox import require_room
from cato.user_data.axes import ArrayFile, Shape, parse_errors
from cato.user_data.pdebench import open_pdebench
from cato.user_data.tensors import SUFFIXES as TENSORS
from cato.user_data.tensors import open_tensors, save_tensors
from cato.user_data.well import open_well


def read_npz(path: Path, names: Sequence[str]) -> tuple[list[str], dict[str, np.ndarray]]:
    """What a NumPy archive holds, and those of the named arrays that it has."""
    file = open_npz(path)
    return list(file.shapes), {name: file.numbers(name) for name in names if name in file.shapes}


def open_npz(path: Path) -> ArrayFile:
    """Open a NumPy archive. Arrays that are not read may be anything, such as pickled objects."""

    def load(name: str) -> np.ndarray:
        declared, stored = sizes[name]
        if declared != stored and not has_objects[name]:
            raise InputError(f"{path}: {name!r} should have {declared} bytes, but has {stored}")
        require_room(declared, f"{path}: {name!r}")
        with np.load(path, allow_pickle=False) as archive:
            return archive[name]

    shapes, sizes, has_objects = {}, {}, {}
    with parse_errors(path, ".npz"), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.filename.endswith(".npy"):
                name = member.filename.removesuffix(".npy")
                if name in shapes:
                    raise InputError(f"{path} holds the array {name!r} twice; write it again")
                with archive.open(member) as handle:
                    shapes[name], _, dtype = npy_header(handle)
                    stored = member.file_size - handle.tell()
                sizes[name] = (prod(shapes[name]) * dtype.itemsize, stored)
                has_objects[name] = dtype.hasobject  # pickled, and refused by NumPy
    return ArrayFile(path, shapes, load, ".npz")


def open_h5(path: Path) -> ArrayFile:
    """Open an HDF5 file; fields in groups are named with slashes, unless its layout is known."""
    shapes: dict[str, Shape] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape is not None:
            shapes[name] = item.shape

    def load(name: str) -> np.ndarray:
        with open_hdf5(path) as file:
            dataset = file[name]
            require_room(dataset.nbytes, f"{path}: field {name!r}")
            require_written(dataset, f"{path}: field {name!r}")
            if h5py.check_string_dtype(dataset.dtype):
                return np.asarray(dataset.asstr()[()], dtype=np.str_)
            if dataset.dtype.hasobject:
                raise InputError(f"{path}: field {name!r} should be numbers, but is objects")
            return dataset[()]

    def read_part(name: str, axis: int, rows: slice) -> np.ndarray:
        with open_hdf5(path) as file:
            dataset = file[name]
            index = (*[slice(None)] * axis, rows)
            count = len(range(dataset.shape[axis])[rows])
            share = count / max(1, dataset.shape[axis])
            require_room(int(share * dataset.nbytes), f"{path}: field {name!r}")
            require_written(dataset, f"{path}: field {name!r}")
            if h5py.check_string_dtype(dataset.dtype):
                return np.asarray(dataset.asstr()[index], dtype=np.str_)
            return dataset[index]

    def storage(name: str) -> tuple[Shape | None, int]:
        with open_hdf5(path) as file:
            return file[name].chunks, file[name].nbytes

    with parse_errors(path, "HDF5"), open_hdf5(path) as file:
        file.visititems(visit)
    plain = ArrayFile(path, shapes, load, "HDF5", read_part=read_part, storage=storage)
    return open_well(plain) or open_pdebench(plain) or plain


def attributes_of(path: Path) -> dict[str, dict[str, Any]]:
    """The attributes, numbers and texts, of the arrays of an HDF5 file, and of the file as ""."""
    found: dict[str, dict[str, Any]] = {}

    def visit(name: str, item: Any) -> None:
        if not name or isinstance(item, h5py.Dataset):
            values = {k: v for k, v in item.attrs.items() if np.asarray(v).dtype.kind in "fiuU"}
            found[name] = {k: v if isinstance(v, str) else np.asarray(v) for k, v in values.items()}

    with parse_errors(path, "HDF5"), open_hdf5(path) as file:
        visit("", file)
        file.visititems(visit)
    return found


def open_mat(path: Path) -> ArrayFile:
    """Open a MATLAB file. Vectors, which MATLAB stores as 1 × n or n × 1, get one axis."""

    def load(name: str) -> np.ndarray:
        with open_variable(path, name) as variable:
            array = np.asarray(variable[(slice(None),) * len(variable.shape)])
        return array.reshape(shapes[name])

    with parse_errors(path, "a MATLAB file"):
        if h5py.is_hdf5(path):
            with open_hdf5(path) as file:
                items = {n: item for n, item in file.items() if isinstance(item, h5py.Dataset)}
                found = {n: i.shape[::-1] for n, i in items.items() if i.shape is not None}
        else:
            found = {name: tuple(shape) for name, shape, _ in whosmat(path)}
    shapes = {
        name: (max(shape),) if len(shape) == 2 and min(shape) == 1 else shape
        for name, shape in found.items()
    }
    return ArrayFile(path, shapes, load, "a MATLAB file")


ARRAYS = {
    ".npz": open_npz,
    ".h5": open_h5,
    ".hdf5": open_h5,
    ".mat": open_mat,
    **dict.fromkeys(TENSORS, open_tensors),
}


def save_arrays(
    path: Path,
    arrays: Mapping[str, np.ndarray],
    attributes: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Write arrays in the format of the path's suffix, atomically.

    `attributes` of arrays by name, and of the file as "", are for HDF5.
    """
    suffix = path.suffix.lower()
    if suffix in TENSORS:
        save_tensors(path, dict(arrays))
        return
    if suffix not in (".npz", ".mat"):
        with new_hdf5(path) as file:
            for name, array in arrays.items():
                words = array.dtype.kind == "U"
                values = array.astype(h5py.string_dtype()) if words else array
                file.create_dataset(name, data=values, compression="gzip" if array.ndim else None)
            for name, found in (attributes or {}).items():
                file[name or "/"].attrs.update(found)
        return
    with atomic_write(path) as temporary, temporary.open("wb") as handle:
        if suffix == ".npz":
            np.savez_compressed(handle, allow_pickle=False, **arrays)
        else:
            savemat(handle, dict(arrays), do_compression=True, long_field_names=True)
