"""The readers of all formats, and the child process in which they parse a user's files.

A reader is a function of the path, a `ReadRequest` and whether the file has an axis of samples. It
returns datasets with named dimensions (`cato.user_data.axes`); a new format is a new reader. This
module does not import PyTorch, which the child process has no use for.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cato.errors import InputError
from cato.sandbox import parse
from cato.user_data import netcdf, vtk
from cato.user_data.arrays import ARRAYS, read_arrays
from cato.user_data.naming import ReadRequest

if TYPE_CHECKING:
    import xarray

Reader = Callable[[Path, ReadRequest, bool], "list[xarray.Dataset]"]
READERS: dict[str, Reader] = {
    **dict.fromkeys(ARRAYS, read_arrays),
    **dict.fromkeys(netcdf.SUFFIXES, netcdf.read_netcdf),
    **dict.fromkeys(vtk.SUFFIXES, vtk.read_vtk),
}
SUFFIXES = tuple(READERS)


def reader_of(path: Path) -> Reader:
    """The reader of a path's format, which its suffix names."""
    suffix = path.suffix.lower()
    if suffix not in READERS:
        raise InputError(f"{path} has an unknown format; its name should end in one of {SUFFIXES}")
    return READERS[suffix]


def imports_of(path: Path) -> tuple[str, ...]:
    """The slow modules that reading or writing a path needs."""
    suffix = path.suffix.lower()
    return (
        "xarray",
        *("h5netcdf",)[: suffix in netcdf.SUFFIXES],
        *("pyvista",)[: suffix in vtk.SUFFIXES],
    )


def read_files(
    files: Sequence[Path], request: ReadRequest, has_samples: bool
) -> "list[list[xarray.Dataset]]":
    """The datasets of each file, all of one format, read in the child process."""
    import xarray

    reader, imports = reader_of(files[0]), imports_of(files[0])
    found = parse(_read, files, reader, request, has_samples, imports=imports)
    return [[xarray.Dataset.from_dict(values) for values in datasets] for datasets in found]


def _read(
    path: Path, reader: Reader, request: ReadRequest, has_samples: bool
) -> list[dict[str, Any]]:
    return [dataset.to_dict(data="array") for dataset in reader(path, request, has_samples)]
