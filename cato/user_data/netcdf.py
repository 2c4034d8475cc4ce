"""NetCDF files through xarray: the axes are told by the names of their dimensions.

Dimensions of the coordinates are those of the mesh, `time` or `t` is time, and the one that is left
over counts samples; a file without it is one sample. Axis d of the mesh is the dimension of
coordinate d, whatever the order in the file.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from cato.errors import InputError
from cato.files import atomic_write
from cato.user_data.axes import ArrayFile
from cato.user_data.naming import Naming
from cato.user_data.parse_errors import parse_errors

SUFFIXES = (".nc", ".nc4", ".cdf")
TIME = ("time", "t")


@dataclass(frozen=True)
class Axes:
    """The dimensions of a file by their meaning; samples and time may be missing."""

    mesh: tuple[str, ...]
    samples: tuple[str, ...]
    time: tuple[str, ...]

    @property
    def order(self) -> tuple[str, ...]:
        """As in the arrays of the documented layout."""
        return self.samples + self.time + self.mesh


def open_netcdf(path: Path, naming: Naming, samples: bool) -> ArrayFile:
    """The named variables with samples first, then time, then the mesh.

    Args:
        path: The file.
        naming: Its fields; coordinates not named are those of the targets' dimensions.
        samples: Whether the file should have a dimension of samples.
    """
    with _open(path) as file:
        coords = _coordinates(path, file, naming)
        axes = _axes(path, file, naming, coords)
        if samples and not axes.samples:
            raise InputError(
                f"{path} has no dimension of samples beside {', '.join(axes.order)}; add one, "
                f"called sample where coordinates have it, or give a folder with one file per "
                f"sample"
            )
        names = [n.field for n in (*naming.inputs, *naming.targets) if n.field in file]
        needed = [*names, *coords, *(name for name in ("split", "mask") if name in file)]
        with parse_errors(path, "NetCDF"):
            file = file[needed].load()
        arrays = {name: _ordered(file[name], axes) for name in names}
        arrays["coords"] = _nodes(file, coords, axes)
        for name in ("split", "mask"):
            if name in file:
                arrays[name] = np.asarray(file[name].values)
    shapes = {n: a.shape for n, a in arrays.items()}
    return ArrayFile(path, shapes, arrays.__getitem__, num_axes=len(axes.mesh))


def write_netcdf(
    source: Path, target: Path, naming: Naming, fields: Mapping[str, np.ndarray]
) -> None:
    """A copy of a file with more variables, in the order of `open_netcdf`."""
    xarray = _xarray()
    with _open(source) as file:
        axes = _axes(source, file, naming, _coordinates(source, file, naming))
        with parse_errors(source, "NetCDF"):
            file = file.load()
    for name, array in fields.items():
        steady = axes.samples + axes.mesh
        in_time = axes.samples + (axes.time or ("time",)) + axes.mesh
        dims = steady if array.ndim == len(steady) else in_time
        if len(dims) == array.ndim and _lengths_fit(file, dims, array):
            file[name] = xarray.DataArray(array, dims=dims)
        else:  # fewer frames than the file has
            new = [d if d not in TIME else f"{d}_predicted" for d in dims]
            file[name] = xarray.DataArray(array, dims=new)
    with atomic_write(target) as temporary:
        temporary.write_bytes(_written(file))


def _written(file: Any) -> memoryview:
    """A file in memory: HDF5 crashes where a disk is full."""
    buffer = io.BytesIO()
    with import_module("h5netcdf").File(buffer, "w") as written:
        file.dump_to_store(_xarray().backends.H5NetCDFStore(written))
    return buffer.getbuffer()


def _lengths_fit(file: Any, dims: tuple[str, ...], array: np.ndarray) -> bool:
    return all(file.sizes.get(d, n) == n for d, n in zip(dims, array.shape, strict=True))


def _coordinates(path: Path, file: Any, naming: Naming) -> tuple[str, ...]:
    """The names of the coordinates."""
    reference = _reference(path, file, naming)
    names = naming.coords or tuple(
        str(dim)
        for dim in reference.dims
        if dim in file.coords and dim not in TIME and file[dim].dtype.kind in "fiu"
    )
    wrong = [name for name in names if name not in file.variables]
    if wrong or not names:
        raise InputError(
            f"{path} has no coordinate {wrong[0] if wrong else 'of its mesh'!r}, only variables "
            f"{_listed(file)}; name them by --coords y,x"
        )
    return names


def _axes(path: Path, file: Any, naming: Naming, coords: tuple[str, ...]) -> Axes:
    reference = _reference(path, file, naming)
    dims = [str(dim) for dim in reference.dims]
    if all(file[name].ndim == 1 for name in coords):
        spatial = list(dict.fromkeys(str(file[name].dims[0]) for name in coords))
    else:
        # A dimension that every coordinate and every field has may still count samples.
        found = {str(dim) for name in coords for dim in file[name].dims}
        spatial = [dim for dim in dims if dim in found and dim not in ("sample", "samples")]
    time = tuple(dim for dim in dims if dim in TIME and dim not in spatial)
    samples = tuple(dim for dim in dims if dim not in (*spatial, *time))
    if len(samples) > 1 or not set(spatial) <= set(dims):
        raise InputError(
            f"{path}: of the dimensions {', '.join(dims)} of {reference.name!r}, those of the mesh "
            f"are {', '.join(spatial)}; at most one more may count samples, and time is called time"
        )
    return Axes(tuple(spatial), samples, time)


def _reference(path: Path, file: Any, naming: Naming) -> Any:
    """The variable whose dimensions are those of the data."""
    for name in (*naming.targets, *naming.inputs):
        if name.field in file and file[name.field].ndim > 1:
            return file[name.field]
    if naming.is_layout:
        raise InputError(f"{path} holds {_listed(file)}; name its fields: --inputs k --targets p")
    raise InputError(
        f"{path} has no variable {str(naming.targets[0].field)!r} over a mesh, only {_listed(file)}"
    )


def _ordered(variable: Any, axes: Axes) -> np.ndarray:
    dims = [dim for dim in axes.order if dim in variable.dims]
    rest = [dim for dim in variable.dims if dim not in dims]
    return np.asarray(variable.transpose(*dims, *rest).values)


def _nodes(file: Any, names: tuple[str, ...], axes: Axes) -> np.ndarray:
    """The coordinates at every node, for each sample where one of them depends on it."""
    kept = tuple(dim for dim in axes.samples if any(dim in file[name].dims for name in names))
    dims = (*kept, *axes.mesh)
    sizes = tuple(file.sizes[dim] for dim in dims)
    template = _xarray().DataArray(np.zeros(sizes), dims=dims)
    arrays = [file[name].broadcast_like(template).transpose(*dims).values for name in names]
    return np.stack(arrays, axis=-1)


def _listed(file: Any) -> str:
    return ", ".join(f"{n} ({', '.join(map(str, v.dims))})" for n, v in file.variables.items())


def _open(path: Path) -> Any:
    with parse_errors(path, "NetCDF"):
        return _xarray().open_dataset(path, decode_times=False)


def _xarray() -> ModuleType:
    try:
        import xarray

        import_module("h5netcdf")  # the engine that reads and writes NetCDF 4
    except ImportError:
        raise InputError("NetCDF files need xarray: pip install 'cato-pde[netcdf]'") from None
    return xarray
