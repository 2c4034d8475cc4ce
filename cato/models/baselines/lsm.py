"""LSM: latent spectral models, a U-Net with a spectral method in a latent space on every level.

Haixu Wu, Tengge Hu, Huakun Luo, Jianmin Wang, Mingsheng Long, "Solving High-Dimensional PDEs with
Latent Spectral Models", ICML 2023. On each level the mesh is cut into patches. In every patch a few
learned latent tokens T attend to the nodes x, are updated in a trigonometric basis, channel by
channel and with K functions, and the nodes attend back:

    T ← T + softmax(T (W_k x)ᵀ) W_v x
    T ← T + w_0 + Σ_(k=1)^(K−1) [w_k cos(kπT/K) + w'_k sin(kπT/K)]
    x ← x + softmax((W_q x) Tᵀ) T

The U-Net halves the mesh by maxima and doubles the channels C, 2C, 4C, 8C, but not on the coarsest
level (8C again); on the way up the result of the coarser level, interpolated from corner to corner,
is joined to the processed state. Where all levels are multiples of the patches, the outputs for
given weights are those of the published code.

Deviations: other meshes are padded on each level to a multiple of the patches, and this padding is
masked, where the published code pads the finest level with zeros; an axis of 2 nodes is not halved
again. Along periodic axes convolutions and patches wrap, and a coarse node lies amid the nodes it
came from. sin(0) and the linear map before the projection, which is linear too, are left out. Time
is embedded, where the published code has it as a third axis. Weights of the latent space start
about zero, where the published ones are positive.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.config import Count, Depth, Fraction
from cato.models.layers.attention import check_heads
from cato.models.layers.frames import GridConfig, GridOperator
from cato.models.layers.mesh import Stencil, pad_to_multiple
from cato.models.layers.nodewise import Linear
from cato.models.shapes import Grid, Periodic
from cato.problem import Problem


@dataclass(frozen=True)
class LSMConfig(GridConfig):
    """Settings of LSM."""

    width: Count = 32  # Channels C of the finest level; must be a multiple of the heads.
    padding: Fraction = 0.0
    """Zeros after the end of every axis that is not periodic; patches have their own padding."""
    levels: Depth = 5  # Levels of the U-Net.
    patch: tuple[Count, Count] = (6, 6)  # Nodes of a patch along the two axes, on every level.
    tokens: Count = 4  # Latent tokens of a patch.
    basis: Annotated[int, Ge(2)] = 12  # Basis functions K; the update has period 2K in the token.
    heads: Count = 8  # Attention heads M.


class LatentBasis(nn.Module):
    """T + w_0 + Σ_k [w_k cos(kπT/K) + w'_k sin(kπT/K)], with weights for every channel."""

    def __init__(self, width: int, num_functions: int) -> None:
        super().__init__()
        self.num_functions = num_functions
        self.cosine = nn.Parameter(torch.randn(width, num_functions) / width)
        self.sine = nn.Parameter(torch.randn(width, num_functions - 1) / width)

    def forward(self, tokens: Float[Tensor, "*B T C"]) -> Float[Tensor, "*B T C"]:
        tokens = tokens.to(self.cosine.dtype)
        k = torch.arange(self.num_functions, dtype=tokens.dtype, device=tokens.device)
        angle = tokens[..., None] * (torch.pi / self.num_functions * k)
        cosines = (angle.cos() * self.cosine).sum(-1)
        sines = (angle[..., 1:].sin() * self.sine).sum(-1)
        return tokens + cosines + sines


class LatentSpectral(nn.Module):
    """Encoding, spectral update and decoding in every patch."""

    def __init__(self, width: int, config: LSMConfig, periodic: Periodic) -> None:
        super().__init__()
        self.patch, self.heads, self.periodic = config.patch, config.heads, periodic
        check_heads(width, config.heads)
        size = width // config.heads
        self.latent = nn.Parameter(torch.randn(config.heads, config.tokens, size) / width)
        self.key_value = Linear(width, 2 * width)
        self.basis = LatentBasis(width, config.basis)
        self.query = Linear(width, width)

    def forward(self, x: Grid) -> Grid:
        h, inside = pad_to_multiple(x.movedim(1, -1), self.patch, self.periodic)
        rows, columns = h.shape[1] // self.patch[0], h.shape[2] // self.patch[1]
        sizes = {"p": self.patch[0], "q": self.patch[1]}
        h = rearrange(h, "b (i p) (j q) c -> b i j (p q) c", **sizes)
        seen = rearrange(inside, "(i p) (j q) 1 -> (i j) 1 1 (p q)", **sizes) > 0
        h = self.update(h.flatten(0, 2), seen.repeat(x.shape[0], 1, 1, 1))
        h = rearrange(h, "(b i j) (p q) c -> b c (i p) (j q)", i=rows, j=columns, p=self.patch[0])
        return x + h[..., : x.shape[2], : x.shape[3]]

    def update(
        self, nodes: Float[Tensor, "P n C"], seen: Bool[Tensor, "P 1 1 n"]
    ) -> Float[Tensor, "P n C"]:
        """What is added to the nodes of the patches."""
        keys, values = (self.split(x) for x in self.key_value(nodes).chunk(2, dim=-1))
        latent = self.latent.to(keys.dtype).expand(nodes.shape[0], -1, -1, -1)
        tokens = latent + F.scaled_dot_product_attention(latent, keys, values, seen, scale=1.0)
        tokens = self.split(self.basis(tokens.transpose(1, 2).flatten(2)))
        queries = self.split(self.query(nodes))
        tokens = tokens.to(queries.dtype)  # autocast leaves them in the precision of the basis
        z = F.scaled_dot_product_attention(queries, tokens, tokens, scale=1.0)
        return z.transpose(1, 2).flatten(2)

    def split(self, x: Float[Tensor, "P n C"]) -> Float[Tensor, "P M n c"]:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class DoubleConv(nn.Sequential):
    """Twice: stencil, batch norm, ReLU."""

    def __init__(self, num_in: int, hidden: int, num_out: int, periodic: Periodic) -> None:
        super().__init__(
            Stencil(num_in, hidden, periodic, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU(),
            Stencil(hidden, num_out, periodic, bias=False),
            nn.BatchNorm2d(num_out),
            nn.ReLU(),
        )


class Level(nn.Module):
    """One level of the U-Net with all coarser ones, of `widths` channels."""

    def __init__(
        self, num_in: int, widths: list[int], config: LSMConfig, periodic: Periodic
    ) -> None:
        super().__init__()
        self.periodic = periodic
        width, *coarser = widths
        self.convolve = DoubleConv(num_in, width, width, periodic)
        self.spectral = LatentSpectral(width, config, periodic)
        self.coarser = None
        if coarser:
            self.coarser = Level(width, coarser, config, periodic)
            self.join = DoubleConv(2 * width, width, num_in, periodic)

    def forward(self, x: Grid) -> Grid:
        x = self.convolve(x)
        processed = self.spectral(x)
        if self.coarser is None:
            return processed
        factors = tuple(2 if n > 2 else 1 for n in x.shape[2:])
        coarse = self.coarser(F.max_pool2d(x, factors, ceil_mode=True))
        return self.join(torch.cat((processed, self.upsample(coarse, factors, x)), dim=1))

    def upsample(self, coarse: Tensor, factors: tuple[int, ...], like: Grid) -> Grid:
        """Bilinear on the mesh of `like`, from corner to corner; periodic axes have none."""
        for axis, (factor, wraps) in enumerate(zip(factors, self.periodic, strict=True), start=2):
            size = [*coarse.shape[2:]]
            if not wraps:
                size[axis - 2] = like.shape[axis]
                coarse = F.interpolate(coarse, size, mode="bilinear", align_corners=True)
                continue
            around = (0, 0, 1, 1) if axis == 2 else (1, 1, 0, 0)
            size[axis - 2] = factor * (size[axis - 2] + 2)
            coarse = F.interpolate(F.pad(coarse, around, mode="circular"), size, mode="bilinear")
            coarse = coarse.narrow(axis, factor, like.shape[axis])
        return coarse


class LSM(GridOperator, config=LSMConfig):
    """Latent spectral model."""

    title, family = "LSM", "latent spectral"
    reference = "Wu et al., Solving High-Dimensional PDEs with Latent Spectral Models, ICML 2023"
    index_inputs: ClassVar = True

    def __init__(self, config: LSMConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        width, last = config.width, max(config.levels - 2, 0)
        widths = [width * 2 ** min(level, last) for level in range(config.levels)]
        self.unet = Level(width, widths, config, self.periodic)

    def body(self, x: Grid) -> Grid:
        return self.unet(x)

    def hidden_matrices(self) -> list[nn.Parameter]:
        """The projections of the latent spectral blocks; their basis has weights, no matrix."""
        linear = (m for m in self.unet.modules() if isinstance(m, nn.Linear))
        return [p for m in linear for p in m.parameters() if p.ndim == 2]
