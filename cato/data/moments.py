"""Mean and variance of values that come in batches, some of which may be missing."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and sum of squared deviations along the first axis of what was added, in float64.

    NaN does not count; what has no values at all has mean and squares 0.
    """

    count: int | Tensor  # A number for each entry of the mean, if some values were NaN.
    mean: Tensor
    squares: Tensor

    @classmethod
    def of(cls, values: Tensor) -> "Moments":
        """Of the rows of one array."""
        values = values.double()
        unknown = values.isnan()
        if not unknown.any():
            mean = values.mean(0)
            return cls(len(values), mean, (values - mean).square().sum(0))
        count = (~unknown).sum(0)
        mean = values.nansum(0) / count.clamp(min=1)
        return cls(count, mean, (values - mean).masked_fill(unknown, 0).square().sum(0))

    def joined(self, other: "Moments") -> "Moments":
        """Of the rows of both."""
        count, apart = self.count + other.count, other.mean - self.mean
        share = other.count / _at_least_one(count)
        return Moments(
            count,
            self.mean + apart * share,
            self.squares + other.squares + apart.square() * (self.count * share),
        )

    def over_first_axis(self) -> "Moments":
        """The first axis of the mean, such as frames, becomes rows too."""
        if isinstance(self.count, int):
            mean = self.mean.mean(0)
            squares = self.squares.sum(0) + self.count * (self.mean - mean).square().sum(0)
            return Moments(self.count * len(self.mean), mean, squares)
        count = self.count.sum(0)
        mean = (self.count * self.mean).sum(0) / count.clamp(min=1)
        squares = self.squares.sum(0) + (self.count * (self.mean - mean).square()).sum(0)
        return Moments(count, mean, squares)

    @property
    def deviation(self) -> Tensor:
        return (self.squares / _at_least_one(self.count)).sqrt()

    def flattened(self) -> "Moments":
        """With all axes but that of the channels as one."""
        count = self.count if isinstance(self.count, int) else self.count.flatten(0, -2)
        return Moments(count, self.mean.flatten(0, -2), self.squares.flatten(0, -2))

    def deviation_over(self, axis: int) -> Tensor:
        """Root of the mean of the squared deviations from their own means along an axis too."""
        if isinstance(self.count, int):
            return (self.squares / self.count).mean(axis, keepdim=True).sqrt()
        count = self.count.sum(axis, keepdim=True).clamp(min=1)
        return (self.squares.sum(axis, keepdim=True) / count).sqrt()

    def filled(self) -> Tensor:
        """The mean; where an entry has no values the mean over the others of its channel."""
        if isinstance(self.count, int):
            return self.mean
        axes = tuple(range(self.mean.ndim - 1))
        count = self.count.sum(axes, keepdim=True).clamp(min=1)
        return torch.where(
            self.count > 0, self.mean, (self.count * self.mean).sum(axes, keepdim=True) / count
        )


def _at_least_one(count: int | Tensor) -> int | Tensor:
    return max(1, count) if isinstance(count, int) else count.clamp(min=1)
