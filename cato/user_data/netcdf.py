"""NetCDF files through xarray: the names of their dimensions say what the axes mean.

The dimensions of the coordinates are those of the mesh, `time` or `t` is time, and the remaining
one counts samples; a file without it is one sample. Axis d of the mesh is the dimension of
coordinate d, whatever the order in the file.
"""

import io
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from cato.data.formats import open_hdf5
from cato.errors import InputError
from cato.sandbox import require_room
from cato.user_data.axes import (
    CHANNEL,
    MAX_DIMENSION,
    SAMPLE,
    TIME,
    ArrayFile,
    Dims,
    make_dataset,
    mesh_dims,
    parse_errors,
    sample_variables,
)
from cato.user_data.naming import Naming, ReadRequest

if TYPE_CHECKING:
    import xarray

SUFFIXES = (".nc", ".nc4", ".cdf")
TIME_NAMES = ("time", "t")

Roles = dict[str, str]  # What each dimension of a file is called in the inner form.


def read_netcdf(path: Path, request: ReadRequest, has_samples: bool) -> "list[xarray.Dataset]":
    """Read the named variables; coordinates not named are those of the targets' dimensions."""
    with _open(path) as file:
        coords, roles = _roles(path, file, request.naming, has_samples)
        if has_samples and SAMPLE not in roles.values():
            raise InputError(
                f"{path} has no dimension of samples next to {', '.join(roles)}; add one, called "
                f"sample where coordinates have it, or give a folder with one file per sample"
            )
        naming = request.naming.within(file.variables, request.truth)
        extra = [name for name in ("split", "mask") if name in file.variables and has_samples]
        present = [name for name in (*naming.fields, *coords, *extra) if name in file.variables]
        shapes = {str(name): variable.shape for name, variable in file.variables.items()}
        with parse_errors(path, "NetCDF"):
            require_room(file[present].nbytes, str(path))
            file = file[present].load()
    opened = ArrayFile(path, shapes, lambda name: file[name].values)
    values = {name: opened.numbers(name) for name in naming.fields}
    variables = {name: (_dims(path, file[name], roles), values[name]) for name in values}
    # The coordinates at every node, for each sample where one of them depends on it.
    components = {f"x{i}": (file[name].dims, file[name].values) for i, name in enumerate(coords)}
    nodes = _xarray().Dataset(components).to_array()
    dims = tuple(roles.get(str(dim), CHANNEL) for dim in nodes.dims)
    variables["coords"] = (dims, nodes.values)
    sizes = {role: file.sizes[dim] for dim, role in roles.items() if dim in file.sizes}
    mesh = tuple(sizes[axis] for axis in mesh_dims(MAX_DIMENSION) if axis in sizes)
    arrays = {name: file[name].values for name in extra}
    variables |= sample_variables(path, arrays, sizes.get(SAMPLE, 1), mesh)
    return [make_dataset(path, naming, variables)]


def copy_netcdf(source: Path, naming: Naming, fields: "xarray.Dataset") -> np.ndarray:
    """The bytes of a copy of a file with more variables."""
    with _open(source) as file:
        _, roles = _roles(source, file, naming, has_samples=SAMPLE in fields.dims)
        with parse_errors(source, "NetCDF"):
            require_room(file.nbytes, str(source))
            file = file.load()
    dims_of = {role: dim for dim, role in roles.items()}
    for name, variable in fields.data_vars.items():
        dims = []
        for dim, size in variable.sizes.items():
            own = dims_of.get(str(dim).removesuffix(f"_{name}"), str(dim))
            # Fewer frames than the file has need a dimension of their own.
            dims.append(own if file.sizes.get(own, size) == size else f"{own}_predicted")
        file[name] = (dims, variable.values)
    stream = io.BytesIO()
    with import_module("h5netcdf").File(stream, "w") as written:
        file.dump_to_store(_xarray().backends.H5NetCDFStore(written))
    return np.frombuffer(stream.getbuffer(), np.uint8)


def _roles(
    path: Path, file: Any, naming: Naming, has_samples: bool
) -> tuple[tuple[str, ...], Roles]:
    """Names of the coordinates, and the roles of the dimensions.

    In a file of one sample the dimension that is neither of the mesh nor called time is time too.
    """
    reference = _reference(path, file, naming)
    dims = [str(dim) for dim in reference.dims]
    coords = naming.coords or tuple(
        dim
        for dim in dims
        if dim in file.coords and dim not in TIME_NAMES and file[dim].dtype.kind in "fiu"
    )
    wrong = [name for name in coords if name not in file.variables]
    if wrong or not coords:
        raise InputError(
            f"{path} has no coordinate {wrong[0] if wrong else 'of its mesh'!r}, only variables "
            f"{_listed(file)}; name them with --coords y,x"
        )
    if all(file[name].ndim == 1 for name in coords):
        spatial = list(dict.fromkeys(str(file[name].dims[0]) for name in coords))
    else:
        # A dimension that every coordinate and every field has may still count samples.
        found = {str(dim) for name in coords for dim in file[name].dims}
        spatial = [dim for dim in dims if dim in found and dim not in ("sample", "samples")]
    time = [dim for dim in dims if dim in TIME_NAMES and dim not in spatial]
    rest = [dim for dim in dims if dim not in (*spatial, *time)]
    if not has_samples and not time:
        time, rest = rest, []
    if len(rest) > has_samples or len(time) > 1 or not set(spatial) <= set(dims):
        raise InputError(
            f"{path}: of the dimensions {', '.join(dims)} of {reference.name!r}, those of the mesh "
            f"are {', '.join(spatial)}; at most one more may count samples, and time is called time"
        )
    roles = dict(zip(spatial, mesh_dims(len(spatial)), strict=True))
    return coords, roles | dict.fromkeys(rest, SAMPLE) | dict.fromkeys(time, TIME)


def _reference(path: Path, file: Any, naming: Naming) -> Any:
    """The variable whose dimensions are those of the data."""
    for name in (*naming.targets, *naming.inputs):
        if name.field in file and file[name.field].ndim > 1:
            return file[name.field]
    if naming.is_layout:
        raise InputError(f"{path} holds {_listed(file)}; name its fields: --inputs k --targets p")
    raise InputError(
        f"{path} has no variable {naming.targets[0].field!r} over a mesh, only {_listed(file)}"
    )


def _dims(path: Path, variable: Any, roles: Roles) -> Dims:
    """Dimensions of a field in the inner form; one that has no role is channels."""
    dims = tuple(roles.get(str(dim), CHANNEL) for dim in variable.dims)
    if dims.count(CHANNEL) > 1:
        raise InputError(
            f"{path}: {variable.name!r} has dimensions {', '.join(map(str, variable.dims))}; "
            f"besides {', '.join(roles)} it may have one, of channels"
        )
    return dims


def _listed(file: Any) -> str:
    return ", ".join(f"{n} ({', '.join(map(str, v.dims))})" for n, v in file.variables.items())


def _open(path: Path) -> Any:
    with parse_errors(path, "NetCDF"):
        if h5py.is_hdf5(path):
            with open_hdf5(path):  # refuses values in other files, which xarray would read
                pass
        return _xarray().open_dataset(path, decode_times=False)


def _xarray() -> ModuleType:
    try:
        import_module("h5netcdf")  # the engine that reads and writes NetCDF 4
    except ImportError:
        raise InputError("NetCDF files need h5netcdf: pip install 'cato-pde[netcdf]'") from None
    import xarray

    return xarray
