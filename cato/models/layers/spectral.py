"""Convolutions whose kernel is learned in Fourier space (Li et al., Fourier neural operator, 2021).

With F the discrete Fourier transform over the mesh axes and W(k) a complex matrix for each of the
lowest frequencies k,

    (K x)(k) = F⁻¹[W(k) F[x](k)],        W(k) = 0 for all other k.

An axis of n nodes has the frequencies 0 … ⌈n/2⌉−1 and −⌊n/2⌋ … −1; a convolution with m modes
keeps the first m of the former and the last m of the latter. Inputs are real, so the last axis
needs no negative ones. A mesh that has fewer frequencies uses the lowest weights: none is counted
twice. Transforms are divided by the number of nodes on the way in, so that a spectrum belongs to a
function and not to a mesh, and can be read out on a mesh of any other size.

Only a few frequencies are kept, so the transforms are products with the matrices of their waves,
one axis after the other: on CPUs at least as fast as an FFT forth and back, four times as fast on
lengths that FFTs do not like. All runs in the precision of the weights, also inside autocast.
"""

from functools import reduce
from math import sqrt

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

from cato.models.layers.mesh import smaller
from cato.models.layers.nodewise import ChannelLinear
from cato.models.shapes import Shape

Kept = tuple[tuple[int, int], ...]
"""For each mesh axis, how many non-negative and how many negative frequencies are kept."""


def kept_modes(modes: tuple[int, ...], *shapes: tuple[int, ...]) -> Kept:
    """The frequencies below `modes` that all the given meshes have."""
    sizes = [reduce(smaller, sizes) for sizes in zip(*shapes, strict=True)]
    ranges = [
        (smaller(m, (n + 1) // 2), smaller(m, n // 2)) for m, n in zip(modes, sizes, strict=True)
    ]
    return (*ranges[:-1], (ranges[-1][0], 0))


def cut(x: Tensor, axis: int, kept: tuple[int, int]) -> Tensor:
    """The first and the last entries of an axis."""
    num_first, num_last = kept
    size, num_kept = x.shape[axis], num_first + num_last
    if not isinstance(num_kept, int):  # an exporter's symbol, which has no value
        index = torch.arange(num_kept, device=x.device)
        index = torch.where(index < num_first, index, index + (size - num_kept))
        return x.index_select(axis, index)
    if num_kept == size:
        return x
    first = x.narrow(axis, 0, num_first)
    return torch.cat((first, x.narrow(axis, size - num_last, num_last)), axis)


def waves(size: int, kept: tuple[int, int], like: Tensor) -> Complex[Tensor, "K n"]:
    """exp(2πi k j / n) for the kept frequencies k of an axis with n nodes j."""
    num_first, num_last = kept
    k = torch.arange(num_first + num_last, device=like.device)
    k = torch.where(k < num_first, k, k - (num_first + num_last))
    j = torch.arange(size, device=like.device)
    # Whole turns are dropped while the numbers are integers, which keeps all digits.
    if isinstance(size, int):
        angle = (torch.outer(k, j) % size).to(like.dtype) * (2 * torch.pi / size)
    else:  # an exporter's symbol: ONNX has no remainder by it, and .pt2 files no such fraction
        period = torch.full((), size, device=like.device)
        turn = (2 * torch.pi / period.double()).to(like.dtype)
        angle = (torch.outer(k, j) % period).to(like.dtype) * turn
    return torch.complex(angle.cos(), angle.sin())


def real_waves(size: int, num_kept: int, like: Tensor) -> Float[Tensor, "K2 n"]:
    """cos(2πkj/n) and −sin(2πkj/n) in turn for k = 0 … num_kept − 1: for real functions."""
    wave = waves(size, (num_kept, 0), like)
    return torch.stack((wave.real, -wave.imag), dim=1).flatten(0, 1)


def spectrum(x: Float[Tensor, "B C *S"], kept: Kept) -> Complex[Tensor, "B C *K"]:
    """The kept part of the Fourier transform over the last axes, divided by their nodes."""
    size = x.shape[-1]
    z = x @ (real_waves(size, kept[-1][0], x) / size).T
    z = torch.view_as_complex(z.unflatten(-1, (-1, 2)))
    for axis, ends in enumerate(kept[:-1], start=-len(kept)):
        size = z.shape[axis]
        wave = waves(size, ends, x).conj() / size
        z = (z.movedim(axis, -1) @ wave.T).movedim(-1, axis)
    return z


def synthesis(z: Complex[Tensor, "B C *K"], kept: Kept, shape: Shape) -> Float[Tensor, "B C *S"]:
    """The real function with spectrum `z` over the last axes, on a mesh of the given shape."""
    for axis, (ends, size) in enumerate(zip(kept[:-1], shape[:-1], strict=True), start=-len(kept)):
        z = (z.movedim(axis, -1) @ waves(size, ends, z.real)).movedim(-1, axis)
    parts = torch.view_as_real(z)
    # Each column but the first stands for its conjugate, too.
    parts = torch.cat((parts[..., :1, :], 2 * parts[..., 1:, :]), dim=-2)
    return parts.flatten(-2) @ real_waves(shape[-1], kept[-1][0], parts)


def resample(x: Float[Tensor, "B C *S"], shape: Shape) -> Float[Tensor, "B C *T"]:
    """The same trigonometric polynomial on another mesh of the same torus.

    Along an axis that changes, an even number of nodes loses its highest frequency, which the nodes
    cannot tell from its conjugate.
    """
    with torch.autocast(x.device.type, enabled=False):
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        for axis, size in enumerate(shape, start=2):
            if x.shape[axis] != size:
                num_kept = (smaller(size, x.shape[axis]) + 1) // 2
                if torch.compiler.is_exporting():  # ONNX cannot pad a spectrum
                    kept = ((num_kept, 0),)
                    z = spectrum(x.movedim(axis, -1), kept)
                    x = synthesis(z, kept, (size,)).movedim(-1, axis)
                    continue
                z = torch.fft.rfft(x, dim=axis, norm="forward").narrow(axis, 0, num_kept)
                x = torch.fft.irfft(z, n=size, dim=axis, norm="forward")
        return x


class SpectralConv(nn.Module):
    """The convolution K of the module docstring on 1 to 3 mesh axes, with m modes along each."""

    def __init__(self, num_in: int, num_out: int, modes: tuple[int, ...]) -> None:
        super().__init__()
        self.modes = modes
        rows = (*(2 * m for m in modes[:-1]), modes[-1])
        # Real and imaginary parts, because optimisers and weight files need real numbers.
        # Together their variance is 2 / (C_in + C_out), which keeps the size of what is kept.
        scale = 1 / sqrt(num_in + num_out)
        self.weight = nn.Parameter(scale * torch.randn(*rows, num_in, num_out, 2))

    def forward(
        self, x: Float[Tensor, "B C_in *S"], shape: Shape | None = None
    ) -> Float[Tensor, "B C_out *T"]:
        """Convolve; the result is read out on a mesh of the given shape, by default that of `x`."""
        shape = shape or tuple(x.shape[2:])
        kept = kept_modes(self.modes, tuple(x.shape[2:]), shape)
        with torch.autocast(x.device.type, enabled=False):
            z = spectrum(x.to(self.weight.dtype), kept)
            return synthesis(self.multiply(z, kept), kept, shape)

    def multiply(
        self, z: Complex[Tensor, "B C_in *K"], kept: Kept
    ) -> Complex[Tensor, "B C_out *K"]:
        """W(k) z(k) for the kept frequencies."""
        weight: Tensor = self.weight
        for axis, ends in enumerate(kept):
            weight = cut(weight, axis, ends)
        weight = torch.view_as_complex(weight)
        out = z.flatten(2).permute(2, 0, 1) @ weight.flatten(0, -3)
        return out.permute(1, 2, 0).unflatten(2, z.shape[2:])


class FourierLayer(nn.Module):
    """K x + W x + b: a spectral convolution and a linear map of the channels, no activation."""

    def __init__(self, num_in: int, num_out: int, modes: tuple[int, ...]) -> None:
        super().__init__()
        self.spectral = SpectralConv(num_in, num_out, modes)
        self.pointwise = ChannelLinear(num_in, num_out)

    def forward(self, x: Float[Tensor, "B C_in *S"]) -> Float[Tensor, "B C_out *S"]:
        return self.spectral(x) + self.pointwise(x)
