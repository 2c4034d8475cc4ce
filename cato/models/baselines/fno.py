"""FNO: Z. Li, N. Kovachki, K. Azizzadenesheli, B. Liu, K. Bhattacharya, A. Stuart, A. Anandkumar,
Fourier neural operator for parametric partial differential equations, ICLR 2021.

    h ← σ(K h + W h + b),   K h = F⁻¹[R(k) F[h](k)] on the lowest frequencies k

for each layer, with σ = GELU except after the last. Lift, padding and projection are those of
`GridOperator`; point clouds are reached through its latent grid, as in Geo-FNO.

Deviations: the number of padded nodes is a fraction of the mesh, so that it means the same at any
resolution; the weights R start at the size that keeps that of the signal, not at 1/C² of it.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn
from torch.nn import functional as F

from cato.models.layers.frames import FourierConfig, GridOperator
from cato.models.layers.spectral import FourierLayer
from cato.models.shapes import Grid
from cato.problem import Problem


@dataclass(frozen=True)
class FNOConfig(FourierConfig):
    """Settings of FNO."""


class FNO(GridOperator, config=FNOConfig):
    """Fourier neural operator."""

    title, family = "FNO", "Fourier"
    reference = "Li et al., Fourier Neural Operator for Parametric PDEs, ICLR 2021"
    index_inputs: ClassVar = True

    def __init__(self, config: FNOConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        self.layers = nn.ModuleList(
            FourierLayer(config.width, config.width, config.modes) for _ in range(config.depth)
        )

    def body(self, x: Grid) -> Grid:
        *layers, last = self.layers
        for layer in layers:
            x = F.gelu(layer(x))
        return last(x)
