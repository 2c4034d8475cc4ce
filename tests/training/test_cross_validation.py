"""Cross-validation: each sample is judged by a model that has not seen it."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

import cato
from cato.cli import main
from cato.errors import InputError
from cato.inference.conformal import fit_scale, load_band, scores
from cato.inference.evaluate import evaluate_run
from cato.physics.metrics import relative_l2
from cato.runs.checkpoint import last_state
from cato.runs.folder import fold_folder, open_run
from cato.runs.load import load_run_splits, load_surrogate
from cato.runs.settings import build_settings
from cato.training.cross_validation import own_training
from cato.training.loop import Training
from cato.training.train import resume
from cato.user_data.naming import Naming
from cato.user_data.read import FEW, folds_for, open_user_data

COUNT, FOLDS, STEPS = 12, 3, 6


def write(path, count=COUNT, **more):
    x, y = np.meshgrid(np.linspace(0, 1, 6), np.linspace(0, 1, 5), indexing="ij")
    phase = 6 * np.random.default_rng(0).random((count, 1, 1, 1))
    k = 2 + np.sin(3 * x + phase[..., 0]) * np.cos(2 * y)
    nodes = np.stack((x, y), axis=-1)
    np.savez(path, coords=nodes, inputs=k[..., None], targets=np.sqrt(k)[..., None], **more)
    return path


def train(path, out, **data):
    return cato.train(
        path,
        "smoke",
        out=out,
        model_settings={"width": 8, "depth": 1},
        data_settings={"folds": FOLDS} | data,
        train_settings={"steps": STEPS, "accelerator": "cpu"},
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("few")
    return train(write(folder / "few.npz"), folder / "run")


def test_every_sample_is_held_out_once_and_all_train_the_model(trained):
    splits = load_run_splits(trained)
    assert [len(splits.datasets[name]) for name in ("train", "validation", "test")] == [12, 0, 0]
    held_out = [splits.held_out(fold).tolist() for fold in range(FOLDS)]
    assert sorted(np.concatenate(held_out).tolist()) == list(range(COUNT))
    for fold, indices in enumerate(held_out):
        run = open_run(fold_folder(trained.folder, fold))
        data = load_run_splits(run)  # a run like any other, also without the one around it
        others = np.setdiff1d(np.arange(COUNT), indices).tolist()
        assert torch.equal(data.train.targets, splits.train.targets[others])
        assert torch.equal(data.test.targets, splits.train.targets[indices])
        assert last_state(run.checkpoints)["step"] == STEPS // FOLDS
    assert last_state(trained.checkpoints)["step"] == STEPS


def test_the_error_and_the_band_are_those_of_the_models_that_have_not_seen_a_sample(trained):
    splits = load_run_splits(trained)
    data, errors = splits.train, torch.empty_like(splits.train.targets)
    for fold in range(FOLDS):
        indices = splits.held_out(fold)
        surrogate = load_surrogate(open_run(fold_folder(trained.folder, fold)))
        batch = data.batch(indices.tolist())
        solutions = surrogate.solve(batch.coords, batch.inputs)
        errors[indices] = (solutions - batch.targets).detach()
    evaluated = evaluate_run(trained)
    expected = relative_l2(data.targets + errors, data.targets)
    torch.testing.assert_close(evaluated.evaluation.errors, expected, rtol=1e-4, atol=0)
    assert evaluated.figures["split"] == "3-fold cross-validation"
    surrogate, part, index = evaluated.find(5)
    assert torch.equal(part.targets[index], data.targets[5])
    assert 5 in splits.held_out(next(k for k, p in enumerate(evaluated.parts) if p.data is part))
    band = load_band(trained, last_state(trained.checkpoints)["best_step"])
    found = []
    for fold in range(FOLDS):
        own = splits.held_out(fold)
        others = np.setdiff1d(np.arange(COUNT), own)
        scale = fit_scale([(errors[others], None)], is_cloud=False)
        found.append(scores(errors[own], scale))
    ranked = torch.cat(found).sort(0).values
    torch.testing.assert_close(band.quantile, ranked[11], rtol=1e-4, atol=0)  # ⌈13 · 0.9⌉ = 12th
    scale = fit_scale([(errors, None)], is_cloud=False)
    torch.testing.assert_close(band.scale, scale, rtol=1e-4, atol=0)


@pytest.mark.parametrize("last", [STEPS - 1, STEPS + 3])
def test_a_killed_training_resumes_to_the_same_end(trained, last, tmp_path, monkeypatch):
    """In the training of the model, and in the second fold."""
    taken = 0
    step = Training.step

    def counted(self, *wishes):
        nonlocal taken
        if taken == last:
            raise KeyboardInterrupt
        taken += 1
        return step(self, *wishes)

    path = trained.folder.parent / "few.npz"
    monkeypatch.setattr(Training, "step", counted)
    with pytest.raises(KeyboardInterrupt):
        train(path, tmp_path / "run")
    monkeypatch.setattr(Training, "step", step)
    if last > STEPS:
        with pytest.raises(InputError, match=r"fold 1 of .* is not trained .* --resume"):
            cato.evaluate(tmp_path / "run")
    run = resume(tmp_path / "run")
    for name in ("relative_l2", "worst", "band", "fields"):
        assert evaluate_run(run).figures[name] == evaluate_run(trained).figures[name]


@pytest.mark.parametrize("source", ["folds/1", "other/folds/0"])
def test_a_fold_in_the_place_of_another_is_refused(trained, source, tmp_path):
    """It has seen the samples that it would be judged by."""
    run, other = tmp_path / "run", tmp_path / "other"
    shutil.copytree(trained.folder, run)
    if source.startswith("other"):
        train(trained.folder.parent / "few.npz", other)
    shutil.rmtree(run / "folds" / "0")
    shutil.copytree((tmp_path if source.startswith("other") else run) / source, run / "folds" / "0")
    with pytest.raises(InputError, match="is not fold 0 of this run; restore it"):
        cato.evaluate(run)
    with pytest.raises(InputError, match="is not fold 0 of this run; restore it"):
        resume(run)


def test_the_folds_share_the_minutes_with_the_model(trained, tmp_path):
    minutes = {"train": {"minutes": 4.0}, "data": {"folds": 3}}
    config = build_settings(trained.folder.parent / "few.npz", "small", None, minutes)
    own = own_training(config)
    assert (own.minutes, own.min_steps) == (2.0, config.train.min_steps // 2)
    no_folds = replace(config, data=replace(config.data, folds=0))
    assert own_training(no_folds) == config.train


def test_few_samples_are_the_default_reason(tmp_path, capsys):
    expected = {9: 0, 10: 5, 50: 5, 51: 0}
    for count, folds in expected.items():
        assert folds_for(tmp_path, [""] * count, None) == folds
        assert (count in FEW) == bool(folds)
    named = ["train"] * 10 + ["validation", "test"]
    assert folds_for(tmp_path, named, None) == 0
    with pytest.raises(InputError, match=r"names splits; leave out --data\.folds"):
        folds_for(tmp_path, named, 5)
    for wrong in (1, 13):
        with pytest.raises(InputError, match=r"holds 12 samples; --data.folds should be 2 to 12"):
            folds_for(tmp_path, [""] * 12, wrong)
    path = write(tmp_path / "data.npz")
    config = build_settings(path, "smoke")
    assert config.data.folds == 5
    assert "5-fold cross-validation, because 12 samples are few" in capsys.readouterr().err
    assert build_settings(path, "smoke", None, {"data": {"folds": 0}}).data.folds == 0
    splits = open_user_data(path, Naming(), folds=0)[1]
    assert [len(splits.datasets[name]) for name in ("train", "validation", "test")] == [10, 1, 1]
    with pytest.raises(InputError, match=r"there are 5 folds of .* counted from 0; got fold 5"):
        build_settings(path, "smoke", None, {"data": {"fold": 5}})


def test_inspection_and_report_say_so(trained, capsys):
    path = trained.folder.parent / "few.npz"
    capsys.readouterr()
    main(["inspect", str(path), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["folds"], found["splits"]["train"]) == (5, 12)
    assert any("because 12 samples are few" in f["what"] for f in found["findings"])
    main(["report", str(trained.folder), "--json"])
    capsys.readouterr()
    page = (trained.folder / "report.html").read_text()
    assert "Errors in 3-fold cross-validation" in page
    assert re.search(r"Test error .* mean of 12 samples in 3-fold cross-validation", page)


def test_a_cross_validated_run_is_not_extended(trained):
    with pytest.raises(InputError, match=r"cross-validated, .* train with --data\.folds 0"):
        resume(trained.folder, {"steps": 20})
