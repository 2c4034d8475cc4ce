"""Small runs to attack: a few steps on a small file of user data."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from safetensors.torch import load_file

from cato.runs.folder import open_run

STEPS = 12
TIMES = ("seconds", "samples_per_second")  # Figures of the log that differ between trainings.
SETTINGS = [
    *("--scale", "smoke", "--model.width", "8", "--model.depth", "1", "--train.accelerator", "cpu"),
    *("--train.batch-size", "24", "--train.schedule", "wsd", "--train.checkpoint-minutes", "1e-9"),
]
"""Four steps per epoch, and a checkpoint after every step."""


def write_user_data(folder: Path) -> None:
    """120 samples on a 4 × 5 grid as user.npz and user.h5; enough validation samples for a band."""
    rng = np.random.default_rng(0)
    coords = np.stack(np.meshgrid(np.arange(4.0), np.arange(5.0), indexing="ij"), axis=-1)
    inputs = rng.random((120, 4, 5, 1))
    targets = 1 + inputs + 0.1 * rng.random(inputs.shape)
    arrays = {"coords": coords, "inputs": inputs, "targets": targets}
    np.savez(folder / "user.npz", **arrays)
    with h5py.File(folder / "user.h5", "w") as file:  # for streaming
        file.update(arrays)


def train_words(data: Path, out: Path, seed: int = 0, steps: int = STEPS, *more: str) -> list[Any]:
    """Arguments of `cato train` for a small run."""
    length = ["--train.steps", str(steps), "--train.seed", str(seed)]
    return ["train", data, "--out", out, *SETTINGS, *length, *more]


Ending = tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], list[dict[str, Any]]]


def ending_of(folder: Path) -> Ending:
    """What a finished training leaves: last and best tensors, and the log without times."""
    run = open_run(folder)
    tensors = []
    for kind in ("last", "best"):
        path = sorted(run.checkpoints.folder.glob(f"{kind}-*.safetensors"))[-1]
        tensors.append(load_file(path))
    log = [{k: v for k, v in line.items() if k not in TIMES} for line in run.log()]
    return tensors[0], tensors[1], log


def is_same(one: Ending, two: Ending) -> bool:
    """Whether two trainings ended alike, bit for bit."""
    if one[2] != two[2]:
        return False
    return all(
        a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
        for a, b in ((one[0], two[0]), (one[1], two[1]))
    )


def leftovers_in(folder: Path) -> list[str]:
    """Files that no finished command should leave behind."""
    found = [p for p in folder.rglob(".*") if p.name.endswith((".tmp", ".lock", ".new"))]
    found += [p for p in folder.rglob("*.safetensors") if _is_orphan(p)]
    return sorted(str(path.relative_to(folder)) for path in found)


def _is_orphan(weights: Path) -> bool:
    return weights.parent.name == "checkpoints" and not weights.with_suffix(".json").exists()


@contextlib.contextmanager
def workshop() -> Iterator[Path]:
    """A temporary folder with user.npz and user.h5, as the working folder."""
    before, memory = Path.cwd(), Path("/dev/shm")  # where no disk has to be waited for
    with tempfile.TemporaryDirectory(dir=memory if memory.exists() else None) as folder:
        write_user_data(Path(folder))
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)
