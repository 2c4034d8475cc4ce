"""Lightning Fabric: devices, precision and parallel strategies by setting."""

import os
from typing import Any

from lightning_fabric import Fabric
from lightning_fabric.strategies import DDPStrategy, ModelParallelStrategy, Strategy
from torch import nn

from cato.errors import InputError
from cato.runs.settings import TrainConfig


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
