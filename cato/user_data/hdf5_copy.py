"""Copies of HDF5 files in a known layout with predictions where the layout has its fields.

A prediction of later frames has all frames of its field, NaN in those that are not predicted, so
that it can be compared with it.
"""

import io
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np

from cato.data.formats import open_hdf5
from cato.sandbox import require_room
from cato.user_data.arrays import open_h5
from cato.user_data.axes import ArrayFile
from cato.user_data.naming import Naming

if TYPE_CHECKING:
    import xarray


def copy_layout(
    source: Path, naming: Naming, fields: "xarray.Dataset", name: str
) -> dict[str, np.ndarray]:
    """The bytes of a copy of a file with more fields."""
    file, stream = open_h5(source), io.BytesIO()
    require_room(2 * source.stat().st_size, str(source))
    with open_hdf5(source) as old, h5py.File(stream, "w") as new:
        new.attrs.update(old.attrs)
        for key in old:
            old.copy(key, new)
        for field, variable in fields.data_vars.items():
            original = str(field).rpartition("_")[0]
            if original not in file.dims:  # a number of each sample
                new[str(field)] = variable.values
                continue
            values = _at_all_frames(variable, file, original, naming)
            places = file.places[original]
            for index, place in enumerate(places):
                part = values[index] if len(places) > 1 else values
                item = new[place]
                # A single frame has an axis in the file, and a tensor two.
                part = part.reshape(item.shape) if part.size == item.size else part
                target = f"{place.removesuffix(original)}{field}"
                new[target] = part
                new[target].attrs.update(item.attrs)
                if "field_names" in (attrs := item.parent.attrs):
                    attrs["field_names"] = [*attrs["field_names"], str(field)]
    return {name: np.frombuffer(stream.getbuffer(), np.uint8)}


def _at_all_frames(
    variable: "xarray.DataArray", file: ArrayFile, original: str, naming: Naming
) -> np.ndarray:
    """Values at all frames of their field, or as they are if those are not predicted from it."""
    sizes = dict(zip(file.dims[original], file.shapes[original], strict=True))
    frames = next((n.frames for n in naming.targets if n.field == original), None)
    if frames is None or "time" not in sizes:
        return variable.values
    chosen = range(sizes["time"])[slice(*frames)]
    if len(chosen) != variable.shape[1]:
        return variable.values
    full = np.full((len(variable), sizes["time"], *variable.shape[2:]), np.nan, variable.dtype)
    full[:, chosen.start : chosen.stop] = variable.values
    return full
