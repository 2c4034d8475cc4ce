"""Start and resume trainings."""

from contextlib import nullcontext
from pathlib import Path

from lightning_fabric import Fabric

from cato.data.dataset import Splits
from cato.errors import InputError, Interrupted
from cato.inference.evaluate import calibrate
from cato.lock import locked
from cato.models.contract import Operator
from cato.progress import note
from cato.runs.checkpoint import remove_leftovers
from cato.runs.folder import Run, create_run, open_run, require_new
from cato.runs.load import (
    data_key,
    data_spec,
    is_generated,
    load_run_splits,
    load_splits,
    load_surrogate,
)
from cato.runs.settings import RunConfig
from cato.training.devices import make_fabric
from cato.training.loop import Training, new_model


def train(config: RunConfig, folder: Path) -> Run:
    """Train a model from scratch into a new run folder."""
    require_new(folder)  # before a process creates it, and before hours of generating
    fabric = make_fabric(config.train)
    splits = None if is_generated(config) else _load(fabric, config)
    problem = data_spec(config).problem if splits is None else splits.problem
    if config.train.frames_per_step is not None and problem.time == "steady":
        raise InputError(f"{problem.name} has no frames; leave out --train.frames-per-step")
    model = new_model(config, problem)  # refuses bad settings before data are generated
    splits = splits or _load(fabric, config)
    run = None
    if fabric.is_global_zero:
        run = create_run(folder, config, problem, data_key(config, splits))
    fabric.barrier()
    return _fit(run or open_run(folder), splits, fabric, model)


def resume(folder: Path) -> Run:
    """Continue a run from its last checkpoint."""
    run = open_run(folder)
    if run.pretrained is not None:
        raise InputError(
            f"{folder} comes with cato and cannot be trained further; train your own with "
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
    return _fit(run, splits, fabric, new_model(run.config, run.problem))


def _load(fabric: Fabric, config: RunConfig) -> Splits:
    with fabric.rank_zero_first():  # one process generates, the others find the file
        return load_splits(config)


def _fit(run: Run, splits: Splits, fabric: Fabric, model: Operator) -> Run:
    busy = f"another process ({{pid}}) is training in {run.folder}; wait or choose another --out"
    is_first = fabric.is_global_zero
    with locked(run.folder / ".lock", busy) if is_first else nullcontext():
        if is_first:
            remove_leftovers(run.checkpoints)
        training = Training(run, splits, fabric, model)
        if not training.restore():
            training.plan()
        elif not training.is_finished:
            note(f"resuming at step {training.state.step} of {training.state.num_steps}")
        if training.is_finished:
            note(f"{run.folder} is already trained to the end")
        elif not training.fit():
            resume = f"`cato train --resume {run.folder}`"
            raise Interrupted(f"stopped and saved; continue with {resume}")
        if run.config.data.file is not None and is_first:
            # Its data may be gone when the run predicts, so the band is calibrated now.
            calibrate(run, load_surrogate(run), splits)
        return run
