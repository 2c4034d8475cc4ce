"""Optimisers: AdamW for all, or Muon for the matrices of the blocks and AdamW for the rest."""

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from cato.errors import InputError
from cato.models.contract import Operator
from cato.runs.settings import TrainConfig
from cato.training.schedule import CyclePoint


def build_optimizers(model: Operator, config: TrainConfig) -> list[Optimizer]:
    """The optimisers of a model; parameters that are not trained are left out."""
    matrices: list[nn.Parameter] = []
    if config.optimizer == "muon":
        matrices = [p for p in model.hidden_matrices() if p.requires_grad]
    in_muon = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in in_muon]
    optimizers: list[Optimizer] = [
        AdamW(rest, lr=config.learning_rate, weight_decay=config.weight_decay)
    ]
    if config.optimizer == "muon":
        if not hasattr(torch.optim, "Muon"):
            raise InputError(
                f"Muon needs PyTorch 2.9 or newer, this is {torch.__version__}; "
                f"upgrade it or use --train.optimizer adamw"
            )
        if not matrices:
            raise InputError(
                "this model names no matrices for Muon; use --train.optimizer adamw instead"
            )
        optimizers.append(
            torch.optim.Muon(
                matrices,
                lr=config.muon_learning_rate,
                weight_decay=config.weight_decay,
                adjust_lr_fn="match_rms_adamw",
            )
        )
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return optimizers


def set_cycle(optimizers: list[Optimizer], point: CyclePoint) -> None:
    """Put learning rates and momenta where the schedule has them."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = point.rate * group["peak_lr"]
            if "betas" in group:
                group["betas"] = (point.momentum, group["betas"][1])
