"""The Python interface: train, load, evaluate, plot."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from cato.config import from_dict
from cato.data.dataset import Dataset
from cato.data.training_range import load_range
from cato.errors import InputError
from cato.inference.evaluate import evaluate as evaluate_on
from cato.inference.evaluate import evaluate_run
from cato.models.registry import model_class
from cato.runs.folder import Run, open_run
from cato.runs.load import load_surrogate
from cato.runs.settings import GROUPS, build_candidates
from cato.surrogate import Surrogate
from cato.training.train import resume as resume_run
from cato.training.train import train as train_run
from cato.viz.figures import sample_figure

PLOT_SAMPLES = 16
SETTINGS = {f"{group}_settings": group for group in GROUPS}
"""Keyword arguments of `train` that change the recipe, and their groups of settings."""


def train(
    benchmark: str | Path,
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
        benchmark: A benchmark such as "darcy"; or a file or folder of your data, with the names of
            its fields in `data_settings={"coords": "x,y", "inputs": "k", "targets": "p"}`.
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
    config, *rivals = build_candidates(benchmark, scale, model, groups, where="cato.train")
    return train_run(config, Path(out), rivals)


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
    mean = data.targets.mean(0) if data.mask is None else None
    remark = evaluate_on(model, some, mean).remark
    return sample_figure(model, data, index, f"{data.problem.name}, sample {index}{remark}")
