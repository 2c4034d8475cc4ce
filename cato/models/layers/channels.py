"""Maps of the channels of channels-first features (B, C, *S), the same at every node."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


class ChannelLinear(nn.Linear):
    """A linear map of the channels of channels-first features: a 1 × 1 convolution."""

    def forward(self, x: Float[Tensor, "B C_in *S"]) -> Float[Tensor, "B C_out *S"]:
        """Apply it at every node."""
        y = self.weight @ x.flatten(2)
        return (y if self.bias is None else y + self.bias[:, None]).unflatten(2, x.shape[2:])


class ChannelMLP(nn.Module):
    """W₂ GELU(W₁ x + b₁) + b₂ at every node of channels-first features."""

    def __init__(self, num_in: int, hidden: int, num_out: int) -> None:
        super().__init__()
        self.hidden = ChannelLinear(num_in, hidden)
        self.out = ChannelLinear(hidden, num_out)

    def forward(self, x: Float[Tensor, "B C_in *S"]) -> Float[Tensor, "B C_out *S"]:
        """Apply both layers."""
        return self.out(F.gelu(self.hidden(x)))
