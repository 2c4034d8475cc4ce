"""Symmetries of a problem on a grid: maps of the nodes that turn solutions into solutions.

Darcy flow on a square with the same pressure on all sides and a constant source is an example: if
the permeability is mirrored or transposed, so is the pressure. A training that maps its samples at
random sees eight times as many. All fields must be scalars: a vector would have to be turned too.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cato.data.dataset import Batch, Dataset
from cato.errors import InputError

SymmetryName = Literal["flip-0", "flip-1", "flip-2", "transpose"]
"""Mirror a mesh axis, or swap the first two."""
Shape = tuple[int, ...]


def require_symmetric(names: Sequence[SymmetryName], data: Dataset) -> None:
    """Raise if the nodes of the data are not mapped onto each other by the named symmetries."""
    problem = data.problem
    if not names:
        return
    if problem.geometry != "grid" or any(problem.periodic) or data.shared_coords is None:
        raise InputError(
            f"data.symmetries are for samples on one grid without periodic axes; {problem.name} is "
            f"a {problem.geometry}{' with periodic axes' * any(problem.periodic)}; leave them out"
        )
    coords = data.shared_coords.unflatten(0, problem.shape)
    for name in names:
        axis = 0 if name == "transpose" else int(name[-1])
        if axis >= len(problem.shape) or (name == "transpose" and len(problem.shape) < 2):
            raise InputError(
                f"data.symmetries {name}: {problem.name} has {len(problem.shape)} mesh axes"
            )
        if name == "transpose":
            is_kept = problem.shape[0] == problem.shape[1] and torch.allclose(
                _transposed(coords, 0), coords[..., [1, 0, *range(2, problem.dimension)]]
            )
        else:
            sums = coords[..., axis] + coords[..., axis].flip(axis)
            is_kept = torch.allclose(sums, sums.flatten()[0])
        if not is_kept:
            raise InputError(
                f"data.symmetries {name}: the grid of {problem.name} is not mapped onto itself; "
                f"leave it out"
            )


def draw(names: Sequence[SymmetryName], count: int, rng: np.random.Generator) -> np.ndarray:
    """For each of `count` samples, which of the symmetries are applied."""
    return rng.random((count, len(names))) < 0.5


def mapped(
    batch: Batch,
    shape: Shape,
    names: Sequence[SymmetryName],
    chosen: Bool[np.ndarray, "B symmetries"],
) -> Batch:
    """The batch with the chosen symmetries of each sample applied to its inputs and targets."""
    inputs, targets = (
        torch.stack([_map(x, shape, names, mine) for x, mine in zip(field, chosen, strict=True)])
        for field in (batch.inputs, batch.targets)
    )
    return batch._replace(inputs=inputs, targets=targets)


def _map(
    field: Float[Tensor, "*T N C"], shape: Shape, names: Sequence[SymmetryName], chosen: np.ndarray
) -> Float[Tensor, "*T N C"]:
    first = field.ndim - 2
    values = field.unflatten(first, shape)
    for name, is_applied in zip(names, chosen, strict=True):
        if not is_applied:
            continue
        if name == "transpose":
            values = _transposed(values, first)
        else:
            values = values.flip(first + int(name[-1]))
    return values.flatten(first, first + len(shape) - 1)


def _transposed(values: Tensor, first: int) -> Tensor:
    return values.transpose(first, first + 1)
