"""The published files from the command line: train, evaluate, resume, and what is refused."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from cato.cli import main
from cato.runs.folder import open_run

NUM_SAMPLES = 1200
TINY = ["--model", "transolver", "--model.width", "8", "--model.depth", "1", "--model.slices", "4"]
FAST = ["--train.batch-size", "8", "--train.minutes", "0.01", "--train.accelerator", "cpu"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Elasticity as it was published: points first, then samples."""
    folder = tmp_path_factory.mktemp("original")
    rng = np.random.default_rng(0)
    np.save(folder / "Random_UnitCell_XY_10.npy", rng.random((972, 2, NUM_SAMPLES)))
    np.save(folder / "Random_UnitCell_sigma_10.npy", 1 + rng.random((972, NUM_SAMPLES)))
    return folder


@pytest.fixture(scope="module")
def run(files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    scale = ["--scale", "smoke", "--out", str(folder)]
    main(["train", "elasticity", "--original", str(files), *scale, *TINY, *FAST])
    return folder


def test_the_run_knows_its_files_and_is_evaluated_on_the_published_test_set(run, files, capsys):
    record = json.loads((run / "run.json").read_text())
    assert record["config"]["data"]["original"] == str(files)
    assert f"--data.original {files}" in record["command"]
    capsys.readouterr()
    main(["evaluate", str(run), "--json"])
    figures = json.loads(capsys.readouterr().out)
    assert figures["num_samples"] == 200
    assert figures["data"] == "published files"
    sigma = np.load(files / "Random_UnitCell_sigma_10.npy").T
    train, test = sigma[:900], sigma[-200:]
    means = np.linalg.norm(train.mean(0) - test, axis=1) / np.linalg.norm(test, axis=1)
    assert figures["mean_predictor"] == pytest.approx(means.mean(), rel=1e-4)


def test_a_finished_run_on_published_files_is_left_alone(run, capsys):
    main(["train", "--resume", str(run)])
    assert "already trained" in capsys.readouterr().err


def test_replaced_files_are_refused(run, files, tmp_path, capsys):
    """One other number, somewhere in the middle."""
    copy, others = tmp_path / "run", tmp_path / "others"
    shutil.copytree(run, copy)
    shutil.copytree(files, others)
    opened = open_run(copy)
    data = replace(opened.config.data, original=str(others))
    opened.change_settings(replace(opened.config, data=data), {})
    main(["evaluate", str(copy)])
    sigma = np.load(others / "Random_UnitCell_sigma_10.npy")
    sigma[500, 600] += 1
    np.save(others / "Random_UnitCell_sigma_10.npy", sigma)
    for command in (["evaluate", str(copy)], ["train", "--resume", str(copy)]):
        with pytest.raises(SystemExit) as stop:
            main(command)
        assert stop.value.code == 2
        message = capsys.readouterr().err.splitlines()[-1]
        assert f"other published files than {others} now holds" in message


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "airfoil", "--original", "{files}"], ["NACA_Cylinder_X.npy", "221, 51", "none"]),
        (["train", "elasticity", "--original", "nowhere"], ["nowhere is not a folder"]),
        (["train", "elasticity", "--original", "{files}", "--data.seed", "1"], ["fixed samples"]),
        (["evaluate", "{run}", "--resolution", "40"], ["one resolution"]),
    ],
)
def test_refused(arguments, words, files, run, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main([word.format(files=files, run=run) for word in arguments])
    assert stop.value.code == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert all(word in message for word in words), message
    assert not list(tmp_path.iterdir())
