"""Files of any unit and offset: the same training, the same errors, and every digit of the file."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import cato
from cato.cli import main
from cato.errors import InputError
from cato.inference.evaluate import Solved, evaluate, require_finite, train_mean
from cato.runs.settings import build_settings
from cato.surrogate import NotFinite
from cato.training.loop import Training, new_model, prepare
from cato.user_data.naming import Naming, ReadRequest
from cato.user_data.read import open_user_data, read_samples
from cato.user_data.samples import recognise

S, MESH = 30, (5, 6)
MODEL = {"width": 8, "depth": 1}


def arrays(rng=None) -> dict[str, np.ndarray]:
    rng = rng or np.random.default_rng(0)
    coords = np.stack(np.meshgrid(*[np.linspace(0, 1, n) for n in MESH], indexing="ij"), -1)
    k = (rng.normal(size=(S, 1, 1, 2)) * coords).sum(-1, keepdims=True)
    return {"coords": coords, "inputs": k, "targets": np.sin(3 * k) + k}


def write(path: Path, **changes: np.ndarray) -> Path:
    np.savez(path, **(arrays() | changes))
    return path


def few_steps(path: Path) -> tuple[list[float], torch.Tensor, float, float]:
    """Losses and weights of a training of three steps, and its error next to that of the mean."""
    _, splits = open_user_data(path, Naming())
    settings_ = {"model": MODEL, "loss": {"gradient": 0.1, "gdl": 0.1}, "train": {"steps": 3}}
    config = build_settings(path, "smoke", "cato", settings_)
    model = new_model(config, splits.problem)
    surrogate, loss, metric = prepare(config, splits.train, model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    batch, losses = splits.train.batch(slice(None)), []
    for _ in range(3):
        values, flux = surrogate(batch.coords, batch.inputs)
        total, _ = loss(values, batch.targets, flux=flux, metric=metric)
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        losses.append(total.item())
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    found = evaluate(surrogate, splits.test, train_mean(splits))
    assert found.mean_predictor is not None
    return losses, weights, float(found.errors.mean()), found.mean_predictor


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return few_steps(write(tmp_path_factory.mktemp("plain") / "data.npz"))


@settings(max_examples=12)
@given(exponents=st.tuples(*[st.integers(-30, 30)] * 3))
def test_training_does_not_depend_on_units(exponents, plain, tmp_path_factory):
    """Targets, inputs and coordinates in any unit: losses, weights and errors to rounding."""
    scaled = {name: a * 10.0**e for (name, a), e in zip(arrays().items(), exponents, strict=True)}
    path = write(tmp_path_factory.mktemp("scaled") / "data.npz", **scaled)
    losses, weights, error, mean_error = few_steps(path)
    assert losses == pytest.approx(plain[0], rel=1e-4)
    # AdamW divides by the root of tiny gradients of weights that hardly matter.
    assert float((weights - plain[1]).norm() / plain[1].norm()) < 1e-3
    assert error == pytest.approx(plain[2], rel=1e-3)
    assert mean_error == pytest.approx(plain[3], rel=1e-5)


@pytest.mark.parametrize("name", ["inputs", "targets", "coords"])
def test_an_offset_does_not_hide_the_variation(name, plain, tmp_path):
    """1e6 + 1e-3 times the values; float32 would leave nothing of them."""
    path = write(tmp_path / "data.npz", **{name: 1e6 + 1e-3 * arrays()[name]})
    losses, _, error, mean_error = few_steps(path)
    if name != "targets":
        assert losses == pytest.approx(plain[0], rel=1e-3)
        assert error == pytest.approx(plain[2], rel=1e-2)
        return
    # Relative to the variation around its own mean, which the plain targets have too.
    level = arrays()["targets"].mean()
    centred = few_steps(write(tmp_path / "centred.npz", targets=arrays()["targets"] - level))
    assert losses == pytest.approx(centred[0], rel=1e-3)
    assert error == pytest.approx(centred[2], rel=1e-2)
    assert mean_error == pytest.approx(centred[3], rel=1e-4)


def test_ordinary_data_are_float32_without_offsets(tmp_path):
    problem = recognise(read_samples(write(tmp_path / "data.npz"), ReadRequest(Naming())))
    assert problem.float64 == problem.offsets == ()
    # Constant channels have no variation to lose.
    constant = write(tmp_path / "constant.npz", inputs=np.full((S, *MESH, 1), 1e7))
    assert recognise(read_samples(constant, ReadRequest(Naming()))).float64 == ()


def test_a_sample_without_variation_around_the_offset_is_refused(tmp_path):
    """Errors are relative to the variation, which it does not have."""
    targets = np.empty_like(arrays()["targets"])
    targets[0] = 1e6
    targets[1:] = 1e6 + 2.0**-10 * np.resize([-1.0, 1.0], targets[1:].shape)
    path = write(tmp_path / "data.npz", targets=targets)
    with pytest.raises(InputError, match=r"sample 0: the targets are the mean \[1000000.0\]"):
        open_user_data(path, Naming())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"targets": 1e6 + 1e-3 * arrays()["targets"]},
            ["target target varies", "relative to the"],
        ),
        ({"inputs": 1e6 + 1e-3 * arrays()["inputs"]}, ["input input varies", "stays in float64"]),
        ({"targets": 1e-23 * arrays()["targets"]}, ["target target reaches", "stays in float64"]),
        (
            {"inputs": (1e3 + 1e-3 * arrays()["inputs"]).astype(np.float32)},
            ["rounding of the file's numbers", "more digits"],
        ),
    ],
)
def test_inspect_says_what_float32_cannot_carry(changes, words, tmp_path, capsys):
    main(["inspect", str(write(tmp_path / "data.npz", **changes)), "--json"])
    found = json.loads(capsys.readouterr().out)
    sentences = " ".join(finding["what"] for finding in found["findings"])
    assert all(word in sentences for word in words)
    main(["inspect", str(write(tmp_path / "plain.npz")), "--folds", "0", "--json"])
    assert json.loads(capsys.readouterr().out)["findings"] == []


@pytest.fixture(scope="module")
def offset_run(tmp_path_factory):
    """A run on targets 1e6 + 1e-3 times small values, in a file with inputs 1e20."""
    folder = tmp_path_factory.mktemp("offset")
    changes = {"targets": 1e6 + 1e-3 * arrays()["targets"], "inputs": 1e20 * arrays()["inputs"]}
    path = write(folder / "data.npz", **changes)
    run = cato.train(
        *(path, "smoke"),
        out=folder / "run",
        model_settings=MODEL,
        data_settings={"folds": 0},
        train_settings={"steps": 4, "accelerator": "cpu"},
    )
    return run, path


def test_a_run_writes_every_digit(offset_run, tmp_path, capsys):
    run, path = offset_run
    main(["predict", str(run.folder), str(path), str(tmp_path / "out.npz"), "--json"])
    figures = json.loads(capsys.readouterr().out)
    with np.load(tmp_path / "out.npz") as written, np.load(path) as given:
        assert written["outputs"].dtype == np.float64
        varied, true = written["outputs"] - 1e6, given["targets"] - 1e6
        assert 1e-4 < varied.std() < 1e-2
        level = run.problem.offsets[0] - 1e6
        errors = np.linalg.norm((varied - true).reshape(S, -1), axis=1)
        errors /= np.linalg.norm((true - level).reshape(S, -1), axis=1)
    assert figures["relative_l2"] == pytest.approx(np.mean(errors), rel=1e-5)
    assert figures["offsets"] == {"target": run.problem.offsets[0]}
    loaded = cato.load(run.folder)
    np.testing.assert_array_equal(loaded.predict(1e20 * arrays()["inputs"])[0], varied[0] + 1e6)


@pytest.mark.slow
def test_the_exported_file_has_every_digit(offset_run, tmp_path, capsys):
    onnxruntime = pytest.importorskip("onnxruntime")
    run, _ = offset_run
    main(["export", str(run.folder), "--out", str(tmp_path / "model.onnx"), "--json"])
    assert json.loads(capsys.readouterr().out)["largest_difference"] < 1e-4  # of the variation
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    found = {value.name: value.type for value in session.get_inputs()}
    assert found == {"coords": "tensor(float)", "inputs": "tensor(double)"}


def test_evaluating_and_reporting_say_what_errors_are_relative_to(offset_run):
    run, _ = offset_run
    figures = cato.evaluate(run.folder)
    assert figures["offsets"] == {"target": run.problem.offsets[0]}
    assert 0.5 < figures["mean_predictor"] < 1.5


def test_inputs_far_outside_give_a_result_or_one_line(offset_run, tmp_path):
    """Not NaN: 1e20 is the unit of the inputs, 1e90 is far away."""
    run, _ = offset_run
    surrogate = cato.load(run.folder)
    for size in (1e30, 1e45, 1e60, 1e90):
        message, found = "", np.empty(0)
        try:
            found = surrogate.predict(size * arrays()["inputs"])
        except NotFinite as error:
            message = str(error)
        assert "deviations from the mean" in message or (found.size and np.isfinite(found).all())


def test_an_evaluation_that_overflows_names_split_and_sample(offset_run):
    run, _ = offset_run
    surrogate, (_, splits) = cato.load(run.folder), run.config.data.open_file()
    solutions = torch.zeros_like(splits.test.targets)
    solutions[1, 3] = torch.inf
    some = slice(None)
    with pytest.raises(InputError, match=r"test split: the prediction for sample 1 is not finite"):
        require_finite(surrogate, Solved(splits.test.batch(some), solutions[some], 0.0, 0), "test")


def test_bfloat16_is_refused_where_float64_is_needed(tmp_path):
    path = write(tmp_path / "data.npz", targets=1e20 * arrays()["targets"])
    with pytest.raises(InputError, match=r"needs float64 for its outputs.*32-true"):
        cato.train(
            path,
            "smoke",
            out=tmp_path / "run",
            train_settings={"precision": "bf16-mixed", "steps": 1, "accelerator": "cpu"},
        )


def test_truth_that_is_not_finite_is_refused(offset_run, tmp_path, capsys):
    run, _ = offset_run
    spoilt = arrays()["targets"]
    spoilt[2, 1, 1, 0] = np.inf
    path = write(tmp_path / "data.npz", targets=spoilt, inputs=1e20 * arrays()["inputs"])
    with pytest.raises(SystemExit, match="2"):
        main(["predict", str(run.folder), str(path)])
    assert "data.npz, sample 2: the targets have NaN" in capsys.readouterr().err


def test_data_that_change_during_a_training_are_noticed(tmp_path, capsys, monkeypatch):
    path = write(tmp_path / "data.npz")
    fit = Training.fit

    def fit_while_the_file_changes(self):
        write(path, inputs=2 * arrays()["inputs"])
        return fit(self)

    monkeypatch.setattr(Training, "fit", fit_while_the_file_changes)
    train = {"steps": 1, "accelerator": "cpu"}
    run = cato.train(
        path, "smoke", out=tmp_path / "run", model_settings=MODEL, train_settings=train
    )
    assert "data.npz has changed: its fingerprint is" in capsys.readouterr().err
    with pytest.raises(InputError, match="has changed"):
        cato.evaluate(run.folder)
