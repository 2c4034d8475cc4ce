"""Bands around served predictions, and the models that are served where none is named."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient

from cato.data.dataset import Dataset
from cato.data.training_range import fit_range
from cato.inference.conformal import Band, load_band, save_band
from cato.inference.evaluate import ALL_ERRORS
from cato.runs.checkpoint import load_checkpoint
from cato.runs.folder import PRETRAINED, open_run, pretrained_names
from cato.runs.settings import build_settings, run_config
from cato.serve.app import create_app
from cato.serve.models import load_model, load_models
from cato.training.train import train

FIELDS = ("outputs", "bands", "verdicts", "reasons")
SCALES = {"grid": (30, 1), "mesh": (30, 2), "cloud": (1, 1), "rollout": (3, 30, 1)}


def band_of(name, step=0):
    torch.manual_seed(1)
    scale = 0.1 + torch.rand(SCALES[name])
    return Band(torch.full((scale.shape[-1],), 2.0), scale, 9, step)


@pytest.fixture
def client(models):
    banded = {name: replace(models[name], band=band_of(name)) for name in SCALES}
    with TestClient(create_app({**models, **banded}), base_url="http://localhost") as client:
        yield client


def asked(client, name, **arrays):
    """The answer in all three formats, as arrays by name."""
    address = f"/models/{name}/predict"
    nested = client.post(address, json={key: array.tolist() for key, array in arrays.items()})
    flat = {
        key: {"shape": array.shape, "values": array.ravel().tolist()}
        for key, array in arrays.items()
    }
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    headers = {"content-type": "application/x-npz"}
    binary = client.post(address, content=stream.getvalue(), headers=headers)
    with np.load(io.BytesIO(binary.content)) as archive:
        packed = {key: archive[key] for key in FIELDS if key in archive.files}
    found = client.post(address, json=flat).json()
    laid_out = {
        key: np.reshape(found[key]["values"], found[key]["shape"])
        for key in ("outputs", "bands")
        if key in found
    }
    laid_out |= {key: np.array(found[key]) for key in ("verdicts", "reasons")}
    both = {key: np.array(value) for key, value in nested.json().items()}
    return [both, laid_out, packed]


@pytest.mark.parametrize(
    ("name", "mesh", "shape"),
    [
        ("grid", (6, 5), (6, 5, 1)),
        ("mesh", (6, 5), (6, 5, 2)),
        ("rollout", (6, 5), (3, 6, 5, 1)),
        ("cloud", (7,), (7, 1)),
    ],
)
def test_every_format_has_the_band_of_every_node(client, models, name, mesh, shape):
    problem = models[name].problem
    rng = np.random.default_rng(0)
    arrays = {"inputs": rng.random((2, *mesh, problem.num_inputs)).astype(np.float32)}
    if not models[name].has_coords:
        arrays["coords"] = rng.random((2, *mesh, 2)).astype(np.float32)
    if not problem.num_inputs:
        del arrays["inputs"]
    width = 2 * band_of(name).scale.numpy()
    if name == "cloud":  # one width for all points
        width = np.repeat(width, 7, axis=0)
    for answer in asked(client, name, **arrays):
        np.testing.assert_array_equal(answer["bands"].astype(np.float32), width.reshape(shape))
        assert (answer["outputs"] + answer["bands"]).shape == answer["outputs"].shape


def test_no_band_where_nothing_is_promised(client):
    inputs = np.ones((1, 6, 5, 1), np.float32)
    for answer in asked(client, "other", inputs=inputs):  # a model without one
        assert "outputs" in answer
        assert "bands" not in answer
    # As many nodes as in training, but another mesh.
    axes = np.meshgrid(np.linspace(0, 1, 5), np.linspace(0, 1, 6), indexing="ij")
    coords = np.stack(axes, -1).astype(np.float32)
    for answer in asked(client, "grid", inputs=inputs.reshape(1, 5, 6, 1), coords=coords):
        assert answer["outputs"].shape == (1, 5, 6, 1)
        assert "bands" not in answer


def test_every_answer_has_verdicts_and_no_band_if_a_sample_is_outside(models):
    """In all formats; the other samples of the same request get their band when sent alone."""
    rng = np.random.default_rng(0)
    coords = models["grid"].surrogate.coords.numpy()
    inputs = 1 + rng.random((40, 6, 5, 1))
    problem = models["grid"].problem
    data = Dataset.from_arrays(problem, coords.reshape(6, 5, 2), inputs, np.ones((40, 6, 5, 1)))
    known = fit_range(data, None)
    model = replace(models["grid"], band=band_of("grid"), training_range=known)
    inside = inputs[known.scores(data) <= known.threshold]
    assert len(inside) >= 2
    mixed = np.concatenate([inside[:2], 3 * inside[:1]]).astype(np.float32)
    with TestClient(create_app({"grid": model}), base_url="http://localhost") as client:
        for answer in asked(client, "grid", inputs=mixed):
            assert answer["verdicts"].tolist() == ["inside", "inside", "outside"]
            assert answer["reasons"][0] == ""
            assert "training range" in answer["reasons"][2]
            assert "bands" not in answer
        for answer in asked(client, "grid", inputs=mixed[:2]):
            assert answer["verdicts"].tolist() == ["inside", "inside"]
            assert "bands" in answer
    with TestClient(create_app({"grid": models["grid"]}), base_url="http://localhost") as client:
        for answer in asked(client, "grid", inputs=mixed):
            assert answer["verdicts"].tolist() == ["unknown"] * 3


def test_the_band_of_a_run_is_served_as_long_as_it_is_of_its_weights(tmp_path):
    values = build_settings("darcy", "smoke", "cato").to_dict()
    values["data"] |= {"root": str(tmp_path / "data")}
    values["model"] |= {"width": 8, "depth": 1}
    values["train"] |= {"epochs": 1, "accelerator": "cpu"}
    run = train(run_config(values, "test"), tmp_path / "run")
    assert load_model(str(run.folder)).band is None
    step = load_checkpoint(run.checkpoints, "best").state["step"]
    scale = torch.rand(run.problem.num_nodes, 1)
    save_band(run, Band(torch.ones(1), scale, 9, step + 1))
    assert load_model(str(run.folder)).band is None
    save_band(run, Band(torch.ones(1), scale, 9, step))
    model = load_model(str(run.folder))
    width = model.band.on_mesh(model.problem, run.problem.shape)
    np.testing.assert_array_equal(width.reshape(-1, 1), scale.numpy())


def test_without_a_run_all_pretrained_models_are_served_and_explored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "darcy").mkdir()  # hides the name, but none was given
    models = load_models([])
    assert list(models) == pretrained_names()
    for name, model in models.items():
        run = open_run(PRETRAINED / name)
        step = load_checkpoint(run.checkpoints, "best").state["step"]
        expected = load_band(run, step).half_width
        widths = model.band.on_mesh(model.problem, model.problem.shape)
        assert widths.size >= expected.numel()
        figures = json.loads((run.source / "evaluation.json").read_text())
        errors = model.about["test_error"]
        assert errors == {key: figures[key] for key in ALL_ERRORS}
        assert model.about["band"] == figures["band"]
        assert model.about["training_range"] == figures["training_range"]
        assert model.training_range is not None
    with TestClient(create_app(models), base_url="http://localhost") as client:
        assert client.get("/", follow_redirects=False).headers["location"] == "/explorer/"
        shown = client.get("/explorer/api/benchmarks").json()["benchmarks"]
        assert [benchmark["name"] for benchmark in shown] == pretrained_names()
        (model,) = next(b["models"] for b in shown if b["name"] == "plasticity")
        fields = [error["field"] for error in model["testErrors"]]
        assert fields == ["displacement", "all outputs", "x", "y", "dx", "dy"]
        displacement = models["plasticity"].about["test_error"]["fields"]["displacement"]
        assert model["testErrors"][0]["error"] == displacement["relative_l2"]
        assert model["testErrors"][0]["mean"] == displacement["mean_predictor"]
        assert model["testErrors"][0]["median"] == displacement["median"]
        assert model["testErrors"][0]["hasLearnt"]
        assert model["editor"]["headline"] == {"displacement": ["dx", "dy"]}
    assert [path.name for path in tmp_path.iterdir()] == ["darcy"]
