"""Axes of a mesh that close on themselves, as the user declares them.

The nodes decide how an axis closes:

- the last line lies on the first, as in most files of O-grids: it is the first once more, is taken
  off, and is put back where predictions are written;
- the axis is one of a uniform grid: a torus, whose coordinate repeats after one more step;
- otherwise the last line is followed by the first.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from cato.data.arrays import is_uniform_along
from cato.errors import InputError
from cato.problem import MIN_NODES
from cato.user_data.samples import UserSample, UserSamples, geometry_of

TOLERANCE = 1e-5
"""How far, in units of the largest value, what coincides may be apart: files have rounded it."""


def declared_periodic(samples: UserSamples, axes: Sequence[int]) -> UserSamples:
    """The samples with periodic axes, none of them with its first line once more at its end."""
    for axis in axes:
        samples = _closed(samples, axis)
    return samples


def closing_axes(samples: UserSamples) -> list[int]:
    """Axes that nobody declared periodic, whose last line has nodes and values of the first."""
    num_axes = _num_axes(samples)
    return [
        axis
        for axis in range(num_axes)
        if axis not in samples.periodic
        and all(_repeats_nodes(sample, axis) for sample in _meshes(samples))
        and all(_differing(samples, sample, axis) is None for sample in samples.samples)
    ]


def with_repeated_lines(samples: UserSamples, array: np.ndarray) -> np.ndarray:
    """Values (…, *mesh, C) of one sample with the lines that its file repeats."""
    first = array.ndim - 1 - len(samples.samples[0].mesh)
    for axis in samples.repeated:
        array = np.concatenate((array, _line(array, first + axis, 0)), first + axis)
    return array


def num_folded_cells(coords: np.ndarray) -> int:
    """Cells of a (*shape, D) mesh of which some corner turns against most of the mesh, or is flat.

    At every corner of a cell its D edges span a parallelepiped; its signed volumes have one sign
    all over a mesh that is not folded.
    """
    shape, dimension = coords.shape[:-1], coords.shape[-1]
    assert len(shape) == dimension
    nodes = coords.astype(np.float64)
    edges = [np.diff(nodes, axis=axis) for axis in range(dimension)]
    volumes = []
    for corner in product((0, 1), repeat=dimension):
        vectors = []
        for axis, edge in enumerate(edges):
            index = tuple(
                slice(None) if other == axis else slice(corner[other], n - 1 + corner[other])
                for other, n in enumerate(shape)
            )
            vectors.append(edge[index])
        volumes.append(np.linalg.det(np.stack(vectors, axis=-2)))
    turns = np.sign(np.stack(volumes))
    orientation = 1 if turns.sum() >= 0 else -1
    return int((turns != orientation).any(axis=0).sum())


def _closed(samples: UserSamples, axis: int) -> UserSamples:
    path, num_axes = samples.path, _num_axes(samples)
    if not 0 <= axis < num_axes or axis in samples.periodic:
        raise InputError(
            f"{path}: periodic axes are numbered from 0 and named once each, and need a mesh of "
            f"rows and columns; here are {num_axes} axes, got {axis}"
        )
    found = {_repeats_nodes(sample, axis) for sample in _meshes(samples)}
    if len(found) > 1:
        raise InputError(
            f"{path}: only some samples repeat the first line of axis {axis} at its end"
        )
    if found.pop():
        samples = _without_last_line(samples, axis)
    elif all(is_uniform_along(sample.coords, axis) for sample in _meshes(samples)):
        samples = _torus(samples, axis)
    else:
        _require_closing(samples, axis)
    return replace(samples, periodic=(*samples.periodic, axis))


def _without_last_line(samples: UserSamples, axis: int) -> UserSamples:
    for sample in samples.samples:
        if (name := _differing(samples, sample, axis)) is not None:
            raise InputError(
                f"{sample.origin}: the last line of axis {axis} lies on the first, but {name} "
                f"differs between them, so that the axis is not periodic"
            )
        if sample.mesh[axis] <= MIN_NODES:
            raise InputError(
                f"{sample.origin}: periodic axis {axis} needs {MIN_NODES} nodes besides the last, "
                f"which repeats the first"
            )
    shared: dict[int, np.ndarray] = {}

    def cut(array: np.ndarray, num_axes: int) -> np.ndarray:
        where = array.ndim - 1 - num_axes + axis
        return np.ascontiguousarray(array.take(range(array.shape[where] - 1), where))

    def cut_sample(sample: UserSample) -> UserSample:
        num_axes = len(sample.mesh)
        if id(sample.coords) not in shared:  # one mesh of all samples stays one array
            shared[id(sample.coords)] = cut(sample.coords, num_axes)
        targets = None if sample.targets is None else cut(sample.targets, num_axes)
        coords = shared[id(sample.coords)]
        return replace(sample, coords=coords, inputs=cut(sample.inputs, num_axes), targets=targets)

    cut_samples = [cut_sample(sample) for sample in samples.samples]
    return replace(samples, samples=cut_samples, repeated=(*samples.repeated, axis))


def _torus(samples: UserSamples, axis: int) -> UserSamples:
    """A coordinate of a uniform grid repeats one step after its last node."""
    has_truth = samples.samples[0].targets is not None
    if has_truth and all(_differing(samples, s, axis) is None for s in samples.samples):
        raise InputError(
            f"{samples.path}: the last line of axis {axis} has the values of the first, one period "
            f"away; leave it out, as a periodic grid has every node once"
        )
    lengths = [_step(sample, axis) * sample.mesh[axis] for sample in _meshes(samples)]
    if np.ptp(lengths) > TOLERANCE * max(lengths):
        raise InputError(
            f"{samples.path}: the period along axis {axis} must be the same for all samples; it is "
            f"between {min(lengths):g} and {max(lengths):g}"
        )
    period = list(samples.period or [None] * _num_axes(samples))
    period[axis] = float(lengths[0])
    return replace(samples, period=tuple(period))


def _require_closing(samples: UserSamples, axis: int) -> None:
    """Refuse an axis whose ends are no neighbours: the cells between them would be folded."""
    for sample in _meshes(samples):
        ring = np.concatenate((sample.coords, _line(sample.coords, axis, 0)), axis)
        if num_folded_cells(ring) > num_folded_cells(sample.coords):
            raise InputError(
                f"{sample.origin}: axis {axis} is said to be periodic, but does not close: cells "
                f"between its last and first line are folded. On a box whose spacing is not equal "
                f"leave the axis as it is"
            )


def _meshes(samples: UserSamples) -> list[UserSample]:
    return samples.samples[:1] if samples.has_shared_coords else samples.samples


def _num_axes(samples: UserSamples) -> int:
    """Axes of the mesh; a cloud has none."""
    return 0 if geometry_of(samples) == "cloud" else len(samples.samples[0].mesh)


def _line(array: np.ndarray, axis: int, index: int) -> np.ndarray:
    """One line of nodes, with its axis."""
    return array.take([index], axis)


def _coincide(array: np.ndarray, axis: int) -> bool:
    """Whether first and last line agree; what is not finite is refused elsewhere."""
    apart = np.abs(_line(array, axis, 0) - _line(array, axis, -1))
    size = np.abs(array[np.isfinite(array)]).max(initial=0.0)
    return not (apart > TOLERANCE * size).any()


def _repeats_nodes(sample: UserSample, axis: int) -> bool:
    """Whether the last line of nodes lies on the first."""
    nodes = sample.coords - sample.coords.reshape(-1, sample.coords.shape[-1]).mean(0)
    return _coincide(nodes, axis)


def _differing(samples: UserSamples, sample: UserSample, axis: int) -> str | None:
    """The first channel whose values differ between first and last line."""
    num_axes = len(sample.mesh)
    fields = [(f"input {n}", sample.inputs[..., c]) for c, n in enumerate(samples.inputs)]
    if sample.targets is not None:
        fields += [(f"target {n}", sample.targets[..., c]) for c, n in enumerate(samples.outputs)]
    for name, values in fields:
        if not _coincide(values, values.ndim - num_axes + axis):
            return name
    return None


def _step(sample: UserSample, axis: int) -> float:
    along = np.diff(sample.coords[..., axis].astype(np.float64), axis=axis)
    return abs(float(along.mean()))
