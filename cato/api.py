"""What a notebook needs: train, load, evaluate, plot."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from cato.config import from_dict
from cato.data.benchmarks import get_benchmark
from cato.data.dataset import Dataset
from cato.errors import InputError
from cato.models.registry import default_model, model_entry
from cato.surrogate import Surrogate
from cato.training.config import recipe, run_config
from cato.training.evaluate import evaluate_run
from cato.training.run import Run, open_run
from cato.training.train import resume as resume_run
from cato.training.train import train as train_run
from cato.training.weights import load_surrogate
from cato.viz.figures import sample_figure


def train(
    benchmark: str,
    scale: str = "small",
    *,
    out: str | Path,
    model: str | None = None,
    minutes: float | None = None,
    **settings: Any,
) -> Run:
    """Train a model on a benchmark into a new run folder, generating the data if needed.

    Args:
        benchmark: Such as "darcy".
        scale: "paper", "small" or "smoke".
        out: The run folder.
        model: Name of the model; CATO by default.
        minutes: Fit the schedule to this time instead of the recipe's epochs.
        settings: Changes to the recipe by group: `model_settings={"width": 32}`,
            `train_settings={"epochs": 5}`, `loss_settings={...}`, `data_settings={...}`.
    """
    problem = get_benchmark(benchmark).problem(scale)
    values = recipe(benchmark, scale, model or default_model(problem)).to_dict()
    for name, changes in settings.items():
        group = name.removesuffix("_settings")
        if name == group or group not in values or not isinstance(changes, dict):
            raise InputError(
                f"cato.train does not take {name}={changes!r}; settings are dictionaries such as "
                f"train_settings={{'epochs': 5}}, for model, data, loss and train"
            )
        values[group] = values[group] | changes
    config = run_config(values, "cato.train")
    if minutes is not None:
        config = replace(config, train=replace(config.train, minutes=minutes))
    return train_run(config, Path(out))


def resume(folder: str | Path) -> Run:
    """Go on with a run that was stopped or killed."""
    return resume_run(Path(folder))


def load(folder: str | Path) -> Surrogate:
    """The trained surrogate of a run folder."""
    return load_surrogate(open_run(Path(folder)))


def evaluate(folder: str | Path, resolution: int | None = None) -> dict[str, Any]:
    """The figures of a run on its test split, also written to its folder."""
    return evaluate_run(open_run(Path(folder)), "test", resolution).figures


def model_config(name: str, **settings: Any) -> Any:
    """Settings of a model for `build_model`, checked."""
    return from_dict(model_entry(name).config, settings, f"model {name}")


def plot(model: Surrogate, data: Dataset, index: int = 0) -> Figure:
    """A picture of one sample: input, truth, prediction, error and gradients."""
    return sample_figure(model, data, index, f"{data.problem.name}, sample {index}")
