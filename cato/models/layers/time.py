"""Time conditioning: the hidden state is shifted by an embedding of the requested time."""

from math import log

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.errors import InputError
from cato.models.layers.mlp import MLP

_NUM_FREQUENCIES = 16


class TimeEmbedding(nn.Module):
    """Sinusoidal embedding of t ∈ [0, 1], then Linear–SiLU–Linear to the model's width.

    The frequencies run geometrically from half a turn to 10 turns over the whole time span: the
    twenty frames of the paper's benchmark are told apart, and times between them make sense.
    """

    frequency: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        frequency = torch.pi * torch.exp(torch.linspace(0, log(20), _NUM_FREQUENCIES))
        self.register_buffer("frequency", frequency, persistent=False)
        self.mlp = MLP(2 * _NUM_FREQUENCIES, width, width, F.silu)

    def forward(self, time: Float[Tensor, " B"] | None) -> Float[Tensor, "B width"]:
        """Embed the times; a time-conditioned model cannot do without them."""
        if time is None:
            raise InputError(
                "this problem is conditioned on time: pass time=, one t in [0, 1] per sample"
            )
        angle = time[:, None] * self.frequency
        return self.mlp(torch.cat((angle.sin(), angle.cos()), dim=-1))
