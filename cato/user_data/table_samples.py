"""Samples of array files: which axis is that of the samples, and what belongs to which sample."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from cato.benchmarks.contract import SPLITS
from cato.errors import InputError
from cato.user_data.axes import ArrayFile, MeshMatch, ReadRequest, place
from cato.user_data.samples import RawSample, RawSamples, sharing_equal_meshes
from cato.user_data.shapes import Shape, read_shape


def table_samples(file: ArrayFile, request: ReadRequest) -> RawSamples:
    """The samples of one file, samples first, or in the groups train, validation and test."""
    groups = [name for name in SPLITS if any(n.startswith(f"{name}/") for n in file.shapes)]
    if not groups:
        return _samples(file, request)
    parts = {name: _samples(file.group(name), request) for name in groups}
    samples = [
        replace(sample, split=name, origin=f"{sample.origin} of {name}")
        for name, part in parts.items()
        for sample in part.samples
    ]
    return RawSamples(sharing_equal_meshes(samples), parts[groups[0]].labels)


def single_sample(file: ArrayFile, request: ReadRequest) -> RawSamples:
    """The one sample of a file whose arrays have no axis of samples."""
    naming = request.naming.within(file.shapes, request.truth)
    fields = {n.field: file.numbers(n.field) for n in (*naming.inputs, *naming.targets)}
    match = place(file, request, naming, fields, has_samples=False)
    sample = RawSample(str(file.path), match.coords, fields)
    return RawSamples([sample], _labels(file))


def _samples(file: ArrayFile, request: ReadRequest) -> RawSamples:
    naming = request.naming.within(file.shapes, request.truth)
    fields = {n.field: file.numbers(n.field) for n in (*naming.inputs, *naming.targets)}
    match = place(file, request, naming, fields, has_samples=True)
    count, mesh = match.num_samples, match.mesh
    is_per_sample = {n: _has_samples(file.path, n, a.shape, match) for n, a in fields.items()}
    keep, splits = _keep(file, count, mesh), _splits(file, count)
    samples = [
        RawSample(
            f"{file.path}, sample {i}",
            match.coords[i] if match.is_per_sample else match.coords,
            {
                name: array[i, ...] if is_per_sample[name] else array
                for name, array in fields.items()
            },
            None if keep is None else keep[i],
            splits[i],
        )
        for i in range(count)
    ]
    return RawSamples(samples, _labels(file))


def _has_samples(path: Path, name: str, shape: Shape, match: MeshMatch) -> bool:
    """Whether each sample has its own values of a field."""
    count, mesh = match.num_samples, match.mesh
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
