"""Fine-tuning: the trained weights that a training starts from.

Weights whose name and shape agree are taken over, all others keep their initial values. A start is
refused if less than half of the weights agree, or if it was trained for other channels.
Normalisation and conditioning belong to the data and are fitted to them; only normalised
coordinates are shown to the network in the frame that its weights know.
"""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cato.errors import InputError
from cato.files import stamp
from cato.models.contract import Operator
from cato.problem import Problem
from cato.progress import note
from cato.runs.checkpoint import last_state
from cato.runs.folder import RECORD, open_run
from cato.runs.load import load_surrogate
from cato.surrogate import Surrogate

MIN_SHARE = 0.5  # Share of a model's weights that a start must provide.

Frame = tuple[tuple[float, float], ...]
"""Mean and deviation of each coordinate, see `Conditioning.frame`."""


@dataclass(frozen=True, eq=False)
class Start:
    """A trained model to start from."""

    name: str  # A pretrained model, or a run folder as an absolute path.
    model_name: str
    model: Any  # Settings of the model.
    problem: Problem
    frame: Frame  # Of the coordinates that its network saw; empty if unknown.
    weights: dict[str, Tensor]

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen characters that change whenever the weights do."""
        found = hashlib.sha256()
        for name, tensor in sorted(self.weights.items()):
            found.update(name.encode())
            found.update(np.ascontiguousarray(tensor.numpy()).data)
        return found.hexdigest()[:16]


def open_start(name: str, expected_fingerprint: str = "") -> Start:
    """The best weights of a run or pretrained model; others than the expected are refused.

    A second call with unchanged files returns what the first one read.
    """
    run = open_run(name)
    if reason := last_state(run.checkpoints).get("diverged"):
        raise InputError(f"{name} diverged and cannot be started from: {reason}; choose another")
    files = [run.source / RECORD, *sorted(run.checkpoints.folder.glob("best-*"))]
    start = _read(name, stamp(files))
    if expected_fingerprint and start.fingerprint != expected_fingerprint:
        raise InputError(
            f"the weights of {name} have changed: their fingerprint is {start.fingerprint}, "
            f"expected was {expected_fingerprint}; restore them, or start from the current ones "
            f"without --train.start-fingerprint"
        )
    return start


@lru_cache(maxsize=1)
def _read(name: str, state: tuple[object, ...]) -> Start:
    run = open_run(name)
    surrogate = load_surrogate(run).cpu()
    return Start(
        name if run.pretrained else str(Path(name).resolve()),
        run.config.model_name,
        run.config.model,
        run.problem,
        _frame_of(surrogate),
        surrogate.model.state_dict(),
    )


def _frame_of(surrogate: Surrogate) -> Frame:
    """Moments of the training nodes, or of the mean mesh, as the network saw them."""
    nodes = surrogate.coords
    if nodes is None and surrogate.problem.conditioning.mesh_inputs:
        nodes = surrogate.normaliser.get_buffer("mesh_mean")
    if nodes is None:
        return ()
    deviation, mean = torch.std_mean(surrogate.normaliser.encode_coords(nodes), 0, correction=0)
    return tuple(zip(mean.tolist(), deviation.tolist(), strict=True)) if deviation.all() else ()


def in_frame_of(start: Start, problem: Problem) -> Problem:
    """The problem with its coordinates in the frame that the weights of a start know."""
    if "coords" not in problem.normalise or len(start.frame) != problem.dimension:
        return problem
    return replace(problem, conditioning=replace(problem.conditioning, frame=start.frame))


def take_over(start: Start, model: Operator, problem: Problem) -> None:
    """Give a new model of a problem the weights that fit it, and say which."""
    _require_same_channels(start, problem)
    own = model.state_dict()
    fitting = {
        name: tensor
        for name, tensor in start.weights.items()
        if name in own and own[name].shape == tensor.shape
    }
    fresh = [name for name in own if name not in fitting]
    taken, total = (sum(t.numel() for t in some.values()) for some in (fitting, own))
    if taken < MIN_SHARE * total:
        raise InputError(
            f"{start.name} has only {taken / total:.0%} of the weights of this model, without "
            f"{fresh[0]}; leave out --model settings that differ from its own, or train without "
            f"--from"
        )
    model.load_state_dict(own | fitting)
    rest = (
        f"; {', '.join(fresh[:3])}{' and others' * (len(fresh) > 3)} start fresh" if fresh else ""
    )
    note(f"starting from {start.name}: {len(fitting)} of {len(own)} tensors taken over{rest}")


def _require_same_channels(start: Start, problem: Problem) -> None:
    """Raise if the weights were trained for other coordinates, inputs or outputs."""
    theirs, ours = (
        {"coordinates": "xyz"[: seen.dimension], "inputs": seen.inputs, "outputs": seen.outputs}
        for seen in (start.problem.seen_by_network, problem.seen_by_network)
    )
    for what, old in theirs.items():
        new = ours[what]
        if len(old) == len(new):
            continue
        remedy = "train without --from, or start from a model with as many"
        if what == "inputs" and start.problem.num_inputs == problem.num_inputs:
            remedy = f"use --data.mesh-inputs {start.problem.conditioning.mesh_inputs}"
        names = [", ".join(some) or "none" for some in (old, new)]
        raise InputError(
            f"{start.name} was trained with {len(old)} {what} ({names[0]}) and {problem.name} has "
            f"{len(new)} ({names[1]}); {remedy}"
        )
