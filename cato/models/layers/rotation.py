"""Rotary encoding: places are told by turning pairs of channels."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Rotation(NamedTuple):
    """R at some places: pair r of channels is turned by an angle of its own."""

    cos: Float[Tensor, "*places pairs"]
    sin: Float[Tensor, "*places pairs"]

    @classmethod
    def by(cls, angle: Float[Tensor, "*places pairs"]) -> "Rotation":
        """The rotation by these angles."""
        return cls(angle.cos(), angle.sin())

    def __call__(self, x: Float[Tensor, "B M N E"]) -> Float[Tensor, "B M N E"]:
        """R x, where channels r and r + E/2 are a pair."""
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * self.cos - b * self.sin, a * self.sin + b * self.cos), dim=-1)
