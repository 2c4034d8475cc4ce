"""Shapes that many signatures share; jaxtyping checks them in every test.

B samples, N nodes, D coordinates, C channels, M attention heads of E channels, H × W mesh nodes.
"""

from jaxtyping import Bool, Float
from torch import Tensor

Coords = Float[Tensor, "B N D"]
Features = Float[Tensor, "B N C_in"]
Times = Float[Tensor, " B"] | None  # Time in [0, 1] of each sample, for time-conditioned problems.
Shape = tuple[int, ...]  # Nodes along each mesh axis.
Periodic = tuple[bool, ...]  # For each mesh axis, whether it is periodic.
Mask = Bool[Tensor, "B N"] | None  # Clouds only: False marks padding.

Points = Float[Tensor, "B N C"]
Heads = Float[Tensor, "B M N E"]
Mesh = Float[Tensor, "B *mesh C"]
Grid = Float[Tensor, "B C H W"]
Signal = Float[Tensor, "B C N"]  # Channels first, as convolutions expect.
