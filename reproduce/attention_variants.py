"""Variants of CATO that its cost is compared with: attention alone, full, not compiled."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cato.models.cato.attention import (
    AxialAttention,
    attend,
    attend_along,
    axial_attention,
    rotate,
    turn_back,
)
from cato.models.cato.grid import Cato, CatoConfig
from cato.models.registry import model_class
from cato.problem import Problem


class FullAttention(nn.Module):
    """Attention of every node to all nodes of the mesh, O(N²), in place of `AxialAttention`.

    Half of a head's pairs turn with the first chart coordinate, the others with the second.
    """

    def __init__(self, width: int, heads: int, turn_values: bool) -> None:
        super().__init__()
        self.heads, self.turn_values = heads, turn_values
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(
        self, h: Float[Tensor, "B *mesh C"], turns: Sequence[Float[Tensor, "B *mesh pairs 2"]]
    ) -> Float[Tensor, "B *mesh C"]:
        """Attend to the whole mesh as one line."""
        half = turns[0].shape[-2] // 2
        turn = torch.cat((turns[0][..., :half, :], turns[1][..., half:, :]), dim=-2)
        q, k, v = self.qkv(h).chunk(3, dim=-1)
        v = rotate(v, turn) if self.turn_values else v
        q, k, v = (x.flatten(1, -2) for x in (rotate(q, turn), rotate(k, turn), v))
        result = attend_along(q, k, v, 1, self.heads).reshape(h.shape)
        return self.out(rotate(result, turn_back(turn)) if self.turn_values else result)


def full_attention(config: CatoConfig, problem: Problem) -> nn.Module:
    """CATO with full attention in every block."""
    model = Cato(config, problem)
    for block in model.blocks:
        block.attention = FullAttention(config.width, config.heads, model.is_ours)
    return model


class PlainAttention(AxialAttention):
    """The same function, in PyTorch's operations on CPUs too, as the other models are."""

    def forward(
        self, h: Float[Tensor, "B *mesh C"], turns: Sequence[Float[Tensor, "B *mesh pairs 2"]]
    ) -> Float[Tensor, "B *mesh C"]:
        """Attend along each axis."""
        turns = [turns[axis] for axis in self.axes]
        qkv = self.qkv(h)
        return self.out(axial_attention(qkv, turns, self.heads, self.axes, self.turn_values))


class PlainCato(Cato, config=CatoConfig):
    """CATO without compiled loops."""

    title = "CATO in PyTorch's operations"

    def __init__(self, config: CatoConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        for block in self.blocks:
            fast = block.attention
            assert isinstance(fast, AxialAttention)
            plain = PlainAttention(
                config.width, config.heads, fast.axes, config.share_qkv, fast.turn_values
            )
            plain.load_state_dict(fast.state_dict())
            block.attention = plain


class AxialAlone(nn.Module):
    """The attention of all blocks of CATO and nothing else: projections and rotations are given."""

    def __init__(self, config: CatoConfig, problem: Problem) -> None:
        super().__init__()
        model = Cato(config, problem)
        coords = torch.rand(1, problem.num_nodes, problem.dimension)
        with torch.no_grad():
            self.turns = model.rotations(coords, problem.shape)
        self.qkv = torch.randn(1, *problem.shape, 3 * config.width)
        self.heads, self.depth, self.turn_values = config.heads, config.depth, model.is_ours

    def forward(self, coords: Tensor, features: Tensor) -> None:
        """Attend as often as CATO does, by the same kernels; the arguments are not used."""
        for _ in range(self.depth):
            attend(self.qkv, self.turns, self.heads, None, self.turn_values)


VARIANTS: dict[str, tuple[str, Callable[[Any, Problem], nn.Module]]] = {
    "axial_attention": ("CATO's attention alone", AxialAlone),
    "full_attention": ("CATO with full attention", full_attention),
    "plain_cato": (PlainCato.title, PlainCato),
}
"""Titles and builders by name; each takes the settings of CATO."""


def title_of(name: str) -> str:
    """Title of a variant or of a model of the library."""
    return VARIANTS[name][0] if name in VARIANTS else model_class(name).title
