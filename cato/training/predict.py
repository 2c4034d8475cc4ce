"""Predicting for a file of inputs."""

import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cato.errors import InputError
from cato.files import atomic_write
from cato.physics import relative_l2
from cato.training.run import Run
from cato.training.weights import load_surrogate


def predict_file(run: Run, source: Path, target: Path) -> dict[str, Any]:
    """Solve for the arrays of an .npz file and write the solutions to a new one.

    Args:
        run: Whose best weights to use.
        source: Holds `inputs`, maybe `coords` and `targets`; see `Surrogate.predict`.
        target: Gets `outputs`, the coordinates where given, and `errors` where targets are.
    """
    if target.exists():
        raise InputError(f"{target} exists and is not overwritten; choose another name")
    surrogate = load_surrogate(run)
    arrays = read_arrays(source)
    if "inputs" not in arrays:
        raise InputError(
            f"{source} has no array 'inputs', only {', '.join(sorted(arrays)) or 'nothing'}"
        )
    try:
        surrogate.predict(arrays["inputs"], arrays.get("coords"))  # checks, compiles and allocates
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    began = time.perf_counter()
    outputs = surrogate.predict(arrays["inputs"], arrays.get("coords"))
    seconds = (time.perf_counter() - began) / len(outputs)
    written = {"outputs": outputs} | {k: v for k, v in arrays.items() if k == "coords"}
    figures: dict[str, Any] = {"num_samples": len(outputs), "seconds_per_sample": seconds}
    if "targets" in arrays:
        truth = arrays["targets"].astype(np.float32)
        if truth.shape != outputs.shape:
            raise InputError(f"{source}: targets are {truth.shape}, the outputs {outputs.shape}")
        errors = relative_l2(*(_flat(surrogate.problem.shape, a) for a in (outputs, truth)))
        written["errors"] = errors.numpy()
        figures["relative_l2"] = errors.mean().item()
    with atomic_write(target) as temporary, temporary.open("wb") as handle:
        np.savez_compressed(handle, allow_pickle=False, **written)
    return {"path": str(target), **figures}


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            if isinstance(archive, np.ndarray):
                raise InputError(f"{path} is a single array; an .npz with named arrays is needed")
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        if isinstance(error, InputError):
            raise
        reason = "it does not exist" if isinstance(error, FileNotFoundError) else error
        raise InputError(f"{path} cannot be read as .npz: {reason}") from None


def _flat(shape: tuple[int, ...], array: np.ndarray) -> torch.Tensor:
    """Samples, frames if any, nodes, channels."""
    return torch.from_numpy(array).flatten(-1 - len(shape), -2)
