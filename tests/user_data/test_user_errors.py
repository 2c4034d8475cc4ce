"""Each wrong thing is one precise line: which file, field and sample, what was expected."""

import h5py
import numpy as np
import pytest
import pyvista
import xarray

from cato.errors import InputError
from cato.runs.settings import build_settings
from cato.training.train import train
from cato.user_data.arrays import save_arrays
from cato.user_data.inspect import inspect_samples
from cato.user_data.naming import Naming, ReadRequest
from cato.user_data.read import open_user_data, read_samples, split_indices

S, H, W = 12, 4, 5
GRID = np.stack(np.meshgrid(np.arange(4.0), np.arange(5.0), indexing="ij"), axis=-1)


def good(**changes):
    rng = np.random.default_rng(0)
    arrays = {
        "coords": GRID,
        "inputs": rng.random((S, H, W, 1)),
        "targets": 1 + rng.random((S, H, W, 1)),
    }
    arrays |= changes
    return {name: array for name, array in arrays.items() if array is not None}


def spoilt(array, index, value):
    array = array.copy()
    array[index] = value
    return array


def refused(path, naming=None):
    with pytest.raises(InputError) as error:
        open_user_data(path, naming or Naming())
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"coords": None, "inputs": np.ones((S, 9, 9, 1))},
            ["data.npz", "no coordinates", "no common grid", "--coords"],
        ),
        ({"targets": None}, ["data.npz", "no field 'targets'", "inputs (12, 4, 5, 1)"]),
        ({"inputs": np.ones((S, 3, 5, 1))}, ["'inputs'", "(12, 3, 5, 1)", "(12, 4, 5)"]),
        ({"inputs": np.ones((S - 1, H, W, 1))}, ["'inputs'", "(11, 4, 5, 1)"]),
        ({"targets": np.ones((S, 9, 9, 1))}, ["'targets'", "(12, 9, 9, 1)", "(12, 4, 5)"]),
        (
            {"coords": np.stack([GRID] * H), "inputs": GRID[..., 0], "targets": np.ones((H, H, W))},
            ["may be (sample, channel) or (axis_0, axis_1)", "channel axis, (4, 5, 1)"],
        ),
        ({"inputs": None, "targets": np.ones((H, H, W, 1))}, ["all samples or one for each"]),
        ({"coords": np.ones((H, W, 4))}, ["do not fit together", "D at most 3"]),
        ({"inputs": np.full((S, H, W, 1), "a")}, ["'inputs'", "real numbers"]),
        ({"inputs": np.full((S, H, W, 1), None)}, ["field 'inputs' cannot be read", "Object"]),
        ({"inputs": None, "targets": np.ones((0, H, W, 1))}, ["data.npz holds no samples"]),
        (
            {"targets": spoilt(good()["targets"], 7, np.nan)},
            ["data.npz, sample 7", "target target", "NaN at all nodes", "cato inspect"],
        ),
        (
            {"inputs": spoilt(good()["inputs"], (3, 0, 0, 0), np.inf)},
            ["data.npz, sample 3", "input input", "infinite"],
        ),
        (
            {"inputs": spoilt(good()["inputs"], (3, 0, 0, 0), 1e150)},
            ["data.npz", "input input reaches 1e+150", "another unit"],
        ),
        ({"targets": spoilt(good()["targets"], 5, 0)}, ["sample 5", "zero everywhere"]),
        ({"split": np.array(["train"] * 11)}, ["'split'", "12 samples", "11 entries"]),
        ({"split": np.array(["train"] * 11 + ["tset"])}, ["'split'", "'tset'"]),
        ({"split": np.array(["train"] * 12)}, ["no test samples"]),
        ({"mask": np.ones((S, H, W + 1))}, ["mask", "the shape of the nodes, (4, 5)"]),
        ({"target_names": np.array(["p", "q"])}, ["2 names for the 1 channels", "'targets'"]),
    ],
)
def test_wrong_arrays(changes, words, tmp_path):
    np.savez(tmp_path / "data.npz", **good(**changes))
    message = refused(tmp_path / "data.npz")
    assert all(word in message for word in words), message


def test_a_scalar_without_samples(tmp_path):
    np.savez(tmp_path / "data.npz", x=np.arange(9.0), speed=3.0)
    with pytest.raises(InputError, match=r"'speed': \(\).* or scalars \(samples, values\)"):
        read_samples(
            tmp_path / "data.npz", ReadRequest(Naming.parse("x", "speed", "p"), truth=False)
        )


def test_too_few_samples(tmp_path):
    np.savez(tmp_path / "data.npz", coords=GRID, targets=np.ones((2, H, W, 1)))
    assert "holds 2 samples; at least 3" in refused(tmp_path / "data.npz")


@pytest.mark.parametrize("ending", [".npz", ".h5", ".mat", ".nc", ".vts", ".vtu"])
def test_files_that_are_not_what_their_name_says(ending, tmp_path, capfd):
    path = tmp_path / f"data{ending}"
    path.write_bytes(b"nothing of the kind")
    message = refused(path, Naming.parse("", "", "p"))
    assert str(path) in message
    assert "cannot be read" in message
    assert capfd.readouterr().err.count("\n") == 0  # VTK's own pages of errors are held back


@pytest.mark.parametrize("ending", [".npz", ".h5", ".mat", ".nc"])
def test_damaged_bytes(ending, tmp_path):
    path = tmp_path / f"data{ending}"
    x, y = np.arange(100.0), np.arange(90.0)
    arrays = {"x": x, "y": y, "p": np.sqrt(np.arange(S * 9000.0)).reshape(S, 100, 90)}
    if ending == ".nc":
        data = xarray.Dataset({"p": (("case", "x", "y"), arrays["p"])}, {"x": x, "y": y})
        data.to_netcdf(path, engine="h5netcdf", encoding={"p": {"zlib": True}})
    else:
        save_arrays(path, arrays)
    naming = Naming.parse("x,y", "", "p")
    read_samples(path, ReadRequest(naming))
    whole = path.read_bytes()
    start, stop = len(whole) // 2, len(whole) * 3 // 4
    noise = np.random.default_rng(0).bytes(stop - start)
    path.write_bytes(whole[:start] + noise + whole[stop:])
    assert "cannot be read as" in refused(path, naming)


def test_paths(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_samples(tmp_path / "no.h5", ReadRequest(Naming()))
    (tmp_path / "data.txt").write_text("1,2")
    assert "unknown format" in refused(tmp_path / "data.txt")
    (tmp_path / "empty").mkdir()
    assert "holds no file that ends in" in refused(tmp_path / "empty")
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    np.savez(mixed / "0.npz", **good())
    (mixed / "1.h5").write_bytes(b"")
    assert "mixes files" in refused(mixed)


def test_names(tmp_path):
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["x"], file["y"], file["p"] = GRID[..., 0], GRID[..., 1, None], np.ones((S, H, W))
    path = tmp_path / "data.h5"
    assert "one shape" in refused(path, Naming.parse("x,y", "", "p"))
    message = refused(path, Naming.parse("x,z", "", "p"))
    assert "no field 'z'" in message
    assert "p (12, 4, 5)" in message
    with pytest.raises(InputError, match="name both"):
        Naming.parse("", "k", "")
    with pytest.raises(InputError, match="is not a field name"):
        Naming.parse("", "", "u[1")
    with h5py.File(path, "a") as file:
        file["coords"] = GRID
    assert "p[:2] has no frames" in refused(path, Naming.parse("", "", "p[:2]"))


def test_a_sample_that_differs_is_named(tmp_path):
    for i in range(4):
        num_channels = 2 if i == 2 else 1
        np.savez(tmp_path / f"{i}.npz", coords=GRID, targets=np.ones((H, W, num_channels)))
    message = refused(tmp_path)
    assert "2.npz" in message
    assert "2 channels" in message


def test_vtk_fields(tmp_path):
    mesh = pyvista.ImageData(dimensions=(4, 4, 1))
    mesh.point_data["k"] = np.ones(16)
    mesh.save(tmp_path / "0.vti")
    message = refused(tmp_path, Naming.parse("", "k", "q"))
    assert "0.vti has no field 'q', only k" in message
    assert "--targets" in message


def test_netcdf_dimensions(tmp_path):
    data = xarray.Dataset({"p": (("a", "b", "y", "x"), np.ones((3, 2, 4, 5)))})
    data = data.assign_coords(y=np.arange(4.0), x=np.arange(5.0))
    data.to_netcdf(tmp_path / "d.nc", engine="h5netcdf")
    assert "at most one more may count samples" in refused(
        tmp_path / "d.nc", Naming.parse("y,x", "", "p")
    )
    data.isel(a=0, b=0).to_netcdf(tmp_path / "one.nc", engine="h5netcdf")
    message = refused(tmp_path / "one.nc", Naming.parse("y,x", "", "p"))
    assert "no dimension of samples" in message
    assert "name its fields" in refused(tmp_path / "one.nc")


def test_changed_data_are_refused(tmp_path):
    np.savez(tmp_path / "data.npz", **good())
    with pytest.raises(InputError, match="has changed"):
        open_user_data(tmp_path / "data.npz", Naming(), expected_fingerprint="0" * 16)


# -- what inspection tells ------------------------------------------------------------------------


def inspected(tmp_path, **changes):
    np.savez(tmp_path / "data.npz", **good(**changes))
    samples = read_samples(tmp_path / "data.npz", ReadRequest(Naming()))
    return inspect_samples(samples, split_indices(samples, 0))


def test_nothing_is_found_in_good_data(tmp_path):
    inspection = inspected(tmp_path)
    assert inspection.findings == []
    assert inspection.ranges["coordinate 2"] == (0, 4)
    assert inspection.splits == {"train": 10, "validation": 1, "test": 1}


def test_findings_name_all_samples(tmp_path):
    inputs = good()["inputs"]
    inputs[4] = inputs[9]
    targets = spoilt(good()["targets"], ([2, 6], 0, 0, 0), np.inf)
    targets = spoilt(targets, (7, 0, 0, 0), np.nan)
    coords = np.repeat(GRID[None], S, axis=0)
    coords[3, 1, 1] = [2.5, 1]
    inspection = inspected(tmp_path, coords=coords, inputs=inputs, targets=targets)
    found = {finding.what.split(":")[0]: finding for finding in inspection.findings}
    infinite = next(f for what, f in found.items() if "infinite" in what)
    nan = next(f for what, f in found.items() if "are NaN" in what)
    folded = next(f for what, f in found.items() if "folded" in what)
    same = next(f for what, f in found.items() if "nodes of another" in what)
    assert (infinite.samples, infinite.stops) == ((2, 6), True)
    assert (nan.samples, nan.stops) == ((7,), False)
    assert (folded.samples, folded.stops) == ((3,), False)
    assert (same.samples, same.stops) == ((4, 9), False)


def test_duplicates_across_splits_and_constant_fields(tmp_path):
    split = np.array(["train"] * 8 + ["validation"] * 2 + ["test"] * 2)
    inputs = good()["inputs"]
    inputs[11] = inputs[0]
    constant = np.concatenate((inputs, np.full_like(inputs, 3)), axis=-1)
    inspection = inspected(tmp_path, inputs=constant, split=split)
    across = next(f for f in inspection.findings if "different splits" in f.what)
    assert across.samples == (0, 11)
    assert any("input_2 is constant, 3 everywhere" in f.what for f in inspection.findings)


@pytest.mark.parametrize("change", [{"reference": "node"}, {"mesh_inputs": True}])
def test_statistics_of_nodes_that_do_not_correspond(change, tmp_path):
    """Refused before there is a run folder, so that the corrected command finds none."""
    points = np.random.default_rng(0).random((60, 30, 2))
    np.savez(tmp_path / "data.npz", coords=points, targets=np.sin(points))
    train_settings = {"steps": 1, "accelerator": "cpu"}
    changes = {"data": change, "train": train_settings}
    config = build_settings(tmp_path / "data.npz", "smoke", None, changes)
    with pytest.raises(InputError, match="the points of the clouds do not correspond"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
