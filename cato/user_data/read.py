"""From a path and the names of its fields to samples, whatever the format.

A reader is a function of the path, a `ReadRequest` and whether the file has an axis of samples. It
returns datasets with named dimensions (`cato.user_data.axes`); a new format is a new reader.
"""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cato.benchmarks import BENCHMARKS
from cato.benchmarks.contract import SPLITS
from cato.errors import InputError
from cato.files import digest
from cato.user_data import netcdf, vtk
from cato.user_data.arrays import ARRAYS, read_arrays
from cato.user_data.assemble import assemble
from cato.user_data.naming import ReadRequest
from cato.user_data.periodic import declared_periodic
from cato.user_data.samples import UserSamples

if TYPE_CHECKING:
    import xarray

Reader = Callable[[Path, ReadRequest, bool], "list[xarray.Dataset]"]
READERS: dict[str, Reader] = {
    **dict.fromkeys(ARRAYS, read_arrays),
    **dict.fromkeys(netcdf.SUFFIXES, netcdf.read_netcdf),
    **dict.fromkeys(vtk.SUFFIXES, vtk.read_vtk),
}
SUFFIXES = tuple(READERS)

Stamp = tuple[tuple[str, int, int, int], ...]


def is_user_data(name: str) -> bool:
    """Whether what to train on is a file or folder, not a benchmark."""
    path = Path(name)
    looks_like_one = _suffix(path) in SUFFIXES or len(path.parts) > 1
    return name not in BENCHMARKS and (looks_like_one or path.exists())


def read_samples(path: Path, request: ReadRequest) -> UserSamples:
    """The samples of a file, or of a folder with one file per sample."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path} does not exist; give a file or a folder of files, one per sample")
    if path.is_dir():
        datasets = [
            dataset.assign_attrs(split=split)
            for split, files in _files_by_split(path).items()
            for file in files
            for dataset in _reader(file)(file, request, False)
        ]
    else:
        datasets = _reader(path)(path, request, True)
    if _reader(files_of(path)[0]) is vtk.read_vtk:
        datasets = vtk.without_flat_components(datasets)
    return declared_periodic(assemble(path, datasets, request.naming), request.naming.periodic)


def fingerprint(path: Path) -> str:
    """Sixteen characters that change whenever the data do."""
    path = Path(path)
    if path.is_file():
        return digest(path)[:16]
    lines = (f"{file.relative_to(path).as_posix()} {digest(file)}\n" for file in files_of(path))
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


def file_stamp(path: Path) -> Stamp:
    """Name, inode, size and time of change of each file: cheap to compare within a process."""
    found = [(file, file.stat()) for file in files_of(path)]
    return tuple((str(f), s.st_ino, s.st_size, s.st_mtime_ns) for f, s in found)


def files_of(path: Path) -> list[Path]:
    """The file itself, or the files of the samples in a folder, in their order."""
    if not path.is_dir():
        return [path]
    return [file for files in _files_by_split(path).values() for file in files]


def _files_by_split(folder: Path) -> dict[str, list[Path]]:
    """The files of each split; all files under the name "" if the folder has no splits."""
    splits = {name: folder / name for name in SPLITS if (folder / name).is_dir()}
    parts = {name: _listed(inner) for name, inner in (splits or {"": folder}).items()}
    found = sorted({_suffix(file) for files in parts.values() for file in files})
    if not found:
        raise InputError(f"{folder} holds no file that ends in {', '.join(SUFFIXES)}")
    if len(found) > 1 and not set(found) <= set(vtk.SUFFIXES):
        raise InputError(f"{folder} mixes files that end in {', '.join(found)}; keep one kind")
    return parts


def _listed(folder: Path) -> list[Path]:
    """Files of known formats in natural order: case_2 before case_10."""
    files = [f for f in folder.iterdir() if f.is_file() and _suffix(f) in SUFFIXES]

    def key(file: Path) -> list[tuple[int, str]]:
        words = re.split(r"(\d+)", file.name)
        return [(int(w), "") if w.isdecimal() else (-1, w) for w in words]

    return sorted((f for f in files if not f.name.startswith(".")), key=key)


def _reader(path: Path) -> Reader:
    suffix = _suffix(path)
    if suffix not in READERS:
        raise InputError(f"{path} has an unknown format; its name should end in one of {SUFFIXES}")
    return READERS[suffix]


def _suffix(path: Path) -> str:
    return path.suffix.lower()
