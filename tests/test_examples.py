"""The examples run as they stand, in an empty folder, and learn what they say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cato

EXAMPLES = Path(__file__).parents[1] / "examples"


def run_example(name: str, folder: Path) -> float:
    """Run a script in `folder`; returns the error that it prints."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / name],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    (error,) = re.findall(r"relative L2 error on \d+ test samples: ([\d.]+)", done.stdout)
    return float(error)


def test_train_and_predict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = run_example("train_and_predict.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    figures = cato.evaluate("runs/example")
    assert error == pytest.approx(figures["relative_l2"], abs=1e-4)
    assert error < 0.9 * figures["mean_predictor"]  # better than always answering the mean
    assert (tmp_path / "darcy.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_own_arrays(tmp_path: Path) -> None:
    error = run_example("user_arrays.py", tmp_path)
    assert error < 0.2  # answering zero has error 1
    with np.load(tmp_path / "predictions.npz", allow_pickle=False) as saved:
        difference = (saved["outputs"] - saved["targets"]).reshape(16, -1)
        truth = saved["targets"].reshape(16, -1)
        assert saved["coords"].shape == (17, 13, 2)
    errors = np.linalg.norm(difference, axis=1) / np.linalg.norm(truth, axis=1)
    assert error == pytest.approx(errors.mean(), abs=1e-4)
    assert (tmp_path / "poisson.safetensors").stat().st_size > 0
