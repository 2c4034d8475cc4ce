"""Start and resume trainings, on the devices that their settings name (Lightning Fabric)."""

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric

from cato.data.dataset import Splits
from cato.data.streamed import Streamed
from cato.errors import Diverged, InputError, Interrupted
from cato.inference.evaluate import calibrate, training_range
from cato.memory import require_memory
from cato.models.contract import Operator
from cato.models.registry import model_class, num_parameters
from cato.progress import is_first_process, note
from cato.runs.checkpoint import Checkpoint, load_checkpoint, remove_incomplete, rewind
from cato.runs.folder import (
    RECORD,
    Run,
    claimed,
    copy_run,
    create_run,
    fold_folder,
    open_run,
    require_new,
    run_of,
)
from cato.runs.load import (
    data_key,
    data_spec,
    is_generated,
    load_run_splits,
    load_splits,
    load_surrogate,
)
from cato.runs.settings import DataConfig, RunConfig, run_config
from cato.runs.start import in_frame_of, open_start, take_over
from cato.training.cross_validation import fold_runs
from cato.training.devices import make_fabric, require_agreement, require_supported
from cato.training.loop import Training, new_model, steps_within
from cato.training.optim import decay_start
from cato.training.trials import Trial, choose
from cato.user_data.read import changed_since


def train(config: RunConfig, folder: Path, rivals: Sequence[RunConfig] = ()) -> Run:
    """Train a new model, or fine-tune a trained one, into a new run folder.

    Args:
        config: Settings of the run.
        folder: The new folder.
        rivals: Settings of other models for the same data, from `build_candidates`: each gets a
            short trial, and the best is trained.
    """
    if _is_restart(folder, (config, *rivals)):
        note(f"torchrun has started the processes of {folder} again")
        return resume(folder)
    require_new(folder)  # before a process creates it, and before hours of generating
    with _claimed(folder):
        if is_first_process():
            require_new(folder)  # another process may have finished one meanwhile
        return _train(config, folder, rivals)


def _is_restart(folder: Path, configs: Sequence[RunConfig]) -> bool:
    """Whether this launch of torchrun has created the run already, before a process failed.

    Not every agent counts a restart, but all know the number of the launch, unless it has none.
    """
    launch = os.environ.get("TORCHELASTIC_RUN_ID")
    is_counted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    if launch is None or (launch == "none" and not is_counted) or not (folder / RECORD).exists():
        return False
    run = open_run(folder)
    minutes = run.config.train.minutes  # which trials of rivals have shortened
    wanted = [replace(one, train=replace(one.train, minutes=minutes)) for one in configs]
    return run.record.get("launch") == launch and run.config in wanted


def _train(config: RunConfig, folder: Path, rivals: Sequence[RunConfig]) -> Run:
    fabric = make_fabric(config.train)
    splits = None if is_generated(config) else _load(fabric, config)
    problem = data_spec(config).problem if splits is None else splits.problem
    if config.train.frames_per_step is not None and problem.time == "steady":
        raise InputError(f"{problem.name} has no frames; leave out --train.frames-per-step")
    if problem.float64 and config.train.precision == "auto":
        config, *rivals = (_in_float32(one) for one in (config, *rivals))
        fabric = make_fabric(config.train)
    if problem.float64 and config.train.precision != "32-true":
        raise InputError(
            f"{problem.name} needs float64 for its {', '.join(problem.float64)} (`cato inspect` "
            f"says why), and precision {config.train.precision} rounds them; use "
            f"--train.precision 32-true"
        )
    copies = 4 if fabric.device.type == "cpu" else 1  # weights, gradient and the optimiser's means
    for one in (config, *rivals):  # refuses bad settings before data are generated
        size = num_parameters(one.model_name, one.model, problem)
        remedy = "choose smaller settings of the model, such as --model.width"
        require_memory(4 * copies * size, f"training {size:,} parameters", remedy)
        require_supported(one, problem)
    splits = splits or _load(fabric, config)
    is_streamed = isinstance(splits.train, Streamed)
    if fabric.broadcast(is_streamed) != is_streamed:  # their orders of samples differ
        raise InputError(
            "some processes would stream the data and others read them into memory, as their "
            "machines differ; say which with --data.streamed yes or --data.streamed no"
        )
    if is_streamed:  # so that it is resumed with the same order of samples
        config, *rivals = (_recorded_as_streamed(one) for one in (config, *rivals))
    require_agreement(fabric, config, data_key(config, splits))
    trials: list[Trial] = []
    if rivals:
        config, trials = choose((config, *rivals), splits, fabric)
    problem = config.data.condition(splits.train, model_class(config.model_name))
    model = new_model(config, problem)
    weights = None
    if config.train.start_from is not None:
        start = open_start(config.train.start_from, config.train.start_fingerprint)
        take_over(start, model, problem)
        problem = in_frame_of(start, problem)
        weights = model.state_dict()
    run = None
    if fabric.is_global_zero:
        rows = [asdict(trial) for trial in trials]
        run = create_run(folder, config, problem, data_key(config, splits), weights, rows)
    return _fit(_of_first_process(fabric, folder, run), splits, fabric, model)


def _in_float32(config: RunConfig) -> RunConfig:
    return replace(config, train=replace(config.train, precision="32-true"))


def _recorded_as_streamed(config: RunConfig) -> RunConfig:
    return replace(config, data=replace(config.data, streamed="yes"))


def resume(folder: Path, longer: Mapping[str, Any] | None = None, out: Path | None = None) -> Run:
    """Continue a run from its last checkpoint, or extend it.

    Args:
        folder: The run folder.
        longer: A new length, {"minutes": 20}, {"steps": 2000} or {"epochs": 40}, counted from the
            start: the run continues from the end of its trunk. Needs schedule wsd.
        out: New folder for the extended run; without it the run itself is extended.
    """
    run = open_run(folder)
    if out is not None and not longer:
        raise InputError(
            "a copy of a run is for extending it: give a new length or leave out --out"
        )
    if run.pretrained is not None:
        raise InputError(
            f"{folder} comes with cato and cannot be trained further; train your own with "
            f"`{run.command}`"
        )
    if out is not None:
        require_new(out)
    with _claimed(out or folder):
        return _resume(folder, longer, out)


def _resume(folder: Path, longer: Mapping[str, Any] | None, out: Path | None) -> Run:
    run = open_run(folder)  # as it is now that no other process trains in it
    fabric = make_fabric(run.config.train)
    run = _of_first_process(fabric, folder, run)
    with fabric.rank_zero_first():
        splits = load_run_splits(run, to_train=True)
    require_agreement(fabric, run.config, data_key(run.config, splits))
    if splits.conditioned(run.problem.conditioning).problem != run.problem:
        data = run.config.data
        raise InputError(
            f"{folder} was trained on other data than {data.file or data.original or data.root} "
            f"now holds; train into a new folder"
        )
    if fabric.is_global_zero:
        if longer and out is not None:
            with claimed(folder):
                run = extend(open_run(folder), longer, len(splits.train), out)
        elif longer:
            run = extend(run, longer, len(splits.train))
        _rewind_to_branch(run)
    run = _of_first_process(fabric, out or folder, run)
    return _fit(run, splits, fabric, _initial_model(run))


def _claimed(folder: Path) -> AbstractContextManager[None]:
    """`claimed` by the first of the processes that train together, for all of them."""
    return claimed(folder) if is_first_process() else nullcontext()


def _of_first_process(fabric: Fabric, folder: Path, run: Run | None) -> Run:
    """The run of the first process, in all of them; nothing is read again."""
    record: Any = fabric.broadcast(None if run is None else run.record)
    return run if run is not None and fabric.is_global_zero else run_of(record, folder)


def extend(run: Run, longer: Mapping[str, Any], num_samples: int, out: Path | None = None) -> Run:
    """Give a run, or its copy in `out`, a new length; `_rewind_to_branch` does the rest."""
    folder, config = run.folder, run.config.train
    if run.config.data.folds:
        raise InputError(
            f"{folder} is cross-validated, and its folds would not be extended; train with "
            f"--data.folds 0"
        )
    if config.schedule != "wsd":
        raise InputError(
            f"{folder} was trained with schedule {config.schedule}, which cannot be extended; "
            f"train with --train.schedule wsd"
        )
    _rewind_to_branch(run)
    last = load_checkpoint(run.checkpoints, "last")
    if last is not None and last.state.get("diverged"):
        raise InputError(f"{folder} diverged and cannot be extended: {last.state['diverged']}")
    trunk = load_checkpoint(run.checkpoints, "trunk") or last
    if trunk is None or not trunk.state["step"]:
        raise InputError(
            f"{folder} has no checkpoint to extend; use `cato train --resume {folder}`"
        )
    step = trunk.state["step"]
    if step > decay_start(trunk.state["num_steps"]):
        raise InputError(f"{folder} has lost its trunk and cannot be extended; train again")
    values = run.config.to_dict()
    values["train"] |= {"minutes": None, "steps": None, **longer}
    if values["train"]["minutes"] is None:
        values["train"]["min_steps"] = None
    settings = run_config(values, "the new length")
    if settings.train.minutes is not None:
        num_steps = steps_within(settings.train, trunk.state["seconds"] / step)
    else:
        per_epoch = math.ceil(num_samples / config.batch_size)
        num_steps = settings.train.steps or settings.train.epochs * per_epoch
    if decay_start(num_steps) < step:
        raise InputError(
            f"{folder} has trained {step} steps of its trunk, and the new length would start its "
            f"decay after {decay_start(num_steps)}; give a longer one"
        )
    branch = {"step": step, "seconds": trunk.state["seconds"], "num_steps": num_steps}
    if out is None:
        return run.change_settings(settings, branch)
    return copy_run(run, out, settings, branch)


def _rewind_to_branch(run: Run) -> None:
    """Make the state from which a run was extended its last, unless that is done.

    The new length is recorded before the checkpoints change, so that a kill at any moment leaves a
    run that continues here.
    """
    num_steps = run.record.get("branch", {}).get("num_steps")
    last = None if num_steps is None else load_checkpoint(run.checkpoints, "last")
    if last is None or last.state["num_steps"] == num_steps:
        return
    trunk = load_checkpoint(run.checkpoints, "trunk") or last
    if trunk.state["step"] != run.record["branch"]["step"]:
        raise InputError(f"{run.folder} has lost the checkpoint that it was extended from")
    rewind(run.checkpoints, Checkpoint(trunk.tensors, trunk.state | {"num_steps": num_steps}))


def _load(fabric: Fabric, config: RunConfig) -> Splits:
    with fabric.rank_zero_first():  # one process generates, the others find the file
        return load_splits(config)


def _initial_model(run: Run) -> Operator:
    """The model of a run before its first step."""
    model = new_model(run.config, run.problem)
    is_under_way = any(run.checkpoints.folder.glob("last-*.json"))
    if run.config.train.start_from is not None and not is_under_way:
        start = load_checkpoint(run.checkpoints, "start")
        if start is None:
            raise _lost_checkpoints(run)
        model.load_state_dict(start.tensors)
    return model


def _fit(run: Run, splits: Splits, fabric: Fabric, model: Operator) -> Run:
    _fit_model(run, splits, fabric, model)
    if run.config.data.fold is not None:
        return run
    if splits.num_folds:
        _fit_folds(run, splits, fabric)
    if fabric.is_global_zero:
        training_range(run, splits)
        if run.config.data.file is not None:
            _note_changes(run.config.data)
            # Its data may be gone when the run predicts, so the band is calibrated now.
            calibrate(run, load_surrogate(run), splits)
    return run


def _fit_model(run: Run, splits: Splits, fabric: Fabric, model: Operator) -> None:
    """Train the model of a run, or what is left of its training."""
    if fabric.is_global_zero:
        remove_incomplete(run.checkpoints)
    training = Training(run, splits.conditioned(run.problem.conditioning), fabric, model)
    if not training.restore():
        # The first epoch writes its line of the log before its checkpoint.
        if len(run.read_log()) > 1:
            raise _lost_checkpoints(run)
        training.plan()
    elif not training.is_finished:
        note(f"resuming at step {training.state.step} of {training.state.num_steps}")
    if training.state.diverged:
        raise Diverged(training.state.diverged)
    if training.is_finished and not training.state.num_summed:
        note(f"{run.folder} is already trained to the end")
    elif not training.fit():
        whole = run.folder if run.config.data.fold is None else run.folder.parents[1]
        raise Interrupted(f"stopped and saved; continue with `cato train --resume {whole}`")


def _fit_folds(run: Run, splits: Splits, fabric: Fabric) -> None:
    """Train the models of cross-validation, or what is left of them."""
    folds = fold_runs(run, splits) if fabric.is_global_zero else None
    for fold in range(splits.num_folds):
        inner, data = (None, splits.fold(fold)) if folds is None else next(folds)
        inner = _of_first_process(fabric, fold_folder(run.folder, fold), inner)
        note(f"fold {fold + 1} of {splits.num_folds}: {len(data.train)} samples to train on")
        _fit_model(inner, data, fabric, _initial_model(inner))


def _lost_checkpoints(run: Run) -> InputError:
    return InputError(
        f"{run.folder} has lost its checkpoints; remove it and train again with `{run.command}`"
    )


def _note_changes(data: DataConfig) -> None:
    """Say so if the files of user data are no longer those that the run was trained on."""
    assert data.file is not None
    if what := changed_since(Path(data.file), data.fingerprint):
        note(
            f"{data.file} {what}; the run was trained on the data read at its start, with "
            f"fingerprint {data.fingerprint}, and can be evaluated only on those"
        )
