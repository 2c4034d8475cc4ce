"""Samples of array files: which axis is that of the samples, and what belongs to which sample."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cato.data.benchmarks.base import SPLITS
from cato.data.own.naming import Name, Naming
from cato.data.own.samples import RawSample, RawSamples, sharing_equal_meshes
from cato.data.own.shapes import Shape, nodal_readings, read_shape
from cato.errors import InputError

MAX_DIMENSION = 3


@dataclass(frozen=True)
class ArrayFile:
    """An open file of named arrays.

    Attributes:
        path: Where it is.
        shapes: Of its arrays, by name.
        read: Gives an array.
        num_axes: Of the mesh, where the format says which axis is which.
    """

    path: Path
    shapes: Mapping[str, Shape]
    read: Callable[[str], np.ndarray]
    num_axes: int | None = None

    def numbers(self, name: str) -> np.ndarray:
        """An array of real numbers; a missing one is an error that lists what there is."""
        if name not in self.shapes:
            there = ", ".join(f"{n} {s}" for n, s in self.shapes.items()) or "nothing"
            raise InputError(
                f"{self.path} has no field {name!r}, only {there}; name the fields by "
                f"--coords, --inputs and --targets"
            )
        array = self.read(name)
        if array.dtype.kind not in "fiub":
            raise InputError(
                f"{self.path}: field {name!r} should be real numbers, but is {array.dtype}"
            )
        return array

    def group(self, name: str) -> "ArrayFile":
        """The arrays of a group and those at the root, which it shares."""
        inner = {n.removeprefix(f"{name}/"): n for n in self.shapes if n.startswith(f"{name}/")}
        shared = {n: n for n in self.shapes if "/" not in n}
        paths = shared | inner
        shapes = {short: self.shapes[full] for short, full in paths.items()}
        return ArrayFile(self.path, shapes, lambda short: self.read(paths[short]))


@dataclass(frozen=True)
class Wanted:
    """What is read of a path.

    Attributes:
        naming: Its fields.
        truth: Whether targets must be there.
        num_axes: Of the mesh, where it is known; a cloud has one.
        coords: The nodes (*mesh, D) where the file has none.
    """

    naming: Naming
    truth: bool = True
    num_axes: int | None = None
    coords: np.ndarray | None = None


def table_samples(file: ArrayFile, wanted: Wanted) -> RawSamples:
    """The samples of one file, samples first, or in the groups train, validation and test."""
    groups = [name for name in SPLITS if any(n.startswith(f"{name}/") for n in file.shapes)]
    if not groups:
        return _samples(file, wanted)
    parts = {name: _samples(file.group(name), wanted) for name in groups}
    samples = [
        replace(sample, split=name, origin=f"{sample.origin} of {name}")
        for name, part in parts.items()
        for sample in part.samples
    ]
    return RawSamples(sharing_equal_meshes(samples), parts[groups[0]].labels)


def single_sample(file: ArrayFile, wanted: Wanted) -> RawSamples:
    """The one sample of a file whose arrays have no axis of samples."""
    naming = wanted.naming.within(file.shapes, wanted.truth)
    fields = {n.field: file.numbers(n.field) for n in (*naming.inputs, *naming.targets)}
    placed = _place(file, wanted, naming, fields, has_samples=False)
    sample = RawSample(str(file.path), placed.coords, fields)
    return RawSamples([sample], _labels(file))


def _samples(file: ArrayFile, wanted: Wanted) -> RawSamples:
    naming = wanted.naming.within(file.shapes, wanted.truth)
    fields = {n.field: file.numbers(n.field) for n in (*naming.inputs, *naming.targets)}
    placed = _place(file, wanted, naming, fields, has_samples=True)
    count, mesh = placed.num_samples, placed.mesh
    is_own = {n: _has_samples(file.path, n, a.shape, placed) for n, a in fields.items()}
    keep, splits = _keep(file, count, mesh), _splits(file, count)
    samples = [
        RawSample(
            f"{file.path}, sample {i}",
            placed.coords[i] if placed.is_own else placed.coords,
            {name: array[i, ...] if is_own[name] else array for name, array in fields.items()},
            None if keep is None else keep[i],
            splits[i],
        )
        for i in range(count)
    ]
    return RawSamples(samples, _labels(file))


class Placed(NamedTuple):
    """Coordinates, and how many samples there are."""

    coords: np.ndarray
    is_own: bool
    """Whether each sample has its own."""
    num_samples: int = 1

    @property
    def mesh(self) -> Shape:
        """Nodes along each axis."""
        return self.coords.shape[self.is_own : -1]


def _place(
    file: ArrayFile,
    wanted: Wanted,
    naming: Naming,
    fields: Mapping[str, np.ndarray],
    has_samples: bool,
) -> Placed:
    """The reading of the coordinates that fits the first nodal field."""
    names = (*naming.targets, *naming.inputs)
    candidates = [c for c in _candidates(file, wanted, naming) if has_samples or not c.is_own]
    for name in names:
        shape = fields[name.field].shape
        fitting = _fitting(candidates, name, shape, has_samples)
        if not fitting:
            continue
        placed = fitting[0]
        # With an axis less than coordinates, what each sample has of its own is never periodic.
        if any(other.is_own != placed.is_own for other in fitting) and not naming.periodic:
            raise InputError(
                f"{file.path}: coordinates {placed.coords.shape} with field {name.field!r} "
                f"{shape} may be one mesh for all samples or one for each; repeat the mesh of all "
                f"as (samples, *mesh, D), or name the frames of a time series, --targets "
                f"{name.field}[:]"
            )
        try:
            read_shape(shape[has_samples:], placed.mesh)
        except InputError as error:
            raise InputError(f"{file.path}: field {name.field!r}: {error}") from None
        return placed._replace(num_samples=shape[0] if has_samples else 1)
    if not naming.targets and all(fields[name.field].ndim <= 2 for name in names):
        counts = [len(fields[name.field]) for name in names] if has_samples else [1]
        num_nodes = None if wanted.coords is None else prod(wanted.coords.shape[:-1])
        # Only scalars: what is like the known nodes, else a cloud, which has fewest axes.
        for placed in sorted(candidates, key=lambda c: (prod(c.mesh) != num_nodes, len(c.mesh))):
            own_count = len(placed.coords) if placed.is_own else None
            count = counts[0] if counts else own_count or 1
            if own_count in (None, count):
                return placed._replace(num_samples=count)
    named = {n: file.shapes[n] for n in (*naming.coords, *(name.field for name in names))}
    first = "samples, " if has_samples else ""
    raise InputError(
        f"{file.path}: the shapes {named} do not fit together; expected coordinates (*mesh, D)"
        f"{' or (samples, *mesh, D)' if has_samples else ''}, D at most {MAX_DIMENSION} and as "
        f"many axes of the mesh or fewer, and fields ({first}*mesh, channels) or, in time, "
        f"({first}frames, *mesh, channels)"
    )


def _fitting(candidates: list[Placed], name: Name, shape: Shape, has_samples: bool) -> list[Placed]:
    """The candidates on which a field has values at nodes, in time where its frames are named."""
    readings = [
        (c, nodal_readings(shape[has_samples:], c.mesh))
        for c in candidates
        if not c.is_own or shape[:1] == c.coords.shape[:1]
    ]
    in_time = [c for c, found in readings if any(reading.has_frames for reading in found)]
    if name.frames is not None and in_time:
        return in_time
    return [c for c, found in readings if found]


def _candidates(file: ArrayFile, wanted: Wanted, naming: Naming) -> Iterator[Placed]:
    """Readings of the coordinates: shared by all samples or not, most mesh axes first."""
    if not naming.coords:
        if wanted.coords is None:
            raise InputError(
                f"{file.path} has no coordinates; add an array 'coords' of shape (*mesh, D) or "
                f"(samples, *mesh, D), or name them by --coords x,y"
            )
        yield Placed(wanted.coords, False)
        if naming.periodic:  # the file may have the first line of an axis at its end once more
            ends = [(0, int(axis in naming.periodic)) for axis in range(wanted.coords.ndim - 1)]
            yield Placed(np.pad(wanted.coords, [*ends, (0, 0)], mode="wrap"), False)
        return
    arrays = [file.numbers(name) for name in naming.coords]
    num_axes = file.num_axes or wanted.num_axes
    may_be_own = any(array.ndim > 1 for array in arrays)
    for coords in _stacked(file, naming.coords, arrays):
        for is_own in (False, True)[: 1 + may_be_own]:
            placed = Placed(coords, is_own)
            fits = num_axes in (None, len(placed.mesh))
            if fits and 1 <= len(placed.mesh) <= coords.shape[-1] <= MAX_DIMENSION:
                yield placed


def _stacked(
    file: ArrayFile, names: tuple[str, ...], arrays: list[np.ndarray]
) -> Iterator[np.ndarray]:
    """Coordinates with their components last: as they are, stacked, or of the axes of a grid."""
    if len(arrays) == 1:
        (array,) = arrays
        if array.ndim == 1 or array.shape[-1] > MAX_DIMENSION:
            yield array[..., None]
        else:
            yield array
        return
    if all(array.ndim == 1 for array in arrays):
        yield np.stack(np.meshgrid(*arrays, indexing="ij"), axis=-1)
    shapes = {array.shape for array in arrays}
    if len(shapes) == 1:
        yield np.stack(arrays, axis=-1)
    elif not all(array.ndim == 1 for array in arrays):
        listed = ", ".join(f"{n} {a.shape}" for n, a in zip(names, arrays, strict=True))
        raise InputError(f"{file.path}: coordinates should have one shape, but have {listed}")


def _has_samples(path: Path, name: str, shape: Shape, placed: Placed) -> bool:
    """Whether each sample has its own values of a field."""
    count, mesh = placed.num_samples, placed.mesh
    own = read_shape(shape[1:], mesh) if shape[:1] == (count,) else None
    is_shared = shape[: len(mesh)] == mesh and len(shape) - len(mesh) in (0, 1)
    if own is not None and is_shared and not own.is_nodal:
        raise InputError(
            f"{path}: field {name!r} of shape {shape} may be scalars of {count} samples or one "
            f"field for all; give a field its axis of channels, {(*shape, 1)}"
        )
    if own is not None or is_shared:
        return own is not None
    raise InputError(
        f"{path}: field {name!r} of shape {shape} should be {(count, *mesh)} or, with channels, "
        f"{(count, *mesh, 'C')}; in time {(count, 'T', *mesh, 'C')}; or scalars {(count,)}, "
        f"{(count, 'P')} of the samples"
    )


def _keep(file: ArrayFile, count: int, mesh: Shape) -> np.ndarray | None:
    """The array `mask`, False at the padding of clouds."""
    if "mask" not in file.shapes:
        return None
    mask = file.numbers("mask") != 0
    if mask.shape != (count, *mesh) or len(mesh) != 1:
        raise InputError(
            f"{file.path}: the mask should mark the points of clouds, of shape {(count, 'N')}; "
            f"it is {mask.shape} on nodes {mesh}"
        )
    empty = np.flatnonzero(~mask.any(axis=1))
    if empty.size:
        raise InputError(f"{file.path}, sample {empty[0]}: all points are padding; remove it")
    return mask


def _splits(file: ArrayFile, count: int) -> list[str]:
    """The array `split`, of words or numbers 0, 1, 2."""
    if "split" not in file.shapes:
        return [""] * count
    values = np.atleast_1d(np.squeeze(file.read("split")))
    numbers = values.dtype.kind in "fiu"
    words = [SPLITS[int(v)] if numbers and v in (0, 1, 2) else str(v) for v in values.tolist()]
    wrong = sorted(set(words) - set(SPLITS))
    if len(words) != count or wrong:
        such = f", such as {wrong[0]!r}" if wrong else ""
        raise InputError(
            f"{file.path}: 'split' should name train, validation or test (or 0, 1, 2) for each of "
            f"the {count} samples; it has {len(words)} entries{such}"
        )
    return words


def _labels(file: ArrayFile) -> dict[str, tuple[str, ...]]:
    """Names of the channels of the layout's arrays."""
    named = {"inputs": "input_names", "targets": "target_names", "scalars": "scalar_names"}
    return {
        field: tuple(map(str, np.atleast_1d(file.read(name)).tolist()))
        for field, name in named.items()
        if name in file.shapes
    }
