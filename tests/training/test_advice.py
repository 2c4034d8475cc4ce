"""Advice: short trainings are trainings, and verdicts follow from their errors."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_learning_curve import SAMPLES, STEPS, law, trained

from cato.cli import main
from cato.errors import InputError
from cato.inference.improve import ADVICE
from cato.runs.load import load_splits
from cato.runs.settings import build_settings
from cato.training import advice as training_advice
from cato.training.advice import SHARES, WIDER, Plan, advise, advise_run, conclude, short_trainings
from cato.training.train import train

MODEL = {"width": 8, "depth": 1}
TRAIN = {"steps": 400, "accelerator": "cpu"}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Smooth fields on a line, 32 samples for training."""
    x = np.linspace(0, 1, 12)
    k = 2 + np.sin(3 * x + 6 * np.random.default_rng(0).random((40, 1)))
    path = tmp_path_factory.mktemp("user") / "line.npz"
    np.savez(path, coords=x[:, None], inputs=k, targets=np.sqrt(k))
    return path


@pytest.fixture(scope="module")
def config(file):
    return build_settings(
        file, "small", None, {"model": MODEL, "train": TRAIN, "data": {"folds": 0}}
    )


def planned(seconds=0.1, steps=4 * STEPS):
    return Plan("cato", [], SAMPLES, steps, steps * seconds / 60, seconds, 0)


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.95, "more samples help more than"),
        (0.05, "more minutes help more than"),
        (0.38, "help more cannot be told"),
    ],
)
def test_the_verdict_follows_the_law(share, words):
    error = law(share, 0.7, 0.7)
    advice = conclude(planned(steps=2 * STEPS), trained(error), None)
    assert words in advice.verdict
    assert advice.expected.low < error(SAMPLES, 2 * STEPS) < advice.expected.high
    if share != 0.38:
        assert advice.changes[0].what.startswith("more samples" if share > 0.5 else "more minutes")


def test_what_is_too_uncertain_is_not_told():
    error = law(0.5, 0.7, 0.7)
    rows = trained(error, np.random.default_rng(0), 0.6)
    advice = conclude(planned(steps=100 * STEPS), rows, None)
    assert advice.expected is None
    assert "cannot be told from these trainings: between" in advice.verdict
    assert all(change.error is None for change in advice.changes)


def test_a_wider_model_is_compared_at_equal_steps_and_in_equal_time():
    rows = trained(law(0.1, 0.7, 0.7))
    wide = replace(rows[0], validation=0.5 * rows[0].validation)
    advice = conclude(planned(), rows, (wide, 0.3))
    (larger,) = (change for change in advice.changes if change.what.startswith("larger"))
    assert larger.error.median == pytest.approx(0.5 * advice.expected.median)
    assert "3.0 times as long" in larger.evidence


def test_short_trainings_are_trainings_on_fractions(file, config, tmp_path):
    splits = load_splits(config)
    count = len(splits.train)
    rows, (wider, seconds) = short_trainings(
        config, splits, Plan("cato", [], count, 400, 1.0, 0.1, 0), 8
    )
    sizes = [(row.samples, row.steps) for row in rows]
    assert sizes == [(int(n * count), int(s * 8)) for n, s in SHARES]
    assert (wider.samples, wider.steps) == sizes[0]
    assert seconds > 0
    for row, width in ((rows[3], 1), (wider, WIDER)):
        changes = {
            "model": MODEL | {"width": width * MODEL["width"]},
            "train": TRAIN | {"steps": row.steps, "batch_size": config.train.batch_size},
            "data": {"count": row.samples, "folds": 0},
        }
        run = train(build_settings(file, "small", None, changes), tmp_path / f"{width}")
        assert run.log()[-1]["validation"] == pytest.approx(row.validation, rel=1e-6)


def test_too_little_of_something_is_said(config):
    splits = load_splits(config)
    assert "too few to leave any out" in advise(config, splits.with_first(8)).verdict
    assert "allow only" in advise(config, splits, 1e-4).verdict
    short = replace(config, train=replace(config.train, steps=10))
    assert "too short to shorten" in advise(short, splits).verdict


def test_the_command_and_the_report_of_a_run(file, config, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(training_advice, "MIN_STEPS", 2)
    for minutes in ("0", "-1", "nan"):
        with pytest.raises(SystemExit):
            main(["advise", str(file), "--minutes", minutes])
    capsys.readouterr()
    main(["advise", str(file), "--minutes", "1e-4", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["plan"]["samples"] == 32
    assert found["plan"]["memory"] > 2**25
    assert found["next"] == f"cato train {file}"
    assert found["expected"] is None
    short = replace(config, train=replace(config.train, steps=9))
    run = train(short, tmp_path / "run")
    main(["report", str(run.folder), "--json"])
    bounds = json.loads(capsys.readouterr().out)["what_would_help"]
    assert any("cato advise" in one["evidence"] for one in bounds)
    main(["advise", str(run.folder), "--minutes", "3", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["plan"]["steps"] == found["trainings"][-1]["steps"] == 9
    assert (run.folder / ADVICE).exists()
    main(["report", str(run.folder), "--json"])
    helps = json.loads(capsys.readouterr().out)["what_would_help"]
    assert {change["what"] for change in found["changes"]} <= {one["what"] for one in helps}
    gains = [-1 if one["gain"] is None else one["gain"] for one in helps]
    assert gains == sorted(gains, reverse=True)
    assert "What would help most" in (run.folder / "report.html").read_text()
    with pytest.raises(InputError, match="did not start from new weights"):
        advise_run(Path("darcy"))
