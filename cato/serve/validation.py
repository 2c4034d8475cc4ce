"""Validation of the arrays of a request against the problem of a model."""

from math import prod

import numpy as np
from fastapi import HTTPException

from cato.data.arrays import channel_names, require_finite, require_uniform
from cato.errors import InputError
from cato.problem import MIN_NODES, Problem
from cato.serve.batching import PredictRequest
from cato.serve.models import ServedModel
from cato.serve.settings import ServeSettings


def validate(
    arrays: dict[str, np.ndarray], model: ServedModel, settings: ServeSettings
) -> PredictRequest:
    """The arrays as float32 with samples first; raises with the reason if they do not fit."""
    problem = model.problem
    inputs, coords = arrays.get("inputs"), arrays.get("coords")
    if inputs is None:
        inputs = _empty_inputs(problem, coords)
    _check_layout(inputs, problem)
    num_samples, *mesh = inputs.shape[:-1]
    shape = tuple(mesh)
    _check_size(num_samples, shape, problem, settings)
    inputs = _as_float32(inputs, "inputs", problem)
    if coords is None:
        if not model.has_coords or shape != problem.shape:
            ours = f"{problem.shape} nodes" if model.has_coords else "nodes that differ by sample"
            raise InputError(
                f"coords are required: {model.name} was trained on {ours}; the inputs have {shape}"
            )
        return PredictRequest(model, inputs, None)
    shared, by_sample = (*shape, problem.dimension), (num_samples, *shape, problem.dimension)
    if coords.shape not in (shared, by_sample):
        raise InputError(
            f"coords must have shape {list(shared)} or {list(by_sample)} to match the inputs; "
            f"got {list(coords.shape)}"
        )
    coords = _as_float32(coords if coords.shape == by_sample else coords[None], "coords", problem)
    if problem.geometry == "grid":
        require_uniform(coords, "coords")
    return PredictRequest(model, inputs, np.broadcast_to(coords, by_sample))


def _empty_inputs(problem: Problem, coords: np.ndarray | None) -> np.ndarray:
    """Inputs without channels, for problems whose only input is the mesh."""
    if problem.num_inputs:
        raise InputError(f"inputs are missing; their channels are {', '.join(problem.inputs)}")
    if coords is None:
        raise InputError("coords are missing; they are the only input of this model")
    if coords.ndim == len(problem.shape) + 1:
        coords = coords[None]
    return np.zeros((*coords.shape[:-1], 0), np.float32)


def _check_layout(inputs: np.ndarray, problem: Problem) -> None:
    num_axes = len(problem.shape)
    if inputs.ndim != num_axes + 2 or inputs.shape[-1] != problem.num_inputs:
        channels = f"channels ({', '.join(problem.inputs)})" if problem.inputs else "no channels"
        expected = ["samples", *problem.shape, problem.num_inputs]
        raise InputError(
            f"inputs must have shape [{', '.join(map(str, expected))}], {channels} last, or the "
            f"same on another mesh with {num_axes} axes; got {list(inputs.shape)}"
        )
    if not len(inputs):
        raise InputError("inputs contain no sample; send at least one")
    minimum = 1 if problem.geometry == "cloud" else MIN_NODES
    if min(inputs.shape[1:-1]) < minimum:
        raise InputError(
            f"every mesh axis needs at least {minimum} nodes; got {list(inputs.shape[1:-1])}"
        )


def _check_size(
    num_samples: int, shape: tuple[int, ...], problem: Problem, settings: ServeSettings
) -> None:
    if num_samples > settings.max_samples:
        raise HTTPException(
            413, f"{num_samples} samples in one request, the limit is {settings.max_samples}"
        )
    if prod(shape) > max(settings.max_nodes, problem.num_nodes):
        raise HTTPException(
            413, f"{prod(shape)} nodes per sample, the limit is {settings.max_nodes}"
        )


def _as_float32(samples: np.ndarray, name: str, problem: Problem) -> np.ndarray:
    with np.errstate(over="ignore"):  # overflow becomes infinite and is reported as such
        samples = samples.astype(np.float32)
    require_finite(samples, name, channel_names(problem)[name])
    return samples
