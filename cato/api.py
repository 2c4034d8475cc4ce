"""The Python interface: train, load, evaluate, plot."""

import os
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from cato.config import from_dict
from cato.data.dataset import Dataset, Splits
from cato.data.training_range import load_range
from cato.errors import InputError
from cato.inference.evaluate import evaluate as evaluate_on
from cato.inference.evaluate import evaluate_run
from cato.models.registry import model_class
from cato.runs.folder import Run, claimed, open_run, require_new
from cato.runs.load import load_surrogate
from cato.runs.settings import GROUPS, build_candidates
from cato.surrogate import Surrogate
from cato.training.train import resume as resume_run
from cato.training.train import train as train_run
from cato.user_data.in_memory import write_data
from cato.viz.figures import sample_figure

if TYPE_CHECKING:
    import xarray

PLOT_SAMPLES = 16
SETTINGS = {f"{group}_settings": group for group in GROUPS}
"""Keyword arguments of `train` that change the recipe, and their groups of settings."""


def train(
    data: "str | Path | Dataset | Splits | Mapping[str, Any] | xarray.Dataset",
    scale: str = "small",
    *,
    out: str | Path,
    model: str | None = None,
    minutes: float | None = None,
    start: str | Path | None = None,
    **settings: Any,
) -> Run:
    """Train a model into a new run folder, generating the data of a benchmark if needed.

    Args:
        data: A benchmark such as "darcy"; a file or folder of your data; or data in memory, which
            are kept in the run folder: a `Dataset` or `Splits`, arrays by name such as
            {"inputs": k, "targets": p}, or an `xarray.Dataset`. Names of fields other than the
            documented ones are in `data_settings={"coords": "x,y", "inputs": "k", "targets": "p"}`.
        scale: "paper", "small" or "smoke".
        out: The run folder.
        model: Name of the model; CATO by default. "auto" gives three models a short trial and
            trains the best.
        minutes: Train for this time instead of the recipe's epochs.
        start: Start from the weights of this run folder or pretrained model, such as "darcy".
        settings: Changes to the recipe by group: `model_settings={"width": 32}`,
            `train_settings={"epochs": 5}`, `loss_settings={...}`, `data_settings={...}`.
    """
    for name, changes in settings.items():
        if name not in SETTINGS or not isinstance(changes, dict):
            raise InputError(
                f"cato.train does not take {name}={changes!r}; settings are dictionaries such as "
                f"train_settings={{'epochs': 5}}, for model, data, loss and train"
            )
    groups = {group: settings.get(name, {}) for name, group in SETTINGS.items()}
    if minutes is not None:
        groups["train"] = groups["train"] | {"minutes": minutes}
    if start is not None:
        groups["train"] = groups["train"] | {"start_from": str(start)}
    out = Path(out)
    if isinstance(data, str | Path):
        config, *rivals = build_candidates(data, scale, model, groups, where="cato.train")
        return train_run(config, out, rivals)
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise InputError("several processes cannot share arrays; save them and give the file")
    require_new(out)
    with claimed(out):
        file, needed = write_data(out, data)
    groups["data"] = needed | groups["data"]
    try:
        config, *rivals = build_candidates(file, scale, model, groups, where="cato.train")
        return train_run(config, out, rivals)
    except BaseException:
        if not (out / "run.json").exists():  # no run that could be resumed with them
            file.unlink()
            with suppress(OSError):  # others wrote into the folder
                out.rmdir()
        raise


def fit(
    inputs: np.ndarray | None,
    targets: np.ndarray,
    coords: np.ndarray | None = None,
    *,
    out: str | Path | None = None,
    minutes: float | None = None,
    **options: Any,
) -> Run:
    """Train on arrays: `train({"inputs": inputs, "targets": targets, "coords": coords}, ...)`.

    Args:
        inputs: (samples, *mesh) or (samples, *mesh, channels); None if the mesh is the only input.
        targets: The same; in time (samples, frames, *mesh, channels).
        coords: (*mesh, D), or (samples, *mesh, D). Without them the mesh is taken for a uniform
            grid from 0 to 1.
        out: The run folder; a new one, runs/fit or runs/fit-2, by default.
        minutes: Train for this time.
        options: As for `train`.
    """
    if out is None:
        names = (Path("runs") / (f"fit-{n}" if n > 1 else "fit") for n in count(1))
        out = next(path for path in names if not path.exists())
    arrays = {"inputs": inputs, "targets": targets, "coords": coords}
    given = {name: array for name, array in arrays.items() if array is not None}
    return train(given, out=out, minutes=minutes, **options)


def resume(
    folder: str | Path, *, minutes: float | None = None, out: str | Path | None = None
) -> Run:
    """Resume a run that was stopped or killed, or extend one with schedule wsd to more minutes.

    With `out` the extended run is a copy in that folder.
    """
    longer = {} if minutes is None else {"minutes": minutes}
    return resume_run(Path(folder), longer, None if out is None else Path(out))


def load(run: str | Path) -> Surrogate:
    """The trained surrogate of a run folder, or a pretrained one: load("darcy").

    Its `predict` warns (`cato.OutsideTrainingRange`) about inputs unlike the training's, and its
    `verdicts` say which and why.
    """
    opened = open_run(run)
    surrogate = load_surrogate(opened)
    surrogate.training_range = load_range(opened.source, opened.problem, opened.id)
    return surrogate


def evaluate(run: str | Path, resolution: int | None = None) -> dict[str, Any]:
    """Errors of a run or pretrained model on the test split; also written to its folder."""
    return evaluate_run(open_run(run), "test", resolution).figures


def model_config(name: str, **settings: Any) -> Any:
    """Validated settings of a model for `build_model`."""
    return from_dict(model_class(name).config_class, settings, f"model {name}")


def plot(model: Surrogate, data: Dataset, index: int = 0) -> Figure:
    """A figure of one sample: input, truth, prediction, error and gradients.

    Its title says so if the model is no better than the mean of the data, on the first samples.
    """
    some = data.subset(slice(PLOT_SAMPLES))
    mean = None if data.is_padded else data.mean_target()
    remark = evaluate_on(model, some, mean).remark
    return sample_figure(model, data, index, f"{data.problem.name}, sample {index}{remark}")
