"""GEO-FNO: Z. Li, D. Huang, B. Liu, A. Anandkumar, Fourier neural operator with learned
deformations for PDEs on general geometries, JMLR 2023.

Fourier layers on a computational grid whose unit coordinates ξ enter every layer,

    h ← σ(K h + W h + b(ξ)),     b linear,  σ = GELU; on meshes except after the last.

On meshes the computational grid is the mesh itself. On point clouds it is the latent grid of
`latent_grid`, with a code of the cloud's shape; the published model for clouds has depth 3. Without
a code, the outputs on clouds for given weights are those of the published code.

Deviations: on meshes the published model has ξ in the lift only, which makes it an FNO; time is
embedded, where the published model for plasticity adds it as a third axis; the shape code is
learned from the points, because the data do not come with one. See also `latent_grid`: clouds are
scaled to the unit square, and the synthesis at the points is conjugate symmetric.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.models.layers.frames import FourierConfig, GridOperator
from cato.models.layers.latent_grid import GeoConfig, unit_grid
from cato.models.layers.nodewise import ChannelLinear
from cato.models.layers.spectral import SpectralConv
from cato.models.shapes import Grid
from cato.problem import Problem


@dataclass(frozen=True)
class GeoFNOConfig(FourierConfig):
    """Settings of GEO-FNO."""

    geo: GeoConfig = field(default_factory=lambda: GeoConfig(latent=(40, 40), code=32))
    """How point clouds are seen."""


class PlacedFourierLayer(nn.Module):
    """K x + W x + b(ξ)."""

    def __init__(self, width: int, modes: tuple[int, ...]) -> None:
        super().__init__()
        self.spectral = SpectralConv(width, width, modes)
        self.pointwise = ChannelLinear(width, width, bias=False)
        self.place = ChannelLinear(2, width)

    def forward(self, x: Grid, grid: Float[Tensor, "1 2 H W"]) -> Grid:
        return self.spectral(x) + self.pointwise(x) + self.place(grid)


class GeoFNO(GridOperator, config=GeoFNOConfig):
    """Fourier neural operator on a computational grid."""

    title, family = "GEO-FNO", "Fourier"
    reference = "Li et al., Fourier Neural Operator with Learned Deformations, JMLR 2023"
    index_inputs: ClassVar = True

    def __init__(self, config: GeoFNOConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        self.layers = nn.ModuleList(
            PlacedFourierLayer(config.width, config.modes) for _ in range(config.depth)
        )

    def body(self, x: Grid) -> Grid:
        grid = unit_grid(tuple(x.shape[2:]), x)
        *layers, last = self.layers
        for layer in layers:
            x = F.gelu(layer(x, grid))
        x = last(x, grid)
        return F.gelu(x) if self.problem.geometry == "cloud" else x

    def hidden_matrices(self) -> list[nn.Parameter]:
        """The maps W of the layers; those of the place have only two columns."""
        return [p for p in super().hidden_matrices() if p.shape[1] != 2]
