"""Writers of small files in the layouts that others use, each with the library or by the
specification of its format, and the values that went in.

Every writer takes an empty folder and returns the path to give to cato. Values of other sizes may
be given (`tools/first_report.py` does); those of the tests are small and in closed form.
"""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pyvista
import scipy.io
import torch
import xarray
import zarr

S, T = 12, 5  # Samples, frames.
WRITERS: dict[str, Callable[[Path], Path]] = {}


def writer(function):
    WRITERS[function.__name__.removeprefix("write_")] = function
    return function


def smooth(*shape, seed=0, offset=2.0):
    """Smooth fields over the last axes, different for each index of the first."""
    rng = np.random.default_rng(seed)
    axes = np.meshgrid(*(np.linspace(0, 1, n) for n in shape[1:]), indexing="ij")
    rows = [
        sum(np.sin((1 + d) * x + p) for d, (x, p) in enumerate(zip(axes, ps, strict=True)))
        for ps in 6 * rng.random((shape[0], len(axes)))
    ]
    return (np.stack(rows) + offset).astype(np.float32)


# -- PDEBench: pdebench/data_gen/data_gen_NLE/Data_Merge.py and gen_diff_react.py ------------------


@writer
def write_pdebench_burgers(folder, u=None):
    path = folder / "1D_Burgers_Sols_Nu0.01.hdf5"
    u = smooth(S, 30, 16) if u is None else u
    with h5py.File(path, "w") as file:
        file["tensor"] = u
        file["x-coordinate"] = np.linspace(0, 1, u.shape[2], dtype=np.float32)
        file["t-coordinate"] = np.linspace(0, 2, u.shape[1] + 1, dtype=np.float32)
        file.attrs["Nu"] = 0.01
    return path


def write_cfd(folder, dimension, fields=None):
    path = folder / f"{dimension}D_CFD_Rand_Eta0.1_Zeta0.1_periodic_Train.hdf5"
    names = ("density", "pressure", *(f"V{axis}" for axis in "xyz"[:dimension]))
    if fields is None:
        mesh = (5, 6, 4)[:dimension]
        fields = {name: smooth(S, T, *mesh, seed=seed) for seed, name in enumerate(names)}
    assert tuple(fields) == names
    _, num_frames, *mesh = fields["density"].shape
    with h5py.File(path, "w") as file:
        for name, values in fields.items():
            file[name] = values
        for axis, n in zip("xyz", mesh, strict=False):
            file[f"{axis}-coordinate"] = (np.arange(n, dtype=np.float32) + 0.5) / n
        file["t-coordinate"] = np.linspace(0, 1, num_frames + 1, dtype=np.float32)
        file.attrs["eta"] = file.attrs["zeta"] = 0.1
    return path


@writer
def write_pdebench_cfd(folder, fields=None):
    return write_cfd(folder, 2, fields)


@writer
def write_pdebench_darcy(folder, nu=None, u=None):
    path = folder / "2D_DarcyFlow_beta1.0_Train.hdf5"
    nu = smooth(S, 6, 7) if nu is None else nu
    with h5py.File(path, "w") as file:
        file["tensor"] = (nu**2 if u is None else u)[:, None]
        file["nu"] = nu
        file["x-coordinate"] = np.linspace(0, 1, nu.shape[1], dtype=np.float32)
        file["y-coordinate"] = np.linspace(0, 1, nu.shape[2], dtype=np.float32)
        file.attrs["beta"] = 1.0
    return path


@writer
def write_pdebench_diffusion_reaction(folder, values=None):
    path = folder / "2D_diff-react_NA_NA.h5"
    if values is None:
        values = np.stack([smooth(S, T, 6, 7, seed=s) for s in (0, 1)], axis=-1)
    sizes = dict(zip("txy", values.shape[1:], strict=False))
    with h5py.File(path, "w") as file:
        for i, sample in enumerate(values):
            file.create_dataset(f"{i:04}/data", data=sample, dtype="float32", compression="lzf")
            for axis, n in sizes.items():
                file.create_dataset(
                    f"{i:04}/grid/{axis}",
                    data=np.linspace(-1, 1, n),
                    dtype="float32",
                    compression="lzf",
                )
            file[f"{i:04}"].attrs["config"] = f"sim:\n  seed: {i}\n"
    return path


def write_incompressible(folder):
    path = folder / "ns_incom_inhom_2d_512-0.h5"
    with h5py.File(path, "w") as file:
        file.attrs["config"], file.attrs["latestIndex"] = "sim_name: ns_sim_2d\n", T - 1
        file["velocity"] = np.stack([smooth(S, T, 6, 7, seed=s) for s in (0, 1)], axis=-1)
        file["particles"] = smooth(S, T, 6, 7, seed=2)[..., None]
        file["force"] = np.stack([smooth(S, 6, 7, seed=s) for s in (3, 4)], axis=-1)
        file["t"] = np.tile(np.arange(T, dtype=np.float32), (S, 1))
    return path


# -- The Well: docs/data_format.md of its repository -----------------------------------------------


def write_well_file(path, seed, density, velocity):
    num_trajectories, num_frames, *mesh = density.shape
    with h5py.File(path, "w") as file:
        file.attrs["dataset_name"] = "shear"
        file.attrs["grid_type"] = "cartesian"
        file.attrs["n_spatial_dims"] = 2
        file.attrs["n_trajectories"] = num_trajectories
        file.attrs["simulation_parameters"] = ["Reynolds"]
        file.attrs["Reynolds"] = 100.0 * seed
        dimensions = file.create_group("dimensions")
        dimensions.attrs["spatial_dims"] = ["x", "y"]
        for name, n in {"time": num_frames, "x": mesh[0], "y": mesh[1]}.items():
            dimensions[name] = np.arange(n, dtype=np.float32) / n
            dimensions[name].attrs["sample_varying"] = False
            dimensions[name].attrs["time_varying"] = False
        for axis, n, kind in (("x", mesh[0], "periodic"), ("y", mesh[1], "wall")):
            condition = file.create_group(f"boundary_conditions/{axis}_{kind}")
            condition.attrs["associated_dims"] = [axis]
            condition.attrs["associated_fields"] = []
            condition.attrs["bc_type"] = kind
            condition.attrs["sample_varying"] = condition.attrs["time_varying"] = False
            condition["mask"] = np.isin(np.arange(n), (0, n - 1))
            condition["values"] = np.zeros(2, np.float32)
        scalars = file.create_group("scalars")
        scalars.attrs["field_names"] = ["Reynolds"]
        scalars["Reynolds"] = np.float32(100.0 * seed)
        scalars["Reynolds"].attrs["sample_varying"] = False
        scalars["Reynolds"].attrs["time_varying"] = False
        groups = {
            "t0_fields": {"density": density},
            "t1_fields": {"velocity": velocity},
            "t2_fields": {"stress": np.zeros((*density.shape, 2, 2), np.float32) + seed},
        }
        for name, fields in groups.items():
            group = file.create_group(name)
            group.attrs["field_names"] = list(fields)
            for field, values in fields.items():
                group[field] = values
                group[field].attrs["dim_varying"] = [True, True]
                group[field].attrs["sample_varying"] = group[field].attrs["time_varying"] = True
        static = smooth(num_trajectories, *mesh, seed=seed)[:, :, 0]
        groups = file["t0_fields"]
        groups["profile"] = static
        groups["profile"].attrs["dim_varying"] = [True, False]
        groups["profile"].attrs["sample_varying"], groups["profile"].attrs["time_varying"] = (
            True,
            False,
        )
        groups.attrs["field_names"] = ["density", "profile"]


@writer
def write_the_well(folder, parts=None):
    """`parts` are density and velocity of four files."""
    if parts is None:
        fields = {
            seed: [smooth(3, 10, 6, 8, seed=seed + s) for s in (0, 10, 20)] for seed in range(5)
        }
        parts = [(d, np.stack((u, v), -1)) for d, u, v in list(fields.values())[1:]]
    for name, seeds in {"train": (1, 2), "valid": (3,), "test": (4,)}.items():
        inner = folder / "shear" / "data" / name
        inner.mkdir(parents=True)
        for seed in seeds:
            write_well_file(inner / f"shear_Re_{seed}e2.hdf5", seed, *parts[seed - 1])
    (folder / "shear" / "stats.yaml").write_text("mean: {}\n")
    return folder / "shear"


# -- tensors, NetCDF, Zarr -------------------------------------------------------------------------


@writer
def write_tensors(folder, x=None, y=None):
    """As neural-operator codes distribute Darcy flow: inputs x, targets y, no coordinates."""
    x = torch.from_numpy(smooth(S, 8, 8) if x is None else x)
    y = x**2 + 1 if y is None else torch.from_numpy(y)
    torch.save({"x": x, "y": y}, folder / "darcy_train_8.pt")
    return folder / "darcy_train_8.pt"


def climate():
    """A field of ocean temperature in kelvin: samples, latitude, longitude."""
    lat, lon = np.linspace(-60, 60, 7), np.arange(0, 360, 30.0)
    case = smooth(S, 7, 12, offset=0.0)
    return lat, lon, 280 + 5 * case, 290 + 3 * np.cos(np.deg2rad(lon)) + 2 * case


@writer
def write_netcdf_cf(folder, values=None):
    """Packed into 16 bits with a fill value, latitudes and longitudes, time as days since."""
    lat, lon, air, sea = climate() if values is None else values
    dims = ("member", "lat", "lon")
    attrs = {"units": "K", "standard_name": "air_temperature", "long_name": "temperature"}
    data = xarray.Dataset(
        {"air": (dims, air, attrs), "sea": (dims, sea, {**attrs, "long_name": "sea surface"})},
        {
            "lat": ("lat", lat, {"units": "degrees_north", "standard_name": "latitude"}),
            "lon": ("lon", lon, {"units": "degrees_east", "standard_name": "longitude"}),
        },
        {"Conventions": "CF-1.8"},
    )
    packed = {"dtype": "int16", "scale_factor": 0.001, "add_offset": 285.0, "_FillValue": -32768}
    data.to_netcdf(
        folder / "climate.nc", engine="h5netcdf", encoding={"air": packed, "sea": packed}
    )
    return folder / "climate.nc"


@writer
def write_zarr(folder, u=None):
    u = smooth(S, T, 9) if u is None else u
    x, t = np.linspace(0, 1, u.shape[2]), np.arange(u.shape[1])
    data = xarray.Dataset(
        {"u": (("sample", "time", "x"), u, {"units": "m/s"})}, {"x": x, "time": t}
    )
    data.to_zarr(folder / "waves.zarr")
    return folder / "waves.zarr"


def write_plain_zarr(folder):
    """Arrays without names of their axes."""
    group = zarr.open_group(folder / "plain.zarr", mode="w", zarr_format=2)
    a = smooth(S, 6, 7)
    group.create_array("a", data=a)
    group.create_array("u", data=a**2)
    return folder / "plain.zarr"


# -- meshes ----------------------------------------------------------------------------------------


def plate(i):
    """An unstructured plate with a hole that grows with the sample."""
    points = np.stack(np.meshgrid(np.linspace(0, 1, 6), np.linspace(0, 1, 5)), -1).reshape(-1, 2)
    points = points[np.hypot(*(points - 0.4).T) > 0.1 + 0.01 * i]
    return (
        pyvista.PolyData(np.pad(points, ((0, 0), (0, 1)))).delaunay_2d().cast_to_unstructured_grid()
    )


def centres(mesh):
    return np.asarray(mesh.cell_centers().points)


@writer
def write_vtk_cells(folder, plates=None):
    """Cell data of a finite-volume code next to point data."""
    (folder / "plates").mkdir()
    if plates is None:
        plates = [plate(i) for i in range(S)]
        for i, mesh in enumerate(plates):
            mesh.point_data["load"] = mesh.points[:, 0] + i
            mesh.cell_data["stress"] = centres(mesh)[:, 0] * (1 + i)
    for i, mesh in enumerate(plates):
        mesh.save(folder / "plates" / f"plate_{i}.vtu")
    return folder / "plates"


def waves(i):
    """Temperature, frames × nodes with x fastest, on 6 × 5 nodes of the unit square."""
    x, y = (a.ravel() for a in np.meshgrid(np.linspace(0, 1, 6), np.linspace(0, 1, 5)))
    decay = np.exp(-0.1 * np.arange(T))[:, None]
    return 300 + decay * np.sin(3 * x + i) * np.cos(2 * y)


@writer
def write_pvd(folder, cases=None, size=(6, 5)):
    """Time series as ParaView writes them: a list of files for each case."""
    (folder / "cases").mkdir()
    spacing = (*(1 / (n - 1) for n in size), 1)
    for i, frames in enumerate([waves(i) for i in range(S)] if cases is None else cases):
        name, lines = f"case_{i}", []
        (folder / "cases" / name).mkdir()
        for k, frame in enumerate(frames):
            mesh = pyvista.ImageData(dimensions=(*size, 1), spacing=spacing)
            mesh.point_data["T"] = frame
            mesh.save(folder / "cases" / name / f"{name}_{k}.vti")
            lines.append(
                f'    <DataSet timestep="{0.1 * k}" part="0" file="{name}/{name}_{k}.vti"/>'
            )
        (folder / "cases" / f"{name}.pvd").write_text(
            '<?xml version="1.0"?>\n<VTKFile type="Collection" version="0.1" '
            'byte_order="LittleEndian">\n  <Collection>\n'
            + "\n".join(lines)
            + "\n  </Collection>\n</VTKFile>\n"
        )
    return folder / "cases"


def write_multiblock(folder):
    """Two blocks of different sizes in each file."""
    (folder / "blocks").mkdir()
    for i in range(S):
        left, right = (
            pyvista.ImageData(dimensions=(n, 4, 1), origin=(x, 0, 0), spacing=(0.25, 0.3, 1))
            for n, x in ((5, 0), (4, 1))
        )
        blocks = pyvista.MultiBlock({"left": left, "right": right})
        for block in blocks:
            block.point_data["p"] = block.points[:, 0] * (1 + i)
            block.field_data["speed"] = [float(i)]
        blocks.save(folder / "blocks" / f"{i}.vtm")
    return folder / "blocks"


NX, NY = 5, 4  # Cells of the OpenFOAM, CGNS and Exodus meshes.


def corners(nx=NX, ny=NY):
    """Points (nx + 1) × (ny + 1) of a plane mesh, x fastest."""
    x, y = np.meshgrid(np.linspace(0, 1, nx + 1), np.linspace(0, 0.8, ny + 1))
    return np.stack((x.ravel(), y.ravel()), axis=-1)


def header(kind, name, location):
    return (
        f"FoamFile\n{{\n    version     2.0;\n    format      ascii;\n    class       {kind};\n"
        f'    location    "{location}";\n    object      {name};\n}}\n\n'
    )


def write_polymesh(folder, nx, ny):
    """constant/polyMesh of a block one cell thick, faces in OpenFOAM's upper-triangular order."""
    plane, layer = corners(nx, ny), (nx + 1) * (ny + 1)
    points = [(*p, z) for z in (0, 0.1) for p in plane]

    def corner(i, j):
        return j * (nx + 1) + i

    def cell(i, j):
        return j * nx + i

    def along_y(i, j):  # The face x = const between corners (i, j) and (i, j + 1).
        a, b = corner(i, j), corner(i, j + 1)
        return (a, b, b + layer, a + layer)

    def along_x(i, j):
        a, b = corner(i, j), corner(i + 1, j)
        return (a, a + layer, b + layer, b)

    inner = []
    for j in range(ny):
        for i in range(nx):
            if i + 1 < nx:
                inner.append((along_y(i + 1, j), cell(i, j), cell(i + 1, j)))
            if j + 1 < ny:
                inner.append((along_x(i, j + 1), cell(i, j), cell(i, j + 1)))
    patches = {
        "inlet": ("patch", [(along_y(0, j)[::-1], cell(0, j)) for j in range(ny)]),
        "outlet": ("patch", [(along_y(nx, j), cell(nx - 1, j)) for j in range(ny)]),
        "walls": (
            "wall",
            [(along_x(i, 0)[::-1], cell(i, 0)) for i in range(nx)]
            + [(along_x(i, ny), cell(i, ny - 1)) for i in range(nx)],
        ),
        "frontAndBack": ("empty", []),
    }
    for j in range(ny):
        for i in range(nx):
            a, b, c, d = corner(i, j), corner(i + 1, j), corner(i + 1, j + 1), corner(i, j + 1)
            back, front = (a, d, c, b), tuple(n + layer for n in (a, b, c, d))
            patches["frontAndBack"][1].extend([(back, cell(i, j)), (front, cell(i, j))])
    faces = [face for face, *_ in inner] + [f for _, rows in patches.values() for f, _ in rows]
    owner = [o for _, o, _ in inner] + [o for _, rows in patches.values() for _, o in rows]
    target = folder / "constant" / "polyMesh"
    target.mkdir(parents=True)

    def listed(rows):
        return f"{len(rows)}\n(\n" + "\n".join(rows) + "\n)\n"

    def group(values):
        return f"({' '.join(map(str, values))})"

    place = "constant/polyMesh"
    contents = {
        "points": header("vectorField", "points", place) + listed([group(p) for p in points]),
        "faces": header("faceList", "faces", place) + listed([f"4{group(f)}" for f in faces]),
        "owner": header("labelList", "owner", place) + listed([str(o) for o in owner]),
        "neighbour": header("labelList", "neighbour", place) + listed([str(n) for *_, n in inner]),
    }
    start, entries = len(inner), []
    for name, (kind, rows) in patches.items():
        entries.append(
            f"    {name}\n    {{\n        type {kind};\n        nFaces {len(rows)};\n"
            f"        startFace {start};\n    }}"
        )
        start += len(rows)
    contents["boundary"] = header("polyBoundaryMesh", "boundary", place) + listed(entries)
    for name, text in contents.items():
        (target / name).write_text(text)


def linear_flow(i):
    """Velocity of the inlet, and a flow: x, y and time to both velocities and pressure."""
    speed = 1.0 + i
    return speed, lambda x, y, time: (
        speed * (1 + y),
        0.1 * speed * y,
        speed**2 * (1 - x) + 0.1 * float(time) * y,
    )


def write_case(folder, flow, times, scheme, size=(NX, NY)):
    """A case: Euler or steadyState."""
    (nx, ny), (speed, fields) = size, flow
    write_polymesh(folder, nx, ny)
    (folder / "system").mkdir()
    (folder / "system" / "controlDict").write_text(
        header("dictionary", "controlDict", "system") + "application foamRun;\n"
    )
    (folder / "system" / "fvSchemes").write_text(
        header("dictionary", "fvSchemes", "system") + f"ddtSchemes\n{{\n    default {scheme};\n}}\n"
    )
    middle = corners(nx, ny) + np.array([0.5 / nx, 0.4 / ny])
    x, y = middle.T.reshape(2, ny + 1, nx + 1)[:, :-1, :-1].reshape(2, -1)
    for time in times:
        at = folder / f"{time:g}"
        at.mkdir()
        along, across, pressure = fields(x, y, time)
        rows = "\n".join(f"({u:.9g} {v:.9g} 0)" for u, v in zip(along, across, strict=True))
        (at / "p").write_text(
            header("volScalarField", "p", at.name)
            + "dimensions      [0 2 -2 0 0 0 0];\n\ninternalField   nonuniform List<scalar>\n"
            + f"{len(pressure)}\n(\n"
            + "\n".join(f"{p:.9g}" for p in pressure)
            + "\n)\n;\n\nboundaryField\n{\n    inlet { type zeroGradient; }\n"
            "    outlet { type fixedValue; value uniform 0; }\n    walls { type zeroGradient; }\n"
            "    frontAndBack { type empty; }\n}\n"
        )
        (at / "U").write_text(
            header("volVectorField", "U", at.name)
            + "dimensions      [0 1 -1 0 0 0 0];\n\ninternalField   nonuniform List<vector>\n"
            + f"{y.size}\n(\n{rows}\n)\n;\n\nboundaryField\n{{\n"
            f"    inlet {{ type fixedValue; value uniform ({speed} 0 0); }}\n"
            "    outlet { type zeroGradient; }\n    walls { type noSlip; }\n"
            "    frontAndBack { type empty; }\n}\n"
        )


@writer
def write_openfoam(folder, flows=None, size=(NX, NY)):
    for i, flow in enumerate(flows or [linear_flow(i) for i in range(S)]):
        write_case(folder / "foam" / f"case_{i}", flow, (0, 100, 200), "steadyState", size)
    return folder / "foam"


def write_transient_openfoam(folder):
    for i in range(S):
        write_case(folder / "cases" / f"case_{i}", linear_flow(i), (0, 0.5, 1.0), "Euler")
    return folder / "cases"


def write_cgns_file(path, points, cells, pressure):
    """One zone with a vertex solution, as CGNS/SIDS puts it into HDF5."""

    def node(parent, name, label, data=None):
        group = parent.create_group(name)
        kinds = {"int32": "I4", "float64": "R8", "float32": "R4", "int8": "C1"}
        kind = "MT" if data is None else kinds[str(data.dtype)]
        for key, word, size in (("name", name, 33), ("label", label, 33), ("type", kind, 3)):
            group.attrs.create(key, np.bytes_(word), dtype=f"S{size}")
        group.attrs["flags"] = np.array([1], np.int32)
        if data is not None:
            group[" data"] = data
        return group

    def text(word):
        return np.frombuffer(word.encode(), np.int8)

    with h5py.File(path, "w") as file:
        for key, word, size in (
            ("name", "HDF5 MotherNode", 33),
            ("label", "Root Node of HDF5 File", 33),
            ("type", "MT", 3),
        ):
            file.attrs.create(key, np.bytes_(word), dtype=f"S{size}")
        file[" format"] = text("IEEE_LITTLE_32\0")
        file[" hdf5version"] = text("HDF5 Version 1.8.17".ljust(33, "\0"))
        node(file, "CGNSLibraryVersion", "CGNSLibraryVersion_t", np.array([3.4], np.float32))
        base = node(file, "Base", "CGNSBase_t", np.array([2, 2], np.int32))
        sizes = np.array([[len(points)], [len(cells)], [0]], np.int32)
        zone = node(base, "Zone", "Zone_t", sizes)
        node(zone, "ZoneType", "ZoneType_t", text("Unstructured"))
        grid = node(zone, "GridCoordinates", "GridCoordinates_t")
        node(grid, "CoordinateX", "DataArray_t", points[:, 0].copy())
        node(grid, "CoordinateY", "DataArray_t", points[:, 1].copy())
        elements = node(zone, "Elements", "Elements_t", np.array([7, 0], np.int32))
        node(elements, "ElementRange", "IndexRange_t", np.array([1, len(cells)], np.int32))
        node(elements, "ElementConnectivity", "DataArray_t", cells.ravel().astype(np.int32))
        solution = node(zone, "Solution", "FlowSolution_t")
        node(solution, "GridLocation", "GridLocation_t", text("Vertex"))
        node(solution, "Pressure", "DataArray_t", pressure)


def quads(nx=NX, ny=NY):
    """Corners of the cells, counted from 1."""
    first = (np.arange(ny)[:, None] * (nx + 1) + np.arange(nx)).ravel() + 1
    return np.stack((first, first + 1, first + nx + 2, first + nx + 1), axis=-1)


@writer
def write_cgns(folder, wings=None):
    """`wings` are points, cells and the pressure at the points."""
    (folder / "wings").mkdir()
    points = corners()
    plane = [(points, quads(), (1.0 + i) * points[:, 0] + points[:, 1]) for i in range(S)]
    for i, wing in enumerate(wings or plane):
        write_cgns_file(folder / "wings" / f"wing_{i}.cgns", *wing)
    return folder / "wings"


def write_exodus_file(path, points, cells, frames):
    """One block of quadrilaterals with a nodal variable at some times, in NetCDF 3."""
    with scipy.io.netcdf_file(path, "w", version=2) as file:
        file.title, file.api_version, file.version = "plate", np.float32(8.03), np.float32(8.03)
        file.floating_point_word_size, file.file_size = 8, 1
        sizes = {
            "len_string": 33,
            "len_line": 81,
            "four": 4,
            "len_name": 33,
            "num_dim": 2,
            "num_nodes": len(points),
            "num_elem": len(cells),
            "num_el_blk": 1,
            "num_el_in_blk1": len(cells),
            "num_nod_per_el1": 4,
            "num_nod_var": 1,
        }
        file.createDimension("time_step", None)
        for name, size in sizes.items():
            file.createDimension(name, size)

        def put(name, kind, dims, values):
            variable = file.createVariable(name, kind, dims)
            variable[:] = values
            return variable

        def names(words):
            return np.array([list(w.ljust(33, "\0")) for w in words], "S1")

        put("time_whole", "d", ("time_step",), 0.5 * np.arange(len(frames)))
        put("eb_status", "i", ("num_el_blk",), [1])
        put("eb_prop1", "i", ("num_el_blk",), [1]).name = "ID"
        put("coordx", "d", ("num_nodes",), points[:, 0])
        put("coordy", "d", ("num_nodes",), points[:, 1])
        put("coor_names", "c", ("num_dim", "len_name"), names(["x", "y"]))
        put("connect1", "i", ("num_el_in_blk1", "num_nod_per_el1"), cells).elem_type = "QUAD4"
        put("name_nod_var", "c", ("num_nod_var", "len_name"), names(["temp"]))
        put("vals_nod_var1", "d", ("time_step", "num_nodes"), frames)


@writer
def write_exodus(folder, frames=None, size=(NX, NY)):
    """`frames` are (samples, times, points)."""
    (folder / "thermal").mkdir()
    points, cells = corners(*size), quads(*size)
    if frames is None:
        base = np.stack([(1.0 + i) * points[:, 0] + points[:, 1] + 1 for i in range(S)])
        frames = np.stack((base, 0.5 * base), axis=1)
    for i, values in enumerate(frames):
        write_exodus_file(folder / "thermal" / f"plate_{i}.e", points, cells, values)
    return folder / "thermal"


# -- tables ----------------------------------------------------------------------------------------


def table():
    """Clouds of different sizes with a number of each case, and units in the header."""
    import pandas

    rng, parts = np.random.default_rng(0), []
    for i in range(S):
        x, y = rng.random((2, 20 + i))
        speed = 1 + i / S
        columns = {"case": i, "x [m]": x, "y [m]": y, "speed [m/s]": speed}
        parts.append(pandas.DataFrame(columns | {"p [Pa]": speed**2 * np.sin(3 * x) * y + 1}))
    return pandas.concat(parts)


@writer
def write_csv(folder, rows=None):
    (table() if rows is None else rows).to_csv(folder / "probes.csv", index=False)
    return folder / "probes.csv"


@writer
def write_parquet(folder, rows=None):
    (table() if rows is None else rows).to_parquet(folder / "probes.parquet", index=False)
    return folder / "probes.parquet"


def write_paraview_csv(folder):
    """ParaView's spreadsheet of a slice, one file for each case: a grid with x fastest."""
    (folder / "slices").mkdir()
    x, y = (a.ravel() for a in np.meshgrid(np.linspace(0, 1, 6), np.linspace(0, 1, 5)))
    for i in range(S):
        columns = [np.sin(x + i), np.cos(y + i), 0 * x, x + y + i, x, y, 0 * x]
        names = ["U:0", "U:1", "U:2", "p", "Points:0", "Points:1", "Points:2"]
        text = ",".join(f'"{name}"' for name in names)
        rows = "\n".join(",".join(f"{v:.9g}" for v in row) for row in zip(*columns, strict=True))
        (folder / "slices" / f"slice_{i}.csv").write_text(f"{text}\n{rows}\n")
    return folder / "slices"
