"""Start and resume trainings, on the devices that their settings name (Lightning Fabric)."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric
from lightning_fabric.strategies import DDPStrategy, ModelParallelStrategy, Strategy
from torch import nn

from cato.data.dataset import Splits
from cato.errors import InputError, Interrupted
from cato.files import locked
from cato.inference.evaluate import calibrate
from cato.models.contract import Operator
from cato.models.registry import num_parameters
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
from cato.runs.settings import RunConfig, TrainConfig
from cato.training.loop import Training, new_model


def train(config: RunConfig, folder: Path) -> Run:
    """Train a model from scratch into a new run folder."""
    require_new(folder)  # before a process creates it, and before hours of generating
    fabric = make_fabric(config.train)
    splits = None if is_generated(config) else _load(fabric, config)
    problem = data_spec(config).problem if splits is None else splits.problem
    if config.train.frames_per_step is not None and problem.time == "steady":
        raise InputError(f"{problem.name} has no frames; leave out --train.frames-per-step")
    num_parameters(
        config.model_name, config.model, problem
    )  # refuses bad settings before data exist
    splits = splits or _load(fabric, config)
    problem = config.data.condition(splits.train)
    model = new_model(config, problem)
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
    if splits.conditioned(run.problem.conditioning).problem != run.problem:
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
        training = Training(run, splits.conditioned(run.problem.conditioning), fabric, model)
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
