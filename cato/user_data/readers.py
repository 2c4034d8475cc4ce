"""The readers of all formats, and the child process in which they parse a user's files.

Most formats are an opener, a function of a path that returns an `ArrayFile`: named arrays, with
named axes where the format has them. Meshes of VTK and its relatives have a reader of their own.
All return datasets with named dimensions (`cato.user_data.axes`). This module does not import
PyTorch, which the child process needs for tensors only.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cato.benchmarks.contract import SPLITS
from cato.errors import InputError
from cato.sandbox import parse
from cato.user_data import meshes, netcdf, tables, tensors
from cato.user_data.arrays import ARRAYS
from cato.user_data.axes import ArrayFile, name_axes
from cato.user_data.guess import guess
from cato.user_data.named import read_named
from cato.user_data.naming import Naming, ReadRequest
from cato.user_data.parts import format_of, parts_of

if TYPE_CHECKING:
    import xarray

OPENERS: dict[str, Callable[[Path], ArrayFile]] = {
    **ARRAYS,
    **dict.fromkeys(netcdf.SUFFIXES, netcdf.open_netcdf),
    netcdf.ZARR: netcdf.open_zarr,
    **dict.fromkeys(tables.SUFFIXES, tables.open_table),
    **dict.fromkeys(meshes.SUFFIXES, meshes.open_mesh),
}
SUFFIXES = tuple(OPENERS)
IN_POINTS = (*meshes.SUFFIXES, *tables.SUFFIXES)
"""Formats of points, which may have more coordinates than the problem."""
IMPORTS = {
    **dict.fromkeys(netcdf.SUFFIXES, "h5netcdf"),
    netcdf.ZARR: "zarr",
    **dict.fromkeys(tensors.SUFFIXES, "torch"),
    **dict.fromkeys(tables.CSV, "pandas"),
    **dict.fromkeys(tables.PARQUET, "pyarrow.parquet"),
    **dict.fromkeys(meshes.SUFFIXES, "pyvista"),
}


def suffix_of(path: Path) -> str:
    """The suffix that names a path's format."""
    suffix = format_of(path)
    if suffix not in OPENERS:
        raise InputError(f"{path} has an unknown format; its name should end in one of {SUFFIXES}")
    return suffix


def imports_of(path: Path) -> tuple[str, ...]:
    """The slow modules that reading or writing a path needs."""
    module = IMPORTS.get(suffix_of(path))
    return ("xarray",) if module is None else ("xarray", module)


def read_files(
    files: Sequence[Path], request: ReadRequest, has_samples: bool
) -> "list[list[xarray.Dataset]]":
    """The datasets of each file, all of one format, read in the child process."""
    import xarray

    suffix_of(files[0])
    parts = [part for file in files for part in parts_of(file)]
    found = parse(_read, files, request, has_samples, imports=imports_of(files[0]), parts=parts)
    return [[xarray.Dataset.from_dict(values) for values in datasets] for datasets in found]


def guess_names(
    file: Path, naming: Naming, has_samples: bool, given: Path
) -> tuple[Naming, list[str]]:
    """The user's names, completed by a guess from a file of the given path, and notes on it."""
    suffix_of(file)
    imports, parts = imports_of(file), parts_of(file)
    ((words, periodic, notes),) = parse(
        _guess, [file], naming, has_samples, given, imports=imports, parts=parts
    )
    found = Naming.parse(**words, periodic=periodic)
    return replace(found, time=naming.time, times=naming.times), notes


def _guess(
    path: Path, naming: Naming, has_samples: bool, given: Path
) -> tuple[dict[str, str], tuple[int, ...], list[str]]:
    found, notes = guess(OPENERS[suffix_of(path)](path), naming, has_samples, given)
    return found.words(), found.periodic, notes


def _read(path: Path, request: ReadRequest, has_samples: bool) -> list[dict[str, Any]]:
    return [dataset.to_dict(data="array") for dataset in read_file(path, request, has_samples)]


def read_file(path: Path, request: ReadRequest, has_samples: bool) -> "list[xarray.Dataset]":
    """The dataset of a file, or one of each of its groups train, validation and test."""
    suffix = suffix_of(path)
    if suffix in meshes.SUFFIXES:
        return [meshes.read_mesh(path, request)]
    file = OPENERS[suffix](path)
    if file.dims:
        return [read_named(file, request, has_samples)]
    groups = [name for name in SPLITS if any(n.startswith(f"{name}/") for n in file.shapes)]
    if has_samples and (samples := file.groups_of_samples):
        parts = [name_axes(file.group(name), request, has_samples=False) for name in samples]
        return [p.assign_attrs(group=name) for p, name in zip(parts, samples, strict=True)]
    if not groups or not has_samples:
        return [name_axes(file, request, has_samples)]
    return [name_axes(file.group(n), request, has_samples).assign_attrs(split=n) for n in groups]
