"""Every reader returns the same dataset with named dimensions, whatever the format."""

import tracemalloc

import h5py
import numpy as np
import pytest
import pyvista
import scipy.io
import xarray

from cato.data.formats import new_hdf5
from cato.errors import InputError
from cato.user_data.naming import Naming, ReadRequest
from cato.user_data.read import read_samples
from cato.user_data.readers import read_file

S, T, H, W = 3, 2, 4, 5
X, Y = np.linspace(0, 1, H) ** 2, np.linspace(0, 2, W)


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    shapes = {"u": (S, T, H, W), "speed": (S,), "k": (H, W)}
    return {name: rng.random(shape) for name, shape in shapes.items()}


def write_npz(path, arrays):
    np.savez(path, x=X, y=Y, **arrays)


def write_h5(path, arrays):
    with h5py.File(path, "w") as file:
        for name, array in {"x": X, "y": Y, **arrays}.items():
            file[name] = array


def write_mat(path, arrays):
    scipy.io.savemat(path, {"x": X, "y": Y, **arrays})


def write_nc(path, arrays):
    dims = {"u": ("case", "time", "x", "y"), "speed": ("case",), "k": ("x", "y")}
    data = xarray.Dataset({n: (dims[n], a) for n, a in arrays.items()}, {"x": X, "y": Y})
    data.transpose("y", "time", "x", "case").to_netcdf(path, engine="h5netcdf")


@pytest.mark.parametrize("write", [write_npz, write_h5, write_mat, write_nc])
def test_files_of_many_samples(write, arrays, tmp_path):
    path = tmp_path / f"data.{write.__name__.removeprefix('write_')}"
    write(path, arrays)
    naming = Naming.parse("x,y", "speed,k,u[:1]", "u[1:]")
    (dataset,) = read_file(path, ReadRequest(naming), True)
    order = ("sample", "time_u", "axis_0", "axis_1", "channel_u")
    assert dict(dataset["u"].sizes) == dict(zip(order, (S, T, H, W, 1), strict=True))
    np.testing.assert_array_equal(dataset["u"].transpose(*order).values[..., 0], arrays["u"])
    assert dataset["speed"].dims == ("sample", "channel_speed")
    assert set(dataset["k"].dims) == {"axis_0", "axis_1", "channel_k"}
    nodes = dataset["coords"].transpose("axis_0", "axis_1", "channel_coords").values
    np.testing.assert_array_equal(nodes, np.stack(np.meshgrid(X, Y, indexing="ij"), axis=-1))
    samples = read_samples(path, ReadRequest(naming))
    assert (samples.inputs, samples.outputs) == (("speed", "k", "u[0]"), ("u",))
    for i, sample in enumerate(samples.samples):
        assert (sample.inputs[..., 0] == arrays["speed"][i]).all()
        np.testing.assert_array_equal(sample.inputs[..., 1], arrays["k"])
        np.testing.assert_array_equal(sample.targets[0, ..., 0], arrays["u"][i, 1])


def test_vtk_files_are_one_sample(tmp_path):
    image = pyvista.ImageData(dimensions=(H, W, 1))
    image["U"] = image.points
    image.field_data["speed"] = [2.0]
    image.save(tmp_path / "0.vti")
    naming = Naming.parse("", "speed", "U")
    (dataset,) = read_file(tmp_path / "0.vti", ReadRequest(naming), True)
    assert dict(dataset["U"].sizes) == {"axis_0": H, "axis_1": W, "channel_U": 3}
    assert dict(dataset["speed"].sizes) == {"channel_speed": 1}
    x, y, _ = dataset["U"].transpose("channel_U", "axis_0", "axis_1").values
    np.testing.assert_array_equal(x, np.arange(H)[:, None].repeat(W, 1))
    np.testing.assert_array_equal(y, np.arange(W)[None].repeat(H, 0))


def test_channels_carry_their_names(tmp_path):
    arrays = {"coords": np.random.default_rng(0).random((9, 2)), "targets": np.ones((S, 9, 2))}
    np.savez(tmp_path / "a.npz", **arrays, target_names=["p", "q"])
    (dataset,) = read_file(tmp_path / "a.npz", ReadRequest(Naming()), True)
    assert dataset["channel_targets"].values.tolist() == ["p", "q"]


def test_coordinates_may_also_be_inputs(tmp_path):
    coords = np.random.default_rng(0).random((H, W, 2))
    np.savez(tmp_path / "a.npz", coords=coords, p=np.ones((S, H, W)))
    samples = read_samples(tmp_path / "a.npz", ReadRequest(Naming.parse("", "coords", "p")))
    np.testing.assert_array_equal(samples.samples[1].inputs, coords)


@pytest.mark.parametrize("name", ["sample", "axis_0", "coords"])
def test_names_of_dimensions_are_reserved(name, tmp_path):
    np.savez(tmp_path / "a.npz", x=X, y=Y, p=np.ones((S, H, W)), **{name: np.ones((S, H, W))})
    with pytest.raises(InputError, match=f"a.npz: '{name}' cannot be the name of a field"):
        read_samples(tmp_path / "a.npz", ReadRequest(Naming.parse("x,y", name, "p")))


def test_netcdf_with_two_unknown_dimensions(tmp_path):
    dims = ("case", "x", "y")
    data = {"p": (dims, np.ones((S, H, W))), "k": ((*dims, "a", "b"), np.ones((S, H, W, 2, 2)))}
    xarray.Dataset(data, {"x": X, "y": Y}).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    with pytest.raises(InputError, match=r"'k' has dimensions .*a, b; besides .* of channels"):
        read_samples(tmp_path / "a.nc", ReadRequest(Naming.parse("x,y", "k", "p")))


def test_inputs_of_a_rollout_have_the_same_number_of_frames(tmp_path):
    fields = {"u": np.ones((S, 5, H, W)), "v": np.ones((S, 6, H, W))}
    np.savez(tmp_path / "a.npz", x=X, y=Y, **fields)
    naming = Naming.parse("x,y", "u[:-3],v[:-3]", "u[-3:],v[-3:]")
    with pytest.raises(InputError, match="the inputs differ in their numbers of frames"):
        read_samples(tmp_path / "a.npz", ReadRequest(naming))


def test_hdf5_files_are_not_built_in_memory(tmp_path):
    part = np.random.default_rng(0).random((256, 1024))  # 2 MB
    tracemalloc.start()
    with new_hdf5(tmp_path / "a.h5") as file:
        for i in range(10):
            file[f"part{i}"] = part
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "a.h5").stat().st_size > 10 * part.nbytes
    assert peak < 2 * part.nbytes
