"""Starting and resuming trainings."""

from pathlib import Path

from lightning_fabric import Fabric

from cato.data.dataset import Splits
from cato.errors import InputError, Interrupted
from cato.inference.evaluate import calibrate
from cato.lock import locked
from cato.models.registry import build_model
from cato.progress import note
from cato.runs.checkpoint import remove_leftovers
from cato.runs.folder import Run, create_run, open_run, require_new
from cato.runs.load import (
    data_key,
    data_spec,
    load_run_splits,
    load_splits,
    load_surrogate,
)
from cato.runs.settings import RunConfig
from cato.training.devices import make_fabric
from cato.training.loop import Training


def train(config: RunConfig, folder: Path) -> Run:
    """Train a model from scratch into a new run folder."""
    require_new(folder)  # before a process makes it, and before hours of generating
    fabric = make_fabric(config.train)
    own = None if config.data.file is None else _load(fabric, config)
    problem = data_spec(config).problem if own is None else own.problem
    build_model(config.model_name, config.model, problem)  # refuse before anything is written
    if config.train.frames_per_step is not None and problem.time == "steady":
        raise InputError(f"{problem.name} has no frames; leave out --train.frames-per-step")
    if config.train.steps is not None and config.train.minutes is not None:
        raise InputError("train for so many steps or for so many minutes, not both")
    splits = own or _load(fabric, config)
    if fabric.is_global_zero:
        create_run(folder, config, splits.problem, data_key(config, splits))
    fabric.barrier()
    return _fit(open_run(folder), splits, fabric)


def resume(folder: Path) -> Run:
    """Go on with a run from its last checkpoint."""
    run = open_run(folder)
    if run.pretrained is not None:
        raise InputError(
            f"{folder} comes with cato, and its training cannot go on; train one of your own with "
            f"`{run.record['command']}`"
        )
    fabric = make_fabric(run.config.train)
    with fabric.rank_zero_first():
        splits = load_run_splits(run)
    if splits.problem != run.problem:
        data = run.config.data
        raise InputError(
            f"{folder} was trained on other data than {data.file or data.original or data.root} "
            f"now holds; train into a new folder"
        )
    return _fit(run, splits, fabric)


def _load(fabric: Fabric, config: RunConfig) -> Splits:
    with fabric.rank_zero_first():  # one process generates, the others find the file
        return load_splits(config)


def _fit(run: Run, splits: Splits, fabric: Fabric) -> Run:
    if not fabric.is_global_zero:
        return _fit_unlocked(run, splits, fabric)
    busy = f"another process ({{pid}}) is training in {run.folder}; wait or choose another --out"
    with locked(run.folder / ".lock", busy):
        return _fit_unlocked(run, splits, fabric)


def _fit_unlocked(run: Run, splits: Splits, fabric: Fabric) -> Run:
    if fabric.is_global_zero:
        remove_leftovers(run.checkpoints)
    training = Training(run, splits, fabric)
    if not training.restore():
        training.plan()
    elif training.state.step >= training.state.num_steps:
        note(f"{run.folder} is already trained to the end")
        return _calibrated(run, splits, fabric)
    else:
        note(f"resuming at step {training.state.step} of {training.state.num_steps}")
    if not training.fit():
        raise Interrupted(f"stopped and saved; continue with `cato train --resume {run.folder}`")
    return _calibrated(run, splits, fabric)


def _calibrated(run: Run, splits: Splits, fabric: Fabric) -> Run:
    """A run on own data keeps its band: their file may be gone when it predicts."""
    if run.config.data.file is not None and fabric.is_global_zero:
        calibrate(run, load_surrogate(run), splits)
    return run
