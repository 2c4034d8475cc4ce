"""Bands around predictions, calibrated on the validation split (split conformal prediction).

The error of output c at a node is measured in units of a local scale σ_c, which is fixed before
calibration: on meshes the RMS error of training samples at that node (and frame), on clouds the RMS
error over all points. The score of a sample is the smallest v such that |error| ≤ v σ_c at a share
1 − β of its nodes. With n validation samples, q_c is their ⌈(n + 1)(1 − α)⌉-th smallest score, and
the band is ± q_c σ_c.

The guarantee: if a new sample and the validation samples are exchangeable, then for each output,
with probability at least 1 − α over the draw of all of them, at least a share 1 − β of the new
sample's nodes lies inside the band. It is a statement about the population, not about a single
sample, and does not extend to inputs of another kind or mesh. The validation split has also
selected the best checkpoint, which makes its errors slightly too small; therefore the coverage on
the test split is measured and reported with the band.

With cross-validation (few samples) the scores are those of all samples, each of the model that has
not seen its fold, in units of a σ from the errors in the other folds; the σ of the band is that of
all. This is the cross-validation variant of the jackknife. Its band is around the model trained on
all samples, so the guarantee above does not carry over, and neither does that of CV+ (Barber et
al., Predictive inference with the jackknife+, 2021), 1 − 2α, which would need the models of all
folds for every prediction. The coverage is about 1 − α if training is stable, that is if leaving
out a fold moves the predictions little compared with their errors (Steinberger and Leeb,
Conditional predictive inference for stable algorithms, 2023), and rather more here, because the
models of folds see fewer samples and take fewer steps.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from cato.errors import InputError
from cato.files import BLANK, DAMAGED, atomic_write, read_sealed_tensors, seal_tensors
from cato.problem import Problem
from cato.runs.folder import Run

MISSED_SAMPLES = 0.1  # α.
MISSED_NODES = 0.1  # β.
SMALLEST_SCALE = 0.1
"""Lower limit of σ in units of its RMS over the nodes, for nodes that are nearly exact in training,
such as those on a boundary."""
FILE = "band.safetensors"
_MAX_HEADER = 2**16  # Bytes of the file besides its numbers.


@dataclass(frozen=True, eq=False)
class Band:
    """Half-widths q σ for each output."""

    quantile: Float[Tensor, " C"]  # q
    scale: Float[Tensor, "*T M C"]  # σ; M is N for meshes and 1 for clouds.
    num_samples: int  # Number n of validation samples.
    step: int  # Step of the checkpoint that it belongs to.

    @property
    def half_width(self) -> Float[Tensor, "*T M C"]:
        """At every node, or with M = 1 the same at all points of a cloud."""
        return self.quantile * self.scale

    def on_mesh(self, problem: Problem, shape: tuple[int, ...]) -> np.ndarray | None:
        """Half-widths (*T, *shape, C); None on another mesh than the training's.

        There the guarantee does not hold. A cloud may have any number of points.
        """
        width = self.half_width.numpy()
        if problem.geometry == "cloud":
            width = np.repeat(width, prod(shape), axis=-2)
        elif shape != problem.shape:
            return None
        return width.reshape(*width.shape[:-2], *shape, width.shape[-1])

    def covers(
        self, errors: Float[Tensor, "S *T N C"], mask: Bool[Tensor, "S N"] | None = None
    ) -> Bool[Tensor, "S C"]:
        """Which samples have at least a share 1 − β of their nodes in the band, for each output."""
        return scores(errors, self.scale, mask) <= self.quantile

    def figures(self, outputs: tuple[str, ...]) -> dict[str, Any]:
        """What the band promises, JSON-ready; the coverage is unknown without a test split."""
        widths = self.half_width.flatten(0, -2).mean(0).tolist()
        return {
            "promised_samples": 1 - MISSED_SAMPLES,
            "promised_nodes": 1 - MISSED_NODES,
            "num_validation_samples": self.num_samples,
            "mean_half_width": dict(zip(outputs, widths, strict=True)),
            "covered_samples": None,
            "covered_nodes": None,
        }


class Coverage:
    """What a band promises and covers, measured on held-out errors that come in batches."""

    def __init__(self, band: Band) -> None:
        self._band = band
        self._samples: list[Tensor] = []
        self._inside: Tensor | float = 0.0
        self._total: Tensor | float = 0.0

    def add(self, errors: Float[Tensor, "S *T N C"], mask: Bool[Tensor, "S N"] | None) -> None:
        """Take samples into account."""
        self._samples.append(self._band.covers(errors, mask))
        inside = (errors.abs() <= self._band.half_width).double()
        weights = _node_weights(errors, mask)
        self._inside = self._inside + (inside * weights).flatten(0, -2).sum(0)
        self._total = self._total + weights.flatten(0, -2).sum(0)

    def figures(self, outputs: tuple[str, ...]) -> dict[str, Any]:
        """Promised and measured coverage, JSON-ready."""

        def named(values: Any) -> dict[str, float]:
            return dict(zip(outputs, values.tolist(), strict=True))

        return self._band.figures(outputs) | {
            "covered_samples": named(torch.cat(self._samples).double().mean(0)),
            "covered_nodes": named(self._inside / self._total),
        }


def fit_scale(
    batches: Iterable[tuple[Float[Tensor, "S *T N C"], Bool[Tensor, "S N"] | None]], is_cloud: bool
) -> Float[Tensor, "*T M C"]:
    """σ from the errors of training samples and their masks, in batches."""
    total: Tensor | float = 0.0
    count: Tensor | float = 0.0
    for errors, mask in batches:
        weights, axes = _node_weights(errors, mask), (0, -2) if is_cloud else (0,)
        known = errors.double().masked_fill(weights == 0, 0.0)  # an infinite error is not hidden
        total = total + known.square().sum(axes, keepdim=True)
        count = count + weights.sum(axes, keepdim=True)
    squares, number = torch.as_tensor(total).squeeze(0), torch.as_tensor(count).squeeze(0)
    mean = squares / number.clamp(min=1)
    overall = mean.flatten(0, -2).sum(0) / (number > 0).flatten(0, -2).sum(0).clamp(min=1)
    floor = torch.where(overall > 0, SMALLEST_SCALE**2 * overall, 1.0)
    return torch.where(number > 0, mean.maximum(floor), overall.maximum(floor)).sqrt().to(errors)


def _node_weights(errors: Tensor, mask: Tensor | None) -> Tensor:
    """1 at every node whose truth is known, 0 at padding and where errors are NaN."""
    known = (~errors.isnan()).double()
    if mask is None:
        return known
    return known * mask.double().view(len(errors), *[1] * (errors.ndim - 3), -1, 1)


def scores(
    errors: Float[Tensor, "S *T N C"],
    scale: Float[Tensor, "*T M C"],
    mask: Bool[Tensor, "S N"] | None = None,
) -> Float[Tensor, "S C"]:
    """For each sample and output the smallest v with |error| ≤ v σ at a share 1 − β of nodes.

    Nodes whose truth is unknown, where the error is NaN, do not count.
    """
    ratios = errors.abs() / scale
    found = []
    for index, ratio in enumerate(ratios):
        kept = ratio if mask is None else ratio[..., mask[index], :]
        rows = kept.flatten(0, -2)
        known = ~rows.isnan()
        if known.all():
            found.append(rows.kthvalue(num_nodes_needed(len(rows)), dim=0).values)
            continue
        columns = [rows[of, channel] for channel, of in enumerate(known.T)]
        found.append(
            torch.stack(
                [
                    one.kthvalue(num_nodes_needed(len(one))).values if len(one) else one.sum()
                    for one in columns
                ]
            )
        )
    return torch.stack(found)


def num_nodes_needed(count: int) -> int:
    """The smallest number of nodes that is a share 1 − β of `count`."""
    # Rounded first: 0.9 · 10 must not become 10 by the last digit of a double.
    return ceil(round((1 - MISSED_NODES) * count, 9))


def calibrate_quantile(calibration: Float[Tensor, "S C"]) -> Float[Tensor, " C"] | None:
    """The ⌈(n + 1)(1 − α)⌉-th smallest score; None if n is too small."""
    count = len(calibration)
    rank = ceil(round((count + 1) * (1 - MISSED_SAMPLES), 9))
    if rank > count:
        return None
    return calibration.kthvalue(rank, dim=0).values


def num_samples_needed() -> int:
    """Minimum number of validation samples for a band."""
    return ceil(round(1 / MISSED_SAMPLES, 9)) - 1


def save_band(run: Run, band: Band) -> None:
    """Save a band in a run folder, with a checksum in its header, see `cato.files`."""
    tensors = {"quantile": band.quantile.contiguous(), "scale": band.scale.contiguous()}
    about = {"num_samples": str(band.num_samples), "step": str(band.step), "checksum": BLANK}
    with atomic_write(run.folder / FILE) as temporary:
        temporary.write_bytes(seal_tensors(save(tensors, about), FILE, run.id))


def load_band(run: Run, step: int | None) -> Band | None:
    """The band of a run; None if there is none for the weights of that step."""
    path, problem = run.source / FILE, run.problem
    nodes = 1 if problem.geometry == "cloud" else problem.num_nodes
    frames = () if problem.time == "steady" else (problem.num_steps,)
    shape = (*frames, nodes, problem.num_outputs)
    try:
        content, about = read_sealed_tensors(path, run.id, 4 * prod(shape) + _MAX_HEADER)
        tensors = load(content)
        band = Band(**tensors, num_samples=int(about["num_samples"]), step=int(about["step"]))
        if band.scale.shape != shape or band.quantile.shape != shape[-1:]:
            raise ValueError(f"{list(band.scale.shape)} numbers, expected {list(shape)}")
    except FileNotFoundError:
        return None
    except (OSError, SafetensorError, *DAMAGED) as error:
        raise InputError(f"{path} is damaged ({error}); delete it and evaluate again") from None
    return band if band.step == step else None
