"""What a model can be asked: the arrays of a request, checked against its problem."""

from math import prod

import numpy as np
from fastapi import HTTPException

from cato.data.arrays import channel_names, require_finite, require_uniform
from cato.errors import InputError
from cato.problem import MIN_NODES, Problem
from cato.serve.batching import Question
from cato.serve.models import ServedModel
from cato.serve.settings import ServeSettings


def question_of(
    arrays: dict[str, np.ndarray], model: ServedModel, settings: ServeSettings
) -> Question:
    """What is asked of a model, in float32 and samples first; refused with the reason."""
    problem = model.problem
    inputs, coords = arrays.get("inputs"), arrays.get("coords")
    if inputs is None:
        inputs = _no_inputs(problem, coords)
    _require_layout(inputs, problem)
    num_samples, *mesh = inputs.shape[:-1]
    shape = tuple(mesh)
    _require_size(num_samples, shape, problem, settings)
    inputs = _finite(inputs, "inputs", problem)
    if coords is None:
        if not model.has_coords or shape != problem.shape:
            ours = f"{problem.shape} nodes" if model.has_coords else "nodes that differ by sample"
            raise InputError(
                f"coords are needed: {model.name} was trained on {ours}; the inputs have {shape}"
            )
        return Question(model, inputs, None)
    one, all_of_them = (*shape, problem.dimension), (num_samples, *shape, problem.dimension)
    if coords.shape not in (one, all_of_them):
        raise InputError(
            f"coords must have shape {list(one)} or {list(all_of_them)} to fit the inputs; "
            f"got {list(coords.shape)}"
        )
    coords = _finite(coords if coords.shape == all_of_them else coords[None], "coords", problem)
    if problem.geometry == "grid":
        require_uniform(coords, "coords")
    return Question(model, inputs, np.broadcast_to(coords, all_of_them))


def _no_inputs(problem: Problem, coords: np.ndarray | None) -> np.ndarray:
    """The inputs of a problem whose input is the mesh itself."""
    if problem.num_inputs:
        raise InputError(f"inputs are missing; their channels are {', '.join(problem.inputs)}")
    if coords is None:
        raise InputError("coords are missing; they are what this model's outputs depend on")
    if coords.ndim == len(problem.shape) + 1:
        coords = coords[None]
    return np.zeros((*coords.shape[:-1], 0), np.float32)


def _require_layout(inputs: np.ndarray, problem: Problem) -> None:
    num_axes = len(problem.shape)
    if inputs.ndim != num_axes + 2 or inputs.shape[-1] != problem.num_inputs:
        channels = f"channels ({', '.join(problem.inputs)})" if problem.inputs else "no channels"
        expected = ["samples", *problem.shape, problem.num_inputs]
        raise InputError(
            f"inputs must have shape [{', '.join(map(str, expected))}], {channels} last, or that "
            f"on another mesh of {num_axes} axes; got {list(inputs.shape)}"
        )
    if not len(inputs):
        raise InputError("inputs hold no sample; send at least one")
    least = 1 if problem.geometry == "cloud" else MIN_NODES
    if min(inputs.shape[1:-1]) < least:
        raise InputError(
            f"every mesh axis needs at least {least} nodes; got {list(inputs.shape[1:-1])}"
        )


def _require_size(
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


def _finite(samples: np.ndarray, name: str, problem: Problem) -> np.ndarray:
    with np.errstate(over="ignore"):  # too large for float32 is infinite, and named as such
        samples = samples.astype(np.float32)
    require_finite(samples, name, channel_names(problem)[name])
    return samples
