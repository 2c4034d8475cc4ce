"""Windows of consecutive samples of an HDF5 file, as if each were the whole file.

Arrays whose first axis counts samples are cut to the window, all others are read whole. Runs in the
child process of `cato.sandbox`, which has no use for PyTorch.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from cato.benchmarks.contract import SPLITS
from cato.data.formats import open_hdf5, require_written
from cato.errors import InputError
from cato.sandbox import require_room
from cato.user_data.arrays import open_h5
from cato.user_data.axes import (
    SAMPLE,
    ArrayFile,
    Shape,
    field_dims,
    name_axes,
    nodal_dims,
    series_of,
    times_name,
)
from cato.user_data.naming import ReadRequest


def layout_of(path: Path, request: ReadRequest) -> dict[str, Any]:
    """The groups of samples of a file, as plain values, and the split of each sample."""
    file = open_h5(path)
    if file.groups_of_samples:
        return {"is_grouped": True}
    names = [name for name in SPLITS if any(n.startswith(f"{name}/") for n in file.shapes)]
    groups, words, first, has_own_nodes = [], list[str](), 0, False
    for name in names or [""]:
        part = file.group(name) if name else file
        count, cut = _cut(part, request)
        naming = request.naming.within(part.shapes, request.truth)
        has_own_nodes |= any(n in naming.coords or naming.is_mask(n) for n in cut)
        chunk, num_bytes = _storage(path, [f"{name}/{n}" if name else n for n in cut], count)
        groups.append((name, first, count, chunk, num_bytes))
        words += _words(part, count) if "split" in part.shapes and not name else [name] * count
        first += count
    return {"is_grouped": False, "groups": groups, "words": words, "has_own_nodes": has_own_nodes}


def _words(file: ArrayFile, count: int) -> list[str]:
    values = np.atleast_1d(np.squeeze(file.read("split")))
    is_number = values.dtype.kind in "fiu"
    words = [SPLITS[int(v)] if is_number and v in (0, 1, 2) else str(v) for v in values.tolist()]
    if len(words) != count or not set(words) <= set(SPLITS):
        raise InputError(
            f"{file.path}: 'split' should be train, validation or test (or 0, 1, 2) for each of "
            f"the {count} samples"
        )
    return words


def _storage(path: Path, names: Sequence[str], count: int) -> tuple[int, int]:
    """Samples of a chunk, and bytes of a sample."""
    chunks, num_bytes = [1], 0
    with open_hdf5(path) as file:
        for name in names:
            if name in file:  # not the arrays at the root that groups share
                chunks.append(file[name].chunks[0] if file[name].chunks else 1)
                num_bytes += file[name].nbytes // max(1, count)
    return max(chunks), num_bytes


def window_of(
    path: Path, request: ReadRequest, group: str, first: int, last: int
) -> dict[str, Any]:
    """Samples of a group as a dataset with named dimensions, as plain values."""
    file = open_h5(path)
    part = file.group(group) if group else file
    count, cut = _cut(part, request)
    # As many samples as a shared array has rows could be taken for one row each: read one more.
    rows = {shape[0] for name, shape in part.shapes.items() if name not in cut and shape}
    low, high = first, last
    while high - low in rows and high - low < count:
        low, high = (low, high + 1) if high < count else (low - 1, high)

    def load(name: str) -> np.ndarray:
        if name not in cut:
            return part.load(name)
        full = f"{group}/{name}" if f"{group}/{name}" in file.shapes else name
        with open_hdf5(path) as opened:
            dataset = opened[full]
            require_written(dataset, f"{path}: field {name!r}")
            require_room((high - low) * (dataset.nbytes // len(dataset)), f"{path}: {name!r}")
            if h5py.check_string_dtype(dataset.dtype):
                return np.asarray(dataset.asstr()[low:high], dtype=np.str_)
            return dataset[low:high]

    shapes = {
        name: (high - low, *shape[1:]) if name in cut else shape
        for name, shape in part.shapes.items()
    }
    window = ArrayFile(path, shapes, load, "HDF5")
    dataset = name_axes(window, request, has_samples=True)
    dataset = dataset.isel({SAMPLE: slice(first - low, last - low)}, missing_dims="ignore")
    return dataset.assign_attrs(split=group, first=first).to_dict(data="array")


def _cut(file: ArrayFile, request: ReadRequest) -> tuple[int, list[str]]:
    """Number of samples, and names of the arrays whose first axis counts them, by their shapes."""
    naming = request.naming.within(file.shapes, request.truth)
    fields = {name: file.shapes[name] for name in naming.fields if name in file.shapes}
    if not fields and not naming.coords:
        return 0, []
    names = [name.field for name in (*naming.targets, *naming.inputs)]
    nodes = [file.shapes[name] for name in naming.coords if name in file.shapes]
    reference = next((fields[n] for n in names if n in fields), nodes[0] if nodes else ())
    count = reference[0]
    own = [_is_per_sample(file, shape, reference) for shape in nodes]
    cut = [name for name, is_own in zip(naming.coords, own, strict=True) if is_own]
    mesh = _mesh(nodes, own, request, reference)
    series = series_of(naming, request.naming.is_layout, file.shapes, mesh, count)
    for name, shape in fields.items():
        if SAMPLE in (series.get(name) or field_dims(shape, mesh, count)):
            cut.append(name)
    times = times_name(file, naming)
    if times and len(file.shapes[times]) == 2:
        cut.append(times)
    masks = [n for n, s in file.shapes.items() if naming.is_mask(n) and len(s) == len(mesh) + 1]
    return count, [*cut, *masks, *(n for n in ("split", "lengths") if n in file.shapes)]


def _mesh(
    nodes: Sequence[Shape], own: Sequence[bool], request: ReadRequest, reference: Shape
) -> Shape:
    """Nodes along each mesh axis."""
    if not nodes:
        assert request.coords is not None
        return request.coords.shape[:-1]
    if len(nodes) > 1 and all(len(shape) == 1 for shape in nodes):  # the axes of a grid
        grid = tuple(shape[0] for shape in nodes)
        return grid if nodal_dims(reference[1:], grid) else nodes[0]
    shape = nodes[0][1:] if own[0] else nodes[0]
    return shape if len(nodes) > 1 or nodal_dims(reference[1:], shape) else shape[:-1]


def _is_per_sample(file: ArrayFile, shape: Shape, reference: Shape) -> bool:
    """Whether coordinates of this shape belong to each sample, and not to all."""

    def fits(mesh: Shape) -> bool:
        return any(bool(nodal_dims(reference[1:], m)) for m in (mesh, mesh[:-1]) if m)

    own = len(shape) > 1 and shape[0] == reference[0] and (shape == reference or fits(shape[1:]))
    if own and fits(shape):
        raise InputError(
            f"{file.path}: coordinates {shape} with a field {reference} may be one mesh for all "
            f"samples or one for each; repeat the shared mesh as (samples, *mesh, D)"
        )
    return own
