"""The 3 × 3 convolution of channels-first features on meshes that may be periodic."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


class Stencil(nn.Conv2d):
    """A convolution over the neighbours of a node; periodic axes wrap, beyond others are zeros.

    Args:
        num_in: Channels that come in.
        num_out: Channels that go out.
        periodic: Which of the two axes close on themselves.
        bias: Whether a bias is added.
        stride: 2 halves the mesh, rounding up.
    """

    def __init__(
        self,
        num_in: int,
        num_out: int,
        periodic: tuple[bool, ...],
        *,
        bias: bool = True,
        stride: int = 1,
    ) -> None:
        rows, columns = (int(wraps) for wraps in periodic)
        padding = (1 - rows, 1 - columns)
        super().__init__(num_in, num_out, 3, stride, padding, bias=bias)
        self.wrap = (columns, columns, rows, rows)  # F.pad begins with the last axis

    def forward(self, x: Float[Tensor, "B C_in H W"]) -> Float[Tensor, "B C_out H2 W2"]:
        """Convolve."""
        return super().forward(F.pad(x, self.wrap, mode="circular") if any(self.wrap) else x)
