"""Every format, written by the library in question, is read as the arrays that went in."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import pyvista
import scipy.io
import xarray

from cato.user_data.naming import Name, Naming, ReadRequest
from cato.user_data.read import fingerprint, read_samples
from cato.user_data.samples import recognise

S, H, W = 4, 5, 6
NAMED = Naming.parse("x,y", "k", "p")
LAYOUT = Naming()


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    s, t = np.meshgrid(np.linspace(0, 2, H), np.linspace(0, 1, W), indexing="ij")
    x, y = s + 0.05 * np.sin(3 * t), t + 0.05 * np.sin(3 * s)
    return {"x": x, "y": y, "k": rng.random((S, H, W)), "p": rng.random((S, H, W))}


def write(path: Path, arrays) -> Path:
    match path.suffix:
        case ".npz":
            np.savez(path, **arrays)
        case ".mat":
            scipy.io.savemat(path, arrays)
        case _:
            with h5py.File(path, "w") as file:
                for name, array in arrays.items():
                    file[name] = array
    return path


def write_matlab_73(path: Path, arrays) -> Path:
    """HDF5 with the axes reversed, as MATLAB's `save -v7.3` has them."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in arrays.items():
            file[name] = np.asarray(array).T
    return path


def assert_read(path: Path, arrays, naming: Naming = NAMED) -> None:
    samples = read_samples(path, ReadRequest(naming))
    assert len(samples) == S
    for i, sample in enumerate(samples.samples):
        expected = np.stack((arrays["x"], arrays["y"]), axis=-1)
        np.testing.assert_allclose(sample.coords, expected, rtol=1e-6)
        np.testing.assert_allclose(sample.inputs[..., 0], arrays["k"][i], rtol=1e-6)
        np.testing.assert_allclose(sample.targets[..., 0], arrays["p"][i], rtol=1e-6)
    assert samples.has_shared_coords
    problem = recognise(samples)
    assert (problem.geometry, problem.shape, problem.dimension) == ("mesh", (H, W), 2)


@pytest.mark.parametrize("ending", [".npz", ".h5", ".hdf5", ".mat"])
def test_named_fields_of_array_files(ending, arrays, tmp_path):
    assert_read(write(tmp_path / f"plate{ending}", arrays), arrays)


def test_what_is_not_asked_for_may_be_anything(arrays, tmp_path):
    with_notes = arrays | {"notes": np.array({"solver": "v2"}, dtype=object)}
    assert_read(write(tmp_path / "plate.npz", with_notes), arrays)


def test_matlab_73(arrays, tmp_path):
    assert_read(write_matlab_73(tmp_path / "plate.mat", arrays), arrays)


@pytest.mark.parametrize("ending", [".npz", ".h5", ".mat"])
@pytest.mark.parametrize("channels", [True, False])
def test_layout_with_and_without_the_axis_of_one_channel(ending, channels, arrays, tmp_path):
    index = (..., None) if channels else ...
    layout = {
        "coords": np.stack((arrays["x"], arrays["y"]), axis=-1),
        "inputs": arrays["k"][index],
        "targets": arrays["p"][index],
    }
    assert_read(write(tmp_path / f"plate{ending}", layout), arrays, LAYOUT)


@pytest.mark.parametrize("ending", [".npz", ".h5", ".mat"])
def test_a_folder_has_one_file_per_sample_in_natural_order(ending, arrays, tmp_path):
    for i in range(S):
        one = {"x": arrays["x"], "y": arrays["y"], "k": arrays["k"][i], "p": arrays["p"][i]}
        write(tmp_path / f"case_{i * 5}{ending}", one)  # 0, 5, 10, 15: 10 after 5
    assert_read(tmp_path, arrays)


@pytest.mark.parametrize("order", [("case", "x_", "y_"), ("y_", "case", "x_")])
def test_netcdf_axes_go_by_their_names(order, arrays, tmp_path):
    grid = np.linspace(0, 2, H), np.linspace(0, 1, W)
    dims = ("case", "x_", "y_")
    data = xarray.Dataset(
        {n: xarray.DataArray(arrays[n], dims=dims).transpose(*order) for n in ("k", "p")},
        coords={"x_": grid[0], "y_": grid[1]},
    )
    data.to_netcdf(tmp_path / "plate.nc", engine="h5netcdf")
    samples = read_samples(tmp_path / "plate.nc", ReadRequest(Naming.parse("x_,y_", "k", "p")))
    assert recognise(samples).geometry == "grid"
    for i, sample in enumerate(samples.samples):
        np.testing.assert_allclose(sample.coords[:, 0, 0], grid[0], rtol=1e-6)
        np.testing.assert_allclose(sample.coords[0, :, 1], grid[1], rtol=1e-6)
        np.testing.assert_allclose(sample.targets[..., 0], arrays["p"][i], rtol=1e-6)
        np.testing.assert_allclose(sample.inputs[..., 0], arrays["k"][i], rtol=1e-6)


def test_netcdf_with_curved_coordinates_and_time(arrays, tmp_path):
    rng = np.random.default_rng(1)
    u = rng.random((S, 3, H, W))
    data = xarray.Dataset(
        {
            "u": (("case", "time", "i", "j"), u),
            "x": (("i", "j"), arrays["x"]),
            "y": (("i", "j"), arrays["y"]),
        }
    )
    data.to_netcdf(tmp_path / "flow.nc", engine="h5netcdf")
    samples = read_samples(tmp_path / "flow.nc", ReadRequest(Naming.parse("x,y", "u[:1]", "u[1:]")))
    assert (samples.time, samples.num_frames, samples.inputs) == ("rollout", 2, ("u[0]",))
    np.testing.assert_allclose(samples.samples[2].targets[..., 0], u[2, 1:], rtol=1e-6)
    np.testing.assert_allclose(samples.samples[2].coords[..., 1], arrays["y"], rtol=1e-6)


def test_netcdf_coordinates_of_which_one_depends_on_the_sample(arrays, tmp_path):
    x = arrays["x"] + np.arange(S)[:, None, None]
    dims = ("sample", "i", "j")
    data = {"x": (dims, x), "y": (dims[1:], arrays["y"]), "p": (dims, arrays["p"])}
    xarray.Dataset(data).to_netcdf(tmp_path / "plate.nc", engine="h5netcdf")
    samples = read_samples(tmp_path / "plate.nc", ReadRequest(Naming.parse("x,y", "", "p")))
    for i, sample in enumerate(samples.samples):
        np.testing.assert_allclose(sample.coords[..., 0], x[i], rtol=1e-6)
        np.testing.assert_allclose(sample.coords[..., 1], arrays["y"], rtol=1e-6)


def test_netcdf_with_as_many_samples_as_rows(arrays, tmp_path):
    """An array file would be ambiguous; here the dimensions have names."""
    data = {name: (("i", "j"), arrays[name]) for name in ("x", "y")}
    data["p"] = (("case", "i", "j"), np.stack([arrays["p"][0]] * H))
    xarray.Dataset(data).to_netcdf(tmp_path / "plate.nc", engine="h5netcdf")
    samples = read_samples(tmp_path / "plate.nc", ReadRequest(Naming.parse("x,y", "", "p")))
    assert (len(samples), samples.samples[0].mesh, samples.time) == (H, (H, W), "steady")


def structured(arrays, i):
    """A .vts as ParaView has it: z is 0 and x runs fastest."""
    grid = pyvista.StructuredGrid(
        arrays["x"][..., None], arrays["y"][..., None], np.zeros((H, W, 1))
    )
    grid["k"], grid["p"] = (arrays[n][i].ravel(order="F") for n in ("k", "p"))
    return grid


@pytest.mark.parametrize("ending", [".vts", ".vtk"])
def test_structured_vtk(ending, arrays, tmp_path):
    for i in range(S):
        structured(arrays, i).save(tmp_path / f"case_{i}{ending}")
    assert_read(tmp_path, arrays, Naming.parse("", "k", "p"))


def test_uniform_vtk_is_a_grid_with_x_first(tmp_path):
    for i in range(3):
        image = pyvista.ImageData(dimensions=(5, 4, 3), spacing=(0.1, 0.2, 0.3))
        image["p"] = image.points[:, 0] + 10 * image.points[:, 1] + 100 * image.points[:, 2] + i
        image.save(tmp_path / f"{i}.vti")
    samples = read_samples(tmp_path, ReadRequest(Naming.parse("", "", "p")))
    problem = recognise(samples)
    assert (problem.geometry, problem.shape, problem.inputs) == ("grid", (5, 4, 3), ())
    sample = samples.samples[1]
    np.testing.assert_allclose(sample.targets[..., 0], sample.coords @ [1, 10, 100] + 1, rtol=1e-5)


@pytest.mark.parametrize("ending", [".vtu", ".vtk"])
def test_unstructured_vtk_is_a_cloud_with_vectors_and_scalars(ending, tmp_path):
    rng = np.random.default_rng(0)
    clouds = [rng.random((20 + i, 3)) for i in range(3)]
    for i, points in enumerate(clouds):
        mesh = pyvista.PolyData(points).delaunay_3d()
        mesh["U"] = mesh.points * (i + 1)
        mesh.field_data["speed"] = [float(i)]
        mesh.save(tmp_path / f"case{i}{ending}")
    samples = read_samples(tmp_path, ReadRequest(Naming.parse("", "speed", "U")))
    problem = recognise(samples)
    assert (problem.geometry, problem.shape, problem.dimension) == ("cloud", (22,), 3)
    assert problem.outputs == ("U_1", "U_2", "U_3")
    for i, sample in enumerate(samples.samples):
        np.testing.assert_allclose(sample.targets, sample.coords * (i + 1), rtol=1e-5)
        assert sample.inputs.shape == (20 + i, 1)
        assert (sample.inputs == i).all()


def test_hdf5_groups_are_splits_and_share_what_is_at_the_root(tmp_path, arrays):
    with h5py.File(tmp_path / "plate.h5", "w") as file:
        file["coords"] = np.stack((arrays["x"], arrays["y"]), axis=-1)
        for name, part in (("train", slice(0, 2)), ("validation", slice(2, 3)), ("test", [3])):
            file[f"{name}/inputs"] = arrays["k"][part][..., None]
            file[f"{name}/targets"] = arrays["p"][part][..., None]
    samples = read_samples(tmp_path / "plate.h5", ReadRequest(LAYOUT))
    assert [s.split for s in samples.samples] == ["train", "train", "validation", "test"]
    assert samples.samples[3].origin.endswith("plate.h5, sample 0 of test")
    assert samples.has_shared_coords
    np.testing.assert_allclose(samples.samples[2].targets[..., 0], arrays["p"][2], rtol=1e-6)


def test_names_of_channels_and_scalars(tmp_path):
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["coords"] = np.stack(np.meshgrid(range(4), range(5), indexing="ij"), axis=-1)
        file["inputs"] = rng.random((3, 4, 5, 2))
        file["scalars"] = np.arange(6.0).reshape(3, 2)
        file["targets"] = rng.random((3, 4, 5, 2))
        file["input_names"], file["target_names"] = ["load", "thickness"], ["w", "stress"]
        file["scalar_names"] = ["alpha", "Re"]
    samples = read_samples(tmp_path / "a.h5", ReadRequest(LAYOUT))
    assert samples.inputs == ("load", "thickness", "alpha", "Re")
    assert samples.outputs == ("w", "stress")
    assert (samples.samples[2].inputs[..., 2:] == [4, 5]).all()


def test_frames_of_a_field_are_named_like_slices():
    assert Name.parse("u[:10]") == Name("u", (None, 10))
    assert Name.parse("u[-3:]") == Name("u", (-3, None))
    assert [str(Name.parse(text)) for text in ("u", "u[2:4]", "u[:]")] == ["u", "u[2:4]", "u[:]"]


def test_fingerprints_change_with_the_data(tmp_path, arrays):
    one = write(tmp_path / "a.npz", arrays)
    before = fingerprint(one)
    assert before == fingerprint(write(tmp_path / "b.npz", arrays)) or len(before) == 16
    arrays["p"][0, 0, 0] += 1
    assert fingerprint(write(tmp_path / "a.npz", arrays)) != before
    folder = tmp_path / "folder"
    folder.mkdir()
    write(folder / "0.npz", arrays)
    alone = fingerprint(folder)
    write(folder / "1.npz", arrays)
    assert fingerprint(folder) != alone
