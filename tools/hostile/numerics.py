"""Random units, offsets and spoilt values, from a file to predictions: never a wrong number.

Each trial writes a small dataset, spoils it at random, trains a tiny model for a few steps and
predicts for the same file. Either the reported errors are those of the written predictions,
computed here in extended precision, or the commands end with one line and exit code 2. With units
alone the errors must also be those of the plain data.
"""

import io
import json
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from cato.cli import main

S, MESH = 12, (4, 5)
SPOILS = ("units", "offsets", "not finite", "one large value", "far inputs")
SOUND = ("units", "offsets")  # Nothing is wrong with these data, so that no error is right.
TINY = [
    *("--scale", "smoke", "--model.width", "8", "--model.depth", "1"),
    *("--train.steps", "2", "--train.accelerator", "cpu", "--json"),
]


class Refused(Exception):
    """A command ended with one line and exit code 2."""


class Wrong(Exception):
    """A command succeeded with a wrong answer, or failed without one line."""


def campaign(seconds: float, seed: int, most: int | None = None) -> dict[str, Any]:
    """Trials for some seconds, or `most`, counted by what became of them."""
    rng, until = np.random.default_rng(seed), time.monotonic() + seconds
    counts = {"tried": 0, "correct": 0, "one_line_errors": 0, "wrong": 0, "tracebacks": 0}
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        plain = _errors(Path(folder) / "plain", _arrays(), _arrays())
        while time.monotonic() < until and counts["tried"] != most:
            spoil = SPOILS[counts["tried"] % len(SPOILS)]
            counts["tried"] += 1
            state = rng.bit_generator.state["state"]["state"]
            try:
                _trial(Path(folder) / str(counts["tried"]), spoil, rng, plain)
                counts["correct"] += 1
            except Refused as error:
                counts["one_line_errors"] += spoil not in SOUND
                counts["wrong"] += spoil in SOUND
                failures += [f"{spoil}, state {state}: {error}"] if spoil in SOUND else []
            except Wrong as error:
                counts["wrong"] += 1
                failures.append(f"{spoil}, state {state}: {error}")
            except Exception as error:
                counts["tracebacks"] += 1
                failures.append(f"{spoil}, state {state}: {type(error).__name__}: {error}")
    return counts | {"failures": failures}


def _trial(folder: Path, spoil: str, rng: np.random.Generator, plain: np.ndarray) -> None:
    arrays = _arrays()
    for name in arrays:
        arrays[name] *= 10.0 ** rng.uniform(-30, 30)
    inputs = dict(arrays)
    if spoil == "units":
        found = _errors(folder, arrays, inputs)
        if not np.allclose(found, plain, rtol=1e-2):
            raise Wrong(f"errors {found} in other units than {plain}")
        return
    if spoil == "offsets":
        for name in arrays:
            size = np.abs(arrays[name]).max()
            arrays[name] = arrays[name] + size * rng.choice([-1, 1]) * 10 ** rng.uniform(0, 9)
        inputs = arrays
    elif spoil == "far inputs":
        inputs = arrays | {"inputs": arrays["inputs"] * 10 ** rng.uniform(1, 60)}
    else:
        name = str(rng.choice(list(arrays)))
        bad = [np.inf, -np.inf] if spoil == "not finite" else [10 ** rng.uniform(20, 300)]
        if spoil == "not finite" and name == "coords":  # NaN in a field says that it has no value
            bad.append(np.nan)
        spoilt = arrays[name].copy()
        spoilt.flat[rng.integers(spoilt.size)] = rng.choice(bad)
        inputs = arrays | {name: spoilt}
        if rng.random() < 0.7:  # otherwise only the file to predict for is spoilt
            arrays = inputs
    _errors(folder, arrays, inputs)
    if spoil == "not finite":
        raise Wrong("values that are not finite were accepted")


def _arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    coords = np.stack(np.meshgrid(*[np.linspace(0, 1, n) for n in MESH], indexing="ij"), -1)
    k = (rng.normal(size=(S, 1, 1, 2)) * coords).sum(-1, keepdims=True)
    return {"coords": coords, "inputs": k, "targets": np.sin(3 * k) + k}


def _errors(
    folder: Path, train: dict[str, np.ndarray], predict: dict[str, np.ndarray]
) -> np.ndarray:
    """Errors of all samples, as written; raises if they are not those of the predictions."""
    folder.mkdir()
    np.savez(folder / "train.npz", **train)
    np.savez(folder / "in.npz", **predict)
    run = folder / "run"
    _command("train", str(folder / "train.npz"), "--out", str(run), *TINY)
    record = json.loads((run / "run.json").read_text(), parse_constant=_not_json)
    figures = _command("predict", str(run), str(folder / "in.npz"), str(folder / "o.npz"), "--json")
    with np.load(folder / "o.npz") as written:
        outputs, errors = written["outputs"], written["errors"]
    if not np.isfinite(outputs).all():
        raise Wrong("predictions that are not finite were written")
    offsets = np.array(record["problem"].get("offsets") or [0.0], np.longdouble)
    true = predict["targets"].astype(np.longdouble)
    difference = np.sqrt(((outputs - true) ** 2).sum((1, 2, 3)))
    expected = difference / np.sqrt(((true - offsets) ** 2).sum((1, 2, 3)))
    if not np.allclose(errors, expected.astype(float), rtol=1e-3):
        raise Wrong(f"errors {errors} are really {expected}")
    if not np.isclose(figures["relative_l2"], float(expected.mean()), rtol=1e-3):
        raise Wrong(f"the mean error {figures['relative_l2']} is really {expected.mean()}")
    evaluated = _command("evaluate", str(run), "--json")
    if not 0 < evaluated["relative_l2"] < np.inf:
        raise Wrong(f"the test error is {evaluated['relative_l2']}")
    return errors


def _command(*arguments: str) -> dict[str, Any]:
    """What a command prints as JSON."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(list(arguments))
        except SystemExit as end:
            if end.code == 2:
                raise Refused(err.getvalue()) from None
            raise Wrong(f"{arguments[0]} ended with {end.code}") from None
    return json.loads(out.getvalue(), parse_constant=_not_json)


def _not_json(word: str) -> None:
    raise Wrong(f"{word} is not JSON")


if __name__ == "__main__":
    print(json.dumps(campaign(60, 0), indent=1))
