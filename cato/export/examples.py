"""Inputs to trace a surrogate with and to compare its file on."""

from math import ceil

import torch
from torch import Tensor

from cato.export.portable import Arrays
from cato.surrogate import Surrogate


def random_arrays(
    surrogate: Surrogate, shape: tuple[int, ...], batch: int, regular: bool = False
) -> Arrays:
    """Inputs of the size of the training's on nodes in the training's domain; always the same.

    Args:
        surrogate: Model and normaliser.
        shape: Of the mesh.
        batch: Number of samples.
        regular: Whether points of a cloud lie on a lattice, where many are equally near, or
            anywhere. Meshes are regular.
    """
    problem, normaliser = surrogate.problem, surrogate.normaliser
    generator = torch.Generator().manual_seed(0)

    def spread(name: str, values: Tensor) -> Tensor:
        std, mean = (normaliser.get_buffer(f"{name}_{m}").cpu() for m in ("std", "mean"))
        return mean + std * values

    if problem.geometry == "cloud" and not regular:
        unit = torch.rand(batch, *shape, problem.dimension, generator=generator)
    else:
        unit = _lattice(shape, problem.dimension).repeat(batch, *len(shape) * [1], 1)
    if surrogate.coords is not None:
        low, high = surrogate.coords.cpu().aminmax(dim=0)
        coords = low + (high - low) * unit
    else:
        coords = spread("coords", unit)
    arrays = {"coords": coords}
    if problem.num_inputs:
        noise = torch.randn(batch, *shape, problem.num_inputs, generator=generator)
        arrays["inputs"] = spread("inputs", noise)
    if problem.has_time:
        arrays["time"] = torch.rand(batch, generator=generator)
    return arrays


def _lattice(shape: tuple[int, ...], dimension: int) -> Tensor:
    """Nodes of the unit cube with as many as `shape` says along each axis, or as points in all."""
    is_cloud = len(shape) < dimension
    sides = dimension * [ceil(shape[0] ** (1 / dimension))] if is_cloud else shape
    axes = [torch.linspace(0, 1, n) for n in sides]
    nodes = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
    return nodes.flatten(0, -2)[: shape[0]] if is_cloud else nodes
