"""Run folders of version 0.1 open, predict, evaluate and resume.

`darcy` and `user` are finished runs with predictions of the version that trained them; `stopped` is
the run on user.npz of 12 steps, interrupted after 7, and stopped-expected.jsonl the log of the same
training without the interruption.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import cato
from cato.runs.folder import open_run

OLD = Path(__file__).parent / "v0_1"


@pytest.fixture
def old(tmp_path, monkeypatch):
    """A copy of the folders, with the user's file in the working folder."""
    folder = shutil.copytree(OLD, tmp_path / "old")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("name", ["darcy", "user"])
def test_finished_runs_predict_the_recorded_numbers(name, old):
    run = open_run(name)
    assert run.record["cato"] == "0.1.0"
    assert (run.config.data.file is not None) == (name == "user")
    with np.load(f"{name}-prediction.npz") as recorded:
        predicted = cato.load(name).predict(recorded["inputs"])
        np.testing.assert_allclose(predicted, recorded["u"], rtol=1e-5, atol=1e-5)


def test_a_finished_run_says_so_and_is_left_alone(old, capsys):
    before = {p: p.read_bytes() for p in Path("user").rglob("*") if p.is_file()}
    cato.resume("user")
    assert "already trained to the end" in capsys.readouterr().err
    assert {p: p.read_bytes() for p in before} == before


def test_a_run_is_evaluated_as_before(old):
    recorded = json.loads(Path("darcy/evaluation.json").read_text())
    figures = cato.evaluate("darcy")
    for name in ("relative_l2", "median", "worst", "mean_predictor"):
        assert figures[name] == pytest.approx(recorded[name], rel=1e-4)


def test_a_stopped_run_resumes_and_ends_as_if_it_had_not_been_stopped(old, capsys):
    run = cato.resume("stopped")
    assert "resuming at step 7 of 12" in capsys.readouterr().err
    (expected,) = map(json.loads, Path("stopped-expected.jsonl").read_text().splitlines())
    (line,) = run.log()
    for name in ("step", "loss", "value", "gradient", "flux", "consistency", "validation"):
        assert line[name] == pytest.approx(expected[name], rel=1e-4)


def test_other_data_are_refused(old):
    arrays = dict(np.load("user.npz"))
    np.savez("user.npz", **{**arrays, "targets": arrays["targets"] + 1})
    with pytest.raises(cato.InputError, match="has changed"):
        cato.resume("stopped")
