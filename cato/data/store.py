"""The on-disk store: one HDF5 file per generated dataset, verified whenever it is read.

    /                 attributes format, version, header (JSON) and sha256 (of the header)
    /coords           coordinates, if all samples share them
    /<split>/inputs, targets [, coords]      float32, samples first, channels last
    /<split>/attempts, diagnostics           how each sample was generated
    /<split>/sha256                          one checksum per sample over all of the above

The header contains the checksums of every split's checksums and of the shared coordinates, and the
file that of the header, so that no stored number can change unnoticed.

A file is filled under another name, one sample at a time, in any order. Its structure is written
first and never changes: samples are written to their places past the HDF5 library, which cannot
open a file again whose writer was killed. The checksum of a sample says whether it is there.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from cato import __version__
from cato.data.arrays import channel_names, require_finite, sample_shapes
from cato.data.formats import consecutive, new_hdf5, require_self_contained
from cato.data.sampling import AcceptedSample
from cato.data.spec import DataSpec
from cato.data.watch import Watch
from cato.errors import InputError
from cato.files import BLANK, rename_durably
from cato.problem import Problem

FORMAT = "cato data"
VERSION = 1
HEAD_BYTES = 2**16  # The attributes are before that place of a file.


@dataclass(frozen=True)
class StoredSplit:
    """The samples of one split, samples first; `coords` is None if they are shared."""

    inputs: np.ndarray
    targets: np.ndarray
    attempts: np.ndarray
    diagnostics: dict[str, np.ndarray]
    coords: np.ndarray | None = None


@dataclass(frozen=True)
class Stored:
    """The verified contents of a file."""

    header: dict[str, Any]
    problem: Problem
    coords: np.ndarray | None
    splits: dict[str, StoredSplit]


Task = tuple[str, int]
"""Split and index of a sample."""
BLANK_HEADER = 64 * "-"
"""Stands for the checksum of the header of a file that is being filled."""


def write_store(path: Path, spec: DataSpec, drawn: Iterable[AcceptedSample]) -> None:
    """Write a file atomically from samples in the order of `spec.tasks`."""
    store = UnfinishedStore(path, spec)
    store.remove()
    try:
        for task, sample in zip(spec.tasks, drawn, strict=True):
            store.write(*task, sample)
        store.finish()
    finally:
        store.remove()


class UnfinishedStore:
    """The future file `target` while one process at a time fills it under another name."""

    def __init__(self, target: Path, spec: DataSpec) -> None:
        self.path = target.with_name(f"{target.stem}-{spec.key}.unfinished")
        self._target, self._spec = target, spec

    def finished(self) -> set[Task]:
        """The samples that are there and intact. A file that cannot be continued is started anew.

        Call it once, before the first `write`.
        """
        try:
            if self._header["identity"] == self._spec.identity:
                with self.path.open("rb", buffering=0) as file:
                    tasks = self._spec.tasks
                    return {task for task in tasks if self._is_intact(file.fileno(), *task)}
        except (OSError, KeyError, ValueError, RuntimeError):
            pass
        self.remove()
        return set()

    @property
    def disk_bytes(self) -> int:
        """Bytes on the disk."""
        return 512 * self.path.stat().st_blocks if self.path.exists() else 0

    def remove(self) -> None:
        """Remove the file; another process may be doing the same."""
        self.path.unlink(missing_ok=True)
        for known in ("_header", "_places"):
            self.__dict__.pop(known, None)

    def write(self, split: str, index: int, accepted: AcceptedSample) -> None:
        """Write a sample to its place; the first one creates the file."""
        row = accepted.arrays()
        names = list(accepted.sample.diagnostics)
        with _writing(self._target):
            if not self.path.exists():
                self._create(names)
            assert names == self._header["diagnostics"], "all have the same diagnostics"
            with self.path.open("r+b", buffering=0) as file:
                for name, array in (row | {"sha256": _checksum(row)}).items():
                    self._write(file.fileno(), split, name, index, array)

    def finish(self) -> None:
        """Complete the header, after the last sample, and give the file its name."""
        with self.path.open("rb", buffering=0) as file:
            checksums = {
                split: self._read(file.fileno(), split, "sha256", 0, count)
                for split, count in self._spec.counts.items()
            }
        coords = self._spec.definition.coords(self._spec.parameters)
        shared = {} if coords is None else {"coords": _sha256(coords)}
        of_splits = {split: _sha256(rows) for split, rows in checksums.items()}
        with _unfinished(self.path) as file:
            before = file.attrs["header"], file.attrs["sha256"]
        text = _header_text(self._header | {"checksums": of_splits | shared})
        with _writing(self._target), self.path.open("r+b") as stream:
            # The attributes, whose lengths do not change, are the first that the file holds.
            head = stream.read(HEAD_BYTES + len(before[0].encode()))
            for old, new in zip(before, (text, _sha256(text)), strict=True):
                place = head.index(old.encode())
                assert len(old.encode()) == len(new.encode())
                os.pwrite(stream.fileno(), new.encode(), place)
        with _writing(self._target):
            rename_durably(self.path, self._target)

    def _create(self, diagnostics: list[str]) -> None:
        """A file with a place for every sample, which takes disk only when it is filled."""
        coords = self._spec.definition.coords(self._spec.parameters)
        header = {
            "identity": self._spec.identity,
            "problem": self._spec.problem.to_dict(),
            "cato": __version__,
            "diagnostics": diagnostics,  # Names of the columns of each split's diagnostics.
            "own_coords": coords is None,  # Whether coordinates differ between samples.
            # Of each split's checksums of its samples, and of shared coordinates.
            "checksums": dict.fromkeys(
                [*self._spec.counts, *([] if coords is None else ["coords"])], BLANK
            ),
        }
        places = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        places.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        places.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        with new_hdf5(self.path, libver="v110") as file:
            file.attrs["header"] = _header_text(header)
            file.attrs["sha256"] = BLANK_HEADER
            file.attrs["format"] = FORMAT
            file.attrs["version"] = VERSION
            for split, count in self._spec.counts.items():
                for name, (shape, dtype) in _layout(header, split, count).items():
                    file.create_dataset(f"{split}/{name}", shape, dtype, dcpl=places)
                file.create_dataset(f"{split}/sha256", (count, 32), np.uint8, dcpl=places)
            if coords is not None:
                file["coords"] = coords

    @cached_property
    def _header(self) -> dict[str, Any]:
        with _unfinished(self.path) as file:
            return json.loads(file.attrs["header"])

    @cached_property
    def _places(self) -> dict[tuple[str, str], tuple[int, np.dtype, tuple[int, ...]]]:
        """Offset of the first row of every array, type and shape of a row."""
        with _unfinished(self.path) as file:
            found = {}
            for split in self._spec.counts:
                for name, data in file[split].items():
                    offset = data.id.get_offset() if data.size else 0
                    found[split, name] = (offset, data.dtype, data.shape[1:])
            return found

    def _write(self, file: int, split: str, name: str, index: int, array: np.ndarray) -> None:
        first, dtype, shape = self._places[split, name]
        assert (array.dtype, array.shape) == (dtype, shape), (name, array.dtype, array.shape)
        content = np.ascontiguousarray(array).data.cast("B") if array.size else b""
        offset = first + index * array.nbytes
        while len(content):
            written = os.pwrite(file, content, offset)
            content, offset = content[written:], offset + written

    def _read(self, file: int, split: str, name: str, first: int, count: int) -> np.ndarray:
        """Some rows of an array."""
        offset, dtype, shape = self._places[split, name]
        size = prod(shape) * dtype.itemsize
        content = os.pread(file, count * size, offset + first * size)
        return np.frombuffer(content, dtype).reshape(count, *shape)

    def _is_intact(self, file: int, split: str, index: int) -> bool:
        checksum = self._read(file, split, "sha256", index, 1)[0]
        if not checksum.any():
            return False
        names = [name for part, name in self._places if part == split and name != "sha256"]
        row = {name: self._read(file, split, name, index, 1)[0, ...] for name in names}
        return np.array_equal(_checksum(row), checksum)


def _header_text(header: dict[str, Any]) -> str:
    return json.dumps(header, ensure_ascii=False)


def _unfinished(path: Path) -> h5py.File:
    return h5py.File(path, "r", locking=False)


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, InputError) as error:
        reason = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(reason, OSError):
            raise
        raise InputError(
            f"cannot write {target}: {reason.strerror or reason}. Nothing was overwritten and "
            f"finished samples are kept; free some space and run the same command again"
        ) from reason


def read_header(path: Path, remedy: str) -> dict[str, Any]:
    """The header of a file; `remedy` ends the message if the file cannot be used."""
    with _opened(path, remedy) as file:
        return _header(file)


def num_rejected(path: Path, remedy: str) -> int:
    """Number of rejected draws, which could not be solved, during generation."""
    with _opened(path, remedy) as file:
        splits = _header(file)["identity"]["counts"]
        return sum(int(file[f"{split}/attempts"][()].sum()) - n for split, n in splits.items())


def read_store(path: Path, remedy: str) -> Stored:
    """Read and verify a file; `remedy` ends the message if the file cannot be used."""
    with _opened(path, remedy) as file:
        header = _header(file)
        counts = header["identity"]["counts"]
        splits = {split: _read_split(file, header, split, counts[split]) for split in counts}
        return Stored(header, Problem.from_dict(header["problem"]), _coords(file, header), splits)


class StoredSamples:
    """The samples of one split, read when they are needed and verified when they are first read.

    A `Source` of `cato.data.streamed`.
    """

    is_padded = False
    chunk = 1  # Samples are stored one after the other.

    def __init__(self, path: Path, split: str, remedy: str) -> None:
        self.watch = Watch([path], remedy)
        self.path, self._split, self._remedy = path, split, remedy
        with _opened(path, remedy) as file:
            self._header = _header(file)
            self._count = self._header["identity"]["counts"][split]
            self.coords = _coords(file, self._header)
            self._datasets(file)
            self._checksums = _checksums(file, self._header, split, self._count)
            self.fingerprint = f"{file.attrs['sha256']} {split}"
        self._is_verified = np.zeros(self._count, np.bool_)

    def __len__(self) -> int:
        return self._count

    def read(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        with _opened(self.path, self._remedy) as file:
            found = {
                name: np.concatenate([dataset[run] for run in consecutive(indices)])
                for name, dataset in self._datasets(file).items()
            }
            for place, k in enumerate(indices.tolist()):
                if not self._is_verified[k]:
                    row = {name: array[place] for name, array in found.items()}
                    _require_intact(row, self._checksums[k], f"{self._split} sample {k}")
                    self._is_verified[k] = True
        return {name: found[name] for name in _fields(self._header)}

    def _datasets(self, file: h5py.File) -> dict[str, h5py.Dataset]:
        layout = _layout(self._header, self._split, self._count)
        return {name: _dataset(file, f"{self._split}/{name}", *of) for name, of in layout.items()}


def _coords(file: h5py.File, header: dict[str, Any]) -> np.ndarray | None:
    """The coordinates that all samples share, verified."""
    if header["own_coords"]:
        return None
    shape = sample_shapes(Problem.from_dict(header["problem"]))["coords"]
    coords = _dataset(file, "coords", shape, np.float32)[()]
    _require(_sha256(coords) == header["checksums"]["coords"], "its coordinates are damaged")
    return coords


def _checksums(file: h5py.File, header: dict[str, Any], split: str, count: int) -> np.ndarray:
    """The checksums of the samples of a split, verified."""
    checksums = _dataset(file, f"{split}/sha256", (count, 32), np.uint8)[()]
    intact = _sha256(checksums) == header["checksums"][split]
    _require(intact, f"its {split} checksums are damaged")
    return checksums


def _require_intact(row: dict[str, np.ndarray], checksum: np.ndarray, what: str) -> None:
    intact = np.array_equal(_checksum(row), checksum)
    _require(intact, f"{what} is damaged (its checksum differs)")


def _fields(header: dict[str, Any]) -> list[str]:
    """The arrays of a split that a model sees."""
    return ["inputs", "targets"] + (["coords"] if header["own_coords"] else [])


def _layout(
    header: dict[str, Any], split: str, count: int
) -> dict[str, tuple[tuple[int, ...], type]]:
    """Shape and type of the arrays of a split that the checksums of its samples cover."""
    shapes = sample_shapes(Problem.from_dict(header["problem"]))
    return {
        **{name: ((count, *shapes[name]), np.float32) for name in _fields(header)},
        "attempts": ((count,), np.int32),
        "diagnostics": ((count, len(header["diagnostics"])), np.float64),
    }


def _read_split(file: h5py.File, header: dict[str, Any], split: str, count: int) -> StoredSplit:
    arrays = {
        name: _dataset(file, f"{split}/{name}", *of)[()]
        for name, of in _layout(header, split, count).items()
    }
    checksums = _checksums(file, header, split, count)
    for k in range(count):
        row = {name: array[k] for name, array in arrays.items()}
        _require_intact(row, checksums[k], f"{split} sample {k}")
    channels = channel_names(Problem.from_dict(header["problem"]))
    for name in _fields(header):
        require_finite(arrays[name], f"{split} {name}", channels[name])
    diagnostics = dict(zip(header["diagnostics"], arrays.pop("diagnostics").T, strict=True))
    return StoredSplit(**arrays, diagnostics=diagnostics)


@contextmanager
def _opened(path: Path, remedy: str) -> Iterator[h5py.File]:
    """Open for reading; every failure becomes one line with the reason and the remedy."""
    if not path.is_file():
        raise InputError(f"{path} does not exist; generate it first")
    try:
        # Without HDF5's own lock, which read-only and network disks refuse: writers rename instead.
        with h5py.File(path, "r", locking=False) as file:
            require_self_contained(file)
            yield file
    except InputError as error:
        raise InputError(f"{path}: {error}; {remedy}") from None
    except PermissionError as error:
        raise InputError(f"{path}: {error.strerror}; make it readable") from None
    except (OSError, KeyError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{path} is truncated, damaged or not an HDF5 file ({reason}); {remedy}"
        ) from None


def _header(file: h5py.File) -> dict[str, Any]:
    _require(file.attrs.get("format") == FORMAT, "an HDF5 file, but not a cato data file")
    version = int(file.attrs["version"])
    _require(version == VERSION, f"written in format {version}; this cato reads format {VERSION}")
    text = file.attrs["header"]
    _require(_sha256(text) == file.attrs["sha256"], "its header is damaged")
    return json.loads(text)


def _dataset(file: h5py.File, name: str, shape: tuple[int, ...], dtype: type) -> h5py.Dataset:
    """An array of a file with the expected shape and type, not read yet."""
    dataset = file.get(name)
    _require(isinstance(dataset, h5py.Dataset), f"{name} is missing")
    found = (dataset.shape, dataset.dtype)
    _require(found == (shape, dtype), f"{name} should be {dtype.__name__} {shape}, but is {found}")
    return dataset


def _checksum(row: dict[str, np.ndarray]) -> np.ndarray:
    digest = hashlib.sha256()
    for name in sorted(row):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(row[name]).data)
    return np.frombuffer(digest.digest(), np.uint8)


def _sha256(data: np.ndarray | str) -> str:
    content = data.encode() if isinstance(data, str) else np.ascontiguousarray(data).data
    return hashlib.sha256(content).hexdigest()


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise InputError(reason)
