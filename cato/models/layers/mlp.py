"""Maps of the channels that are the same at every node, with channels last or first."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


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
        self.hidden = nn.Linear(num_in, hidden)
        self.out = nn.Linear(hidden, num_out)
        self.activation = activation

    def forward(self, x: Float[Tensor, "*axes num_in"]) -> Float[Tensor, "*axes num_out"]:
        return self.out(self.activation(self.hidden(x)))


class ChannelLinear(nn.Linear):
    """A linear map of the channels of channels-first features: a 1 × 1 convolution."""

    def forward(self, x: Float[Tensor, "B C_in *S"]) -> Float[Tensor, "B C_out *S"]:
        y = self.weight @ x.flatten(2)
        return (y if self.bias is None else y + self.bias[:, None]).unflatten(2, x.shape[2:])


class ChannelMLP(nn.Module):
    """W₂ GELU(W₁ x + b₁) + b₂ of channels-first features."""

    def __init__(self, num_in: int, hidden: int, num_out: int) -> None:
        super().__init__()
        self.hidden = ChannelLinear(num_in, hidden)
        self.out = ChannelLinear(hidden, num_out)

    def forward(self, x: Float[Tensor, "B C_in *S"]) -> Float[Tensor, "B C_out *S"]:
        return self.out(F.gelu(self.hidden(x)))


def start_small(module: nn.Module) -> None:
    """Initialise linear maps with deviation 0.02 and no bias; for `nn.Module.apply`."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
