"""Devices and processes of a training, by Lightning Fabric and torch.distributed."""

import os
import time
import uuid
from importlib.util import find_spec
from typing import Any, Literal

import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from lightning_fabric.strategies import DDPStrategy, ModelParallelStrategy, Strategy
from torch import nn
from torch.distributed import checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh

from cato import __version__
from cato.errors import InputError
from cato.models.registry import build_model
from cato.partition import WHOLE, Partition, require_divisible
from cato.problem import Problem
from cato.runs.settings import RunConfig, TrainConfig

POLL_SECONDS = 0.05


def make_fabric(config: TrainConfig) -> Fabric:
    """Devices, precision and strategy for these settings; joins the processes of torchrun.

    `fsdp` is PyTorch's FSDP2, which also runs on CPUs and is tested there.
    """
    processes = _count_in("LOCAL_WORLD_SIZE", config.devices)
    num_nodes = _count_in("WORLD_SIZE", processes) // processes
    if processes * num_nodes % config.mesh_parallel:
        raise InputError(
            f"--train.mesh-parallel {config.mesh_parallel} needs a multiple of that many "
            f"processes, not {processes * num_nodes}; set --train.devices or start them by torchrun"
        )
    strategy: str | Strategy = "auto"
    if config.strategy == "fsdp":
        if config.optimizer == "muon":
            raise InputError(
                "Muon needs whole matrices and fsdp shards them; use --train.optimizer adamw"
            )
        if not hasattr(dcp, "HuggingFaceStorageWriter"):
            raise InputError(
                f"--train.strategy fsdp writes checkpoints with PyTorch 2.9 or newer, this is "
                f"{torch.__version__}; use --train.strategy ddp"
            )
        strategy = ModelParallelStrategy(
            _shard, data_parallel_size=processes * num_nodes, tensor_parallel_size=1
        )
    elif config.strategy == "ddp" or processes * num_nodes > 1:
        strategy = DDPStrategy()
    kind = accelerator_of(config)
    require_devices(kind, processes)
    if processes * num_nodes > 1 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        join_processes("nccl" if kind == "cuda" else "gloo")
    fabric = Fabric(
        accelerator=kind,
        devices=processes,
        num_nodes=num_nodes,
        strategy=strategy,
        precision=precision_of(config, kind),
    )
    fabric.launch()
    return fabric


def join_processes(backend: str) -> None:
    """Meet the other processes of torchrun, in the store of its agents.

    That store still has the addresses of processes from before a restart, and agents may count
    restarts differently. So the processes first agree on a part of it that none has used.
    """
    if dist.is_initialized():
        return
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    timeout = dist.default_pg_timeout
    store = dist.TCPStore(host, port, count, is_master=False, timeout=timeout)
    name = agreed_name(store, rank, count, timeout.total_seconds())
    dist.init_process_group(
        backend, store=dist.PrefixStore(name, store), rank=rank, world_size=count, timeout=timeout
    )


def agreed_name(store: dist.Store, rank: int, count: int, seconds: float) -> str:
    """A new name that all living processes get from the first one.

    Every other process says that it is there by a word of its own, and waits for an answer to this
    word. The first one answers all that it hears, also processes that have died since, until as
    many have thanked it as there are.
    """
    word, deadline = uuid.uuid4().hex, time.monotonic() + seconds
    if rank:
        store.set(f"cato/hello/{rank}", word)
        name = store.get(f"cato/answer/{word}").decode()
        store.add(f"cato/thanks/{name}", 1)
        return name
    while store.add(f"cato/thanks/{word}", 0) < count - 1:
        for other in range(1, count):
            if store.check([f"cato/hello/{other}"]):
                heard = store.get(f"cato/hello/{other}").decode()
                store.set(f"cato/answer/{heard}", word)
        if time.monotonic() > deadline:
            raise InputError(
                f"only {store.add(f'cato/thanks/{word}', 0) + 1} of {count} processes have started "
                f"within {seconds / 60:.0f} minutes; see the messages of the others"
            )
        time.sleep(POLL_SECONDS)
    return word


def accelerator_of(config: TrainConfig) -> str:
    """The kind of device to train on, which "auto" leaves to this machine."""
    if config.accelerator != "auto":
        return config.accelerator
    return next(name for name, count in device_counts().items() if count)


def precision_of(config: TrainConfig, kind: str) -> Literal["32-true", "bf16-mixed"]:
    """The precision on a kind of device, which "auto" leaves to it."""
    if config.precision != "auto":
        return config.precision
    has_bf16 = kind == "cuda" and torch.cuda.is_bf16_supported()
    return "bf16-mixed" if has_bf16 else "32-true"


def is_compiled(config: TrainConfig, kind: str) -> bool:
    """Whether to use torch.compile on a kind of device.

    By default on CUDA with Triton, unless processes share a mesh: a compiled graph would end at
    each of their exchanges.
    """
    if config.compile is not None:
        return config.compile
    return kind == "cuda" and find_spec("triton") is not None and config.mesh_parallel == 1


def device_counts() -> dict[str, int]:
    """How many devices of every kind this machine has, the preferred kind first."""
    return {
        "cuda": torch.cuda.device_count(),
        "mps": int(torch.backends.mps.is_available()),
        "cpu": os.cpu_count() or 1,
    }


def _count_in(variable: str, default: int) -> int:
    """A number of processes in a variable that torchrun sets."""
    text = os.environ.get(variable, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise InputError(
            f"the environment variable {variable} must be a number of processes, 1 or more; got "
            f"{text!r}. torchrun sets it; unset it to train without torchrun"
        )
    return int(text)


def require_devices(accelerator: str, count: int) -> None:
    """Raise if this machine has no such devices, or not that many."""
    counts = device_counts()
    if count > counts[accelerator]:
        others = ", ".join(f"{n} {name}" for name, n in counts.items() if n)
        raise InputError(
            f"this machine has {counts[accelerator]} {accelerator} devices, not {count}; choose "
            f"--train.accelerator and --train.devices from {others}"
        )


def _shard(surrogate: Any, mesh: Any) -> nn.Module:
    """Shard every block of the model, then the rest."""
    from torch.distributed.fsdp import fully_shard

    for block in surrogate.model.blocks:
        fully_shard(block, mesh=mesh["data_parallel"])
    return fully_shard(surrogate, mesh=mesh["data_parallel"])


def require_agreement(fabric: Fabric, config: RunConfig, data: str) -> None:
    """Raise if the processes do not train the same model on the same data in the same versions."""
    if fabric.world_size == 1:
        return
    settings = config.to_dict()
    own = {
        "cato": (__version__, "install the same version on all nodes"),
        "PyTorch": (torch.__version__, "install the same version on all nodes"),
        "data": (data, "give all nodes the same files"),
        **{
            f"settings of {group}": (settings[group], "start all nodes by the same command")
            for group in ("model", "loss", "train")
        },
    }
    found: list[Any] = [None] * fabric.world_size
    dist.all_gather_object(found, own)
    for rank, theirs in enumerate(found):
        for what, (value, remedy) in found[0].items():
            if theirs[what][0] != value:
                raise InputError(
                    f"process {rank} has other {what} than process 0 ({theirs[what][0]} instead of "
                    f"{value}); {remedy}"
                )


def partition_of(fabric: Fabric, num_slabs: int, problem: Problem) -> Partition:
    """The part of the mesh that this process has.

    Processes form a grid of data parallel rows and mesh parallel columns: those of one row, which
    have consecutive numbers, share their samples, and those of one column their part of the mesh.
    """
    if num_slabs == 1:
        return WHOLE
    grid = init_device_mesh(
        fabric.device.type,
        (fabric.world_size // num_slabs, num_slabs),
        mesh_dim_names=("data", "mesh"),
    )
    rank, group = grid.get_local_rank("mesh"), grid.get_group("mesh")
    return Partition(problem.shape[0], rank, num_slabs, group)


def require_supported(config: RunConfig, problem: Problem) -> None:
    """Raise if the model cannot save memory in the ways that its settings want."""
    num_slabs = config.train.mesh_parallel
    with torch.device("meta"):
        model = build_model(config.model_name, config.model, problem)
    if num_slabs > 1:
        model.spread_over(Partition(problem.shape[0], 0, num_slabs))
        require_divisible(problem.shape, num_slabs)
    if config.train.remat:
        model.rematerialise()
