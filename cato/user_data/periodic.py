"""Periodic mesh axes, as the user declares them.

The nodes decide how an axis closes:

- the last line lies on the first, as in most files of O-grids: it is taken off, and put back where
  predictions are written;
- the axis is one of a uniform grid: a torus, whose coordinate repeats after one more step;
- otherwise the last line is followed by the first.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import product

import numpy as np

from cato.data.arrays import is_uniform_along
from cato.errors import InputError
from cato.problem import MIN_NODES
from cato.user_data.samples import UserSample, UserSamples, geometry_of

TOLERANCE = 1e-5
"""Largest distance, relative to the range of values, of what coincides: files are rounded."""


def declared_periodic(samples: UserSamples, axes: Sequence[int]) -> UserSamples:
    """The samples with periodic axes, none of which repeats its first line at its end."""
    return reduce(_closed, axes, samples)


def closing_axes(samples: UserSamples) -> list[int]:
    """Axes not declared periodic whose last line has nodes and values of the first."""
    return [
        axis
        for axis in range(_num_axes(samples))
        if axis not in samples.periodic
        and all(_repeats_nodes(sample, axis) for sample in samples.on_distinct_meshes)
        and not any(_differing(samples, sample, axis) for sample in samples.samples)
    ]


def with_repeated_lines(samples: UserSamples, array: np.ndarray) -> np.ndarray:
    """Values (…, *mesh, C) of one sample with the lines that its file repeats."""
    first = array.ndim - 1 - len(samples.samples[0].mesh)
    for axis in samples.repeated:
        array = _with_first_line(array, first + axis)
    return array


def num_folded_cells(coords: np.ndarray) -> int:
    """Cells of a (*shape, D) mesh with a corner that is flat or turns against most of the mesh.

    At every corner of a cell its D edges span a parallelepiped; the signed volumes have one sign
    all over a mesh that is not folded.
    """
    shape, dimension = coords.shape[:-1], coords.shape[-1]
    assert len(shape) == dimension
    edges = [np.diff(coords.astype(np.float64), axis=axis) for axis in range(dimension)]
    volumes = []
    for corner in product((0, 1), repeat=dimension):
        ranges = [slice(c, n - 1 + c) for c, n in zip(corner, shape, strict=True)]
        vectors = [
            edge[tuple(slice(None) if other == axis else r for other, r in enumerate(ranges))]
            for axis, edge in enumerate(edges)
        ]
        volumes.append(np.linalg.det(np.stack(vectors, axis=-2)))
    turns = np.sign(np.stack(volumes))
    orientation = 1 if turns.sum() >= 0 else -1
    return int((turns != orientation).any(axis=0).sum())


def _closed(samples: UserSamples, axis: int) -> UserSamples:
    path, num_axes, meshes = samples.path, _num_axes(samples), samples.on_distinct_meshes
    if not 0 <= axis < num_axes or axis in samples.periodic:
        raise InputError(
            f"{path}: periodic axes are numbered from 0 and named once each, and need a structured "
            f"mesh; here are {num_axes} axes, got {axis}"
        )
    repeats = [_repeats_nodes(sample, axis) for sample in meshes]
    if all(repeats):
        samples = _without_last_line(samples, axis)
    elif any(repeats):
        raise InputError(
            f"{path}: only some samples repeat the first line of axis {axis} at its end"
        )
    elif all(is_uniform_along(sample.coords, axis) for sample in meshes):
        samples = _torus(samples, axis)
    else:
        _require_closing(samples, axis)
    return replace(samples, periodic=(*samples.periodic, axis))


def _without_last_line(samples: UserSamples, axis: int) -> UserSamples:
    for sample in samples.samples:
        if name := _differing(samples, sample, axis):
            raise InputError(
                f"{sample.origin}: the last line of axis {axis} lies on the first, but {name} "
                f"differs between them, so the axis is not periodic"
            )
        if sample.mesh[axis] <= MIN_NODES:
            raise InputError(
                f"{sample.origin}: periodic axis {axis} needs {MIN_NODES} nodes besides the last, "
                f"which repeats the first"
            )

    num_axes = len(samples.samples[0].mesh)

    def cut(array: np.ndarray) -> np.ndarray:
        along = array.ndim - 1 - num_axes + axis
        return np.ascontiguousarray(array.take(range(array.shape[along] - 1), along))

    # One mesh of all samples stays one array.
    nodes = {id(sample.coords): cut(sample.coords) for sample in samples.on_distinct_meshes}
    found = [replace(s.mapped(cut), coords=nodes[id(s.coords)]) for s in samples.samples]
    return replace(samples, samples=found, repeated=(*samples.repeated, axis))


def _torus(samples: UserSamples, axis: int) -> UserSamples:
    """A coordinate of a uniform grid repeats one step after its last node."""
    has_truth = samples.samples[0].targets is not None
    if has_truth and not any(_differing(samples, s, axis) for s in samples.samples):
        raise InputError(
            f"{samples.path}: the last line of axis {axis} has the values of the first, one period "
            f"away; leave it out, as a periodic grid has every node once"
        )
    nodes = [s.coords[..., axis].astype(np.float64) for s in samples.on_distinct_meshes]
    lengths = [abs(np.diff(x, axis=axis).mean()) * x.shape[axis] for x in nodes]
    if np.ptp(lengths) > TOLERANCE * max(lengths):
        raise InputError(
            f"{samples.path}: the period along axis {axis} must be the same for all samples; it is "
            f"between {min(lengths):g} and {max(lengths):g}"
        )
    period = list(samples.period or [None] * _num_axes(samples))
    period[axis] = float(lengths[0])
    return replace(samples, period=tuple(period))


def _require_closing(samples: UserSamples, axis: int) -> None:
    """Refuse an axis whose ends are not neighbours: the cells between them would be folded."""
    for sample in samples.on_distinct_meshes:
        ring = _with_first_line(sample.coords, axis)
        if num_folded_cells(ring) > num_folded_cells(sample.coords):
            raise InputError(
                f"{sample.origin}: axis {axis} is declared periodic, but does not close: cells "
                f"between its last and first line are folded. On a box with unequal spacing do "
                f"not declare the axis periodic"
            )


def _num_axes(samples: UserSamples) -> int:
    """Axes of the mesh; a cloud has none."""
    return 0 if geometry_of(samples) == "cloud" else len(samples.samples[0].mesh)


def _with_first_line(array: np.ndarray, axis: int) -> np.ndarray:
    return np.concatenate((array, array.take([0], axis)), axis)


def _coincide(array: np.ndarray, axis: int) -> bool:
    """Whether first and last line agree; values that are not finite are refused elsewhere."""
    apart = np.abs(array.take(0, axis) - array.take(-1, axis))
    finite = array[np.isfinite(array)]
    if not finite.size:
        return True
    # Relative to the variation: next to a large mean all lines would coincide.
    size, rounding = np.ptp(finite), 4 * np.finfo(array.dtype).eps * np.abs(finite).max()
    return not (apart > TOLERANCE * size + rounding).any()


def _repeats_nodes(sample: UserSample, axis: int) -> bool:
    """Whether the last line of nodes lies on the first."""
    centre = sample.coords.reshape(-1, sample.coords.shape[-1]).mean(0)
    return _coincide(sample.coords - centre, axis)


def _differing(samples: UserSamples, sample: UserSample, axis: int) -> str:
    """The first channel whose values differ between first and last line, or an empty string."""
    fields = list(samples.channels(sample))[sample.coords.shape[-1] :]
    along = axis - len(sample.mesh)
    return next((name for name, values in fields if not _coincide(values, along)), "")
