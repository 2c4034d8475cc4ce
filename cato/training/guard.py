"""Undo bad steps on a device without asking it whether they were bad."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Guard:
    """Keeps the weights of a module from the first bad step on: that step and all later ones.

    The training ends when it reads that there was one, so the optimisers' state does not matter.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.is_good: Tensor | None = None

    @contextmanager
    def undoing_unless(self, is_good: Tensor) -> Iterator[None]:
        """Undo the changes of the weights in this block unless this and all before were good."""
        self.is_good = is_good if self.is_good is None else self.is_good & is_good
        before = [weight.clone() for weight in self.weights]
        yield
        for weight, old in zip(self.weights, before, strict=True):
            weight.copy_(torch.where(self.is_good, weight, old))

    @property
    def weights(self) -> list[Tensor]:
        """The trainable parameters; of sharded ones, the part of this process."""
        trained = [p.detach() for p in self.module.parameters() if p.requires_grad]
        return [getattr(p, "to_local", lambda p=p: p)() for p in trained]
