"""Shapes that many signatures share; jaxtyping checks them in every test.

B samples, N nodes, D coordinates, C channels, M attention heads of E channels, H × W mesh nodes.
"""

from jaxtyping import Bool, Float
from torch import Tensor

Coords = Float[Tensor, "B N D"]
Features = Float[Tensor, "B N C_in"]
Times = Float[Tensor, " B"] | None
"""Time in [0, 1] of each sample, for time-conditioned problems."""
Mask = Bool[Tensor, "B N"] | None
"""Clouds only: False marks padding."""

Points = Float[Tensor, "B N C"]
Heads = Float[Tensor, "B M N E"]
Mesh = Float[Tensor, "B *mesh C"]
Grid = Float[Tensor, "B C H W"]
"""Channels first, as convolutions want it."""
