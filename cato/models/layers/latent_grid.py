"""Point clouds on a latent torus (Li et al., Fourier neural operator with learned deformations,
JMLR 2023): how a network for regular grids reaches points anywhere.

A learned deformation carries the points x, scaled to the unit square, to ξ = x + x · net(x) on the
torus [0, 1)². The first layer goes from the points to a regular latent grid, the last one back, by
direct non-uniform Fourier transforms over the N points,

    h(k) = 1/N Σ_n h_n exp(−2πi k·ξ_n),      h_n = Re Σ_k c_k h(k) exp(2πi k·ξ_n),

each with a learned matrix W(k) and a linear map of the positions; c_k = 1 for k₂ = 0 and else 2,
for the conjugate frequencies that need not be stored.

Deviations: the points are scaled to the unit square by the bounding box of their cloud, so that
normalised or physical coordinates do not wrap around the torus several times (opposite edges of the
box do meet on it, until the deformation parts them); means and not sums over the points, so that N
may vary; weights W(k) that start at the size that keeps that of the signal. The shape code, given
with the data in the paper, is learned here: the mean over the points of a linear map of their
features. The published synthesis takes the conjugate frequency of (k₁, k₂) for (−1 − k₁, −k₂); here
it is (−k₁, −k₂).
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Annotated

import torch
from annotated_types import Ge
from jaxtyping import Complex, Float
from torch import Tensor, nn
from torch.nn import functional as F

from cato.config import Count
from cato.errors import InputError
from cato.models.contract import Nodes
from cato.models.layers.nodewise import ChannelLinear, Linear, unit_box
from cato.models.layers.spectral import Kept, SpectralConv, kept_modes, spectrum, synthesis
from cato.models.shapes import Coords, Grid, Mask, Points, Shape, Signal

_NUM_OCTAVES = 8  # Frequencies π·2^k of the deformation's features.
_POLE = 1e-4  # Pole of angle and radius, near the corner of the unit square; the authors' value.

Basis = Float[Tensor, "B N K_real"]
Spectrum = Complex[Tensor, "B C K1 K2"]


@dataclass(frozen=True)
class GeoConfig:
    """How a grid network sees a point cloud; unused on grids and meshes."""

    latent: tuple[Count, Count] = (48, 48)  # Nodes of the latent grid.
    modes: tuple[Count, Count] = (12, 12)
    """Frequencies of the transforms from and to the points; at most half the latent nodes."""
    hidden: Count = 128  # Width of the deformation network.
    code: Annotated[int, Ge(0)] = 0
    """Size of the learned shape code that the deformation sees; 0 for none."""


def unit_grid(shape: Shape, like: Tensor) -> Float[Tensor, "1 D *S"]:
    """Coordinates i/n of the nodes of a torus, channels first."""
    axes = [torch.arange(n, dtype=like.dtype, device=like.device) / n for n in shape]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"))[None]


def fourier_basis(points: Coords, modes: tuple[int, int]) -> Basis:
    """Real and imaginary parts, in turn, of exp(−2πi k·ξ) for all kept frequencies k."""
    rows, columns = (torch.arange(m, dtype=points.dtype, device=points.device) for m in modes)
    rows = torch.cat((rows, rows - modes[0]))
    wave_rows, wave_columns = (
        torch.exp(-2j * torch.pi * x[..., None] * k)
        for x, k in zip(points.unbind(-1), (rows, columns), strict=True)
    )
    return torch.view_as_real(wave_rows[..., :, None] * wave_columns[..., None, :]).flatten(2)


def nonuniform_spectrum(h: Signal, basis: Basis, kept: Kept, mask: Mask = None) -> Spectrum:
    """h(k) of the module docstring, without the points outside the mask."""
    if mask is None:
        z = h.to(basis.dtype) @ basis / h.shape[-1]
    else:
        num_points = mask.sum(1)[:, None, None].clamp_min(1)
        z = h.to(basis.dtype) * mask[:, None] @ basis / num_points
    return torch.view_as_complex(z.unflatten(2, (*map(sum, kept), 2)))


def nonuniform_synthesis(z: Spectrum, basis: Basis) -> Signal:
    """h_n of the module docstring."""
    z = torch.cat((z[..., :1], 2 * z[..., 1:]), dim=-1)
    return torch.view_as_real(z).flatten(2) @ basis.transpose(1, 2)


class Deformation(nn.Module):
    """ξ = x + x · net(x) on the unit square.

    The network, three tanh layers and a linear one, sees position, angle and radius about a corner,
    their sines and cosines at eight octaves, and a code of the whole cloud.
    """

    def __init__(self, hidden: int, code: int) -> None:
        super().__init__()
        num_features = 4 + 2 * 4 * _NUM_OCTAVES
        self.code = Linear(num_features, code) if code else None
        sizes = (num_features + code, hidden, hidden, hidden)
        layers = ((Linear(*pair), nn.Tanh()) for pair in pairwise(sizes))
        self.net = nn.Sequential(*chain.from_iterable(layers), Linear(hidden, 2))

    def forward(self, points: Coords, mask: Mask = None) -> Coords:
        """Move the points; those outside the mask do not enter the code."""
        features = self.features(points)
        if self.code is not None:
            code = mean_over_points(self.code(features), mask)
            features = torch.cat((features, code.expand(-1, points.shape[1], -1)), dim=-1)
        return points + points * self.net(features)

    def features(self, points: Coords) -> Float[Tensor, "B N F"]:
        """x, y, angle, radius, and their sin and cos at π·2^k."""
        arm = points - _POLE
        angle = torch.atan2(arm[..., 1:], arm[..., :1])
        radius = torch.linalg.vector_norm(arm, dim=-1, keepdim=True)
        place = torch.cat((points, angle, radius), dim=-1)
        octaves = torch.pi * 2 ** torch.arange(_NUM_OCTAVES, device=points.device)
        waves = (place[..., None] * octaves).flatten(2)
        return torch.cat((place, waves.sin(), waves.cos()), dim=-1)


def mean_over_points(x: Points, mask: Mask) -> Float[Tensor, "B 1 C"]:
    """Mean over the points of a cloud, without its padding."""
    if mask is None:
        return x.mean(1, keepdim=True)
    total = (x * mask[..., None]).sum(1, keepdim=True)
    return total / mask.sum(1)[:, None, None].clamp_min(1)


class GeoFrame(nn.Module):
    """Applies a network for a latent grid to a point cloud."""

    periodic = (False, False)  # Convolutions do not wrap around the torus, as published.

    def __init__(self, width: int, config: GeoConfig, has_first_layer: bool = True) -> None:
        """`has_first_layer` says whether the way to the grid has weights W(k) and a GELU."""
        super().__init__()
        if any(2 * m > n for m, n in zip(config.modes, config.latent, strict=True)):
            raise InputError(
                f"geo.modes must be at most half of geo.latent; "
                f"got {config.modes} modes on {config.latent} nodes"
            )
        self.config = config
        self.kept = kept_modes(config.modes, config.latent)
        self.deformation = Deformation(config.hidden, config.code)
        self.from_points = SpectralConv(width, width, config.modes) if has_first_layer else None
        self.from_grid = ChannelLinear(2, width)
        self.to_points = SpectralConv(width, width, config.modes)
        self.from_place = ChannelLinear(2, width)

    def forward(self, h: Signal, network: Callable[[Grid], Grid], nodes: Nodes) -> Signal:
        latent, kept, mask = self.config.latent, self.kept, nodes.mask
        place = unit_box(nodes.coords, mask)
        # Angles up to 2π·modes need all their digits, also inside autocast.
        with torch.autocast(h.device.type, enabled=False):
            place = place.to(self.to_points.weight.dtype)
            basis = fourier_basis(self.deformation(place, mask), self.config.modes)
            z = nonuniform_spectrum(h, basis, kept, mask)
            if self.from_points is not None:
                z = self.from_points.multiply(z, kept)
            x = synthesis(z, kept, latent) + self.place_on_grid(basis)
            x = x if self.from_points is None else F.gelu(x)
        x = network(x)
        with torch.autocast(h.device.type, enabled=False):
            z = self.to_points.multiply(spectrum(x.to(basis.dtype), kept), kept)
            h = nonuniform_synthesis(z, basis)
        return h + self.from_place(place.transpose(1, 2))

    def place_on_grid(self, like: Tensor) -> Float[Tensor, "1 C H W"]:
        """A linear map of the coordinates of the latent nodes."""
        return self.from_grid(unit_grid(self.config.latent, like))
