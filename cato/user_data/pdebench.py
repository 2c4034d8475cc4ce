"""HDF5 files in the layouts of PDEBench (Takamoto et al., 2022), as they are downloaded.

- one array per field, (samples, time, x, y, z), with `x-coordinate` and so on next to them; in
  Darcy flow `nu` and `tensor`, whose time axis has length 1;
- one group per sample, `0000/data` (time, x, y, channels), with `0000/grid/x` and so on;
- incompressible flow: `velocity`, `particles` (samples, time, x, y, channels) and `force`, without
  coordinates.

PDEBench forecasts from the first 10 frames.
"""

import re
from dataclasses import replace

import numpy as np

from cato.data.formats import open_hdf5, require_written
from cato.errors import InputError
from cato.sandbox import require_room
from cato.user_data.axes import ArrayFile, Dims, Shape
from cato.user_data.naming import natural_order

NUM_PAST = 10
AXES = ("x", "y", "z")
_GROUP = re.compile(r"[^/]+/data")


def open_pdebench(file: ArrayFile) -> ArrayFile | None:
    """The file with named axes, if it has one of the layouts."""
    groups = sorted(
        (n.removesuffix("/data") for n in file.shapes if _GROUP.fullmatch(n)), key=natural_order
    )
    if groups and f"{groups[0]}/grid/x" in file.shapes:
        return _grouped(file, groups)
    if "x-coordinate" in file.shapes:
        return _flat(file)
    if {"velocity", "particles", "force", "t"} <= set(file.shapes):
        return _incompressible(file)
    return None


def _flat(file: ArrayFile) -> ArrayFile:
    axes = tuple(f"{a}-coordinate" for a in AXES if f"{a}-coordinate" in file.shapes)
    mesh = tuple(file.shapes[axis][0] for axis in axes)
    dims: dict[str, Dims] = {axis: (axis,) for axis in axes}
    shapes = {axis: file.shapes[axis] for axis in axes}
    for name, shape in file.shapes.items():
        if name.endswith("-coordinate"):
            continue
        if len(shape) < 2:  # a number, or one for each sample
            shapes[name], dims[name] = shape, ("sample",)[: len(shape)]
            continue
        leading = shape[: len(shape) - len(mesh)]
        if shape[len(leading) :] != mesh or len(leading) not in (1, 2):
            raise InputError(
                f"{file.path} has the coordinates of PDEBench, {', '.join(axes)} of length "
                f"{', '.join(map(str, mesh))}, but field {name!r} is {shape}; it should be "
                f"(samples, {', '.join(map(str, mesh))}) or (samples, time, ...)"
            )
        is_frame = len(leading) == 2 and leading[1] == 1
        shapes[name] = (*leading[:1], *mesh) if is_frame else shape
        dims[name] = ("sample", "time")[: 1 if is_frame else len(leading)] + axes

    def read_part(name: str, axis: int, rows: slice) -> np.ndarray:
        assert file.read_part is not None
        return file.read_part(name, axis, rows).reshape(-1, *shapes[name][1:])

    return replace(
        file,
        shapes=shapes,
        load=lambda name: file.load(name).reshape(shapes[name]),
        read_part=read_part,
        kind="PDEBench",
        dims=dims,
        coords=axes,
        num_past=NUM_PAST,
        is_layout=True,
        places={name: (name,) for name in shapes},
    )


def _grouped(file: ArrayFile, groups: list[str]) -> ArrayFile:
    first = groups[0]
    axes = tuple(axis for axis in AXES if f"{first}/grid/{axis}" in file.shapes)
    mesh = tuple(file.shapes[f"{first}/grid/{axis}"][0] for axis in axes)
    inner = (n.removeprefix(f"{first}/") for n in file.shapes if n.startswith(f"{first}/"))
    fields = [name for name in inner if "/" not in name]
    shapes: dict[str, Shape] = {axis: (n,) for axis, n in zip(axes, mesh, strict=True)}
    for name in fields:
        shape = file.shapes[f"{first}/{name}"]
        if shape[1:-1] != mesh:
            raise InputError(
                f"{file.path}: {first}/{name} is {shape}; with {first}/grid of {mesh} nodes it "
                f"should be (time, {', '.join(map(str, mesh))}, channels)"
            )
        for group in groups:
            if (found := file.shapes.get(f"{group}/{name}")) != shape:
                raise InputError(
                    f"{file.path}: {group}/{name} is {found or 'missing'}, but {first}/{name} is "
                    f"{shape}; all samples should have one shape"
                )
        shapes[name] = (len(groups), *shape)

    def read_part(name: str, axis: int, rows: slice) -> np.ndarray:
        some = groups[rows]
        path = name if name in fields else f"grid/{name}"
        with open_hdf5(file.path) as root:  # once, as there may be a thousand groups
            require_room(len(some) * root[f"{first}/{path}"].nbytes, f"{file.path}: {path}")
            for group in some:
                require_written(root[f"{group}/{path}"], f"{file.path}: {group}/{path}")
            return np.stack([root[f"{group}/{path}"][()] for group in some])

    def storage(name: str) -> tuple[Shape | None, int]:
        with open_hdf5(file.path) as root:
            return (1, *shapes[name][1:]), len(groups) * root[f"{first}/{name}"].nbytes

    def load(name: str) -> np.ndarray:
        values = read_part(name, 0, slice(None))
        if name in fields:
            return values
        differs = (values != values[0]).any(axis=1)
        if differs.any():
            group = groups[differs.argmax()]
            raise InputError(f"{file.path}: {group}/grid/{name} differs from {first}/grid/{name}")
        return values[0]

    dims = dict.fromkeys(fields, ("sample", "time", *axes, "channel"))
    return replace(
        file,
        shapes=shapes,
        load=load,
        read_part=read_part,
        storage=storage,
        kind="PDEBench",
        dims=dims | {axis: (axis,) for axis in axes},
        coords=axes,
        num_past=NUM_PAST,
        is_layout=True,
        places={name: tuple(f"{group}/{name}" for group in groups) for name in fields},
    )


def _incompressible(file: ArrayFile) -> ArrayFile:
    kinds = {
        5: ("sample", "time", "x", "y", "channel"),
        4: ("sample", "x", "y", "channel"),
        1: ("sample",),
    }
    dims = {n: kinds[len(shape)] for n, shape in file.shapes.items() if len(shape) in kinds}
    if {"velocity", "particles", "force"} - set(dims):
        raise InputError(
            f"{file.path}: velocity and particles of PDEBench should be ({', '.join(kinds[5])}), "
            f"force ({', '.join(kinds[4])}); they are "
            f"{', '.join(str(file.shapes[n]) for n in ('velocity', 'particles', 'force'))}"
        )
    return replace(
        file,
        shapes={name: file.shapes[name] for name in dims},
        kind="PDEBench",
        dims=dims,
        num_past=NUM_PAST,
        is_layout=True,
        places={name: (name,) for name in dims},
    )
