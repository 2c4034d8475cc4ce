"""Start and resume trainings, on the devices that their settings name (Lightning Fabric)."""

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric
from lightning_fabric.strategies import DDPStrategy, ModelParallelStrategy, Strategy
from torch import nn

from cato.data.dataset import Splits
from cato.errors import Diverged, InputError, Interrupted
from cato.files import locked
from cato.inference.evaluate import calibrate
from cato.models.contract import Operator
from cato.models.registry import model_class, num_parameters
from cato.progress import note
from cato.runs.checkpoint import (
    Checkpoint,
    load_checkpoint,
    remove_leftovers,
    rewind,
    save_checkpoint,
)
from cato.runs.folder import Run, copy_run, create_run, open_run, require_new
from cato.runs.load import (
    data_key,
    data_spec,
    is_generated,
    load_run_splits,
    load_splits,
    load_surrogate,
)
from cato.runs.settings import RunConfig, TrainConfig, run_config
from cato.runs.start import in_frame_of, open_start, take_over
from cato.training.loop import Training, new_model, steps_within
from cato.training.optim import decay_start
from cato.training.trials import Trial, choose


def train(config: RunConfig, folder: Path, rivals: Sequence[RunConfig] = ()) -> Run:
    """Train a new model, or fine-tune a trained one, into a new run folder.

    Args:
        config: Settings of the run.
        folder: The new folder.
        rivals: Settings of other models for the same data, from `build_candidates`: each gets a
            short trial, and the best is trained.
    """
    require_new(folder)  # before a process creates it, and before hours of generating
    fabric = make_fabric(config.train)
    splits = None if is_generated(config) else _load(fabric, config)
    problem = data_spec(config).problem if splits is None else splits.problem
    if config.train.frames_per_step is not None and problem.time == "steady":
        raise InputError(f"{problem.name} has no frames; leave out --train.frames-per-step")
    for one in (config, *rivals):  # refuses bad settings before data are generated
        num_parameters(one.model_name, one.model, problem)
    splits = splits or _load(fabric, config)
    trials: list[Trial] = []
    if rivals:
        config, trials = choose((config, *rivals), splits, fabric)
    problem = config.data.condition(splits.train, model_class(config.model_name))
    model = new_model(config, problem)
    start = None
    if config.train.start_from is not None:
        start = open_start(config.train.start_from, config.train.start_fingerprint)
        take_over(start, model, problem)
        problem = in_frame_of(start, problem)
    run = None
    if fabric.is_global_zero:
        if start is not None:  # before run.json: the run never needs its start again
            initial = Checkpoint(model.state_dict(), {})
            save_checkpoint(folder / "checkpoints", "start", 0, initial)
        rows = [asdict(trial) for trial in trials]
        run = create_run(folder, config, problem, data_key(config, splits), rows)
    fabric.barrier()
    return _fit(run or open_run(folder), splits, fabric, model)


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
    fabric = make_fabric(run.config.train)
    with fabric.rank_zero_first():
        splits = load_run_splits(run)
    if splits.conditioned(run.problem.conditioning).problem != run.problem:
        data = run.config.data
        raise InputError(
            f"{folder} was trained on other data than {data.file or data.original or data.root} "
            f"now holds; train into a new folder"
        )
    if longer:
        if fabric.is_global_zero:
            extend(run, longer, len(splits.train), out)
        fabric.barrier()
        run = open_run(out or folder)
    return _fit(run, splits, fabric, _initial_model(run))


def extend(run: Run, longer: Mapping[str, Any], num_samples: int, out: Path | None) -> None:
    """Give a run, or its copy in `out`, a new length: it continues from the end of its trunk."""
    folder, config = run.folder, run.config.train
    if config.schedule != "wsd":
        raise InputError(
            f"{folder} was trained with schedule {config.schedule}, which cannot be extended; "
            f"train with --train.schedule wsd"
        )
    last = load_checkpoint(run.checkpoints, "last")
    if last is not None and last.state.get("diverged"):
        raise InputError(f"{folder} diverged and cannot be extended: {last.state['diverged']}")
    trunk = load_checkpoint(run.checkpoints, "trunk") or last
    if trunk is None or not trunk.state["step"]:
        raise InputError(
            f"{folder} has no checkpoint to extend; use `cato train --resume {folder}`"
        )
    values = run.config.to_dict()
    values["train"] |= {"minutes": None, "steps": None, **longer}
    if values["train"]["minutes"] is None:
        values["train"]["min_steps"] = None
    settings = run_config(values, "the new length")
    step = trunk.state["step"]
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
    busy = f"another process ({{pid}}) is training in {folder}; wait or choose another folder"
    with locked(folder / ".lock", busy):
        if out is not None:
            run = copy_run(run, out)
        longer_state = trunk.state | {"num_steps": num_steps}
        rewind(run.checkpoints, Checkpoint(trunk.tensors, longer_state))
        run.change_settings(settings, trunk.state)


def _load(fabric: Fabric, config: RunConfig) -> Splits:
    with fabric.rank_zero_first():  # one process generates, the others find the file
        return load_splits(config)


def _initial_model(run: Run) -> Operator:
    """The model of a run before its first step."""
    model = new_model(run.config, run.problem)
    is_under_way = any(run.checkpoints.glob("last-*.json"))
    if run.config.train.start_from is not None and not is_under_way:
        start = load_checkpoint(run.checkpoints, "start")
        if start is None:
            raise InputError(
                f"{run.folder} has lost its checkpoints; remove it and train again with "
                f"`{run.command}`"
            )
        model.load_state_dict(start.tensors)
    return model


def _fit(run: Run, splits: Splits, fabric: Fabric, model: Operator) -> Run:
    busy = f"another process ({{pid}}) is training in {run.folder}; wait or choose another --out"
    is_first = fabric.is_global_zero
    with locked(run.folder / ".lock", busy) if is_first else nullcontext():
        if is_first:
            remove_leftovers(run.checkpoints)
        training = Training(run, splits.conditioned(run.problem.conditioning), fabric, model)
        if not training.restore():
            training.plan()
        elif not training.is_finished:
            note(f"resuming at step {training.state.step} of {training.state.num_steps}")
        if training.state.diverged:
            raise Diverged(training.state.diverged)
        if training.is_finished:
            note(f"{run.folder} is already trained to the end")
        elif not training.fit():
            resume = f"`cato train --resume {run.folder}`"
            raise Interrupted(f"stopped and saved; continue with {resume}")
        if run.config.data.file is not None and is_first:
            # Its data may be gone when the run predicts, so the band is calibrated now.
            calibrate(run, load_surrogate(run), splits)
        return run


def make_fabric(config: TrainConfig) -> Fabric:
    """Devices, precision and strategy for these settings; joins the processes of torchrun.

    `fsdp` is PyTorch's FSDP2, which also runs on CPUs and is tested there.
    """
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", config.devices))
    num_nodes = int(os.environ.get("WORLD_SIZE", processes)) // processes
    strategy: str | Strategy = "auto"
    if config.strategy == "fsdp":
        if config.optimizer == "muon":
            raise InputError(
                "Muon needs whole matrices and fsdp shards them; use --train.optimizer adamw"
            )
        strategy = ModelParallelStrategy(
            _shard, data_parallel_size=processes * num_nodes, tensor_parallel_size=1
        )
    elif config.strategy == "ddp" or processes * num_nodes > 1:
        strategy = DDPStrategy()
    fabric = Fabric(
        accelerator=config.accelerator,
        devices=processes,
        num_nodes=num_nodes,
        strategy=strategy,
        precision=config.precision,
    )
    fabric.launch()
    return fabric


def _shard(surrogate: Any, mesh: Any) -> nn.Module:
    """Shard every block of the model, then the rest."""
    from torch.distributed.fsdp import fully_shard

    for block in surrogate.model.blocks:
        fully_shard(block, mesh=mesh["data_parallel"])
    return fully_shard(surrogate, mesh=mesh["data_parallel"])
