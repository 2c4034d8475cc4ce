"""HDF5 files in the layout of The Well (Ohana et al., 2024), as they are downloaded.

Groups `t0_fields`, `t1_fields` and `t2_fields` hold scalars, vectors and tensors with axes
(trajectory, time, *mesh, components), of which those that do not vary are missing; `dimensions`
holds the coordinates, `scalars` numbers, `boundary_conditions` what each end is. The Well forecasts
from the first 4 frames.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import compress

import h5py
import numpy as np

from cato.data.formats import open_hdf5
from cato.errors import InputError
from cato.user_data.axes import ArrayFile, Dims, parse_errors

NUM_PAST = 4
FIELDS = ("t0_fields", "t1_fields", "t2_fields")


def open_well(file: ArrayFile) -> ArrayFile | None:
    """The file with named axes, if it has this layout."""
    with open_hdf5(file.path) as root:
        if not {"dimensions", "t0_fields"} <= set(root) or "n_trajectories" not in root.attrs:
            return None
        with parse_errors(file.path, "a file of The Well"):
            return _opened(file, root)


def _opened(file: ArrayFile, root: h5py.File) -> ArrayFile:
    axes = _words(root["dimensions"].attrs["spatial_dims"])
    places = {axis: f"dimensions/{axis}" for axis in axes}
    dims = {axis: (*_leading(root[places[axis]]), axis) for axis in axes}
    for order, group in enumerate(FIELDS):
        for name in _words(root[group].attrs["field_names"]) if group in root else ():
            field = root[f"{group}/{name}"]
            varying = tuple(compress(axes, field.attrs["dim_varying"]))
            # The components of a tensor are two axes.
            places[name] = f"{group}/{name}"
            dims[name] = (*_leading(field), *varying, *("channel",)[:order])
    scalars = _words(root["scalars"].attrs["field_names"]) if "scalars" in root else ()
    for name in scalars:
        if not root[f"scalars/{name}"].attrs["time_varying"]:
            places[name] = f"scalars/{name}"
            dims[name] = _leading(root[places[name]])
    shapes = {}
    for name, place in places.items():
        shape, expected = file.shapes[place], dims[name]
        num_plain = len(expected) - ("channel" in expected)
        components = (int(np.prod(shape[num_plain:])),) if "channel" in expected else ()
        shapes[name] = (*shape[:num_plain], *components)
        if len(shape) < len(expected):
            raise InputError(
                f"{file.path}: {place} is {shape}, but its attributes say ({', '.join(expected)})"
            )

    def read_part(name: str, axis: int, rows: slice) -> np.ndarray:
        assert file.read_part is not None
        return file.read_part(places[name], axis, rows).reshape(-1, *shapes[name][1:])

    return replace(
        file,
        shapes=shapes,
        load=lambda name: file.load(places[name]).reshape(shapes[name]),
        read_part=read_part,
        storage=lambda name: file.storage(places[name]),
        kind="The Well",
        dims=dims,
        coords=tuple(axes),
        periodic=tuple(_periodic(root, axes)),
        num_past=NUM_PAST,
        is_layout=True,
        places={name: (place,) for name, place in places.items()},
    )


def _leading(item: h5py.Dataset) -> Dims:
    """The first axes of an array: those along which its attributes say that it varies."""
    return tuple(n for n in ("sample", "time") if item.attrs.get(f"{n}_varying", False))


def _periodic(root: h5py.File, axes: Iterable[str]) -> list[str]:
    """Axes that have a periodic boundary condition."""
    conditions = root.get("boundary_conditions", {}).values()
    found = {
        axis
        for condition in conditions
        if str(condition.attrs.get("bc_type", "")).lower() == "periodic"
        for axis in _words(condition.attrs["associated_dims"])
    }
    return [axis for axis in axes if axis in found]


def _words(values: np.ndarray) -> list[str]:
    return [v.decode() if isinstance(v, bytes) else str(v) for v in np.atleast_1d(values)]
