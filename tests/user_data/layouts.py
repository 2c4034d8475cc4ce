"""Writers of small files in the layouts that others use, each with the library or by the
specification of its format, and the values that went in.

Every writer takes an empty folder and returns the path to give to cato.
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
def write_pdebench_burgers(folder):
    path = folder / "1D_Burgers_Sols_Nu0.01.hdf5"
    with h5py.File(path, "w") as file:
        file["tensor"] = smooth(S, 30, 16)
        file["x-coordinate"] = np.linspace(0, 1, 16, dtype=np.float32)
        file["t-coordinate"] = np.linspace(0, 2, 31, dtype=np.float32)
        file.attrs["Nu"] = 0.01
    return path


def write_cfd(folder, dimension):
    path = folder / f"{dimension}D_CFD_Rand_Eta0.1_Zeta0.1_periodic_Train.hdf5"
    mesh = (5, 6, 4)[:dimension]
    with h5py.File(path, "w") as file:
        names = ("density", "pressure", *(f"V{axis}" for axis in "xyz"[:dimension]))
        for seed, name in enumerate(names):
            file[name] = smooth(S, T, *mesh, seed=seed)
        for axis, n in zip("xyz", mesh, strict=False):
            file[f"{axis}-coordinate"] = (np.arange(n, dtype=np.float32) + 0.5) / n
        file["t-coordinate"] = np.linspace(0, 1, T + 1, dtype=np.float32)
        file.attrs["eta"] = file.attrs["zeta"] = 0.1
    return path


@writer
def write_pdebench_cfd(folder):
    return write_cfd(folder, 2)


@writer
def write_pdebench_darcy(folder):
    path = folder / "2D_DarcyFlow_beta1.0_Train.hdf5"
    nu = smooth(S, 6, 7)
    with h5py.File(path, "w") as file:
        file["tensor"] = (nu**2)[:, None]
        file["nu"] = nu
        file["x-coordinate"] = np.linspace(0, 1, 6, dtype=np.float32)
        file["y-coordinate"] = np.linspace(0, 1, 7, dtype=np.float32)
        file.attrs["beta"] = 1.0
    return path


@writer
def write_pdebench_diffusion_reaction(folder):
    path = folder / "2D_diff-react_NA_NA.h5"
    values = np.stack([smooth(S, T, 6, 7, seed=s) for s in (0, 1)], axis=-1)
    with h5py.File(path, "w") as file:
        for i, sample in enumerate(values):
            file.create_dataset(f"{i:04}/data", data=sample, dtype="float32", compression="lzf")
            for axis, n in {"x": 6, "y": 7, "t": T}.items():
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


def write_well_file(path, num_trajectories, seed):
    mesh = (6, 8)
    with h5py.File(path, "w") as file:
        file.attrs["dataset_name"] = "shear"
        file.attrs["grid_type"] = "cartesian"
        file.attrs["n_spatial_dims"] = 2
        file.attrs["n_trajectories"] = num_trajectories
        file.attrs["simulation_parameters"] = ["Reynolds"]
        file.attrs["Reynolds"] = 100.0 * seed
        dimensions = file.create_group("dimensions")
        dimensions.attrs["spatial_dims"] = ["x", "y"]
        for name, n in {"time": 10, "x": 6, "y": 8}.items():
            dimensions[name] = np.arange(n, dtype=np.float32) / n
            dimensions[name].attrs["sample_varying"] = False
            dimensions[name].attrs["time_varying"] = False
        for axis, n, kind in (("x", 6, "periodic"), ("y", 8, "wall")):
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
            "t0_fields": {"density": smooth(num_trajectories, 10, *mesh, seed=seed)},
            "t1_fields": {
                "velocity": np.stack(
                    [smooth(num_trajectories, 10, *mesh, seed=seed + s) for s in (10, 20)], -1
                )
            },
            "t2_fields": {
                "stress": np.zeros((num_trajectories, 10, *mesh, 2, 2), np.float32) + seed
            },
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
def write_the_well(folder):
    for name, seeds in {"train": (1, 2), "valid": (3,), "test": (4,)}.items():
        inner = folder / "shear" / "data" / name
        inner.mkdir(parents=True)
        for seed in seeds:
            write_well_file(inner / f"shear_Re_{seed}e2.hdf5", 3, seed)
    (folder / "shear" / "stats.yaml").write_text("mean: {}\n")
    return folder / "shear"


# -- tensors, NetCDF, Zarr -------------------------------------------------------------------------


@writer
def write_tensors(folder):
    """As neural-operator codes distribute Darcy flow: inputs x, targets y, no coordinates."""
    x = torch.from_numpy(smooth(S, 8, 8))
    torch.save({"x": x, "y": x**2 + 1}, folder / "darcy_train_8.pt")
    return folder / "darcy_train_8.pt"


def climate():
    """A field of ocean temperature in kelvin: samples, latitude, longitude."""
    lat, lon = np.linspace(-60, 60, 7), np.arange(0, 360, 30.0)
    case = smooth(S, 7, 12, offset=0.0)
    return lat, lon, 280 + 5 * case, 290 + 3 * np.cos(np.deg2rad(lon)) + 2 * case


@writer
def write_netcdf_cf(folder):
    """Packed into 16 bits with a fill value, latitudes and longitudes, time as days since."""
    lat, lon, air, sea = climate()
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
def write_zarr(folder):
    x, t = np.linspace(0, 1, 9), np.arange(T)
    data = xarray.Dataset(
        {"u": (("sample", "time", "x"), smooth(S, T, 9), {"units": "m/s"})}, {"x": x, "time": t}
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
def write_vtk_cells(folder):
    """Cell data of a finite-volume code next to point data."""
    (folder / "plates").mkdir()
    for i in range(S):
        mesh = plate(i)
        mesh.point_data["load"] = mesh.points[:, 0] + i
        mesh.cell_data["stress"] = centres(mesh)[:, 0] * (1 + i)
        mesh.save(folder / "plates" / f"plate_{i}.vtu")
    return folder / "plates"


@writer
def write_pvd(folder):
    """Time series as ParaView writes them: a list of files for each case."""
    (folder / "cases").mkdir()
    for i in range(S):
        name, lines = f"case_{i}", []
        (folder / "cases" / name).mkdir()
        for k in range(T):
            mesh = pyvista.ImageData(dimensions=(6, 5, 1), spacing=(0.2, 0.25, 1))
            x, y, _ = mesh.points.T
            mesh.point_data["T"] = 300 + np.exp(-0.1 * k) * np.sin(3 * x + i) * np.cos(2 * y)
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


def corners():
    """Points (NX + 1) × (NY + 1) of a plane mesh, x fastest."""
    x, y = np.meshgrid(np.linspace(0, 1, NX + 1), np.linspace(0, 0.8, NY + 1))
    return np.stack((x.ravel(), y.ravel()), axis=-1)


def header(kind, name, location):
    return (
        f"FoamFile\n{{\n    version     2.0;\n    format      ascii;\n    class       {kind};\n"
        f'    location    "{location}";\n    object      {name};\n}}\n\n'
    )


def write_polymesh(folder):
    """constant/polyMesh of a block one cell thick, faces in OpenFOAM's upper-triangular order."""
    plane, layer = corners(), (NX + 1) * (NY + 1)
    points = [(*p, z) for z in (0, 0.1) for p in plane]

    def corner(i, j):
        return j * (NX + 1) + i

    def cell(i, j):
        return j * NX + i

    def along_y(i, j):  # The face x = const between corners (i, j) and (i, j + 1).
        a, b = corner(i, j), corner(i, j + 1)
        return (a, b, b + layer, a + layer)

    def along_x(i, j):
        a, b = corner(i, j), corner(i + 1, j)
        return (a, a + layer, b + layer, b)

    inner = []
    for j in range(NY):
        for i in range(NX):
            if i + 1 < NX:
                inner.append((along_y(i + 1, j), cell(i, j), cell(i + 1, j)))
            if j + 1 < NY:
                inner.append((along_x(i, j + 1), cell(i, j), cell(i, j + 1)))
    patches = {
        "inlet": ("patch", [(along_y(0, j)[::-1], cell(0, j)) for j in range(NY)]),
        "outlet": ("patch", [(along_y(NX, j), cell(NX - 1, j)) for j in range(NY)]),
        "walls": (
            "wall",
            [(along_x(i, 0)[::-1], cell(i, 0)) for i in range(NX)]
            + [(along_x(i, NY), cell(i, NY - 1)) for i in range(NX)],
        ),
        "frontAndBack": ("empty", []),
    }
    for j in range(NY):
        for i in range(NX):
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


def write_case(folder, i, times, scheme):
    """A case: Euler or steadyState; the inlet's velocity grows with i."""
    write_polymesh(folder)
    (folder / "system").mkdir()
    (folder / "system" / "controlDict").write_text(
        header("dictionary", "controlDict", "system") + "application foamRun;\n"
    )
    (folder / "system" / "fvSchemes").write_text(
        header("dictionary", "fvSchemes", "system") + f"ddtSchemes\n{{\n    default {scheme};\n}}\n"
    )
    x, y = (corners() + np.array([0.5 / NX, 0.4 / NY])).T.reshape(2, NY + 1, NX + 1)[:, :-1, :-1]
    speed = 1.0 + i
    for time in times:
        at = folder / f"{time:g}"
        at.mkdir()
        pressure = (speed**2 * (1 - x) + 0.1 * float(time) * y).ravel()
        rows = "\n".join(f"({speed * (1 + v):.9g} {0.1 * speed * v:.9g} 0)" for v in y.ravel())
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
def write_openfoam(folder):
    for i in range(S):
        write_case(folder / "foam" / f"case_{i}", i, (0, 100, 200), "steadyState")
    return folder / "foam"


def write_transient_openfoam(folder):
    for i in range(S):
        write_case(folder / "cases" / f"case_{i}", i, (0, 0.5, 1.0), "Euler")
    return folder / "cases"


def write_cgns_file(path, i):
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
        points = corners()
        sizes = np.array([[len(points)], [NX * NY], [0]], np.int32)
        zone = node(base, "Zone", "Zone_t", sizes)
        node(zone, "ZoneType", "ZoneType_t", text("Unstructured"))
        grid = node(zone, "GridCoordinates", "GridCoordinates_t")
        node(grid, "CoordinateX", "DataArray_t", points[:, 0].copy())
        node(grid, "CoordinateY", "DataArray_t", points[:, 1].copy())
        elements = node(zone, "Elements", "Elements_t", np.array([7, 0], np.int32))
        node(elements, "ElementRange", "IndexRange_t", np.array([1, NX * NY], np.int32))
        node(elements, "ElementConnectivity", "DataArray_t", quads().ravel().astype(np.int32))
        solution = node(zone, "Solution", "FlowSolution_t")
        node(solution, "GridLocation", "GridLocation_t", text("Vertex"))
        node(solution, "Pressure", "DataArray_t", (1.0 + i) * points[:, 0] + points[:, 1])


def quads():
    """Corners of the cells, counted from 1."""
    first = (np.arange(NY)[:, None] * (NX + 1) + np.arange(NX)).ravel() + 1
    return np.stack((first, first + 1, first + NX + 2, first + NX + 1), axis=-1)


@writer
def write_cgns(folder):
    (folder / "wings").mkdir()
    for i in range(S):
        write_cgns_file(folder / "wings" / f"wing_{i}.cgns", i)
    return folder / "wings"


def write_exodus_file(path, i):
    """One block of quadrilaterals with a nodal variable at two times, in NetCDF 3."""
    points, cells = corners(), quads()
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

        put("time_whole", "d", ("time_step",), np.array([0.0, 0.5]))
        put("eb_status", "i", ("num_el_blk",), [1])
        put("eb_prop1", "i", ("num_el_blk",), [1]).name = "ID"
        put("coordx", "d", ("num_nodes",), points[:, 0])
        put("coordy", "d", ("num_nodes",), points[:, 1])
        put("coor_names", "c", ("num_dim", "len_name"), names(["x", "y"]))
        put("connect1", "i", ("num_el_in_blk1", "num_nod_per_el1"), cells).elem_type = "QUAD4"
        put("name_nod_var", "c", ("num_nod_var", "len_name"), names(["temp"]))
        base = (1.0 + i) * points[:, 0] + points[:, 1] + 1
        put("vals_nod_var1", "d", ("time_step", "num_nodes"), np.stack((base, 0.5 * base)))


@writer
def write_exodus(folder):
    (folder / "thermal").mkdir()
    for i in range(S):
        write_exodus_file(folder / "thermal" / f"plate_{i}.e", i)
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
def write_csv(folder):
    table().to_csv(folder / "probes.csv", index=False)
    return folder / "probes.csv"


@writer
def write_parquet(folder):
    table().to_parquet(folder / "probes.parquet", index=False)
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
