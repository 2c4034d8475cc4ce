"""Which fields are inputs and which are targets, where the user names none.

A guess is the options that the user could have given, with notes that say so: it is printed, stored
with the run, and overridden by giving the options. What cannot be guessed is an error with a
command that would work.
"""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cato.benchmarks.contract import SPLITS
from cato.errors import InputError
from cato.user_data.axes import MAX_DIMENSION, SAMPLE, TIME, ArrayFile, mesh_dims
from cato.user_data.named import CHANNELS, SAMPLES, TIMES, roles_of
from cato.user_data.naming import Name, Naming

PAIRS = (
    *(("inputs", "outputs"), ("input", "output"), ("coeff", "sol"), ("nu", "tensor")),
    *(("a", "u"), ("x", "y")),
)
"""Customary names of one input and one target."""
AXES = (("x", "y", "z"), ("lon", "lat"), ("longitude", "latitude"))  # Customary coordinates.
NO_FIELDS = ("coords", "mask", "split", "lengths", "crs", "spatial_ref", *TIMES)


def guess(
    file: ArrayFile, naming: Naming, has_samples: bool, given: Path
) -> tuple[Naming, list[str]]:
    """Names for a file, and notes about what is assumed; names that the user gave are kept.

    `given` is the path that the user gave: the file, or the folder that it is in.
    """
    groups = [name for name in SPLITS if any(n.startswith(f"{name}/") for n in file.shapes)]
    if groups and not file.dims:
        file = file.group(groups[0])
    elif has_samples and (samples := file.groups_of_samples):
        file, has_samples = file.group(samples[0]), False
    if naming.targets or "targets" in file.shapes:
        return naming, []
    try:
        found, notes = (_of_named if file.dims else _of_arrays)(file, naming, has_samples)
    except _Unknown as error:
        example = f"cato train {shlex.quote(str(given))} {error.options}"
        raise InputError(
            f"{given} does not say which fields are inputs and which are targets; it has "
            f"{error.listed}. Name them, for example: {example}"
        ) from None
    notes += [file.hint] if file.hint else []
    words = found.words()
    options = [f"--{name} {word}" for name, word in words.items() if word and found != naming]
    if found.periodic:
        options.append(f"--data.periodic {' '.join(map(str, found.periodic))}")
    kind = f" (layout of {file.kind})" if file.is_layout else ""
    notes.append(f"guessed {' '.join(options)}{kind}; give these options to choose others")
    return found, notes


def _of_named(file: ArrayFile, naming: Naming, has_samples: bool) -> tuple[Naming, list[str]]:
    """A forecast of the fields that change in time, else a target and what is known before it."""
    none = {*file.coords, *NO_FIELDS, *(n for n in file.dims if naming.is_mask(n))}
    data = {n: dims for n, dims in file.dims.items() if n not in none}
    nodal = [n for n, dims in data.items() if {*dims} - {*TIMES, *SAMPLES, *CHANNELS}]
    if not nodal:
        raise InputError(f"{file.path} has no fields on a mesh, only {', '.join(file.dims)}")
    reference = max(nodal, key=lambda name: len(data[name]))
    probe = replace(naming, targets=(Name(reference),))
    roles = roles_of(file, probe, has_samples)[1]
    mesh = [dim for axis in mesh_dims(MAX_DIMENSION) for dim, role in roles.items() if role == axis]
    fields = {n: dims for n, dims in data.items() if set(mesh) <= set(dims)}
    periodic = naming.periodic or tuple(i for i, dim in enumerate(mesh) if dim in file.periodic)
    notes = []
    in_time = [n for n, dims in fields.items() if TIME in (roles.get(dim) for dim in dims)]
    if in_time:
        sizes = dict(zip(file.dims[in_time[0]], file.shapes[in_time[0]], strict=True))
        num_frames = next(size for dim, size in sizes.items() if roles.get(dim) == TIME)
        if num_frames > 1:
            num_past = max(1, min(file.num_past, num_frames // 2))
            inputs = tuple(Name(name, (None, num_past)) for name in in_time)
            targets = tuple(Name(name, (num_past, None)) for name in in_time)
            if others := [name for name in data if name not in in_time]:
                notes.append(f"the forecast does not use {', '.join(others)}")
            return replace(naming, inputs=inputs, targets=targets, periodic=periodic), notes
    numbers = [
        n for n, dims in data.items() if {roles.get(d, d) for d in dims} <= {SAMPLE, *CHANNELS}
    ]
    if file.has_only_results:
        inputs, targets = tuple(map(Name, numbers)), tuple(map(Name, fields))
    else:
        inputs, targets = _pair(file, list(fields), numbers)
    return replace(naming, inputs=inputs, targets=targets, periodic=periodic), notes


def _of_arrays(file: ArrayFile, naming: Naming, has_samples: bool) -> tuple[Naming, list[str]]:
    """Known names among the arrays: coordinates, an input and a target."""
    least = 1 + has_samples
    large = [
        n
        for n, shape in file.shapes.items()
        if len(shape) >= least and n not in NO_FIELDS and not naming.is_mask(n)
    ]
    if {name.lower() for name in large} == {"x", "y"}:  # as PyTorch data sets have them
        return replace(naming, inputs=(Name(large[0]),), targets=(Name(large[1]),)), []
    coords = naming.coords or _coordinates(file)
    fields = [name for name in large if name not in coords]
    num_samples = file.shapes[fields[0]][0] if fields and has_samples else None
    numbers = [n for n, shape in file.shapes.items() if shape == (num_samples,) and n not in coords]
    inputs, targets = _pair(file, fields, [n for n in numbers if n not in NO_FIELDS])
    return replace(naming, coords=coords, inputs=inputs, targets=targets), []


def _coordinates(file: ArrayFile) -> tuple[str, ...]:
    """Arrays with customary names of coordinates, where there is no array coords."""
    if "coords" in file.shapes:
        return ()
    by_name = {name.lower(): name for name in file.shapes}
    for axes in AXES:
        if axes[0] in by_name and (len(axes) == 3 or axes[1] in by_name):
            return tuple(by_name[axis] for axis in axes if axis in by_name)
    return ()


def _pair(
    file: ArrayFile, fields: Sequence[str], numbers: Sequence[str]
) -> tuple[tuple[Name, ...], tuple[Name, ...]]:
    """Inputs and targets: a customary pair of names, or numbers of the samples and one field."""
    by_name = {name.lower(): name for name in fields}
    for before, after in PAIRS:
        if before in by_name and after in by_name:
            return (Name(by_name[before]),), (Name(by_name[after]),)
    if len(fields) == 1 and numbers:
        return tuple(map(Name, numbers)), (Name(fields[0]),)
    listed = ", ".join(
        f"{name} {shape}"
        for name, shape in file.shapes.items()
        if name not in (*file.coords, *NO_FIELDS)
    )
    example = f"--inputs {fields[0]} --targets {fields[1]}" if len(fields) > 1 else "--targets p"
    if len(fields) == 1:
        name = fields[0]
        example = f"--targets {name}, or for a time series --inputs {name}[:1] --targets {name}[1:]"
    raise _Unknown(listed or "none", example)


class _Unknown(Exception):
    """The fields do not say what they are; options that would."""

    def __init__(self, listed: str, options: str) -> None:
        super().__init__(listed)
        self.listed, self.options = listed, options
