"""Arrays in memory train like files: `cato.train(arrays)` and `cato.fit`."""

import json

import numpy as np
import pytest
import torch
import xarray

import cato
from cato.cli import main
from cato.data.dataset import Splits
from cato.user_data.in_memory import write_data
from cato.user_data.naming import Naming, ReadRequest
from cato.user_data.read import open_user_data, read_samples

S = 12
TINY = {
    "scale": "smoke",
    "model_settings": {"width": 8, "depth": 1},
    "train_settings": {"epochs": 1, "accelerator": "cpu"},
}


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    x, y = np.meshgrid(np.linspace(0, 1, 7), np.linspace(0, 1, 6), indexing="ij")
    k = np.stack([2 + np.sin(3 * x + a) * np.cos(2 * y + b) for a, b in 6 * rng.random((S, 2))])
    return {"inputs": k, "targets": k**2}


def test_a_run_on_arrays_is_like_any_other(arrays, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = cato.train(arrays, out="runs/x", **TINY)
    assert "uniform grid of 7 × 6 nodes from 0 to 1" in capsys.readouterr().err
    assert 0 < cato.evaluate(run.folder)["relative_l2"] < 2
    assert cato.load("runs/x").predict(arrays["inputs"][..., None]).shape == (S, 7, 6, 1)
    cato.resume("runs/x")
    main(["report", "runs/x"])
    main(["export", "runs/x"])
    assert (tmp_path / "runs/x/report.html").exists()
    more = cato.train(arrays, out="runs/y", start="runs/x", **{**TINY, "model_settings": {}})
    assert more.config.train.start_from is not None


def test_fit_takes_a_new_folder_each_time(arrays, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = [cato.fit(arrays["inputs"], arrays["targets"], **TINY).folder for _ in range(2)]
    assert [folder.name for folder in folders] == ["fit", "fit-2"]


def test_what_is_refused_leaves_nothing(arrays, tmp_path):
    out = tmp_path / "run"
    cases = [
        (3.5, "cannot train on float"),
        ({"inputs": arrays["inputs"]}, "does not say which fields"),
        (arrays | {"targets": np.full((S, 7, 6), np.nan)}, "NaN"),
        (arrays | {"inputs": np.array([object()])}, "array of numbers"),
    ]
    for data, words in cases:
        with pytest.raises(cato.InputError, match=words):
            cato.train(data, out=out, **TINY)
        assert not out.exists()
    out.mkdir()
    (out / "arrays.h5").write_text("mine")
    with pytest.raises(cato.InputError, match="not overwritten"):
        cato.train(arrays, out=out, **TINY)
    assert (out / "arrays.h5").read_text() == "mine"


def test_an_xarray_dataset_keeps_its_dimensions(arrays, tmp_path):
    data = xarray.Dataset(
        {name: (("case", "x", "y"), arrays[n]) for name, n in (("a", "inputs"), ("u", "targets"))},
        {"x": np.linspace(0, 2, 7), "y": np.linspace(0, 1, 6)},
    )
    file, _ = write_data(tmp_path, data)
    samples = read_samples(file, ReadRequest(Naming.parse("", "a", "u")))
    np.testing.assert_allclose(samples.samples[3].targets[..., 0], arrays["targets"][3])
    np.testing.assert_allclose(samples.samples[0].coords[-1, -1], (2, 1))


@pytest.mark.parametrize("time", ["steady", "rollout", "conditioned"])
def test_a_dataset_comes_back_as_it_was(time, tmp_path):
    rng = np.random.default_rng(0)
    shape, frames = (5, 6), () if time == "steady" else (3,)
    grid = np.stack(np.meshgrid(np.arange(5.0) / 5, np.arange(6.0) / 6, indexing="ij"), axis=-1)
    inputs = ("u[0]", "v[0]", "u[1]", "v[1]") if time == "rollout" else ("k",)
    problem = cato.Problem(
        "flow", "grid", shape, inputs, ("u", "v"), time=time, num_steps=3 if frames else 1,
        periodic=(True, False), period=(1.0, None),
    )  # fmt: skip
    dataset = cato.Dataset.from_arrays(
        problem,
        grid,
        rng.random((S, *shape, len(inputs))),
        rng.random((S, *frames, *shape, 2)),
    )
    parts = {"train": slice(6), "validation": slice(6, 9), "test": slice(9, None)}
    splits = Splits(problem, {name: dataset.subset(part) for name, part in parts.items()})
    file, needed = write_data(tmp_path, splits)
    _, found = open_user_data(file, Naming.parse("", "", "", needed["periodic"]))
    assert found.problem.time == time
    assert found.problem.period == pytest.approx(problem.period)
    for name in parts:
        ours, theirs = found.datasets[name], splits.datasets[name]
        assert ours.problem.outputs == ("u", "v")
        assert torch.equal(ours.inputs, theirs.inputs)
        assert torch.equal(ours.targets, theirs.targets)


def test_the_settings_name_the_fields(arrays, tmp_path):
    data = {"k": arrays["inputs"], "p": arrays["targets"]}
    names = {"inputs": "k", "targets": "p"}
    run = cato.train(data, out=tmp_path / "run", data_settings=names, **TINY)
    record = json.loads((run.folder / "run.json").read_text())
    assert record["problem"]["inputs"] == ["k"]
    assert record["problem"]["outputs"] == ["p"]
