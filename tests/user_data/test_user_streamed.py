"""A user's HDF5 file that is streamed holds what it holds when it is read into memory."""

import json
import tracemalloc
from pathlib import Path

import h5py
import layouts
import numpy as np
import pytest
import torch
import xarray

import cato
from cato.data import streamed as pieces
from cato.data.normalise import Normaliser
from cato.data.streamed import Streamed
from cato.errors import InputError
from cato.inference.predict import predict_file
from cato.runs.folder import open_run
from cato.runs.measure import measure
from cato.user_data import streamed as module
from cato.user_data.naming import Naming, ReadRequest
from cato.user_data.read import complete_naming, open_user_data, read_samples
from cato.user_data.streamed import StreamedSamples

S, H, W = 23, 6, 5


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    """A few pieces to a split, and two or three windows to a file."""
    monkeypatch.setattr(module, "WINDOW_BYTES", 6000)
    monkeypatch.setattr(pieces, "PIECE_BYTES", 3000)
    monkeypatch.setattr(pieces, "BLOCK_BYTES", 6000)


def grid(names: str = "xy"):
    axes = (np.linspace(0, 1, n) for n in (H, W))
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1)


def arrays(**more: np.ndarray) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    inputs = rng.random((S, H, W, 2)).astype(np.float32)
    targets = (1 + inputs[..., :1] * 2).astype(np.float32)
    return {"coords": grid(), "inputs": inputs, "targets": targets} | more


def write(path: Path, values: dict[str, np.ndarray], is_chunked: bool = False) -> Path:
    with h5py.File(path, "w") as file:
        for name, array in values.items():
            chunks = (3, *array.shape[1:]) if is_chunked and len(array) == S else None
            file.create_dataset(name, data=array, chunks=chunks)
    return path


def own_meshes() -> np.ndarray:
    bend = 0.1 * np.random.default_rng(1).random((S, 1, 1, 1))
    return grid() + bend * np.sin(3 * grid())[None, ..., ::-1]


def clouds() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    mask = np.arange(9) < rng.integers(4, 10, (S, 1))
    values = {"coords": (9, 2), "inputs": (9, 1), "targets": (9, 1)}
    return {name: rng.random((S, *shape)) for name, shape in values.items()} | {"mask": mask}


def in_time() -> dict[str, np.ndarray]:
    u = 1 + np.random.default_rng(3).random((S, 6, H, W))
    return {"x": np.linspace(0, 1, H), "y": np.linspace(0, 1, W), "u": u}


def offset() -> dict[str, np.ndarray]:
    return arrays(targets=1e6 + 1e-3 * arrays()["targets"].astype(np.float64))


def by_groups() -> dict[str, np.ndarray]:
    whole, cuts = arrays(), {"train": slice(15), "validation": slice(15, 19), "test": slice(19, 23)}
    found = {f"{g}/{n}": whole[n][cut] for g, cut in cuts.items() for n in ("inputs", "targets")}
    return found | {"coords": grid()}


def components() -> dict[str, np.ndarray]:
    nodes = own_meshes()
    values = arrays()
    return {"x": nodes[..., 0], "y": nodes[..., 1], "k": values["inputs"], "p": values["targets"]}


NAMED = Naming.parse("x,y", "k", "p")
CASES = {
    "a grid": (arrays, Naming()),
    "a split": (lambda: arrays(split=np.arange(S) % 3), Naming()),
    "own meshes": (lambda: arrays(coords=own_meshes()), Naming()),
    "scalars": (lambda: arrays(scalars=np.random.default_rng(5).random((S, 2))), Naming()),
    "clouds with a mask": (clouds, Naming()),
    "frames": (in_time, Naming.parse("x,y", "u[:2]", "u[2:]")),
    "an offset": (offset, Naming()),
    "groups": (by_groups, Naming()),
    "components": (components, NAMED),
    "a periodic axis": (
        lambda: arrays(coords=np.stack((grid()[..., 0], grid()[..., 1]), -1)),
        Naming(periodic=(0,)),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_problem_splits_and_samples_are_those_in_memory(tmp_path, case):
    values, naming = CASES[case]
    path = write(tmp_path / "data.h5", values(), is_chunked=case != "components")
    assert_alike(path, naming)


LAYOUTS = {
    "pdebench_burgers": Naming(),
    "pdebench_darcy": Naming(),
    "pdebench_diffusion_reaction": Naming(),
    "the_well": Naming(),
    "netcdf_cf": Naming.parse("", "air", "sea"),
    "zarr": Naming.parse("", "u[:2]", "u[2:]"),
}


def assert_alike(path, naming):
    """In problem, fingerprint, splits and every value, streamed and in memory."""
    fingerprint, memory = open_user_data(path, naming)
    other, streamed = open_user_data(path, naming, streamed=True)
    assert fingerprint == other
    found, expected = streamed.problem.to_dict(), memory.problem.to_dict()
    for name in ("offsets", "units", "deviations"):
        assert found.pop(name) == pytest.approx(expected.pop(name), rel=1e-12)
    assert found == expected
    for name, data in memory.datasets.items():
        assert isinstance(streamed.datasets[name], Streamed)
        one, two = (d.batch(slice(None)) for d in (data, streamed.datasets[name]))
        for key, values, other in zip(one._fields, one, two, strict=True):
            assert (values is None) == (other is None)
            assert values is None or torch.equal(values, other), key
            assert values is None or values.dtype == other.dtype, key


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_others_can_be_streamed(tmp_path, layout):
    path = layouts.WRITERS[layout](tmp_path)
    naming, _ = complete_naming(path, LAYOUTS[layout])
    assert_alike(path, naming)


def test_plain_zarr_and_samples_along_another_axis_can_be_streamed(tmp_path):
    path = layouts.write_plain_zarr(tmp_path)
    assert_alike(path, Naming.parse("", "a", "u"))
    values = 1 + np.random.default_rng(0).random((6, 13, 5))
    data = xarray.Dataset(
        {"k": (("y", "sample", "x"), values), "p": (("y", "x", "sample"), values.swapaxes(1, 2))},
        {"y": np.linspace(0, 1, 6), "x": np.linspace(0, 2, 5)},
    )
    data.to_netcdf(tmp_path / "turned.nc", engine="h5netcdf")
    assert_alike(tmp_path / "turned.nc", Naming.parse("y,x", "k", "p"))


@pytest.mark.parametrize(
    ("suffix", "case"),
    [(".npz", "own"), (".npz", "splits"), (".h5", "shared"), (".h5", "splits"), (".nc", "own")],
)
def test_folders_can_be_streamed(tmp_path, suffix, case):
    values, nodes = arrays(), own_meshes()
    for k in range(S):
        split = ("train", "validation", "test")[max(0, k - S + 3)] if case == "splits" else "."
        place = tmp_path / "folder" / split
        place.mkdir(parents=True, exist_ok=True)
        coords = nodes[k] if case == "own" else grid()
        some = {"coords": coords, "k": values["inputs"][k], "p": values["targets"][k, ..., 0]}
        if suffix == ".npz":
            np.savez(place / f"case_{k}.npz", **some)
        elif suffix == ".h5":
            write(place / f"case_{k}.h5", some)
        else:
            fields = {name: (("i", "j", "channel")[: a.ndim], a) for name, a in some.items()}
            named = {n: (("i", "j"), coords[..., d]) for d, n in enumerate("xy")}
            fields.pop("coords")
            xarray.Dataset(fields, named).to_netcdf(place / f"case_{k}.nc", engine="h5netcdf")
    assert_alike(
        tmp_path / "folder", Naming.parse("x,y" if suffix == ".nc" else "coords", "k", "p")
    )


def test_files_of_a_folder_that_differ_are_named(tmp_path):
    values = arrays()
    for k in range(20):
        cut = slice(None) if k < 19 else slice(None, 4)
        inputs, targets = (values[name][k, cut] for name in ("inputs", "targets"))
        np.savez(tmp_path / f"case_{k}.npz", coords=grid()[cut], k=inputs, p=targets)
    with pytest.raises(InputError, match=r"case_1[89].npz: .*--data.streamed no"):
        open_user_data(tmp_path, Naming.parse("coords", "k", "p"), streamed=True)


def test_a_window_with_as_many_samples_as_rows_is_no_other_layout(tmp_path):
    path = write(tmp_path / "data.h5", arrays())
    samples = StreamedSamples(path, ReadRequest(Naming()), "")
    assert len(samples.window(0, H)) == H
    line = {"x": np.linspace(0, 1, H), "k": arrays()["inputs"][:, :, 0, 0]}
    line["p"] = line["k"] + 1
    path = write(tmp_path / "line.h5", line)
    samples = StreamedSamples(path, ReadRequest(Naming.parse("x", "k", "p")), "")
    assert samples.window(0, H).samples[0].inputs.shape == (H, 1)


def test_origins_have_the_numbers_of_the_file(tmp_path):
    values = arrays()
    values["inputs"][17, 2, 3, 1] = np.inf
    path = write(tmp_path / "inf.h5", values)
    with pytest.raises(InputError, match=r"inf.h5, sample 17: input input_2 has infinite values"):
        open_user_data(path, Naming(), streamed=True)


def test_gaps_in_targets_are_streamed_and_masks_are_not(tmp_path):
    values = arrays()
    values["targets"][3:9, 2, 3, 0] = np.nan
    path = write(tmp_path / "gaps.h5", values)
    _, memory = open_user_data(path, Naming())
    _, streamed = open_user_data(path, Naming(), streamed=True)
    assert streamed.problem.has_gaps
    assert streamed.problem.mask == ""
    found = [Normaliser.fit(splits.train) for splits in (memory, streamed)]
    for one, two in zip(*(n.state_dict().values() for n in found), strict=True):
        assert torch.equal(one, two)
    values["inputs"][17, 2, 3, 1] = np.nan
    path = write(tmp_path / "mask.h5", values)
    with pytest.raises(InputError, match=r"sample \d+: nodes without values .*--data.streamed no"):
        open_user_data(path, Naming(), streamed=True)


@pytest.mark.parametrize("case", ["mesh", "static field", "times"])
def test_a_window_as_long_as_a_shared_array_is_not_taken_for_it(tmp_path, case):
    """Six samples on a mesh with six rows, or of series with six frames."""
    values, naming = arrays(), Naming()
    if case == "static field":
        values["k"] = grid()[..., 0]
        naming = Naming.parse("coords", "k,inputs", "targets")
    elif case == "times":
        values = in_time() | {"times": np.array([0.0, 1, 2, 3, 5, 8])}
        naming = Naming.parse("x,y", "u[:2]", "u[2:]")
    path = write(tmp_path / "a.h5", values)
    whole = read_samples(path, ReadRequest(naming)).samples
    samples = StreamedSamples(path, ReadRequest(naming), "")
    for first in (0, 3, S - 6):
        found = samples.window(first, first + 6).samples
        for one, other in zip(found, whole[first : first + 6], strict=True):
            assert one.origin == other.origin
            for name in ("coords", "inputs", "targets"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_statistics_of_other_fields_are_others(tmp_path):
    """A training on other fields of the same file does not take those of the first one."""
    x = np.random.default_rng(0).random((S, H, W))
    path = write(tmp_path / "a.h5", {"coords": grid(), "a": x, "b": 100 + 7 * x})
    for fields in (("a", "b"), ("b", "a")):
        naming = Naming.parse("coords", *fields)
        _, splits = open_user_data(path, naming, streamed=True)
        measure(splits.train)
        mean = splits.train.derived["statistics"].moments["inputs"].mean
        assert mean.item() == pytest.approx(splits.train.arrays("inputs")["inputs"].mean())


def test_other_formats_are_refused(tmp_path):
    np.savez(tmp_path / "data.npz", **arrays())
    with pytest.raises(InputError, match=r"data.npz cannot be streamed.*--data.streamed no"):
        open_user_data(tmp_path / "data.npz", Naming(), streamed=True)


def test_a_file_that_changes_is_named(tmp_path):
    path = write(tmp_path / "data.h5", arrays())
    streamed = open_user_data(path, Naming(), streamed=True)[1]
    streamed.train.batch([0])
    write(path, arrays())
    with pytest.raises(InputError, match=r"data.h5 has changed while it was used; restore it"):
        list(streamed.train.batches(2))


@pytest.mark.parametrize(("folds", "num_judged"), [(0, 2), (2, S)])
def test_training_predicting_and_evaluating_need_no_memory_for_all(
    folds, num_judged, tmp_path, monkeypatch
):
    path = write(tmp_path / "data.h5", arrays())
    run = cato.train(
        path,
        "smoke",
        out=tmp_path / "run",
        model="fno",
        data_settings={"streamed": "yes", "folds": folds},
        train_settings={"steps": 3, "accelerator": "cpu"},
    )
    assert open_run(run.folder).config.data.streamed == "yes"
    assert cato.evaluate(run.folder)["num_samples"] == num_judged
    figures = predict_file(open_run(run.folder), path)
    monkeypatch.setattr(type(run.config.data), "is_streamed", lambda self, size: False)
    expected = predict_file(open_run(run.folder), path, tmp_path / "memory.h5")
    for name in figures.keys() - {"path", "seconds_per_sample"}:
        assert json.dumps(figures[name]) == json.dumps(expected[name])
    with h5py.File(figures["path"]) as one, h5py.File(tmp_path / "memory.h5") as two:
        assert one.keys() == two.keys()
        for name, array in two.items():
            assert np.array_equal(one[name][()], array[()], equal_nan=True)
            assert one[name].dtype == array.dtype


def test_a_window_takes_the_memory_of_its_samples(tmp_path):
    """The file is 40 times larger than a window."""
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "large.h5", "w") as file:
        file["coords"] = np.stack(np.meshgrid(*2 * [np.linspace(0, 1, 64)], indexing="ij"), -1)
        for name in ("inputs", "targets"):
            file.create_dataset(name, (400, 64, 64, 4), np.float32)
            for k in range(400):
                file[name][k] = rng.random((64, 64, 4), np.float32)
    num_bytes = (tmp_path / "large.h5").stat().st_size
    samples = StreamedSamples(tmp_path / "large.h5", ReadRequest(Naming()), "")
    samples.window(0, 1)  # imports
    tracemalloc.start()
    total = sum(float(window.samples[0].inputs[0, 0, 0]) for window in _windows_of(samples, 10))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total > 0
    assert peak < num_bytes / 10


def _windows_of(samples, size):
    for first in range(0, len(samples), size):
        yield samples.window(first, first + size)


def test_streamed_samples_are_those_of_the_reader(tmp_path):
    path = write(tmp_path / "data.h5", by_groups())
    request = ReadRequest(Naming())
    streamed, whole = StreamedSamples(path, request, ""), read_samples(path, request)
    found = [sample for window in streamed.windows() for sample in window.samples]
    assert [s.origin for s in found] == [s.origin for s in whole.samples]
    assert [s.split for s in found] == [s.split for s in whole.samples]
