"""NetCDF files and Zarr stores through xarray, with the CF conventions.

Packed values are unpacked and fill values become NaN. Coordinates in degrees are read in radians,
so that a circle of latitude has a period near the size of other domains.
"""

import io
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from cato.data.formats import open_hdf5, require_written
from cato.errors import InputError
from cato.sandbox import require_room
from cato.user_data.attributes import inherited
from cato.user_data.axes import SAMPLE, ArrayFile, Shape, parse_errors
from cato.user_data.named import roles_of
from cato.user_data.naming import Naming

if TYPE_CHECKING:
    import xarray

SUFFIXES = (".nc", ".nc4", ".cdf")
ZARR = ".zarr"
Files = dict[str, np.ndarray]  # Bytes by path, relative to the folder of the new file.


def open_netcdf(path: Path) -> ArrayFile:
    """Open a NetCDF file, or a Zarr store that names its dimensions."""

    def require_complete(name: str) -> None:
        if path.is_file() and h5py.is_hdf5(path):
            with open_hdf5(path) as stored:
                if name in stored:  # a dimension without values may not be
                    require_written(stored[name], f"{path}: variable {name!r}")

    def load(name: str) -> np.ndarray:
        require_complete(name)
        with _open(path) as file:
            variable = file[name]
            require_room(variable.nbytes, f"{path}: variable {name!r}")
            return np.deg2rad(variable.values) if name in degrees else variable.values

    def read_part(name: str, axis: int, rows: slice) -> np.ndarray:
        require_complete(name)
        with _open(path) as file:
            variable = file[name].variable[(*[slice(None)] * axis, rows)]
            require_room(variable.nbytes, f"{path}: variable {name!r}")
            return np.deg2rad(variable.values) if name in degrees else variable.values

    def storage(name: str) -> tuple[Shape | None, int]:
        with _open(path) as file:
            variable, about = file[name], file[name].encoding
            chunks = about.get("chunksizes") or about.get("chunks")  # of NetCDF, of Zarr
            return chunks and tuple(map(int, chunks)), variable.nbytes

    with _open(path) as file:
        numbers = [str(n) for n, v in file.coords.items() if v.ndim and v.dtype.kind in "fiu"]
        degrees = [n for n in numbers if str(file[n].attrs.get("units", "")).startswith("degree")]
        notes = (f"coordinates in degrees, {', '.join(degrees)}, are read in radians",)
        return ArrayFile(
            path,
            {str(name): variable.shape for name, variable in file.variables.items()},
            load,
            "Zarr" if path.suffix.lower() == ZARR else "NetCDF",
            {str(name): tuple(map(str, v.dims)) for name, v in file.variables.items()},
            tuple(numbers),
            periodic=tuple(n for n in degrees if _is_circle(file[n].values)),
            notes=notes if degrees else (),
            read_part=read_part,
            storage=storage,
        )


def open_zarr(path: Path) -> ArrayFile:
    """Open a Zarr store; one without names of dimensions is a file of plain arrays."""
    group = _zarr_group(path)
    arrays = {name: item for name, item in group.members(max_depth=None) if hasattr(item, "shape")}
    for name, array in arrays.items():
        if array.dtype.kind not in "biufcUST":
            raise InputError(f"{path}: array {name!r} should be numbers, but is {array.dtype}")

    def has_names(array: Any) -> bool:
        names = getattr(array.metadata, "dimension_names", None)
        return bool(names or "_ARRAY_DIMENSIONS" in array.attrs)

    notes = tuple(note for name, array in arrays.items() for note in _missing(name, array))
    if arrays and all("/" not in name and has_names(array) for name, array in arrays.items()):
        file = open_netcdf(path)
        return replace(file, notes=(*file.notes, *notes))

    def load(name: str) -> np.ndarray:
        require_room(arrays[name].nbytes, f"{path}: array {name!r}")
        return np.asarray(arrays[name][...])

    def read_part(name: str, axis: int, rows: slice) -> np.ndarray:
        count = len(range(arrays[name].shape[axis])[rows])
        share = count / max(1, arrays[name].shape[axis])
        require_room(int(share * arrays[name].nbytes), f"{path}: array {name!r}")
        return np.asarray(arrays[name][(*[slice(None)] * axis, rows)])

    return ArrayFile(
        path,
        {name: array.shape for name, array in arrays.items()},
        load,
        "Zarr",
        notes=notes,
        read_part=read_part,
        storage=lambda name: (arrays[name].chunks, arrays[name].nbytes),
    )


def _missing(name: str, array: Any) -> list[str]:
    """A note on chunks that a store does not hold: lost, or never written because all is alike."""
    missing = array.nchunks - array.nchunks_initialized
    if not missing:
        return []
    found = f"{missing} of {array.nchunks} chunks of {name} are not in the store"
    return [f"{found} and are read as {array.fill_value}"]


def copy_netcdf(source: Path, naming: Naming, fields: "xarray.Dataset", name: str) -> Files:
    """A copy of a file with more variables."""
    file = _with_fields(source, naming, fields)
    stream = io.BytesIO()
    with import_module("h5netcdf").File(stream, "w") as written:
        store = _xarray().backends.H5NetCDFStore(written)
        file.dump_to_store(store, unlimited_dims=file.encoding.get("unlimited_dims", ()))
    return {name: np.frombuffer(stream.getbuffer(), np.uint8)}


def copy_zarr(source: Path, naming: Naming, fields: "xarray.Dataset", name: str) -> Files:
    """A copy of a store with more arrays."""
    zarr = import_module("zarr")
    group = _zarr_group(source)
    version = group.metadata.zarr_format
    is_consolidated = group.metadata.consolidated_metadata is not None
    memory: dict[str, Any] = {}
    store = zarr.storage.MemoryStore(memory)
    if open_zarr(source).dims:
        file = _with_fields(source, naming, fields)
        file.to_zarr(store, mode="w", zarr_format=version, consolidated=is_consolidated)
    else:
        written = zarr.open_group(
            store, mode="w", zarr_format=version, attributes=dict(group.attrs)
        )
        for array_name in (shapes := open_zarr(source).shapes):
            array = group[array_name]
            written.create_array(
                array_name, data=array[...], attributes=dict(array.attrs), chunks=array.chunks
            )
        for field, variable in fields.data_vars.items():
            original, _, what = str(field).rpartition("_")
            attributes = inherited(group[original].attrs, what) if original in shapes else {}
            written.create_array(str(field), data=variable.values, attributes=attributes)
        if is_consolidated:
            zarr.consolidate_metadata(store)
    return {
        f"{name}/{key}": np.frombuffer(value.to_bytes(), np.uint8) for key, value in memory.items()
    }


def _with_fields(source: Path, naming: Naming, fields: "xarray.Dataset") -> "xarray.Dataset":
    """A file with more variables, on its own dimensions and with the attributes of their fields.

    Frames that are only some of the file's have the dimension `time_predicted` with their times.
    """
    _, roles = roles_of(open_netcdf(source), naming, has_samples=SAMPLE in fields.dims)
    with _open(source) as file, parse_errors(source, "NetCDF"):
        require_room(file.nbytes, str(source))
        file = file.load()
    dims_of = {role: dim for dim, role in roles.items()}
    for name, variable in fields.data_vars.items():
        dims: list[str] = []
        field, _, what = str(name).rpartition("_")
        for dim, size in variable.sizes.items():
            own = dims_of.get(str(dim).removesuffix(f"_{name}"), str(dim))
            if file.sizes.get(own, size) != size:
                times = file[own] if own in file.coords else None
                frames = next((n.frames for n in naming.targets if n.field == field), None)
                own = f"{own}_predicted"
                if times is not None and frames and len(times[slice(*frames)]) == size:
                    file.coords[own] = (own, times.values[slice(*frames)], times.attrs)
            dims.append(own)
        file[name] = (
            dims,
            variable.values,
            inherited(file[field].attrs if field in file else {}, what),
        )
    return file


def _is_circle(degrees: np.ndarray) -> bool:
    """Whether values go round in equal steps, with every place there once."""
    steps = np.diff(degrees) if degrees.ndim == 1 and len(degrees) > 1 else np.zeros(1)
    return bool(np.allclose(steps, steps[0]) and np.isclose(abs(steps[0]) * len(degrees), 360))


def _open(path: Path) -> Any:
    with parse_errors(path, "NetCDF"):
        if path.suffix.lower() == ZARR:
            return _xarray().open_zarr(path, decode_times=False, chunks=None, consolidated=False)
        if h5py.is_hdf5(path):
            with open_hdf5(path):  # refuses values in other files, which xarray would read
                pass
        return _xarray().open_dataset(path, decode_times=False)


def _zarr_group(path: Path) -> Any:
    """The root of a store, none of whose arrays is pickled."""
    for file in sorted(path.rglob("*")):
        if file.name in (".zarray", ".zmetadata", "zarr.json") and "pickle" in file.read_text():
            raise InputError(f"{file} asks for pickle, which is refused: it can run any code")
    try:
        zarr = import_module("zarr")
    except ImportError:
        raise InputError("Zarr stores need zarr: pip install 'cato-pde[zarr]'") from None
    with parse_errors(path, "Zarr"):
        return zarr.open_group(path, mode="r")


def _xarray() -> ModuleType:
    try:
        import_module("h5netcdf")  # the engine that reads and writes NetCDF 4
    except ImportError:
        raise InputError("NetCDF files need h5netcdf: pip install 'cato-pde[netcdf]'") from None
    import xarray

    return xarray
