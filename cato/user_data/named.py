"""Files whose axes have names: NetCDF and Zarr, and the layouts of PDEBench and The Well.

The dimensions of the coordinates are those of the mesh, `time` or `t` is time, `channel` or
`component` are channels, and the remaining one counts samples; a file without it is one sample.
Axis d of the mesh is the dimension of coordinate d, whatever the order in the file.
"""

from typing import TYPE_CHECKING

import numpy as np

from cato.errors import InputError
from cato.user_data.axes import (
    CHANNEL,
    MAX_DIMENSION,
    SAMPLE,
    TIME,
    ArrayFile,
    Dims,
    as_times,
    make_dataset,
    mask_of,
    mesh_dims,
    sample_variables,
    times_name,
    unit_grid_note,
)
from cato.user_data.naming import TIMES, Naming, ReadRequest

if TYPE_CHECKING:
    import xarray

CHANNELS = ("channel", "channels", "component", "components")
SAMPLES = (
    *("sample", "samples", "case", "cases", "member", "number", "ensemble", "realization"),
    *("realisation", "trajectory", "batch", "simulation", "sim", "run"),
)

Roles = dict[str, str]  # What each dimension of a file is called in the inner form.


def read_named(file: ArrayFile, request: ReadRequest, has_samples: bool) -> "xarray.Dataset":
    """Read the named fields; coordinates not named are those of the targets' dimensions."""
    import xarray

    coords, roles = roles_of(file, request.naming, has_samples)
    if has_samples:
        sample_dim_of(file, roles)
    naming = request.naming.within(file.shapes, request.truth)
    variables = {n: (_dims(file, n, roles), file.numbers(n)) for n in naming.fields}
    sizes = {
        roles[dim]: size
        for name in (*naming.fields, *coords)
        for dim, size in zip(file.dims[name], file.shapes[name], strict=True)
        if dim in roles
    }
    mesh = tuple(sizes[axis] for axis in mesh_dims(MAX_DIMENSION) if axis in sizes)
    notes = list(file.notes)
    if coords:
        nodes = {f"x{i}": (file.dims[n], file.numbers(n)) for i, n in enumerate(coords)}
    else:
        spatial = [dim for dim, role in roles.items() if role in mesh_dims(MAX_DIMENSION)]
        nodes = {f"x{i}": ((dim,), np.linspace(0, 1, mesh[i])) for i, dim in enumerate(spatial)}
        notes.append(unit_grid_note(mesh))
    # The coordinates at every node, for each sample where one of them depends on it.
    stacked = xarray.Dataset(nodes).to_array().transpose(..., "variable")
    dims = tuple(roles.get(str(dim), CHANNEL) for dim in stacked.dims)
    variables["coords"] = (dims, stacked.values)
    arrays = mask_of(file, naming)
    if arrays:  # samples first, then the axes of the mesh
        (name,) = (name for name in file.shapes if naming.is_mask(name))
        order = [roles.get(dim, CHANNEL) for dim in file.dims[name]]
        axes = sorted(range(len(order)), key=lambda axis: (order[axis] != SAMPLE, order[axis]))
        arrays["mask"] = arrays["mask"].transpose(axes)
    if SAMPLE in roles.values():
        extra = [name for name in ("split", "lengths") if name in file.shapes]
        arrays |= {name: file.read(name) for name in extra}
    variables |= sample_variables(file.path, arrays, sizes.get(SAMPLE, 1), mesh)
    times = times_name(file, naming)
    if times and {roles.get(dim) for dim in file.dims[times]} <= {SAMPLE, TIME}:
        dims = tuple(roles[dim] for dim in file.dims[times])
        variables["times"] = (dims, as_times(file.read(times), f"{file.path}: {times!r}"))
    layout = file.kind if file.is_layout else ""
    return make_dataset(file.path, naming, variables, notes).assign_attrs(layout=layout)


def sample_dim_of(file: ArrayFile, roles: Roles) -> str:
    """The dimension that counts samples; raises if there is none."""
    for dim, role in roles.items():
        if role == SAMPLE:
            return dim
    raise InputError(
        f"{file.path} has no dimension of samples next to {', '.join(roles)}; add one, called "
        f"sample where coordinates have it, or give a folder with one file per sample"
    )


def without_flat_components(datasets: "list[xarray.Dataset]") -> "list[xarray.Dataset]":
    """Drop coordinates that never vary: VTK points have three components, a plane problem two."""
    varies = np.zeros(datasets[0].sizes["channel_coords"], bool)
    for dataset in datasets:
        nodes = dataset["coords"].transpose(..., "channel_coords").values
        varies |= np.ptp(nodes.reshape(-1, len(varies)), axis=0) > 0
    if not varies.any():
        raise InputError(f"{datasets[0].attrs['origin']}: all points coincide")
    return [dataset.isel(channel_coords=varies) for dataset in datasets]


def roles_of(file: ArrayFile, naming: Naming, has_samples: bool) -> tuple[tuple[str, ...], Roles]:
    """Names of the coordinates, empty for a unit grid, and the roles of the dimensions.

    In a file of one sample the dimension that is neither of the mesh nor called time is time too,
    unless its name says that it counts samples.
    """
    reference = _reference(file, naming, has_samples)
    dims = [dim for dim in file.dims[reference] if dim not in CHANNELS]
    coords = naming.coords or coordinates_of(file, dims)
    wrong = [name for name in coords if name not in file.shapes]
    if wrong:
        raise InputError(
            f"{file.path} has no coordinate {wrong[0]!r}, only variables {listed(file)}; name them "
            f"with --coords y,x"
        )
    rest = [dim for dim in dims if dim not in TIMES]
    if not coords:
        counting = [dim for dim in rest if dim in SAMPLES] or rest[: has_samples and len(rest) > 1]
        spatial = [dim for dim in rest if dim not in counting]
    elif all(len(file.dims[name]) == 1 for name in coords):
        spatial = list(dict.fromkeys(file.dims[name][0] for name in coords))
    else:
        # A dimension that every coordinate and every field has may still count samples.
        found = {dim for name in coords for dim in file.dims[name]}
        spatial = [dim for dim in dims if dim in found and dim not in ("sample", "samples")]
    time = [dim for dim in dims if dim in TIMES and dim not in spatial]
    rest = [dim for dim in dims if dim not in (*spatial, *time)]
    if not has_samples and not time and not set(rest) & set(SAMPLES):
        time, rest = rest, []
    may_count = has_samples or set(rest) <= set(SAMPLES)
    if len(rest) > may_count or len(time) > 1 or not set(spatial) <= set(dims):
        raise InputError(
            f"{file.path}: of the dimensions {', '.join(dims)} of {reference!r}, those of the mesh "
            f"are {', '.join(spatial)}; at most one more may count samples, and time is called time"
        )
    if not 1 <= len(spatial) <= MAX_DIMENSION:
        raise InputError(
            f"{file.path}: {reference!r} has mesh dimensions {', '.join(spatial) or 'none'}; there "
            f"should be 1 to {MAX_DIMENSION}. Name the coordinates of the mesh: --coords y,x"
        )
    roles = dict(zip(spatial, mesh_dims(len(spatial)), strict=True))
    return coords, roles | dict.fromkeys(rest, SAMPLE) | dict.fromkeys(time, TIME)


def coordinates_of(file: ArrayFile, dims: list[str]) -> tuple[str, ...]:
    """The coordinates of the axes among some dimensions, else those of a curved mesh on them."""
    along = [dim for dim in dims if dim in file.coords and dim not in (*TIMES, *SAMPLES)]
    curved = [
        name
        for name in file.coords
        if name not in dims
        and set(file.dims[name]) <= set(dims)
        and set(file.dims[name]) - {*TIMES, *SAMPLES}
    ]
    return tuple(along or curved)


def listed(file: ArrayFile) -> str:
    """The variables of a file with their dimensions."""
    return ", ".join(f"{name} ({', '.join(dims)})" for name, dims in file.dims.items())


def _reference(file: ArrayFile, naming: Naming, has_samples: bool) -> str:
    """The variable whose dimensions are those of the data."""
    named = [name.field for name in (*naming.targets, *naming.inputs)] or ["targets", "inputs"]
    for name in named:
        if len({*file.dims.get(name, ())} - {*TIMES, *CHANNELS}) > has_samples:
            return name
    shapes = {file.dims[name] for name in file.coords}
    is_known = any(name.field in file.dims for name in naming.targets)
    if not is_known and len(shapes) == 1 and not has_samples:
        return file.coords[0]  # a mesh to predict on, with numbers as its inputs, or none
    if naming.is_layout:
        raise InputError(
            f"{file.path} holds {listed(file)}; name its fields: --inputs k --targets p"
        )
    raise InputError(
        f"{file.path} has no variable {naming.targets[0].field!r} over a mesh, only {listed(file)}"
    )


def _dims(file: ArrayFile, name: str, roles: Roles) -> Dims:
    """Dimensions of a field in the inner form; one that has no role is channels."""
    dims = tuple(roles.get(dim, CHANNEL) for dim in file.dims.get(name, ()))
    if dims.count(CHANNEL) > 1:
        raise InputError(
            f"{file.path}: {name!r} has dimensions {', '.join(file.dims[name])}; besides "
            f"{', '.join(roles)} it may have one, of channels"
        )
    return dims
