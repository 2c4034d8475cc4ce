"""An exponential average of the weights: it is validated and kept as best in their place.

    a ← β a + (1 − β) w after every step,   β = min(decay, (1 + step) / (10 + step))

The smaller β of the first steps forgets the initial weights.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """The average of the weights that `module` learns; a decay of 0 is no average."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.module, self.decay = module, decay
        self.values: list[Tensor] = []
        """One for each weight; none before the first step."""

    @property
    def weights(self) -> list[nn.Parameter]:
        """The trainable parameters."""
        return [p for p in self.module.parameters() if p.requires_grad]

    def reset(self) -> None:
        """Forget what was averaged."""
        self.values = []

    @torch.no_grad()
    def take(self) -> None:
        """Set the average to the current weights."""
        self.values = [weight.detach().clone() for weight in self.weights]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move towards the weights after step number `step`."""
        if not self.decay:
            return
        if not self.values:
            self.take()
        share = 1 - min(self.decay, (1 + step) / (10 + step))
        for value, weight in zip(self.values, self.weights, strict=True):
            value.lerp_(weight, share)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The module has the averages as weights."""
        if not self.values:
            yield
            return
        kept = [weight.detach().clone() for weight in self.weights]
        self._put(self.values)
        try:
            yield
        finally:
            self._put(kept)

    @torch.no_grad()
    def _put(self, values: list[Tensor]) -> None:
        for weight, value in zip(self.weights, values, strict=True):
            weight.copy_(value)
