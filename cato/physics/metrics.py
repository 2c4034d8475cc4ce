"""The error of a prediction (paper, appendix "Evaluation Metric"): per sample ‖û − u‖₂ / ‖u‖₂.

Values are physical, not normalised. Where the true field is zero the relative error is 0 for an
exact prediction and infinite for any other: such a sample shows in every mean, and is not dropped.

Norms are computed in float64 and in units of the largest value: the error of fields scaled by any
factor is the same. Where outputs vary little around a large constant,
`Problem.offsets`, errors are relative to the variation, ‖û − u‖₂ / ‖u − offset‖₂. Errors over
outputs of unlike magnitudes measure each in its own unit, `Problem.units`. Nodes whose true value
is NaN do not count.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cato.errors import InputError

Mask = Bool[Tensor, "B N"] | None  # False marks padded nodes, which do not count.


def relative_l2(
    prediction: Float[Tensor, "B *T N C"],
    target: Float[Tensor, "B *T N C"],
    mask: Mask = None,
    offsets: Sequence[float] = (),
    units: Sequence[float] = (),
) -> Float[Tensor, " B"]:
    """Relative error of every sample, over all its frames, nodes and channels jointly.

    `offsets` and `units` have a number for each channel, or none: see `Problem`. The error of a
    sample without any true value is NaN.
    """
    level, unit = (
        torch.tensor(numbers or default, dtype=torch.float64, device=target.device)
        for numbers, default in ((offsets, 0.0), (units, 1.0))
    )
    errors, sizes = [], []
    for index, pair in enumerate(zip(prediction, target, strict=True)):  # bounds the memory
        if mask is not None:
            pair = tuple(values[..., mask[index], :] for values in pair)
        found, true = (values.double() for values in pair)
        error, size = (found - true) / unit, (true - level) / unit
        known = ~true.isnan()
        if not known.all():
            error, size = error[known], size[known]
        errors.append(_norm(error))
        sizes.append(_norm(size))
    if not errors:
        return target.new_zeros(0, dtype=torch.float64)
    error, size = torch.stack(errors), torch.stack(sizes)
    return torch.where(error == 0, 0, error / size)


def _norm(values: Float[Tensor, "..."]) -> Float[Tensor, ""]:
    """Euclidean norm, in units of the largest value: squares of 1e200 do not exist in float64."""
    if not values.numel():
        return values.new_tensor(torch.nan)
    largest = values.abs().amax()
    return largest * torch.linalg.vector_norm(values / torch.where(largest > 0, largest, 1))


def relative_l2_per_frame(
    prediction: Float[Tensor, "B T N C"],
    target: Float[Tensor, "B T N C"],
    mask: Mask = None,
    offsets: Sequence[float] = (),
    units: Sequence[float] = (),
) -> Float[Tensor, "B T"]:
    """Relative error of every frame of a rollout by itself; NaN for frames without true values."""
    frames = zip(prediction.unbind(1), target.unbind(1), strict=True)
    return torch.stack([relative_l2(p, t, mask, offsets, units) for p, t in frames], 1)


def relative_l2_per_field(
    prediction: Float[Tensor, "B *T N C"],
    target: Float[Tensor, "B *T N C"],
    fields: Mapping[str, Sequence[int]],
    mask: Mask = None,
    offsets: Sequence[float] = (),
    units: Sequence[float] = (),
) -> dict[str, Float[Tensor, " B"]]:
    """Relative error of each field, given as channels, by itself."""
    return {
        name: relative_l2(
            prediction[..., channels],
            target[..., channels],
            mask,
            [offsets[channel] for channel in channels] if offsets else (),
            [units[channel] for channel in channels] if units else (),
        )
        for name, channels in fields.items()
    }


@dataclass(frozen=True)
class ErrorSummary:
    """The errors of a set of samples in five numbers."""

    mean: float  # The figure that the paper's tables report.
    median: float  # Half of the samples are at most this wrong.
    p90: float  # The smallest of the errors that at least 90 % of the samples do not exceed.
    worst: float
    worst_index: int


def summarise(errors: Float[Tensor, " B"]) -> ErrorSummary:
    """Summary of the errors of `relative_l2`."""
    count = len(errors)
    if count == 0:
        raise InputError("no errors to summarise; give at least one sample")
    errors = errors.to("cpu", torch.float64)
    # By rank and not by interpolation, which makes NaN of an infinite error.
    ranked = errors.sort().values
    return ErrorSummary(
        mean=float(errors.mean()),
        median=float(ranked[(count - 1) // 2] + ranked[count // 2]) / 2,
        p90=float(ranked[-(-9 * count // 10) - 1]),
        worst=float(ranked[-1]),
        worst_index=int(errors.argmax()),
    )
