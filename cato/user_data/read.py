"""A path and the names of its fields into samples, whatever the format."""

import hashlib
import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from cato.benchmarks import BENCHMARKS, SPLITS
from cato.errors import InputError
from cato.files import digest
from cato.user_data import netcdf, vtk
from cato.user_data.arrays import open_h5, open_mat, open_npz
from cato.user_data.assemble import assemble
from cato.user_data.axes import ArrayFile, ReadRequest
from cato.user_data.periodic import declared_periodic
from cato.user_data.samples import RawSample, RawSamples, UserSamples, sharing_equal_meshes
from cato.user_data.table_samples import single_sample, table_samples

ARRAYS = {".npz": open_npz, ".h5": open_h5, ".hdf5": open_h5, ".mat": open_mat}
SUFFIXES = (*ARRAYS, *netcdf.SUFFIXES, *vtk.SUFFIXES)

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
    raw = _folder(path, request) if path.is_dir() else _file(path, request)
    return declared_periodic(assemble(path, raw, request.naming), request.naming.periodic)


def fingerprint(path: Path) -> str:
    """Sixteen characters that change whenever the data do."""
    path = Path(path)
    if path.is_file():
        return digest(path)[:16]
    lines = (f"{file.relative_to(path).as_posix()} {digest(file)}\n" for file in files_of(path))
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


def file_stamp(path: Path) -> Stamp:
    """Name, inode, size and time of change of each file: cheap to compare within a process."""
    files = files_of(path) if path.is_dir() else [path]
    found = [(file, file.stat()) for file in files]
    return tuple((str(f), s.st_ino, s.st_size, s.st_mtime_ns) for f, s in found)


def files_of(path: Path) -> list[Path]:
    """The files of the samples in a folder, in their order."""
    return [file for part in _parts(path).values() for file in part]


def _file(path: Path, request: ReadRequest) -> RawSamples:
    """The samples of one file: many, or the one of a VTK file."""
    if _suffix(path) in vtk.SUFFIXES:
        return RawSamples(_without_flat_axes([vtk.read_vtk(path, request)]))
    return table_samples(_open(path, request, samples=True), _of_open_file(path, request))


def _folder(folder: Path, request: ReadRequest) -> RawSamples:
    samples: list[RawSample] = []
    labels = {}
    for split, files in _parts(folder).items():
        for file in files:
            if _suffix(file) in vtk.SUFFIXES:
                sample = vtk.read_vtk(file, request)
            else:
                opened = _open(file, request, samples=False)
                one = single_sample(opened, _of_open_file(file, request))
                (sample,), labels = one.samples, dict(one.labels)
            samples.append(replace(sample, split=split))
    if _suffix(files_of(folder)[0]) in vtk.SUFFIXES:
        samples = _without_flat_axes(samples)
    return RawSamples(sharing_equal_meshes(samples), labels)


def _parts(folder: Path) -> dict[str, list[Path]]:
    """The files of each split, or under no name all files of the folder."""
    splits = {name: folder / name for name in SPLITS if (folder / name).is_dir()}
    parts = {name: _listed(inner) for name, inner in (splits or {"": folder}).items()}
    found = sorted({_suffix(file) for files in parts.values() for file in files})
    if not found:
        raise InputError(f"{folder} holds no file that ends in {', '.join(SUFFIXES)}")
    if len(found) > 1 and not set(found) <= set(vtk.SUFFIXES):
        raise InputError(f"{folder} mixes files that end in {', '.join(found)}; leave one kind")
    return parts


def _listed(folder: Path) -> list[Path]:
    """The files of known formats, numbers in their names in the order of their size."""
    files = [f for f in folder.iterdir() if f.is_file() and _suffix(f) in SUFFIXES]

    def key(file: Path) -> list[tuple[int, str]]:
        words = re.split(r"(\d+)", file.name)
        return [(int(w), "") if w.isdecimal() else (-1, w) for w in words]

    return sorted((f for f in files if not f.name.startswith(".")), key=key)


def _open(path: Path, request: ReadRequest, samples: bool) -> ArrayFile:
    suffix = _suffix(path)
    if suffix in netcdf.SUFFIXES:
        return netcdf.open_netcdf(path, request.naming, samples)
    if suffix not in ARRAYS:
        raise InputError(f"{path} is of no known format; its name should end in one of {SUFFIXES}")
    return ARRAYS[suffix](path)


def _of_open_file(path: Path, request: ReadRequest) -> ReadRequest:
    """The coordinates of an open NetCDF file are put together already."""
    if _suffix(path) not in netcdf.SUFFIXES:
        return request
    return replace(request, naming=replace(request.naming, coords=()))


def _suffix(path: Path) -> str:
    return path.suffix.lower()


def _without_flat_axes(samples: list[RawSample]) -> list[RawSample]:
    """VTK points have three components; a plane problem has two that vary."""
    varies = np.zeros(3, bool)
    for sample in samples:
        points = sample.coords.reshape(-1, 3)
        varies |= np.ptp(points, axis=0) > 0
    if not varies.any():
        raise InputError(f"{samples[0].origin}: all points coincide")
    return [replace(sample, coords=sample.coords[..., varies]) for sample in samples]
