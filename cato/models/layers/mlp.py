"""The two-layer perceptron that models lift, mix and read out with."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


class MLP(nn.Module):
    """W₂ σ(W₁ x + b₁) + b₂, on the last axis.

    Args:
        num_in: Channels that come in.
        hidden: Channels between the two layers.
        num_out: Channels that go out.
        activation: σ.
    """

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
        """Apply both layers."""
        return self.out(self.activation(self.hidden(x)))
