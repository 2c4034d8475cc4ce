"""Errors of fields: the headline first, next to the training mean, and only of these weights."""

import json

import numpy as np
import pytest
import torch

import cato
from cato.api import model_config
from cato.data.dataset import Dataset, InMemory
from cato.data.normalise import Normaliser
from cato.inference.evaluate import (
    errors_by_field,
    evaluate,
    evaluate_run,
    headline_figures,
    read_evaluation,
    solve_all,
)
from cato.models.registry import build_model
from cato.problem import Problem
from cato.surrogate import Surrogate
from cato.training.train import train

SHAPE, FRAMES, SAMPLES = (5, 4), 3, 6
OUTPUTS = ("x", "y", "dx", "dy")


@pytest.fixture(scope="module")
def block():
    """An untrained model and samples of a block whose positions dwarf its displacements."""
    problem = Problem(
        "plasticity", "mesh", SHAPE, ("die",), OUTPUTS, time="conditioned", num_steps=FRAMES
    )
    rng = np.random.default_rng(0)
    displacement = rng.normal(size=(SAMPLES, FRAMES, *SHAPE, 2))
    axes = (np.linspace(0, 50, SHAPE[0]), np.linspace(0, 15, SHAPE[1]))
    rest = np.stack(np.meshgrid(*axes, indexing="ij"), -1)
    targets = np.concatenate([rest + displacement, displacement], -1).astype(np.float32)
    inputs = rng.random((SAMPLES, *SHAPE, 1), np.float32)
    data = Dataset.from_arrays(problem, (rest / 50).astype(np.float32), inputs, targets)
    torch.manual_seed(0)
    model = build_model("cato", model_config("cato", width=8, depth=1, heads=2), problem)
    return Surrogate(model, Normaliser(problem), coords=data.coords).eval(), data


def test_every_field_has_its_error_next_to_that_of_the_training_mean(block):
    surrogate, data = block
    mean = data.targets[:4].mean(0)
    evaluation = evaluate(surrogate, data, mean)
    figures = json.loads(json.dumps(evaluation.to_dict()))
    fields = errors_by_field(figures)
    assert list(fields) == ["displacement", "all outputs", *OUTPUTS]
    channels = {"displacement": [2, 3], "all outputs": [0, 1, 2, 3]}
    channels |= {name: [k] for k, name in enumerate(OUTPUTS)}
    for name, of in channels.items():
        truth = data.targets[..., of].flatten(1).double()
        for found, key in (
            (solve_all(surrogate, data), "relative_l2"),
            (mean.expand_as(data.targets), "mean_predictor"),
        ):
            wrong = found[..., of].flatten(1).double() - truth
            expected = (wrong.norm(dim=1) / truth.norm(dim=1)).mean().item()
            assert fields[name][key] == pytest.approx(expected, rel=1e-5)
    assert headline_figures(figures) == figures["fields"]["displacement"]
    torch.testing.assert_close(
        evaluation.headline_errors.mean().item(), figures["fields"]["displacement"]["relative_l2"]
    )
    # What it is about: always predicting the mean looks good in all outputs, and is not.
    assert fields["all outputs"]["mean_predictor"] < 0.2 < fields["displacement"]["mean_predictor"]


def test_a_field_that_is_zero_has_no_relative_error(block):
    surrogate, data = block
    targets = data.targets.clone()
    targets[..., 2] = 0
    still = InMemory(data.problem, data.coords, data.inputs, targets)
    figures = evaluate(surrogate, still, None).to_dict()
    assert figures["fields"]["dx"]["relative_l2"] is None
    assert figures["fields"]["dy"]["relative_l2"] > 0
    assert figures["fields"]["dy"]["mean_predictor"] is None  # not known


def test_one_output_is_named_and_old_figures_are_those_of_all_outputs():
    errors = {"relative_l2": 0.01, "mean_predictor": 0.3}
    now = {"headline": None, "fields": {"u": errors}, **errors}
    assert errors_by_field(now) == {"u": errors}
    assert errors_by_field(errors) == {"all outputs": errors}  # of version 0.1
    two = {"headline": None, "fields": {"u": errors, "v": errors}, **errors}
    assert list(errors_by_field(two)) == ["all outputs", "u", "v"]


def test_figures_of_other_weights_are_not_shown(config_with, tmp_path):
    run = train(config_with(), tmp_path / "run")
    assert read_evaluation(run, 3) is None
    figures = evaluate_run(run).figures
    assert read_evaluation(run, figures["step"]) == json.loads(json.dumps(figures))
    assert read_evaluation(run, figures["step"] + 1) is None


def test_predictions_for_a_file_have_the_errors_of_fields(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = cato.load("plasticity")
    shape, rng = model.problem.shape, np.random.default_rng(0)
    inputs = 1.5 + rng.random((2, *shape, 1), np.float32)
    outputs = model.predict(inputs)
    wrong = outputs.copy()
    wrong[..., 2:] *= 2  # displacements twice as large as predicted: half of it is missing
    np.savez("in.npz", inputs=inputs, targets=wrong)
    from cato.inference.predict import predict_file
    from cato.runs.folder import open_run

    figures = predict_file(open_run("plasticity"), tmp_path / "in.npz", tmp_path / "out.npz")
    assert figures["headline"] == "displacement"
    errors = {name: of["relative_l2"] for name, of in figures["fields"].items()}
    assert errors["displacement"] == pytest.approx(0.5, rel=1e-4)
    assert errors["x"] == pytest.approx(0, abs=1e-6)
    assert figures["relative_l2"] < 0.05
