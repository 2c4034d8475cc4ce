"""Weights and optimiser state as one flat dictionary of tensors, unsharded on every strategy."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.optim import Optimizer

WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
OPTIMIZER = "optimizer/"  # Prefix of optimiser tensors; all others are weights.


def capture(module: nn.Module, optimizers: Sequence[Optimizer] = ()) -> dict[str, Tensor]:
    """All tensors of the module and its optimisers; empty in all but the first process."""
    tensors: dict[str, Any] = dict(get_model_state_dict(module, options=WHOLE))
    if optimizers:
        state: dict[str, Any] = dict(get_optimizer_state_dict(module, optimizers, options=WHOLE))
        tensors |= {
            f"{OPTIMIZER}{name}/{key}": value
            for name, values in state.get("state", {}).items()
            for key, value in values.items()
        }
    return tensors


def restore(module: nn.Module, optimizers: Sequence[Optimizer], tensors: dict[str, Tensor]) -> None:
    """Inverse of `capture`."""
    weights: dict[str, Any] = {}
    state: dict[str, Any] = {}
    for path, tensor in tensors.items():
        if path.startswith(OPTIMIZER):
            name, key = path.removeprefix(OPTIMIZER).rsplit("/", 1)
            state.setdefault(name, {})[key] = tensor
        else:
            weights[path] = tensor
    groups = get_optimizer_state_dict(module, optimizers)["param_groups"]
    set_model_state_dict(module, weights, options=WHOLE)
    set_optimizer_state_dict(
        module, optimizers, {"state": state, "param_groups": groups}, options=WHOLE
    )
