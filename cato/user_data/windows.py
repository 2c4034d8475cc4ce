"""Windows of consecutive samples of a file, as if each were the whole file.

Arrays with an axis that counts samples are cut to the window, all others are read whole. Runs in
the child process of `cato.sandbox`, which has no use for PyTorch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cato.benchmarks.contract import SPLITS
from cato.errors import InputError
from cato.user_data.axes import (
    SAMPLE,
    ArrayFile,
    Shape,
    field_dims,
    name_axes,
    nodal_dims,
    series_of,
    times_name,
    unit_grid_of,
)
from cato.user_data.named import read_named, roles_of, sample_dim_of
from cato.user_data.naming import ReadRequest
from cato.user_data.readers import OPENERS, suffix_of

Cut = dict[str, int]  # The arrays to cut, and the axis of each that counts samples.


def layout_of(path: Path, request: ReadRequest) -> dict[str, Any]:
    """The groups of samples of a file, as plain values, and the split of each sample."""
    file = OPENERS[suffix_of(path)](path)
    if file.groups_of_samples:
        return {"is_grouped": True}
    names = [name for name in SPLITS if any(n.startswith(f"{name}/") for n in file.shapes)]
    groups, words, first, has_own_nodes = [], list[str](), 0, False
    for name in names or [""]:
        part = file.group(name) if name else file
        count, coords, cut = _cut(part, request)
        naming = request.naming.within(part.shapes, request.truth)
        has_own_nodes |= any(n in coords or naming.is_mask(n) for n in cut)
        of_group = {n: a for n, a in cut.items() if not name or f"{name}/{n}" in file.shapes}
        groups.append((name, first, count, *_storage(part, of_group, count)))
        words += _words(part, count) if "split" in part.shapes and not name else [name] * count
        first += count
    return {"is_grouped": False, "groups": groups, "words": words, "has_own_nodes": has_own_nodes}


def rows_of(path: Path, request: ReadRequest) -> dict[str, Any] | None:
    """The samples of one of the files of a folder, as plain values; None if it is one sample."""
    file = OPENERS[suffix_of(path)](path)
    if not file.dims or SAMPLE not in roles_of(file, request.naming, has_samples=False)[1].values():
        return None
    count, coords, cut = _cut(file, request, has_samples=False)
    chunk, num_bytes = _storage(file, cut, count)
    own = any(n in coords or request.naming.is_mask(n) for n in cut)
    return {"count": count, "chunk": chunk, "sample_bytes": num_bytes, "has_own_nodes": own}


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


def _storage(file: ArrayFile, cut: Mapping[str, int], count: int) -> tuple[int, int]:
    """Samples of a chunk, and bytes of a sample."""
    largest, num_bytes = 1, 0
    for name, axis in cut.items():
        chunks, size = file.storage(name)
        largest = max(largest, chunks[axis] if chunks else 1)
        num_bytes += size // max(1, count)
    return largest, num_bytes


def window_of(
    path: Path, request: ReadRequest, group: str, first: int, last: int, has_samples: bool
) -> dict[str, Any]:
    """Samples of a group as a dataset with named dimensions, as plain values.

    `has_samples` says that the file must have an axis of samples, as for the readers.
    """
    file = OPENERS[suffix_of(path)](path)
    part = file.group(group) if group else file
    count, _, cut = _cut(part, request, has_samples)
    # As many samples as a shared array has rows could be taken for one row each: read one more.
    rows = {s[0] for n, s in part.shapes.items() if n not in cut and s and not part.dims}
    low, high = first, last
    while high - low in rows and high - low < count:
        low, high = (low, high + 1) if high < count else (low - 1, high)
    window = part.part(cut, slice(low, high))
    read = read_named if part.dims else name_axes
    dataset = read(window, request, has_samples)
    dataset = dataset.isel({SAMPLE: slice(first - low, last - low)}, missing_dims="ignore")
    return dataset.assign_attrs(split=group, first=first).to_dict(data="array")


def _cut(
    file: ArrayFile, request: ReadRequest, has_samples: bool = True
) -> tuple[int, Sequence[str], Cut]:
    """Number of samples, names of the coordinates, and the arrays to cut."""
    if not file.dims:
        return _cut_by_shapes(file, request)
    naming = request.naming.within(file.shapes, request.truth)
    coords, roles = roles_of(file, request.naming, has_samples)
    counting = sample_dim_of(file, roles)
    masks = [name for name in file.shapes if naming.is_mask(name)]
    names = [*naming.fields, *coords, *masks, *_extra(file), times_name(file, naming)]
    cut = {n: file.dims[n].index(counting) for n in names if counting in file.dims.get(n, ())}
    sizes = {file.shapes[name][axis] for name, axis in cut.items()}
    return max(sizes, default=0), coords, cut


def _extra(file: ArrayFile) -> list[str]:
    return [name for name in ("split", "lengths") if name in file.shapes]


def _cut_by_shapes(file: ArrayFile, request: ReadRequest) -> tuple[int, Sequence[str], Cut]:
    """As `_cut`, where axes have no names and the first one may count samples."""
    naming = request.naming.within(file.shapes, request.truth)
    fields = {name: file.shapes[name] for name in naming.fields if name in file.shapes}
    if not fields and not naming.coords:
        return 0, (), {}
    if not naming.coords and request.coords is None:
        nodes_of_all = unit_grid_of(file.path, naming, fields, has_samples=True)
        request = replace(request, coords=nodes_of_all)
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
    return count, naming.coords, dict.fromkeys([*cut, *masks, *_extra(file)], 0)


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
