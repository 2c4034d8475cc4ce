"""Normalisation: the network's inputs and outputs have mean 0 and deviation 1 on the training set.

One mean and one deviation per channel over all training samples and nodes, for those of
coordinates, inputs and outputs that are in `Problem.normalise`; the others pass unchanged.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from cato.data.dataset import Dataset
from cato.errors import InputError
from cato.problem import Problem

_SAMPLES_AT_ONCE = 64


class Normaliser(nn.Module):
    """Maps physical to normalised values and back; saved and moved with the model.

    A new normaliser is the identity; use `fit`.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        sizes = {
            "coords": problem.dimension,
            "inputs": problem.num_inputs,
            "outputs": problem.num_outputs,
        }
        for name, size in sizes.items():
            self.register_buffer(f"{name}_mean", torch.zeros(size))
            self.register_buffer(f"{name}_std", torch.ones(size))

    @classmethod
    def fit(cls, train: Dataset) -> "Normaliser":
        normaliser = cls(train.problem)
        values = {"coords": train.coords, "inputs": train.inputs, "outputs": train.targets}
        for name in train.problem.normalise:
            mean, std = _moments(values[name], train.mask, name)
            normaliser.get_buffer(f"{name}_mean").copy_(mean)
            normaliser.get_buffer(f"{name}_std").copy_(std)
        return normaliser

    def encode_coords(self, coords: Float[Tensor, "*batch N D"]) -> Float[Tensor, "*batch N D"]:
        return self._encode("coords", coords)

    def encode_inputs(self, inputs: Float[Tensor, "*batch N C"]) -> Float[Tensor, "*batch N C"]:
        return self._encode("inputs", inputs)

    def decode_outputs(self, outputs: Float[Tensor, "*batch N C"]) -> Float[Tensor, "*batch N C"]:
        return outputs * self.get_buffer("outputs_std") + self.get_buffer("outputs_mean")

    def _encode(self, name: str, values: Tensor) -> Tensor:
        return (values - self.get_buffer(f"{name}_mean")) / self.get_buffer(f"{name}_std")


def _moments(
    values: Float[Tensor, "*batch N C"], mask: Bool[Tensor, "S N"] | None, name: str
) -> tuple[Float[Tensor, " C"], Float[Tensor, " C"]]:
    """Mean and deviation of each channel, in double precision; 1 for a channel that is constant."""
    if values.ndim == 2:  # shared coordinates
        values = values.expand(1 if mask is None else len(mask), *values.shape)
    count = sum(len(rows) for rows in _rows(values, mask))
    mean = sum(rows.sum(0) for rows in _rows(values, mask)) / count
    variance = sum((rows - mean).square().sum(0) for rows in _rows(values, mask)) / count
    assert isinstance(mean, Tensor)
    assert isinstance(variance, Tensor)
    if not (mean.isfinite() & variance.isfinite()).all():
        raise InputError(f"the training {name} contain NaN or infinite values; remove them")
    std = variance.sqrt()
    # A deviation below float32 rounding of the mean is noise: dividing by it would amplify it.
    float32 = torch.finfo(torch.float32)
    constant = std <= (float32.eps * mean.abs()).clamp(min=float32.tiny)
    return mean, torch.where(constant, 1.0, std)


def _rows(
    values: Float[Tensor, "S *T N C"], mask: Bool[Tensor, "S N"] | None
) -> Iterator[Float[Tensor, "P C"]]:
    """The channels of all unmasked nodes at all times, a few samples at a time."""
    for start in range(0, len(values), _SAMPLES_AT_ONCE):
        some = slice(start, start + _SAMPLES_AT_ONCE)
        nodes = values[some].movedim(-2, 1)
        if mask is not None:
            nodes = nodes[mask[some]]
        yield nodes.flatten(0, -2).double()
