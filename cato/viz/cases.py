"""One sample as arrays to draw, with what a surrogate makes of it."""

from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from cato.data.dataset import Batch, Dataset
from cato.errors import InputError
from cato.inference.evaluate import solve_all
from cato.physics import gradient, inverse_metric
from cato.problem import Problem
from cato.surrogate import Surrogate


class Slopes(NamedTuple):
    """Size (N,) of the gradient of the first output, and of what stands for it in a model."""

    truth: np.ndarray
    prediction: np.ndarray
    is_flux: bool
    """Whether the prediction is the model's flux head, not the gradient of its answer."""


@dataclass(frozen=True)
class Case:
    """One sample; padding of clouds is left out, and a steady problem has one frame.

    Attributes:
        problem: What it is a sample of.
        coords: (N, D).
        inputs: (N, C_in).
        truth: (T, N, C_out).
        prediction: As `truth`.
        slopes: Of the first output, on steady meshes only.
    """

    problem: Problem
    coords: np.ndarray
    inputs: np.ndarray
    truth: np.ndarray
    prediction: np.ndarray
    slopes: Slopes | None = None


def case_of(data: Dataset, index: int, surrogate: Surrogate) -> Case:
    """Sample number `index`, and what the surrogate makes of it."""
    problem = data.problem
    batch = data.batch([index])
    kept = slice(None) if batch.mask is None else batch.mask[0]

    def frames(values: torch.Tensor) -> np.ndarray:
        in_time = values[None] if problem.time == "steady" else values
        return in_time[:, kept].numpy()

    solution = solve_one(surrogate, data, index)
    slopes = None
    if problem.time == "steady" and problem.geometry != "cloud":
        with suppress(InputError):  # a folded mesh has no gradients
            slopes = _slopes(surrogate, problem, batch, solution)
    return Case(
        problem,
        batch.coords[0, kept].numpy(),
        batch.inputs[0, kept].numpy(),
        frames(batch.targets[0]),
        frames(solution),
        slopes,
    )


def solve_one(surrogate: Surrogate, data: Dataset, index: int) -> torch.Tensor:
    """The surrogate's solution of one sample, on the CPU."""
    return solve_all(surrogate, data.subset([index]))[0]


@torch.no_grad()
def _slopes(surrogate: Surrogate, problem: Problem, batch: Batch, solution: torch.Tensor) -> Slopes:
    metric = inverse_metric(batch.coords[0], problem.shape, problem.periodic, problem.period)

    def size(values: torch.Tensor) -> np.ndarray:
        slope = gradient(values, metric, problem.shape, problem.periodic)
        return slope[0, :, 0].norm(dim=-1).numpy()

    truth = size(batch.targets)
    device = surrogate.device
    flux = surrogate(batch.coords.to(device), batch.inputs.to(device), shape=problem.shape).flux
    if flux is None:
        return Slopes(truth, size(solution[None]), is_flux=False)
    return Slopes(truth, flux[0, :, 0].norm(dim=-1).float().cpu().numpy(), is_flux=True)
