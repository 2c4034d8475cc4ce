"""The choice of a model by trials: every candidate trains for a short time, the best is trained.

A trial is a whole training with a tenth of the length, schedule included, after one that is shorter
still. Models differ in how fast they start and in how far they get, so the candidates are compared
by the error that they can be expected to reach if they keep learning as they did between the two,
see `extrapolated`. Nothing of the trials is kept but the figures: the best candidate starts afresh,
so that its run can be repeated without them. They are part of a time budget; a number of steps or
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

SHARE, EARLY_SHARE = 0.1, 0.03
"""Lengths of the two trials of a candidate in units of the training's."""
MIN_STEPS = 20
"""Minimum steps of the longer trial, if the training has that many."""
MAX_EXPONENT = 1.0
"""Errors do not fall faster than steps grow for long."""


@dataclass(frozen=True)
class Trial:
    """Result of a candidate; recorded in run.json. Errors are None if they are not finite."""

    model: str
    validation: float | None  # Relative error after the longer trial.
    steps: int
    seconds: float  # Of both trials.
    early: float | None = None  # Relative error after the shorter trial; None also without one.
    early_steps: int = 0
    expected: float | None = None  # What the candidates are compared by.


def choose(
    configs: Sequence[RunConfig], splits: Splits, fabric: Fabric
) -> tuple[RunConfig, list[Trial]]:
    """Try every candidate.

    Returns:
        Settings of the best, with what the trials leave of a time budget, and all trials.
    """
    names = ", ".join(config.model_name for config in configs)
    shares = f"{EARLY_SHARE:.0%} and {SHARE:.0%}"
    note(f"trials of each candidate, {shares} of the training: {names}")
    trials = [run_trials(config, splits, fabric) for config in configs]
    errors = [math.inf if t.expected is None else t.expected for t in trials]
    if not math.isfinite(min(errors)):
        raise Diverged(f"{names} all diverged in their trials; try a lower --train.learning-rate")
    best = configs[fabric.broadcast(errors.index(min(errors)))]
    note(f"training {best.model_name}, the best on validation")
    if best.train.minutes is None:
        return best, trials
    rest = round(share_left(len(configs)) * best.train.minutes, 6)
    return replace(best, train=replace(best.train, minutes=rest)), trials


def share_left(num_candidates: int) -> float:
    """What trials leave of a time budget, in units of it."""
    return 1 - (SHARE + EARLY_SHARE) * num_candidates


def run_trials(config: RunConfig, splits: Splits, fabric: Fabric) -> Trial:
    """Train a candidate for a short time, and for a longer one; writes nothing."""
    name = config.model_name
    config, splits = without_folds(config, splits)
    early, late = (shortened(config, len(splits.train), s) for s in (EARLY_SHARE, SHARE))
    first_error, first_steps, seconds = None, 0, 0.0
    if early != late:
        first_error, first_steps, seconds = _run_trial(early, splits, fabric)
    error, num_steps, more_seconds = _run_trial(late, splits, fabric)
    seconds = round(seconds + more_seconds, 3)
    if not math.isfinite(error):
        note(f"{name}: diverged in its trial")
        return Trial(name, None, num_steps, seconds)
    note(f"{name}: validation error {error:.2%} after {num_steps} steps in {seconds:.0f} s")
    if first_error is None or not math.isfinite(first_error):
        return Trial(name, error, num_steps, seconds, expected=error)
    expected = extrapolated(first_error, first_steps, error, num_steps)
    return Trial(name, error, num_steps, seconds, first_error, first_steps, expected)


def extrapolated(early: float, early_steps: int, late: float, late_steps: int) -> float:
    """The error after as many times more steps again, if it falls like a power law of the steps.

    A whole training is longer still. But the decay slows down, so that no more is expected.
    """
    if early <= late or early_steps >= late_steps:
        return late
    ratio = late_steps / early_steps
    exponent = min(MAX_EXPONENT, math.log(early / late) / math.log(ratio)) if late else MAX_EXPONENT
    return late * ratio**-exponent


def _run_trial(config: RunConfig, splits: Splits, fabric: Fabric) -> tuple[float, int, float]:
    """Validation error, infinite if the training diverged, steps and seconds."""
    training = new_training(config, splits, fabric)
    began = time.monotonic()
    try:
        training.plan()
        with progress_bar(f"trial of {config.model_name}", training.state.num_steps) as bar:
            train_quietly(training, bar)
        with training.average.in_place():
            found = training.validate()
            assert found is not None, "trials compare models on validation samples"
            error = found
    except Diverged:
        error = math.inf
    if not math.isfinite(error):
        error = math.inf
    return error, training.state.step, time.monotonic() - began


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


def shortened(config: RunConfig, num_samples: int, share: float) -> RunConfig:
    """The settings of a trial with this share of the training of these settings."""
    train, fewest = config.train, math.ceil(MIN_STEPS * share / SHARE)
    if train.minutes is not None:
        floor = max(fewest, math.ceil(share * (train.min_steps or 0)))
        shorter = replace(train, minutes=share * train.minutes, min_steps=floor)
    else:
        num_steps = train.steps or train.epochs * math.ceil(num_samples / train.batch_size)
        least = min(num_steps, max(fewest, math.ceil(share * num_steps)))
        shorter = replace(train, steps=least)
    return replace(config, train=shorter)
