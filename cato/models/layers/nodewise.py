"""Maps that are the same at every node, and features of positions and times."""

from collections.abc import Callable
from math import log

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.errors import InputError
from cato.kernels.linear import linear
from cato.models.shapes import Coords, Mask, Times
from cato.problem import Problem


class Linear(nn.Linear):
    """W x + b on the last axis, in the faster of PyTorch's libraries."""

    def forward(self, x: Float[Tensor, "*axes C_in"]) -> Float[Tensor, "*axes C_out"]:
        return linear(x, self.weight, self.bias)


def hidden_width(width: int, ratio: float) -> int:
    """Width of a hidden layer in units of a width; at least 1."""
    return max(1, round(ratio * width))


class MLP(nn.Module):
    """W₂ σ(W₁ x + b₁) + b₂ on the last axis."""

    def __init__(
        self,
        num_in: int,
        hidden: int,
        num_out: int,
        activation: Callable[[Tensor], Tensor] = F.gelu,
    ) -> None:
        super().__init__()
        self.hidden = Linear(num_in, hidden)
        self.out = Linear(hidden, num_out)
        self.activation = activation

    def forward(self, x: Float[Tensor, "*axes num_in"]) -> Float[Tensor, "*axes num_out"]:
        return self.out(self.activation(self.hidden(x)))


class GatedMLP(nn.Module):
    """W₂ (GELU(a) b) + b₂ with [a, b] = W₁ x + b₁, on the last axis."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.hidden = Linear(width, 2 * hidden)
        self.out = Linear(hidden, width)

    def forward(self, x: Float[Tensor, "*axes C"]) -> Float[Tensor, "*axes C"]:
        gate, value = self.hidden(x).chunk(2, dim=-1)
        return self.out(F.gelu(gate) * value)


class ChannelLinear(nn.Linear):
    """A linear map of the channels of channels-first features: a 1 × 1 convolution."""

    def forward(self, x: Float[Tensor, "B C_in *S"]) -> Float[Tensor, "B C_out *S"]:
        y = self.weight @ x.flatten(2)
        return (y if self.bias is None else y + self.bias[:, None]).unflatten(2, x.shape[2:])


class ChannelMLP(nn.Sequential):
    """W₂ GELU(W₁ x + b₁) + b₂ of channels-first features."""

    def __init__(self, num_in: int, hidden: int, num_out: int) -> None:
        super().__init__()
        self.hidden = ChannelLinear(num_in, hidden)
        self.activation = nn.GELU()
        self.out = ChannelLinear(hidden, num_out)


def start_small(module: nn.Module) -> None:
    """Initialise linear maps with deviation 0.02 and no bias; for `nn.Module.apply`."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


_NUM_FREQUENCIES = 16
_TINY = 1e-6  # Least extent of a domain.


class TimeEmbedding(nn.Module):
    """Sinusoidal embedding of t ∈ [0, 1], then Linear–SiLU–Linear to the model's width.

    The frequencies run geometrically from half a turn to 10 turns over the whole time span: enough
    to tell the twenty frames of the paper's benchmark apart, and smooth between them.
    """

    frequency: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        frequency = torch.pi * torch.exp(torch.linspace(0, log(20), _NUM_FREQUENCIES))
        self.register_buffer("frequency", frequency, persistent=False)
        self.mlp = MLP(2 * _NUM_FREQUENCIES, width, width, F.silu)

    def forward(self, time: Times) -> Float[Tensor, "B width"]:
        if time is None:
            raise InputError(
                "this problem is conditioned on time: pass time=, one t in [0, 1] per sample"
            )
        angle = time[:, None] * self.frequency
        return self.mlp(torch.cat((angle.sin(), angle.cos()), dim=-1))


def time_embedding(width: int, problem: Problem) -> TimeEmbedding | None:
    """The embedding for time-conditioned problems, None for others."""
    return TimeEmbedding(width) if problem.has_time else None


class FourierFeatures(nn.Module):
    """[sin, cos](2π B x) with random B of deviation `scale` turns, which is not trained."""

    frequency: Tensor

    def __init__(self, dimension: int, num_features: int, scale: float) -> None:
        super().__init__()
        self.register_buffer("frequency", scale * torch.randn(dimension, num_features // 2))

    def forward(self, coords: Float[Tensor, "*axes D"]) -> Float[Tensor, "*axes F"]:
        # A sum and not a matrix product, which autocast would round to less than a turn.
        angle = 2 * torch.pi * (coords[..., None] * self.frequency).sum(-2)
        return torch.cat((angle.sin(), angle.cos()), dim=-1)


class ReferenceGrid(nn.Module):
    """Distances of a point to the nodes of a uniform grid on the unit square, cube or interval.

    With `size` 0 nodes along each side, the coordinates themselves.
    """

    nodes: Tensor

    def __init__(self, size: int, dimension: int) -> None:
        super().__init__()
        self.size, self.num_features = size, size**dimension if size else dimension
        if size:
            ticks = torch.linspace(0, 1, size)
            nodes = torch.cartesian_prod(*[ticks] * dimension).view(-1, dimension)
            self.register_buffer("nodes", nodes, persistent=False)

    def forward(self, coords: Coords) -> Float[Tensor, "B N F"]:
        if not self.size:
            return coords
        return torch.linalg.vector_norm(coords[:, :, None] - self.nodes, dim=-1)


def unit_box(coords: Coords, mask: Mask = None) -> Coords:
    """Nodes scaled to [0, 1]ᴰ by the bounding box of their sample, padding excluded.

    Each coordinate has its own scale: a pipe ten times as long as wide becomes a square.
    """
    low = high = coords
    if mask is not None:
        low = coords.masked_fill(~mask[..., None], torch.inf)
        high = coords.masked_fill(~mask[..., None], -torch.inf)
    low, high = low.amin(1, keepdim=True), high.amax(1, keepdim=True)
    return (coords - low) / (high - low).clamp_min(_TINY)
