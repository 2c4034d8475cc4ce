"""Files of named arrays, and which reading of their coordinates fits their fields."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cato.errors import InputError
from cato.user_data.naming import Name, Naming
from cato.user_data.shapes import Shape, nodal_readings, read_shape

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
class ReadRequest:
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


class MeshMatch(NamedTuple):
    """Coordinates, and how many samples there are."""

    coords: np.ndarray
    is_per_sample: bool
    """Whether each sample has its own."""
    num_samples: int = 1

    @property
    def mesh(self) -> Shape:
        """Nodes along each axis."""
        return self.coords.shape[self.is_per_sample : -1]


def place(
    file: ArrayFile,
    request: ReadRequest,
    naming: Naming,
    fields: Mapping[str, np.ndarray],
    has_samples: bool,
) -> MeshMatch:
    """The reading of the coordinates that fits the fields, which have an axis of samples or not."""
    candidates = [
        c for c in _candidates(file, request, naming) if has_samples or not c.is_per_sample
    ]
    match = _for_nodal_field(file, naming, fields, candidates, has_samples)
    if match is None and not naming.targets:
        match = _for_scalars(request, list(fields.values()), candidates, has_samples)
    if match is not None:
        return match
    used = (*naming.coords, *(name.field for name in (*naming.targets, *naming.inputs)))
    shapes = {name: file.shapes[name] for name in used}
    first = "samples, " if has_samples else ""
    raise InputError(
        f"{file.path}: the shapes {shapes} do not fit together; expected coordinates (*mesh, D)"
        f"{' or (samples, *mesh, D)' if has_samples else ''}, D at most {MAX_DIMENSION} and as "
        f"many axes of the mesh or fewer, and fields ({first}*mesh, channels), in time "
        f"({first}frames, *mesh, channels), or scalars ({first}values)"
    )


def _for_nodal_field(
    file: ArrayFile,
    naming: Naming,
    fields: Mapping[str, np.ndarray],
    candidates: list[MeshMatch],
    has_samples: bool,
) -> MeshMatch | None:
    """The candidate that fits the first field with values at nodes, if there is one."""
    for name in (*naming.targets, *naming.inputs):
        shape = fields[name.field].shape
        fitting = _fitting(candidates, name, shape, has_samples)
        if not fitting:
            continue
        match = fitting[0]
        # With an axis less than coordinates, what each sample has of its own is never periodic.
        if (
            any(other.is_per_sample != match.is_per_sample for other in fitting)
            and not naming.periodic
        ):
            raise InputError(
                f"{file.path}: coordinates {match.coords.shape} with field {name.field!r} "
                f"{shape} may be one mesh for all samples or one for each; repeat the mesh of all "
                f"as (samples, *mesh, D), or name the frames of a time series, --targets "
                f"{name.field}[:]"
            )
        try:
            read_shape(shape[has_samples:], match.mesh)
        except InputError as error:
            raise InputError(f"{file.path}: field {name.field!r}: {error}") from None
        return match._replace(num_samples=shape[0] if has_samples else 1)
    return None


def _for_scalars(
    request: ReadRequest, scalars: list[np.ndarray], candidates: list[MeshMatch], has_samples: bool
) -> MeshMatch | None:
    """The candidate for inputs that are scalars of the samples, or for none."""
    if not all(has_samples <= array.ndim <= 2 for array in scalars):
        return None
    counts = [len(array) for array in scalars] if has_samples else [1]
    num_nodes = None if request.coords is None else prod(request.coords.shape[:-1])
    # What is like the known nodes, else a cloud, which has fewest axes.
    for match in sorted(candidates, key=lambda c: (prod(c.mesh) != num_nodes, len(c.mesh))):
        its_count = len(match.coords) if match.is_per_sample else None
        count = counts[0] if counts else its_count or 1
        if its_count in (None, count):
            return match._replace(num_samples=count)
    return None


def _fitting(
    candidates: list[MeshMatch], name: Name, shape: Shape, has_samples: bool
) -> list[MeshMatch]:
    """The candidates on which a field has values at nodes, in time where its frames are named."""
    readings = [
        (c, nodal_readings(shape[has_samples:], c.mesh))
        for c in candidates
        if not c.is_per_sample or shape[:1] == c.coords.shape[:1]
    ]
    in_time = [c for c, found in readings if any(reading.has_frames for reading in found)]
    if name.frames is not None and in_time:
        return in_time
    return [c for c, found in readings if found]


def _candidates(file: ArrayFile, request: ReadRequest, naming: Naming) -> Iterator[MeshMatch]:
    """Readings of the coordinates: shared by all samples or not, most mesh axes first."""
    if not naming.coords:
        if request.coords is None:
            raise InputError(
                f"{file.path} has no coordinates; add an array 'coords' of shape (*mesh, D) or "
                f"(samples, *mesh, D), or name them by --coords x,y"
            )
        yield MeshMatch(request.coords, False)
        if naming.periodic:  # the file may have the first line of an axis at its end once more
            ends = [(0, int(axis in naming.periodic)) for axis in range(request.coords.ndim - 1)]
            yield MeshMatch(np.pad(request.coords, [*ends, (0, 0)], mode="wrap"), False)
        return
    arrays = [file.numbers(name) for name in naming.coords]
    num_axes = file.num_axes or request.num_axes
    may_be_per_sample = any(array.ndim > 1 for array in arrays)
    for coords in _stacked(file, naming.coords, arrays):
        for is_per_sample in (False, True)[: 1 + may_be_per_sample]:
            match = MeshMatch(coords, is_per_sample)
            fits = num_axes in (None, len(match.mesh))
            if fits and 1 <= len(match.mesh) <= coords.shape[-1] <= MAX_DIMENSION:
                yield match


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
