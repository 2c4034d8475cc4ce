"""Advice on a training: what it costs here, which error to expect, and what would lower it most.

`plan` times real training steps. `advise` trains the model briefly on fractions of the samples and
of the steps, fits a learning curve to the errors on one validation set, and extrapolates it to the
planned training, to twice the samples and to twice the steps. One more training has twice the
width. Nothing of these trainings is kept.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric

from cato.data.dataset import Dataset, Splits
from cato.errors import Diverged, InputError
from cato.inference.evaluate import mean_error
from cato.inference.improve import ADVICE
from cato.memory import peak_memory
from cato.models.registry import candidates, default_model, model_class
from cato.progress import Bar, note, progress_bar
from cato.runs.folder import open_run
from cato.runs.load import load_run_splits
from cato.runs.settings import MANY_NODES, NODES_PER_BATCH, STEPS_PER_EPOCH, RunConfig, run_config
from cato.training.cross_validation import (
    SHARE,
    is_cross_validated,
    own_training,
    without_folds,
)
from cato.training.devices import make_fabric
from cato.training.learning_curve import (
    CONFIDENCE,
    Interval,
    LearningCurve,
    Trained,
    fit_learning_curve,
)
from cato.training.loop import Training, steps_within
from cato.training.trials import new_training, train_quietly

MINUTES = 3.0
"""Default time of the advice."""
SHARES = ((1.0, 0.25), (0.25, 0.25), (1.0, 0.5), (0.25, 1.0), (0.5, 1.0), (1.0, 1.0))
"""Of the training samples, and of the steps that the time allows."""
WIDER, WIDER_COST = 2, 3.0
"""Factor of the width of the larger model, and a guess of that of a step's time."""
UNITS = sum(steps for _, steps in SHARES) + WIDER_COST * SHARES[0][1]
"""Time of all trainings in units of the longest."""
TIMED_SECONDS = 0.5
RESERVE = 0.1  # Share of the time that is kept, as steps on a busy machine vary.
MIN_STEPS = 20  # Of the shortest training.
MIN_SAMPLES = 16  # Training samples of which a quarter tells something.
VALIDATED = 64  # Samples at most that an error is measured on.
WIDEST = 2.0
"""A prediction whose interval is wider than this ratio is called unknown."""
SURE = 0.8
"""Probability from which on one way is called better than another."""
FEW_SAMPLES = 100
KINDS = {"grid": "uniform grids", "mesh": "structured meshes", "cloud": "clouds of points"}


@dataclass(frozen=True)
class Plan:
    """A training as it would be on this machine."""

    model: str
    why: list[str]
    samples: int
    steps: int
    minutes: float
    seconds_per_step: float
    """Measured, with the share of the validations."""
    memory: int
    """Peak of this process in bytes after reading, steps and validation."""


@dataclass(frozen=True)
class Change:
    """Something that may lower the error, and the number that says so."""

    what: str
    error: Interval | None  # Of a training with the change; None if it cannot be told.
    evidence: str


@dataclass(frozen=True)
class Advice:
    """What a training will reach, and what would lower its error, the best first."""

    plan: Plan
    trainings: list[Trained]
    expected: Interval | None  # Validation error of the planned training.
    changes: list[Change]
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return asdict(self) | {"confidence": CONFIDENCE}


def plan(config: RunConfig, splits: Splits) -> Plan:
    """Time some steps of a training."""
    training = new_training(config, splits, make_fabric(config.train))
    seconds = training.seconds_per_step(TIMED_SECONDS)
    num_steps = config.train.steps or config.train.epochs * training.steps_per_epoch
    if config.train.minutes is not None:
        num_steps = steps_within(own_training(config), seconds)
    share = SHARE if is_cross_validated(config) else 1.0
    return Plan(
        config.model_name,
        reasons(config, splits.train),
        len(splits.train),
        num_steps,
        num_steps * seconds / 60 / share,
        seconds,
        peak_memory(),
    )


def reasons(config: RunConfig, train: Dataset) -> list[str]:
    """Why the model, and why its settings that follow from the data; clauses."""
    problem, name = train.problem, config.model_name
    rivals = " and ".join(model_class(n).title for n in candidates(problem) if n != name)
    is_default = name == default_model(problem)
    why = [f"the default for {KINDS[problem.geometry]}" if is_default else "as chosen"]
    why.append(f"`--model auto` compares it with {rivals}")
    if config.scale == "small" and problem.num_nodes >= MANY_NODES:
        why.append(f"width {config.model.width}, half the usual, from {MANY_NODES} nodes on")
    if config.scale == "small" and config.train.batch_size < 4:
        why.append(
            f"batches of {config.train.batch_size}: at most {NODES_PER_BATCH} nodes, and "
            f"{STEPS_PER_EPOCH} steps in an epoch"
        )
    if len(train) < FEW_SAMPLES:
        why.append(
            f"{len(train)} training samples are few: `--from` starts from a similar problem's model"
        )
    return why


def advise(
    config: RunConfig, splits: Splits, minutes: float = MINUTES, finished: Trained | None = None
) -> Advice:
    """Train briefly for at most `minutes`, and extrapolate.

    Args:
        config: Settings of the training to advise on.
        splits: Its data.
        minutes: The time, with the timing of steps.
        finished: A whole training with these settings, which is then part of the fit.
    """
    ends = time.monotonic() + 60 * minutes
    config, splits = without_folds(config, splits)
    planned = plan(config, splits)
    if finished is not None:
        planned = replace(planned, steps=finished.steps)
    if planned.samples < MIN_SAMPLES:
        return _unknown(planned, f"{planned.samples} training samples are too few to leave any out")
    seconds = (1 - RESERVE) * (ends - time.monotonic())
    num_steps = int(seconds / UNITS / planned.seconds_per_step)
    least = math.ceil(MIN_STEPS / min(steps for _, steps in SHARES))
    if planned.steps < least:
        return _unknown(planned, f"a training of {planned.steps} steps is too short to shorten")
    if num_steps < least:
        return _unknown(
            planned,
            f"a step takes {1000 * planned.seconds_per_step:.0f} ms, and {minutes:g} minutes allow "
            f"only {max(0, num_steps)} steps; give more with --minutes",
        )
    try:
        sizes = min(num_steps, planned.steps), ends
        rows, wider = short_trainings(config, splits, planned, *sizes)
    except Diverged as error:
        return _unknown(planned, f"a training diverged: {error}")
    if len(rows) < len(SHARES) - 1:
        return _unknown(planned, f"the machine is too busy for {minutes:g} minutes", rows)
    return conclude(planned, rows if finished is None else [*rows, finished], wider)


def advise_run(folder: Path, minutes: float = MINUTES) -> Advice:
    """Advice on a finished run, which is part of the fit; its report shows it."""
    run = open_run(folder)
    if run.pretrained is not None or run.config.train.start_from is not None:
        raise InputError(
            f"{folder} did not start from new weights, which short trainings do; give a run that "
            f"did, or its data"
        )
    last, splits, whole = run.log()[-1], load_run_splits(run), None
    if not splits.num_folds:
        best = min(line["validation"] for line in run.log())
        whole = Trained(len(splits.train), last["step"], best)
    advice = advise(run.config, splits, minutes, whole)
    run.write_figures(run.folder / ADVICE, advice.to_dict())
    return advice


def _unknown(planned: Plan, why: str, rows: Sequence[Trained] = ()) -> Advice:
    return Advice(planned, list(rows), None, [], f"the error cannot be told: {why}")


def short_trainings(
    config: RunConfig, splits: Splits, planned: Plan, num_steps: int, ends: float = math.inf
) -> tuple[list[Trained], tuple[Trained, float] | None]:
    """Train at all `SHARES` that can end in time, then a model of twice the width.

    Returns:
        The trainings, and that of the wider model, which is like the first, with the seconds of its
        step; None if it would take too long, or if there is no such model.
    """
    fabric, rows, done = make_fabric(config.train), list[Trained](), 0
    sizes = [
        (max(1, int(samples * planned.samples)), max(1, int(steps * num_steps)))
        for samples, steps in SHARES
    ]
    with progress_bar("short trainings", UNITS * num_steps) as bar:
        for samples, steps in sizes:
            if time.monotonic() + steps * planned.seconds_per_step > ends:
                note("the machine has become slower; the last trainings are left out")
                return rows, None
            training = _new(config, splits.with_first(samples), fabric, steps)
            rows.append(_trained(training, bar, done))
            done += steps
        wide = _twice_as_wide(config)
        if wide is None:
            return rows, None
        training = _new(wide, splits, fabric, sizes[0][1])
        seconds = training.seconds_per_step(0.0)
        if time.monotonic() + sizes[0][1] * seconds > ends:
            return rows, None
        return rows, (_trained(training, bar, done), seconds)


def _new(config: RunConfig, splits: Splits, fabric: Fabric, steps: int) -> Training:
    train = replace(config.train, steps=steps, minutes=None, min_steps=None)
    return new_training(replace(config, train=train), splits, fabric)


def _trained(training: Training, bar: Bar, done: int) -> Trained:
    """Train to the end and measure the errors."""
    training.plan()
    train_quietly(training, bar, done)
    train = training.train_set
    with training.average.in_place():
        validation = training.validate(VALIDATED)
        assert validation is not None, "see without_folds"
        seen = mean_error(training.surrogate, train.subset(slice(VALIDATED)))
    if not math.isfinite(validation):
        raise Diverged("the validation error is not finite")
    return Trained(len(train), training.state.step, validation, seen)


def _twice_as_wide(config: RunConfig) -> RunConfig | None:
    """None for a model without a width, or whose other settings do not fit twice of it."""
    if not hasattr(config.model, "width"):
        return None
    values = config.to_dict()
    values["model"]["width"] *= WIDER
    return run_config(values, "a wider model")


def conclude(planned: Plan, rows: Sequence[Trained], wider: tuple[Trained, float] | None) -> Advice:
    """Predictions from short trainings, of which the first is the one that `wider` is like."""
    curve = fit_learning_curve(rows)
    size = planned.samples, planned.steps
    expected = curve.error(*size)
    changes = [_more_samples(curve, *size, rows), _more_minutes(curve, planned)]
    if wider is not None:
        changes.append(_larger(curve, planned, rows[0], *wider))
    changes.sort(key=lambda one: one.error.median if one.error else math.inf)
    if expected.width > WIDEST:
        verdict = (
            f"the error cannot be told from these trainings: between {_span(expected)}; give more "
            f"time with --minutes, or just train"
        )
        return Advice(planned, list(rows), None, changes, verdict)
    verdict = f"expected error {_about(expected)}; {_compared(curve, *size)}"
    return Advice(planned, list(rows), expected, changes, verdict)


def _compared(curve: LearningCurve, samples: int, steps: int) -> str:
    """Whether more samples or more minutes help more; a clause."""
    more_samples, more_steps = curve.law(2 * samples, steps), curve.law(samples, 2 * steps)
    probability = float((more_samples < more_steps).mean())
    if probability >= SURE:
        return f"more samples help more than more minutes (probability {probability:.0%})"
    if probability <= 1 - SURE:
        return f"more minutes help more than more samples (probability {1 - probability:.0%})"
    return "whether more samples or more minutes help more cannot be told"


def _more_samples(
    curve: LearningCurve, samples: int, steps: int, rows: Sequence[Trained]
) -> Change:
    error = curve.error(2 * samples, steps)
    largest = max((row for row in rows if row.training is not None), key=lambda row: row.steps)
    gap = (
        f"after {largest.steps} steps the training error was {largest.training:.2%}, that of "
        f"validation {largest.validation:.2%}"
    )
    return Change(f"more samples: {samples} more", _known(error), f"{_found(error)}; {gap}")


def _more_minutes(curve: LearningCurve, planned: Plan) -> Change:
    error = curve.error(planned.samples, 2 * planned.steps)
    what = f"more minutes: {2 * planned.minutes:.1f} instead of {planned.minutes:.1f}"
    return Change(what, _known(error), _found(error))


def _larger(
    curve: LearningCurve, planned: Plan, row: Trained, wide: Trained, seconds: float
) -> Change:
    """By the ratio of errors at equal steps, against the default in the time that it takes."""
    ratio, cost = wide.validation / row.validation, seconds / planned.seconds_per_step
    expected = curve.error(planned.samples, planned.steps)
    same_time = curve.error(planned.samples, cost * planned.steps)
    error = Interval(*(ratio * value for value in (expected.median, expected.low, expected.high)))
    evidence = (
        f"{_found(error)}, if the ratio stays: after {row.steps} steps {wide.validation:.2%} "
        f"instead of {row.validation:.2%}; a step takes {cost:.1f} times as long, in which "
        f"time the current model reaches {_found(same_time)}"
    )
    return Change(f"larger model: {WIDER} times the width", _known(error), evidence)


def _known(error: Interval) -> Interval | None:
    return error if error.width <= WIDEST else None


def _found(error: Interval) -> str:
    return _about(error) if _known(error) else f"unknown, between {_span(error)}"


def _about(error: Interval) -> str:
    return f"about {error.median:.2%} ({_span(error)})"


def _span(error: Interval) -> str:
    return f"{error.low:.2%} to {error.high:.2%}"
