"""The examples run as they stand, in an empty folder, and learn what they say."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import cato
from cato.user_data.inspect import num_folded_cells
from cato.user_data.naming import Naming
from cato.user_data.read import open_user_data

EXAMPLES = Path(__file__).parents[1] / "examples"


def run_script(name: str, folder: Path, *options: str) -> str:
    """Run a script in `folder`; returns what it prints."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_example(name: str, folder: Path) -> float:
    """Run a script in `folder`; returns the error that it prints."""
    printed = run_script(name, folder)
    (error,) = re.findall(r"relative L2 error on \d+ test samples: ([\d.]+)", printed)
    return float(error)


@pytest.mark.slow
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


def orders(errors: list[float]) -> np.ndarray:
    """Orders of convergence, from the errors at resolutions that double."""
    return np.log2(np.array(errors[:-1]) / errors[1:])


def bent_square(num_cells: int) -> np.ndarray:
    """A mesh of the unit square whose nodes inside are moved."""
    line = np.linspace(0, 1, num_cells + 1)
    s, t = np.meshgrid(line, line, indexing="ij")
    bulge = 0.08 * np.sin(np.pi * s) * np.sin(np.pi * t)
    return np.stack((s + bulge, t - 2 * bulge * np.cos(np.pi * s)), axis=-1)


def test_the_heat_equation_is_solved_to_second_order() -> None:
    """exp(−2π²t) sin πx cos πy: zero on the sides that are held, insulated on the others."""
    script = runpy.run_path(str(EXAMPLES / "heat_equation.py"))
    times = script["FRAME_TIME"] * np.arange(1, script["NUM_FRAMES"] + 1)

    def solved(num_cells: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
        coords = bent_square(num_cells)
        initial = np.sin(np.pi * coords[..., 0]) * np.cos(np.pi * coords[..., 1])
        is_held = np.zeros(initial.shape, dtype=bool)
        is_held[[0, -1]] = True
        exact = np.exp(-2 * np.pi**2 * times)[:, None, None] * initial
        return script["solve"](coords, initial, is_held, steps), exact

    errors = [np.abs(np.subtract(*solved(n, 8))).max() for n in (8, 16, 32)]
    assert errors[-1] < 5e-3
    assert (orders(errors) > 1.8).all()
    fine = solved(8, 64)[0]
    assert (orders([np.abs(solved(8, k)[0] - fine).max() for k in (1, 2, 4)]) > 1.8).all()


def test_poissons_equation_is_solved_to_second_order() -> None:
    """u = sin πx sin πy sin πz with k = 1 + x + yz, and the f that belongs to them."""
    solve = runpy.run_path(str(EXAMPLES / "poisson_3d.py"))["solve"]
    errors = []
    for num_nodes in (9, 17, 33):
        nodes = np.stack(np.meshgrid(*3 * (np.linspace(0, 1, num_nodes),), indexing="ij"))
        sine, cosine = np.sin(np.pi * nodes), np.cos(np.pi * nodes)
        u = sine.prod(0)
        k = 1 + nodes[0] + nodes[1] * nodes[2]
        gradient_k = (np.ones_like(u), nodes[2], nodes[1])
        others = (sine[[1, 2]], sine[[0, 2]], sine[[0, 1]])
        slopes = (np.pi * c * rest.prod(0) for c, rest in zip(cosine, others, strict=True))
        flux = sum(a * b for a, b in zip(gradient_k, slopes, strict=True))
        errors.append(np.abs(solve(k, 3 * np.pi**2 * k * u - flux) - u).max())
    assert errors[-1] < 5e-3
    assert (orders(errors) > 1.9).all()


def test_the_written_plates_are_a_rollout_on_meshes_of_their_own(tmp_path: Path) -> None:
    assert run_script("heat_equation.py", tmp_path, "--samples", "10").startswith("10 samples")
    with h5py.File(tmp_path / "plates.h5") as file:
        assert file["coords"].shape == (10, 24, 24, 2)
        assert not any(map(num_folded_cells, file["coords"][:]))
        frames = np.concatenate((file["inputs"], file["targets"]), axis=1)[..., 0]
    np.testing.assert_allclose(frames[:, :, 0], 1)
    np.testing.assert_allclose(frames[:, :, -1], 0, atol=1e-12)
    # What is inside a plate stays between its extremes: the maximum principle.
    assert (np.diff(frames.max((-2, -1)), axis=1) < 1e-3).all()
    problem = open_user_data(tmp_path / "plates.h5", Naming())[1].problem
    assert (problem.geometry, problem.time, problem.num_steps) == ("mesh", "rollout", 10)


def test_the_written_cubes_are_a_grid(tmp_path: Path) -> None:
    run_script("poisson_3d.py", tmp_path, "--samples", "10")
    splits = open_user_data(tmp_path / "poisson.h5", Naming())[1]
    assert (splits.problem.geometry, splits.problem.shape) == ("grid", (16, 16, 16))
    assert splits.problem.inputs == ("conductivity", "source")
    assert (splits.train.inputs[..., 0] > 0).all()
