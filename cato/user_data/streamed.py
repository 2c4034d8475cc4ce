"""Users' HDF5 files that are read while they are used, because they are larger than the memory.

The readers see a window of consecutive samples as if it were the whole file. So windows go through
the same steps as files that fit (`name_axes`, `assemble`, periodic axes, checks), also in the child
process for foreign files. One pass over all windows says what problem the samples are of.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cato.benchmarks.contract import SPLITS
from cato.data.dataset import Splits
from cato.data.formats import new_hdf5
from cato.data.streamed import Streamed
from cato.data.watch import Watch
from cato.errors import InputError
from cato.problem import Problem
from cato.progress import note, progress_bar
from cato.sandbox import parse
from cato.user_data.axes import SAMPLE
from cato.user_data.inspect import require_usable
from cato.user_data.naming import Naming, ReadRequest
from cato.user_data.periodic import declared_periodic
from cato.user_data.precision import Spread, joined_spreads
from cato.user_data.samples import UserSamples, assemble, dataset_of, geometry_of, recognise
from cato.user_data.windows import layout_of, window_of

SUFFIXES = (".h5", ".hdf5")
WINDOW_BYTES = 2**26  # Of a window of a pass over all samples.


@dataclass(frozen=True)
class Group:
    """Samples that are stored together: those of the file, or of one of its groups of splits."""

    name: str  # train, validation or test; empty for a file without such groups.
    first: int  # Number of the first sample.
    count: int
    chunk: int  # Samples that the file stores together.
    sample_bytes: int


@dataclass(frozen=True)
class Layout:
    """How the samples lie in a file."""

    groups: list[Group]
    words: list[str]  # The split of each sample, or "" if the file names none.
    has_own_nodes: bool  # Whether coordinates, or which of them count, differ between samples.

    @property
    def count(self) -> int:
        return sum(group.count for group in self.groups)


class StreamedSamples:
    """The samples of a file, a window at a time."""

    def __init__(
        self, path: Path, request: ReadRequest, advice: str, known: Problem | None = None
    ) -> None:
        self.path, self._request, self._known = path, request, known
        self.watch = Watch([path], advice)
        (found,) = parse(layout_of, [path], request, imports=["xarray"])
        if found["is_grouped"]:
            raise InputError(
                f"{path} has a group for each sample and cannot be streamed; use --data.streamed no"
            )
        groups = [Group(*values) for values in found["groups"]]
        self.layout = Layout(groups, found["words"], found["has_own_nodes"])

    def __len__(self) -> int:
        return self.layout.count

    def window(self, first: int, last: int) -> UserSamples:
        """Samples `first` to `last` - 1, all of one group."""
        import xarray

        (group,) = (g for g in self.layout.groups if g.first <= first < g.first + g.count)
        rows = (first - group.first, last - group.first)
        self.watch.require_same()
        imports = ["xarray"]
        (values,) = parse(window_of, [self.path], self._request, group.name, *rows, imports=imports)
        self.watch.require_same()
        dataset = xarray.Dataset.from_dict(values)
        samples = assemble(self.path, [dataset], self._request.naming, self._known)
        if samples.mask and self._known is None:
            raise InputError(
                f"{samples.samples[0].origin}: nodes without values (NaN in the inputs, or a "
                f"mask) need all samples in memory; use --data.streamed no"
            )
        return declared_periodic(samples, self._request.naming.periodic)

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
        shared = scan.first.samples[0].coords
        self.coords = None if samples.layout.has_own_nodes else shared
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
                found = Scan(window, window.spreads, max(sizes), min(sizes))
            else:
                _require_alike(found.first, window)
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
    return f"{samples.time} {details}".rstrip()


def _require_alike(first: UserSamples, window: UserSamples) -> None:
    """Raise if samples of one file are of different problems."""
    for name, of in (("geometry", geometry_of), ("time", _time_of)):
        if of(first) != of(window):
            raise InputError(
                f"{window.samples[0].origin}: {name} {of(window)}, but {of(first)} before; a file "
                f"that is streamed needs the same for all samples, use --data.streamed no"
            )


def problem_of(found: Scan) -> Problem:
    """The problem that the samples of a pass are of."""
    problem = recognise(found.first, found.spreads)
    return replace(problem, shape=(found.largest,)) if problem.geometry == "cloud" else problem


def open_splits(
    path: Path, naming: Naming, fingerprint: str, indices_of: Any, known: Problem | None = None
) -> Splits:
    """The streamed splits of a file.

    `indices_of` gives the indices of each, and the number of folds, from the words for the splits.
    """
    if path.suffix.lower() not in SUFFIXES or path.is_dir():
        raise InputError(
            f"{path} cannot be streamed, only one HDF5 file can ({', '.join(SUFFIXES)}); convert "
            f"it, or use --data.streamed no"
        )
    samples = StreamedSamples(path, ReadRequest(naming), "restore it, and resume the training")
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
