"""From a file to a report and back, for each geometry: inspect, train, evaluate, predict."""

import functools
import json
import shlex
import shutil
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest
import pyvista
import scipy.io
import xarray

from cato.cli import main
from cato.runs.folder import open_run
from cato.user_data import read

COUNTS = {"train": 20, "validation": 10, "test": 10}
S = sum(COUNTS.values())
SPLIT = np.repeat(list(COUNTS), list(COUNTS.values()))
TINY = [
    *("--scale", "smoke", "--model.width", "8", "--model.depth", "1"),
    *("--train.epochs", "1", "--train.accelerator", "cpu"),
]


def waves(coords, rng, count=S):
    """Random smooth fields at nodes (..., D)."""
    phases = rng.random((count, 2)) * 6
    return np.stack(
        [np.sin(2 * coords[..., 0] + a) + np.cos(coords[..., -1] + b) for a, b in phases]
    )


def nodes(*mesh):
    axes = [np.linspace(0, 1, n) for n in mesh]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)


def grid(folder, rng):
    coords = nodes(6, 7)
    k = waves(coords, rng)
    path = folder / "grid.npz"
    np.savez(path, coords=coords, inputs=k[..., None], targets=(k**2 + 1)[..., None], split=SPLIT)
    return path, [], {"outputs": (S, 6, 7, 1), "bands": (S, 6, 7, 1), "errors": (S,)}


def mesh(folder, rng):
    coords = nodes(6, 7) + 0.05 * np.sin(5 * nodes(6, 7)[..., ::-1])
    k = waves(coords, rng)
    path = folder / "mesh.h5"
    with h5py.File(path, "w") as file:
        file["x"], file["y"] = np.moveaxis(coords, -1, 0)
        file["k"], file["p"], file["q"] = k, k**2 + 1, k - 3
        file["split"] = SPLIT.astype("S")
    names = ["--coords", "x,y", "--inputs", "k", "--targets", "p,q"]
    return (
        path,
        names,
        {f"{f}_{w}": (S, 6, 7) for f in "pq" for w in ("predicted", "band", "error")},
    )


def solid(folder, rng):
    """Three axes; MATLAB, which drops the axis of a single channel."""
    coords = nodes(4, 5, 3)
    k = waves(coords, rng)
    path = folder / "solid.mat"
    split = np.repeat([0.0, 1.0, 2.0], list(COUNTS.values()))
    scipy.io.savemat(path, {"coords": coords, "inputs": k, "targets": k**2 + 1, "split": split})
    return path, [], {"outputs": (S, 4, 5, 3), "bands": (S, 4, 5, 3)}


def scalars(folder, rng):
    """Asked for by time, from two numbers for each sample."""
    coords, numbers = nodes(5, 6), 1 + rng.random((S, 2))
    u = np.stack([[a * np.sin(coords[..., 0] + b * t) + 2 for t in range(3)] for a, b in numbers])
    path = folder / "scalars.npz"
    np.savez(path, coords=coords, scalars=numbers, targets=u[..., None], split=SPLIT)
    return path, [], {"outputs": (S, 3, 5, 6, 1), "bands": (S, 3, 5, 6, 1)}


def rollout(folder, rng):
    coords = nodes(6, 7)
    u = np.stack([waves(coords + 0.1 * t, np.random.default_rng(0)) for t in range(5)], axis=1)
    data = xarray.Dataset(
        {"u": (("case", "time", "x", "y"), u + 3), "split": (("case",), SPLIT.astype(str))},
        coords={"x": coords[:, 0, 0], "y": coords[0, :, 1]},
    )
    data.to_netcdf(folder / "rollout.nc", engine="h5netcdf")
    names = ["--coords", "x,y", "--inputs", "u[:2]", "--targets", "u[2:]"]
    return folder / "rollout.nc", names, {"u_predicted": (S, 3, 6, 7), "u_band": (S, 3, 6, 7)}


CASES = [grid, mesh, solid, scalars, rollout]


def output_of(capsys, *arguments):
    capsys.readouterr()
    main([*map(str, arguments), "--json"])
    return json.loads(capsys.readouterr().out)


def read_back(path):
    match path.suffix:
        case ".nc":
            with xarray.open_dataset(path) as data:
                return {name: variable.values for name, variable in data.variables.items()}
        case ".h5":
            with h5py.File(path) as file:
                return {name: item[()] for name, item in file.items()}
        case ".mat":
            return scipy.io.loadmat(path)
        case _:
            with np.load(path, allow_pickle=False) as arrays:
                return dict(arrays)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_whole_way(case, tmp_path, capsys):
    path, names, expected = case(tmp_path, np.random.default_rng(0))
    inspected = output_of(capsys, "inspect", path, *names)
    assert inspected["findings"] == []
    assert inspected["splits"] == COUNTS
    next_words = shlex.split(inspected["next"])
    assert next_words == ["cato", "train", str(path), *names]
    run = tmp_path / "run"
    trained = output_of(capsys, *next_words[1:], *TINY, "--out", run)
    assert trained["validation_relative_l2"] > 0
    figures = output_of(capsys, "evaluate", run)
    assert figures["num_samples"] == COUNTS["test"]
    assert figures["solver_seconds_per_sample"] is None
    assert figures["band"]["num_validation_samples"] == COUNTS["validation"]
    assert set(figures["band"]["covered_samples"]) == set(open_run(run).problem.outputs)
    output_of(capsys, "report", run)
    html = (run / "report.html").read_text()
    assert f"Test error {100 * figures['relative_l2']:.2f} %" in html
    assert "The time of the solver that produced the data is not known" in html
    gone = path.rename(tmp_path / f"new{path.suffix}")  # predicting needs the run folder alone
    predicted = output_of(capsys, "predict", run, gone)
    assert predicted["path"] == str(tmp_path / f"new-predicted{path.suffix}")
    assert predicted["num_samples"] == S
    written = read_back(tmp_path / f"new-predicted{path.suffix}")
    for name, shape in expected.items():
        assert np.squeeze(written[name]).shape == tuple(n for n in shape if n > 1), name
        is_shown = np.isfinite(written[name]).reshape(S, -1)
        if name == "bands" or name.endswith("_band"):  # none outside the training range
            is_shown |= written["inside_training_range"].reshape(S, 1) == 0
        assert is_shown.all(), name
    with pytest.raises(SystemExit):
        main(["evaluate", str(run)])
    assert "gone; put them back" in capsys.readouterr().err


def test_a_training_hashes_and_reads_its_file_once(tmp_path, monkeypatch):
    path, names, _ = mesh(tmp_path, np.random.default_rng(0))
    calls = []
    for name in ("digest", "assemble"):
        original = getattr(read, name)
        counted = functools.partial(lambda f, n, *a: (calls.append(n), f(*a))[1], original, name)
        monkeypatch.setattr(read, name, counted)
    main(["train", str(path), *names, *TINY, "--out", str(tmp_path / "run")])
    assert sorted(calls) == ["assemble", "digest"]


def test_errors_and_bands_at_the_nodes(tmp_path, capsys):
    """Prediction, truth, error and coverage of a file agree with each other and with evaluate."""
    path, names, _ = mesh(tmp_path, np.random.default_rng(2))
    main(["train", str(path), *names, *TINY, "--out", str(tmp_path / "run")])
    figures = output_of(capsys, "evaluate", tmp_path / "run")
    with h5py.File(path) as file, h5py.File(tmp_path / "test.h5", "w") as test:
        for name in ("x", "y"):
            test[name] = file[name][()]
        for name in ("k", "p", "q"):
            test[name] = file[name][-COUNTS["test"] :]
    predicted = output_of(capsys, "predict", tmp_path / "run", tmp_path / "test.h5")
    assert predicted["relative_l2"] == pytest.approx(figures["relative_l2"], rel=1e-4)
    assert "outside" not in predicted["training_range"]  # otherwise evaluate counts more samples
    assert predicted["covered_samples"] == pytest.approx(figures["band"]["covered_samples"])
    written, given = read_back(tmp_path / "test-predicted.h5"), read_back(tmp_path / "test.h5")
    for name in ("p", "q"):
        error = written[f"{name}_predicted"] - given[name]
        np.testing.assert_allclose(written[f"{name}_error"], error, atol=1e-5)
        inside = np.abs(error) <= written[f"{name}_band"]
        covered = (inside.reshape(10, -1).mean(1) >= 0.9).mean()
        assert covered == pytest.approx(predicted["covered_samples"][name])


@pytest.fixture(scope="module")
def clouds(tmp_path_factory):
    """Unstructured VTK files of different sizes, in folders of the splits, and a run on them."""
    folder = tmp_path_factory.mktemp("own") / "clouds"
    rng = np.random.default_rng(0)
    for split, count in COUNTS.items():
        (folder / split).mkdir(parents=True)
        for i in range(count):
            points = np.pad(rng.random((20 + rng.integers(10), 2)), ((0, 0), (0, 1)))
            cloud = pyvista.PolyData(points).delaunay_2d().cast_to_unstructured_grid()
            x, y, _ = cloud.points.T
            cloud["k"], cloud["U"] = np.sin(3 * x), np.stack((x + y, x * y, x - y), axis=-1)
            cloud.save(folder / split / f"case_{i}.vtu")
    run = folder.parent / "run"
    names = ["--inputs", "k", "--targets", "U"]
    slices = ["--model.slices", "4", "--model.neighbours", "4"]
    main(["train", str(folder), *names, *TINY, *slices, "--out", str(run)])
    return folder, run


def test_clouds_of_different_sizes(clouds, tmp_path, capsys):
    folder, run = clouds
    inspected = output_of(capsys, "inspect", folder, "--inputs", "k", "--targets", "U")
    assert (inspected["geometry"], inspected["splits"]) == ("cloud", COUNTS)
    problem = open_run(run).problem
    assert (problem.dimension, problem.outputs) == (2, ("U_1", "U_2", "U_3"))
    assert output_of(capsys, "evaluate", run)["mean_predictor"] is None
    output_of(capsys, "report", run)
    assert "lift and the messages" in (run / "report.html").read_text()
    predicted = output_of(capsys, "predict", run, folder, tmp_path / "out")
    assert predicted["num_samples"] == S
    before = pyvista.read(folder / "test" / "case_3.vtu")
    after = pyvista.read(tmp_path / "out" / "test" / "case_3.vtu")  # as ParaView would
    np.testing.assert_array_equal(after.points, before.points)
    np.testing.assert_array_equal(after["U"], before["U"])
    assert after.n_cells == before.n_cells
    assert after["U_predicted"].shape == after["U_band"].shape == before["U"].shape
    np.testing.assert_allclose(after["U_error"], after["U_predicted"] - after["U"], atol=1e-5)
    assert len(np.unique(after["U_band"], axis=0)) == 1  # one half-width for all points of a cloud


def test_structured_vtk_comes_back_node_for_node(tmp_path, capsys):
    """A surrogate sees axes (x, y, z), VTK numbers points with x fastest: both ways must agree."""
    folder, rng = tmp_path / "boxes", np.random.default_rng(0)
    folder.mkdir()
    for i in range(12):
        image = pyvista.ImageData(dimensions=(5, 4, 3))
        image["k"] = np.sin(image.points @ rng.random(3))
        image["p"] = image["k"] + 2
        image.save(folder / f"{i}.vti")
    names = ["--inputs", "k", "--targets", "p"]
    main(["train", str(folder), *names, *TINY, "--out", str(tmp_path / "run")])
    main(["predict", str(tmp_path / "run"), str(folder)])
    for i in range(12):
        box = pyvista.read(tmp_path / "boxes-predicted" / f"{i}.vti")
        np.testing.assert_allclose(box["p_error"], box["p_predicted"] - box["p"], atol=1e-5)
    one = pyvista.read(folder / "3.vti")
    del one.point_data["p"]
    one.save(tmp_path / "unknown.vti")  # a single file without the truth
    capsys.readouterr()
    main(["predict", str(tmp_path / "run"), str(tmp_path / "unknown.vti"), "--json"])
    assert "relative_l2" not in json.loads(capsys.readouterr().out)
    alone = pyvista.read(tmp_path / "unknown-predicted.vti")
    whole = pyvista.read(tmp_path / "boxes-predicted" / "3.vti")
    np.testing.assert_allclose(alone["p_predicted"], whole["p_predicted"], atol=1e-5)
    assert "p_error" not in alone.point_data


def test_padded_clouds_come_back_padded(tmp_path, capsys):
    rng = np.random.default_rng(0)
    sizes = rng.integers(12, 20, 12)
    mask = np.arange(20) < sizes[:, None]
    coords = rng.random((12, 20, 2))
    np.savez(tmp_path / "a.npz", coords=coords, targets=coords.sum(-1)[..., None] + 1, mask=mask)
    options = ["--model.slices", "4", "--model.neighbours", "4", "--data.folds", "0"]
    main(["train", str(tmp_path / "a.npz"), *TINY, *options, "--out", str(tmp_path / "run")])
    main(["predict", str(tmp_path / "run"), str(tmp_path / "a.npz")])
    written = read_back(tmp_path / "a-predicted.npz")
    assert (np.isfinite(written["outputs"][..., 0]) == mask).all()
    assert (written["mask"] == mask).all()
    assert "no band around predictions" in capsys.readouterr().err  # one validation sample


def test_a_folded_mesh_trains_without_gradient_terms_and_reports(tmp_path, capsys):
    rng = np.random.default_rng(0)
    coords = nodes(6, 7)
    coords[2, 2] = coords[4, 4]
    k = waves(coords, rng)
    np.savez(tmp_path / "f.npz", coords=coords, inputs=k, targets=k + 3, split=SPLIT)
    found = output_of(capsys, "inspect", tmp_path / "f.npz")["findings"]
    assert any("folded" in finding["what"] for finding in found)
    main(["train", str(tmp_path / "f.npz"), *TINY, "--out", str(tmp_path / "run")])
    loss = open_run(tmp_path / "run").config.loss
    assert (loss.gradient, loss.flux, loss.consistency) == (0, 0, 0)
    output_of(capsys, "report", tmp_path / "run")
    assert (tmp_path / "run" / "figures" / "sample-worst.png").exists()


def test_models_that_cannot_are_named(tmp_path, capsys):
    path, _, _ = solid(tmp_path, np.random.default_rng(0))
    for model in ("fno", "galerkin", "ht_net", "transolver", "saot"):
        with pytest.raises(SystemExit) as stop:
            main(["train", str(path), "--model", model, "--out", str(tmp_path / model)])
        assert stop.value.code == 2
        assert not (tmp_path / model).exists()


# -- resuming -------------------------------------------------------------------------------------


@pytest.fixture
def started(tmp_path):
    path, _, _ = grid(tmp_path, np.random.default_rng(0))
    arguments = ["train", str(path), *TINY, "--train.epochs", "6", "--train.checkpoint-minutes"]
    return path, [*arguments, "1e-5", "--train.batch-size", "4"]


@pytest.mark.slow
def test_a_killed_training_goes_on_to_the_same_end(started, tmp_path):
    _, arguments = started
    main([*arguments, "--out", str(tmp_path / "whole")])
    command = [sys.executable, "-m", "cato", *arguments, "--out", str(tmp_path / "killed")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    checkpoints = tmp_path / "killed" / "checkpoints"
    while len(list(checkpoints.glob("last-*.json"))) < 2 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed" / "band.safetensors").exists()
    main(["train", "--resume", str(tmp_path / "killed")])
    whole, killed = (open_run(tmp_path / name).log() for name in ("whole", "killed"))
    assert [a["validation"] for a in killed] == pytest.approx([b["validation"] for b in whole])
    for name in ("whole", "killed"):
        assert (tmp_path / name / "band.safetensors").exists()


def test_resuming_and_evaluating_refuse_changed_data(started, tmp_path, capsys):
    path, arguments = started
    main([*arguments, "--train.epochs", "1", "--out", str(tmp_path / "run")])
    kept = shutil.copy(path, tmp_path / "kept.npz")
    arrays = read_back(path)
    arrays["targets"][0, 0, 0] += 1
    np.savez(path, **arrays)
    for words in (["train", "--resume"], ["evaluate"], ["report"]):
        with pytest.raises(SystemExit) as stop:
            main([*words, str(tmp_path / "run")])
        assert stop.value.code == 2
        assert "has changed" in capsys.readouterr().err
    shutil.copy(kept, path)
    main(["train", "--resume", str(tmp_path / "run")])
    assert "already trained" in capsys.readouterr().err


def test_the_command_of_a_run_repeats_it(started, tmp_path):
    _, arguments = started
    main([*arguments, "--train.epochs", "1", "--data.count", "8", "--out", str(tmp_path / "run")])
    run = open_run(tmp_path / "run")
    words = shlex.split(run.command)
    main([*words[1 : words.index("--out")], "--out", str(tmp_path / "again")])
    again = open_run(tmp_path / "again")
    assert again.config == run.config
    assert again.log()[-1]["validation"] == pytest.approx(run.log()[-1]["validation"])
