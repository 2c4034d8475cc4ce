"""The choice of a model by trials: every candidate trains for a short time, the best goes on.

A trial is a whole training with a tenth of the length, schedule included, judged by the validation
error at its end. Nothing of it is kept but the figures: the best candidate starts afresh, so that
its run can be repeated without the trials. They are part of a time budget; a number of steps or
epochs is that of the training alone.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lightning_fabric import Fabric

from cato.data.dataset import Splits
from cato.errors import Diverged
from cato.models.registry import model_class
from cato.progress import Bar, note, progress_bar
from cato.runs.folder import Run
from cato.runs.settings import RunConfig
from cato.training.cross_validation import without_folds
from cato.training.loop import Training, new_model

SHARE = 0.1
"""Length of a trial in units of the training's."""
MIN_STEPS = 20
"""Minimum steps of a trial, if the training has that many."""


@dataclass(frozen=True)
class Trial:
    """Result of a candidate; recorded in run.json."""

    model: str
    validation: float | None  # Relative error after the trial; None if it is not finite.
    steps: int
    seconds: float


def choose(
    configs: Sequence[RunConfig], splits: Splits, fabric: Fabric
) -> tuple[RunConfig, list[Trial]]:
    """Try every candidate.

    Returns:
        Settings of the best, with what the trials leave of a time budget, and all trials.
    """
    names = ", ".join(config.model_name for config in configs)
    note(f"a trial of each candidate, {SHARE:.0%} of the training: {names}")
    trials = [run_trial(config, splits, fabric) for config in configs]
    errors = [math.inf if t.validation is None else t.validation for t in trials]
    if not math.isfinite(min(errors)):
        raise Diverged(f"{names} all diverged in their trials; try a lower --train.learning-rate")
    best = configs[fabric.broadcast(errors.index(min(errors)))]
    note(f"training {best.model_name}, the best on validation")
    if best.train.minutes is None:
        return best, trials
    rest = round((1 - SHARE * len(configs)) * best.train.minutes, 6)
    return replace(best, train=replace(best.train, minutes=rest)), trials


def run_trial(config: RunConfig, splits: Splits, fabric: Fabric) -> Trial:
    """Train a candidate for a short time; writes nothing."""
    name = config.model_name
    config, splits = without_folds(config, splits)
    training = new_training(shortened(config, len(splits.train)), splits, fabric)
    began = time.monotonic()
    try:
        training.plan()
        began = time.monotonic()
        with progress_bar(f"trial of {name}", training.state.num_steps) as bar:
            train_quietly(training, bar)
        with training.average.in_place():
            found = training.validate()
            assert found is not None, "trials compare models on validation samples"
            error = found
    except Diverged:
        error = math.inf
    seconds, num_steps = round(time.monotonic() - began, 3), training.state.step
    if not math.isfinite(error):
        note(f"{name}: diverged in its trial")
        return Trial(name, None, num_steps, seconds)
    note(f"{name}: validation error {error:.2%} after {num_steps} steps in {seconds:.0f} s")
    return Trial(name, error, num_steps, seconds)


def new_training(config: RunConfig, splits: Splits, fabric: Fabric) -> Training:
    """A training that saves nothing, so that it has no folder."""
    model = model_class(config.model_name)
    problem = config.data.condition(splits.train, model, quiet=True)
    conditioned = splits.conditioned(problem.conditioning)
    run = Run(Path(), config, problem, {})
    return Training(run, conditioned, fabric, new_model(config, problem))


def train_quietly(training: Training, bar: Bar, done: int = 0) -> None:
    """Train to the end without validating; `done` steps of the bar were others'."""
    while not training.is_finished:
        training.step()
        bar(done + training.state.step, f"loss {training.mean_loss:.4f}")


def shortened(config: RunConfig, num_samples: int) -> RunConfig:
    """The settings of a trial before the training of these settings."""
    train = config.train
    if train.minutes is not None:
        floor = max(MIN_STEPS, math.ceil(SHARE * (train.min_steps or 0)))
        shorter = replace(train, minutes=SHARE * train.minutes, min_steps=floor)
    else:
        num_steps = train.steps or train.epochs * math.ceil(num_samples / train.batch_size)
        least = min(num_steps, max(MIN_STEPS, math.ceil(SHARE * num_steps)))
        shorter = replace(train, steps=least)
    return replace(config, train=shorter)
