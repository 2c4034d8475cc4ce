"""Users' data that are read while they are used, because they are larger than the memory.

They are an HDF5 or NetCDF file or a Zarr store with many samples, or a folder of files, each with
one sample or many. The readers see a window of consecutive samples as if it were the whole file, or
some files of one sample as if they were the whole folder. So windows go through the same steps as
data that fit (names of axes, `assemble`, periodic axes, checks), also in the child process for
foreign files. One pass over all windows says what problem the samples are of.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cato.benchmarks.contract import SPLITS
from cato.data.dataset import Splits
from cato.data.formats import new_hdf5
from cato.data.streamed import Streamed
from cato.data.watch import Watch
from cato.errors import InputError
from cato.problem import Problem
from cato.progress import note, progress_bar
from cato.sandbox import num_bytes_of, parse
from cato.user_data.axes import SAMPLE
from cato.user_data.inspect import require_usable
from cato.user_data.naming import Naming, ReadRequest
from cato.user_data.netcdf import SUFFIXES as NETCDF
from cato.user_data.netcdf import ZARR
from cato.user_data.parts import is_entry, parts_of
from cato.user_data.periodic import declared_periodic
from cato.user_data.precision import Spread, joined_spreads
from cato.user_data.readers import IN_POINTS, imports_of, read_files, suffix_of
from cato.user_data.samples import UserSamples, assemble, dataset_of, geometry_of, recognise
from cato.user_data.windows import layout_of, rows_of, window_of

if TYPE_CHECKING:
    import xarray

HDF5 = (".h5", ".hdf5")
SUFFIXES = (*HDF5, *NETCDF, ZARR)
WINDOW_BYTES = 2**26  # Of a window of a pass over all samples.


@dataclass(frozen=True)
class Group:
    """Samples that are stored together: those of a file or of its group, or one file each."""

    name: str  # train, validation or test; empty without such groups or folders.
    first: int  # Number of the first sample.
    count: int
    chunk: int  # Samples that the file stores together.
    sample_bytes: int
    files: Sequence[Path]  # The file, or one for each sample.
    is_files: bool = False  # Whether each sample has a file.


@dataclass(frozen=True)
class Layout:
    """How the samples lie in a file or folder."""

    groups: list[Group]
    words: list[str]  # The split of each sample, or "" if none is named.
    has_own_nodes: bool  # Whether the file has coordinates, or a mask, for each sample.

    @property
    def count(self) -> int:
        return sum(group.count for group in self.groups)


class StreamedSamples:
    """The samples of a file or folder, a window at a time.

    `files` are those of a folder, by split; empty for one file.
    """

    def __init__(
        self,
        path: Path,
        request: ReadRequest,
        advice: str,
        known: Problem | None = None,
        files: Mapping[str, Sequence[Path]] | None = None,
    ) -> None:
        self.path, self._request, self._known = path, request, known
        self._files = files or {}
        entries = [file for some in self._files.values() for file in some] or [path]
        self.watch = Watch([part for entry in entries for part in parts_of(entry)], advice)
        self._imports, self._num_bytes = imports_of(entries[0]), num_bytes_of(entries)
        self.layout = self._layout_of_files() if self._files else self._layout_of_file()

    def _layout_of_file(self) -> Layout:
        (found,) = self._parse(layout_of, [self.path])
        if found["is_grouped"]:
            raise InputError(
                f"{self.path} has a group for each sample and cannot be streamed; use "
                f"--data.streamed no"
            )
        groups = [
            Group(name, first, count, chunk, num_bytes, [self.path])
            for name, first, count, chunk, num_bytes in found["groups"]
        ]
        return Layout(groups, found["words"], found["has_own_nodes"])

    def _layout_of_files(self) -> Layout:
        groups, words, has_own_nodes = list[Group](), list[str](), False
        for split, files in self._files.items():
            about = self._parse(rows_of, files)
            alone = [file for file, rows in zip(files, about, strict=True) if rows is None]
            if alone:  # files of one sample come first
                size = num_bytes_of(alone[:1])
                groups.append(Group(split, len(words), len(alone), 1, size, alone, is_files=True))
                words += [split] * len(alone)
            for file, rows in zip(files, about, strict=True):
                if rows is not None:
                    figures = (rows["count"], rows["chunk"], rows["sample_bytes"])
                    groups.append(Group(split, len(words), *figures, [file]))
                    has_own_nodes |= rows["has_own_nodes"]
                    words += [split] * rows["count"]
        return Layout(groups, words, has_own_nodes)

    def _parse(self, function: Callable[..., Any], files: Sequence[Path], *words: Any) -> list[Any]:
        size = self._num_bytes if len(files) == 1 and not self._files else None
        return parse(function, files, self._request, *words, imports=self._imports, size=size)

    def __len__(self) -> int:
        return self.layout.count

    def window(self, first: int, last: int) -> UserSamples:
        """Samples `first` to `last` - 1, all of one group."""
        (group,) = (g for g in self.layout.groups if g.first <= first < g.first + g.count)
        rows = slice(first - group.first, last - group.first)
        if group.is_files:
            datasets = self._read_files(group.name, group.files[rows])
        else:
            datasets = self._read_rows(group, rows)
        samples = assemble(self.path, datasets, self._request.naming, self._known)
        if samples.mask and self._known is None:
            raise InputError(
                f"{samples.samples[0].origin}: nodes without values (NaN in the inputs, or a "
                f"mask) need all samples in memory; use --data.streamed no"
            )
        return declared_periodic(samples, self._request.naming.periodic)

    def _read_rows(self, group: Group, rows: slice) -> "list[xarray.Dataset]":
        import xarray

        used = parts_of(group.files[0]) if self._files else ()
        self.watch.require_same(used)
        inner = "" if self._files else group.name
        words = (inner, rows.start, rows.stop, not self._files)
        (values,) = self._parse(window_of, group.files, *words)
        self.watch.require_same(used)
        return [xarray.Dataset.from_dict(values).assign_attrs(split=group.name)]

    def _read_files(self, split: str, files: Sequence[Path]) -> "list[xarray.Dataset]":
        parts = [part for file in files for part in parts_of(file)]
        self.watch.require_same(parts)
        found = read_files(files, self._request, has_samples=False)
        self.watch.require_same(parts)
        return [dataset.assign_attrs(split=split) for some in found for dataset in some]

    def windows(self) -> Iterator[UserSamples]:
        """All samples, in windows of a bounded size."""
        for group in self.layout.groups:
            size = max(1, WINDOW_BYTES // max(1, group.sample_bytes))
            size -= size % group.chunk if size > group.chunk else 0
            end = group.first + group.count
            for first in range(group.first, end, size):
                yield self.window(first, min(first + size, end))


class UserSource:
    """Samples of a problem in a user's file; a `Source` of `cato.data.streamed`."""

    def __init__(
        self, samples: StreamedSamples, problem: Problem, scan: "Scan", fingerprint: str
    ) -> None:
        self.path, self.watch, self.fingerprint = samples.path, samples.watch, fingerprint
        self.coords = None if scan.has_own_nodes else scan.first.samples[0].coords
        self.is_padded = scan.smallest < problem.num_nodes
        self.chunk = max(group.chunk for group in samples.layout.groups)
        self._samples, self._problem = samples, problem

    def __len__(self) -> int:
        return len(self._samples)

    def read(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        parts = [self._read(run) for run in self._runs(indices)]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _runs(self, indices: np.ndarray) -> Iterator[np.ndarray]:
        """The indices of each group, those of one chunk together."""
        for group in self._samples.layout.groups:
            mine = indices[(indices >= group.first) & (indices < group.first + group.count)]
            if len(mine):
                breaks = np.flatnonzero(np.diff(mine) > self.chunk) + 1
                yield from np.split(mine, breaks)

    def _read(self, run: np.ndarray) -> dict[str, np.ndarray]:
        window = self._samples.window(int(run[0]), int(run[-1]) + 1)
        data = dataset_of(window, self._problem, (run - run[0]).tolist())
        found = data.arrays(*(["coords"] if self.coords is None else []), "inputs", "targets")
        if "coords" in found:  # the samples of a window may share the same nodes
            shape = (len(data), *self._problem.shape, self._problem.dimension)
            found["coords"] = np.broadcast_to(found["coords"], shape)
        if self.is_padded:
            everywhere = np.ones((len(data), self._problem.num_nodes), np.bool_)
            found["mask"] = everywhere if data.mask is None else data.mask.numpy()
        return found


@dataclass
class Scan:
    """What one pass over all samples has found."""

    first: UserSamples
    spreads: dict[str, list[Spread]]
    largest: int  # Nodes of the largest sample,
    smallest: int  # and of the smallest.
    has_own_nodes: bool  # Whether samples differ in their coordinates, or in which of them count.


def scan(samples: StreamedSamples) -> Scan:
    """Check all samples, in one pass."""
    found: Scan | None = None
    counts: dict[str, int] = {}
    done = 0
    with progress_bar(f"checking {samples.path.name}", len(samples)) as bar:
        for window in samples.windows():
            require_usable(window)
            sizes = [sample.coords[..., 0].size for sample in window.samples]
            new = {name: _num_rows(window, name) for name in window.spreads}
            if found is None:
                own = samples.layout.has_own_nodes or not window.has_shared_coords
                found = Scan(window, window.spreads, max(sizes), min(sizes), own)
            else:
                _require_alike(found.first, window)
                found.has_own_nodes = found.has_own_nodes or _differ_in_nodes(found.first, window)
                found.spreads = {
                    name: joined_spreads(old, counts[name], window.spreads[name], new[name])
                    for name, old in found.spreads.items()
                }
                found.largest = max(found.largest, *sizes)
                found.smallest = min(found.smallest, *sizes)
            counts = {name: counts.get(name, 0) + count for name, count in new.items()}
            bar(done := done + len(window))
    if found is None:
        raise InputError(f"{samples.path} holds no samples: the axis that counts them has length 0")
    return found


def _num_rows(window: UserSamples, name: str) -> int:
    """Number of values of a channel."""
    if name == "coords":
        return sum(sample.coords[..., 0].size for sample in window.on_distinct_meshes)
    arrays = [s.inputs if name == "inputs" else s.targets for s in window.samples]
    return sum(
        array.size // array.shape[-1] for array in arrays if array is not None and array.size
    )


def _time_of(samples: UserSamples) -> str:
    details = ", ".join((*samples.controls, *map(str, samples.times)))
    frames = "" if samples.time == "steady" else f"of {samples.num_frames} frames "
    return f"{samples.time} {frames}{details}".rstrip()


def _require_alike(first: UserSamples, window: UserSamples) -> None:
    """Raise if samples of one file are of different problems."""
    for name, of in (("geometry", geometry_of), ("time", _time_of), ("mesh", _mesh_of)):
        if of(first) != of(window):
            raise InputError(
                f"{window.samples[0].origin}: {name} {of(window)}, but {of(first)} before; data "
                f"that are streamed need the same for all samples, use --data.streamed no"
            )


def _mesh_of(samples: UserSamples) -> str:
    """Nodes along each axis, for clouds their number of axes."""
    if geometry_of(samples) == "cloud":
        return "of points"
    return " × ".join(map(str, samples.samples[0].mesh))


def _differ_in_nodes(first: UserSamples, window: UserSamples) -> bool:
    if not window.has_shared_coords:
        return True
    return not np.array_equal(window.samples[0].coords, first.samples[0].coords)


def problem_of(found: Scan) -> Problem:
    """The problem that the samples of a pass are of."""
    problem = recognise(found.first, found.spreads)
    return replace(problem, shape=(found.largest,)) if problem.geometry == "cloud" else problem


def can_stream(path: Path, files: Mapping[str, Sequence[Path]]) -> bool:
    """Whether a file, or a folder with these files by split, can be read a window at a time."""
    if is_entry(path):
        return suffix_of(path) in SUFFIXES
    return not any(suffix_of(file) in IN_POINTS for some in files.values() for file in some)


def open_splits(
    path: Path,
    naming: Naming,
    fingerprint: str,
    indices_of: Any,
    files: Mapping[str, Sequence[Path]],
) -> Splits:
    """The streamed splits of a file, or of a folder with these files by split.

    `indices_of` gives the indices of each, and the number of folds, from the words for the splits.
    """
    if not can_stream(path, files):
        raise InputError(
            f"{path} cannot be streamed, only one file can that ends in {', '.join(SUFFIXES)}, or "
            f"a folder of arrays; convert it, or use --data.streamed no"
        )
    advice = "restore it, and resume the training"
    samples = StreamedSamples(path, ReadRequest(naming), advice, files=files)
    found = scan(samples)
    problem = problem_of(found)
    if problem.has_gaps:
        note("target values that are NaN count in no loss, error or band")
    # Names are part of what the samples are: other fields of a file are other samples.
    source = UserSource(samples, problem, found, f"{fingerprint} {naming}")
    indices, num_folds = indices_of(samples.layout.words)
    datasets = {
        name: Streamed(problem, source, np.array(indices[name], np.int64), f"{path}, {name} split")
        for name in SPLITS
    }
    return Splits(problem, datasets, num_folds)


# -- predictions ----------------------------------------------------------------------------------


@contextmanager
def appended(target: Path, count: int) -> Iterator[Any]:
    """A function that appends the arrays of some samples to a new HDF5 file of `count` samples.

    It takes a dataset with named dimensions. An array that appears later is NaN before.
    """
    done = 0
    with new_hdf5(target) as file:

        def append(dataset: Any) -> None:
            nonlocal done
            num_samples = dataset.sizes[SAMPLE]
            for name, variable in dataset.items():
                values = variable.values
                if SAMPLE not in variable.dims:
                    if name not in file:
                        file.create_dataset(name, data=values, compression="gzip")
                    continue
                if name not in file:
                    fill = np.nan if values.dtype.kind == "f" else None
                    shape = values.shape[1:]
                    file.create_dataset(
                        name,
                        (count, *shape),
                        values.dtype,
                        chunks=(1, *shape) if shape else True,
                        compression="gzip",
                        fillvalue=fill,
                    )
                file[name][done : done + num_samples] = values
            done += num_samples

        yield append
