"""Cross-validation: what a model's error is, where there are too few samples to hold some out.

The model of a run is trained on all samples. For each of K folds a further model is trained on the
samples outside the fold, in the same way but with a K-th of the steps, and solves for those inside
it. These solutions, of every sample by a model that has not seen it, give the error and the band.
A fold is a run in `folds/K` of the run folder, so it is resumed like any other. None of these
trainings has validation samples: their last weights are their best, so that nothing of a fold has
chosen its model.

The models of folds see fewer samples and take fewer steps than that of the run: its error is
overestimated rather than underestimated.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from cato.data.dataset import Splits
from cato.models.registry import model_class
from cato.problem import Problem
from cato.runs.checkpoint import last_state, load_checkpoint
from cato.runs.folder import RECORD, Run, create_run, fold_folder, fold_id, open_fold
from cato.runs.settings import RunConfig, TrainConfig

SHARE = 0.5
"""Share of a time budget for the model of the run; the folds together take as many steps."""


def is_cross_validated(config: RunConfig) -> bool:
    """Whether folds measure the error of a run."""
    return bool(config.data.folds) and config.data.fold is None


def own_training(config: RunConfig) -> TrainConfig:
    """The settings of the training of a run's own model: its share of a time budget."""
    train = config.train
    if not is_cross_validated(config) or train.minutes is None:
        return train
    floor = None if train.min_steps is None else math.ceil(SHARE * train.min_steps)
    return replace(train, minutes=SHARE * train.minutes, min_steps=floor)


def without_folds(config: RunConfig, splits: Splits) -> tuple[RunConfig, Splits]:
    """For comparisons on validation samples: where none are held out, those of the first fold."""
    if not splits.num_folds:
        return config, splits
    fold = splits.fold(0)
    datasets = {"train": fold.train, "validation": fold.test}
    config = replace(config, data=replace(config.data, fold=0))
    return config, replace(fold, datasets=datasets)


def fold_runs(run: Run, splits: Splits) -> Iterator[tuple[Run, Splits]]:
    """The runs of the folds of a trained run, new ones where there are none yet, and their data."""
    num_folds = splits.num_folds
    num_steps = math.ceil(last_state(run.checkpoints)["num_steps"] / num_folds)
    start = load_checkpoint(run.checkpoints, "start")
    for fold in range(num_folds):
        folder, data = fold_folder(run.folder, fold), splits.fold(fold)
        if (folder / RECORD).exists():
            yield open_fold(run, fold), data
            continue
        config = _of_fold(run.config, fold, num_steps)
        problem = _conditioned(run, config, data)
        weights = None if start is None else start.tensors
        owner = fold_id(run, fold)
        yield create_run(folder, config, problem, run.record["data"], weights, run_id=owner), data


def _of_fold(config: RunConfig, fold: int, num_steps: int) -> RunConfig:
    data = replace(config.data, fold=fold)
    train = replace(config.train, steps=num_steps, minutes=None, min_steps=None)
    return replace(config, data=data, train=train)


def _conditioned(run: Run, config: RunConfig, data: Splits) -> Problem:
    """The problem as the other samples condition it, with the settings of the run's."""
    problem = config.data.condition(data.train, model_class(config.model_name), quiet=True)
    frame = run.problem.conditioning.frame
    return replace(problem, conditioning=replace(problem.conditioning, frame=frame))
