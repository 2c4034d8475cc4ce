"""Optimisers and their schedules.

AdamW for all parameters, or Muon for the matrices of the blocks and AdamW for the rest. A schedule
is a pure function of the step, so that resuming needs no state.

`onecycle`: a cosine up from 1/25 of the peak over the first 30 % of the steps, then a cosine down
to 1/250000 of it. AdamW's first momentum runs the other way, 0.95 → 0.85 → 0.95. These are the
defaults of PyTorch's `OneCycleLR`, which the public codes of this field use (a test compares both).

`wsd`: warm-up over the first 100 steps, the peak, and a decay over the last fifth of the steps. Up
to the decay, the trunk, nothing depends on the number of steps: a training is extended from there.
"""

from math import cos, pi, sqrt

from torch import nn
from torch.optim import AdamW, Optimizer

from cato.errors import InputError
from cato.models.contract import Operator
from cato.runs.settings import TrainConfig
from cato.training.muon import Muon

WARM_UP = 0.3
START = 1 / 25
END = START / 1e4
HIGH_MOMENTUM, LOW_MOMENTUM = 0.95, 0.85
WARM_UP_STEPS = 100
DECAY = 0.2  # Share of the steps over which `wsd` decays.
STABLE_MOMENTUM = 0.9


def build_optimizers(model: Operator, config: TrainConfig) -> list[Optimizer]:
    """The optimisers of a model's trainable parameters."""
    matrices: list[nn.Parameter] = []
    if config.optimizer == "muon":
        matrices = [p for p in model.hidden_matrices() if p.requires_grad]
    in_muon = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in in_muon]
    optimizers: list[Optimizer] = [
        AdamW(rest, lr=config.learning_rate, weight_decay=config.weight_decay)
    ]
    if config.optimizer == "muon":
        if not matrices:
            raise InputError(
                "this model names no matrices for Muon; use --train.optimizer adamw instead"
            )
        optimizers.append(
            Muon(matrices, lr=config.muon_learning_rate, weight_decay=config.weight_decay)
        )
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return optimizers


def one_cycle(step: int, num_steps: int) -> tuple[float, float]:
    """Learning rate in units of its peak, and AdamW's β₁, at step 0 … num_steps − 1."""
    peak = WARM_UP * num_steps - 1
    last = num_steps - 1
    if step <= peak:
        s = step / peak
        return _cosine(START, 1.0, s), _cosine(HIGH_MOMENTUM, LOW_MOMENTUM, s)
    s = (step - peak) / (last - peak)
    return _cosine(1.0, END, s), _cosine(LOW_MOMENTUM, HIGH_MOMENTUM, s)


def _cosine(start: float, end: float, s: float) -> float:
    """From `start` at s = 0 to `end` at s = 1."""
    return end + (start - end) * (1 + cos(pi * s)) / 2


def decay_start(num_steps: int) -> int:
    """The step from which `wsd` decays: the end of the trunk."""
    return num_steps - round(DECAY * num_steps)


def warm_up_stable_decay(step: int, num_steps: int) -> tuple[float, float]:
    """As `one_cycle`; the rate decays as 1 − √s, with s from 0 to 1."""
    rate = min(1.0, (step + 1) / WARM_UP_STEPS)
    start = decay_start(num_steps)
    if step >= start:
        rate *= 1 - sqrt((step - start + 1) / (num_steps - start + 1))
    return rate, STABLE_MOMENTUM


SCHEDULES = {"onecycle": one_cycle, "wsd": warm_up_stable_decay}


def set_rates(optimizers: list[Optimizer], schedule: str, step: int, num_steps: int) -> None:
    """Set the learning rates and momenta of a step."""
    rate, momentum = SCHEDULES[schedule](step, num_steps)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate * group["peak_lr"]
            if "betas" in group:
                group["betas"] = (momentum, group["betas"][1])
