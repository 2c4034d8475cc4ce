"""The training objective (paper, section "Physical Loss").

    L = L_val + λ_g L_grad + λ_f L_flux + λ_c L_cons (+ λ_gdl L_gdl)

    L_val   mean over samples of ‖û − u‖ / (‖u‖ + ε)
    L_grad  mean over samples and nodes of |∇û − ∇u|²
    L_flux  mean over samples and nodes of |q̂ − ∇u|²
    L_cons  mean over samples and nodes of |q̂ − ∇û|²
    L_gdl   mean over samples of Σ_d ‖∂_d û − ∂_d u‖ / (‖∂_d u‖ + ε)

with ∇ the mesh-consistent gradient and q̂ the model's flux head. L_gdl is the regularisation that
the paper adds, with weight 0.1, for every model on Darcy.

Deviations: ∇u, ∇û and q̂ are measured in units of the RMS of ∇u over the training set, one per
channel, so that the weights mean the same on every mesh and in every unit (`gradient_scale = "raw"`
is the paper's formula). With several output channels, L_grad, L_flux and L_cons are means over the
channels; norms run over all nodes and channels jointly. Norms are computed in units of the largest
value of each sample, so that they neither overflow nor vanish, and ε is relative to it. In L_val,
‖u‖ is ‖u − offset‖ for outputs that vary little around a large constant (`Problem.offsets`), and
of outputs of unlike magnitudes û − u is measured in their deviations and u in their RMS
(`Problem.deviations`, `Problem.units`).

Targets may be NaN (`Problem.has_gaps`): such nodes do not count, and of the gradient terms only
nodes whose whole difference stencil has values.
"""

from dataclasses import dataclass
from math import prod
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from cato.config import NonNegative, checked
from cato.errors import InputError
from cato.partition import WHOLE, Partition
from cato.physics.gradient import gradient
from cato.problem import Problem

EPSILON = 1e-12  # ε in the relative norms, in units of the largest value of a sample.
VALUES_PER_CHUNK = 2**18  # Target values that `gradient_rms` differentiates at once.

Fields = Float[Tensor, "B N C"]
Mask = Bool[Tensor, "B N"] | None


@dataclass(frozen=True)
class LossConfig:
    """Weights of the terms next to the value term; a term with weight 0 is not computed."""

    gradient: NonNegative = 0.0  # λ_g, gradient of the prediction against that of the target.
    flux: NonNegative = 0.0  # λ_f, flux head against the gradient of the target.
    consistency: NonNegative = 0.0  # λ_c, flux head against the gradient of the prediction.
    gdl: NonNegative = 0.0  # λ_gdl, relative error of each partial derivative.
    # Measure ∇u in units of its RMS over the training set, or raw.
    gradient_scale: Literal["rms", "raw"] = "rms"
    # Fields of unlike magnitudes count alike, or as their physical values do.
    field_weights: Literal["equal", "raw"] = "equal"

    @property
    def needs_flux(self) -> bool:
        """Whether the model must have a flux head."""
        return self.flux > 0 or self.consistency > 0

    @property
    def needs_metric(self) -> bool:
        """Whether the mesh must be differentiated on."""
        return self.gradient > 0 or self.gdl > 0 or self.needs_flux

    @property
    def needs_scale(self) -> bool:
        """Whether the RMS of ∇u over the training set is used."""
        return self.gradient_scale == "rms" and (self.gradient > 0 or self.needs_flux)


class PhysicalLoss(nn.Module):
    """The objective of one problem.

    Args:
        config: Weights of the terms.
        problem: Gives the mesh; gradient terms need a grid or a mesh.
        scale: From `gradient_rms` on the training set; only if `config.needs_scale`.
        partition: What part of the mesh the arguments of a call are. Every process gets the loss
            of the whole mesh.
    """

    scale: Tensor
    offsets: Tensor | None
    units: Tensor | None
    deviations: Tensor | None

    def __init__(
        self,
        config: LossConfig,
        problem: Problem,
        scale: Float[Tensor, " C"] | None = None,
        partition: Partition = WHOLE,
    ) -> None:
        super().__init__()
        self.config = checked(config, "loss")
        self.problem, self.partition = problem, partition
        if self.config.needs_metric and problem.geometry == "cloud":
            raise InputError(
                f"the loss terms gradient, flux, consistency and gdl need a grid or a mesh, and "
                f"{problem.name!r} is a cloud; set their weights to 0"
            )
        if not self.config.needs_scale:
            scale = torch.ones(problem.num_outputs)
        elif scale is None:
            raise InputError(
                "gradient_scale 'rms' needs the RMS of the training gradients; pass "
                "gradient_rms(...) or set gradient_scale to 'raw'"
            )
        for name, value in zip(problem.outputs, scale.tolist(), strict=True):
            if not 0 < value < float("inf"):
                raise InputError(
                    f"output {name!r} has a training gradient of RMS {value}, which cannot be a "
                    f"unit; set gradient_scale to 'raw' or the gradient weights to 0"
                )
        self.register_buffer("scale", scale.unsqueeze(-1), persistent=False)
        is_equal = self.config.field_weights == "equal"
        for name in ("offsets", "units", "deviations"):
            numbers = getattr(problem, name) if is_equal or name == "offsets" else ()
            found = torch.tensor(numbers, dtype=torch.float64) if numbers else None
            self.register_buffer(name, found, persistent=False)

    def forward(
        self,
        values: Fields,
        target: Fields,
        *,
        flux: Float[Tensor, "B N C D"] | None = None,
        metric: Float[Tensor, "#B N D D"] | None = None,
        mask: Mask = None,
        weights: Float[Tensor, " B"] | None = None,
    ) -> tuple[Float[Tensor, ""], dict[str, Float[Tensor, ""]]]:
        """The total to minimise, and each term that was computed, unweighted and detached.

        Args:
            values: Predicted fields û, in physical units as all other arguments.
            target: True fields u.
            flux: Predicted gradient q̂; needed if `config.needs_flux`.
            metric: From `inverse_metric`; needed if `config.needs_metric`.
            mask: Clouds only: False marks padding, which does not count.
            weights: Share of each sample in the mean, 1/B by default. With 1/B of the whole
                batch, losses and gradients of its shards sum to those of the batch.
        """
        difference = values - target
        size = target if self.offsets is None else target - self.offsets
        if self.units is not None and self.deviations is not None:
            difference, size = difference / self.deviations.to(size), size / self.units.to(size)
        if self.problem.has_gaps:
            unknown = target.isnan()
            difference, size = difference.masked_fill(unknown, 0), size.masked_fill(unknown, 0)
        terms = {"value": self._relative_error(difference, size, mask)}
        if self.config.needs_metric:
            assert mask is None, "only clouds have padding, and they have no gradient terms"
            terms |= self._gradient_terms(values, target, flux, metric)
        if weights is None:
            weights = torch.full_like(terms["value"], 1 / len(values))
        means = {name: weights.to(term) @ term for name, term in terms.items()}
        total = means["value"]
        for name in list(means)[1:]:
            total = total + getattr(self.config, name) * means[name]
        return total, {name: mean.detach() for name, mean in means.items()}

    def _gradient_terms(
        self, values: Tensor, target: Tensor, flux: Tensor | None, metric: Tensor | None
    ) -> dict[str, Float[Tensor, " B"]]:
        """The terms with a weight, for every sample."""
        config, problem = self.config, self.problem
        if metric is None:
            raise InputError("the gradient terms need a metric; pass inverse_metric(...)")
        on = metric, problem.shape, problem.periodic, self.partition
        true, predicted = gradient(target, *on), gradient(values, *on)
        known = None
        if problem.has_gaps:  # stencils that lie inside
            known = ~true.isnan().any(-1, keepdim=True)
            true, predicted = (x.masked_fill(~known, 0) for x in (true, predicted))
        terms = {}
        if config.gradient > 0:
            terms["gradient"] = self._mean_square(predicted - true, known)
        if config.needs_flux:
            if flux is None:
                raise InputError(
                    "the loss terms flux and consistency need a model with a flux head; set their "
                    "weights to 0 or choose a model that has one"
                )
            if config.flux > 0:
                terms["flux"] = self._mean_square(flux - true, known)
            if config.consistency > 0:
                terms["consistency"] = self._mean_square(flux - predicted, known)
        if config.gdl > 0:
            partials = zip(predicted.unbind(-1), true.unbind(-1), strict=True)
            errors = [self._relative_error(p - t, t) for p, t in partials]
            terms["gdl"] = torch.stack(errors).sum(0)
        return terms

    def _mean_square(
        self, difference: Float[Tensor, "B N C D"], known: Bool[Tensor, "B N C 1"] | None
    ) -> Float[Tensor, " B"]:
        """Mean over nodes and channels of the squared Euclidean norm, in units of `scale`."""
        if known is None:
            squares = (difference / self.scale).square().sum((1, 2, 3))
            return self.partition.total(squares) / (self.problem.num_nodes * difference.shape[2])
        squares = (difference / self.scale).masked_fill(~known, 0).square().sum((1, 2, 3))
        count = self.partition.total(known.sum((1, 2, 3)).to(squares))
        return self.partition.total(squares) / count.clamp(min=1)

    def _relative_error(
        self, difference: Fields, true: Fields, mask: Mask = None
    ) -> Float[Tensor, " B"]:
        """‖û − u‖ / (‖u‖ + ε) of every sample, given û − u and u; its derivative at û = u is 0."""
        if mask is not None:
            padding = ~mask.unsqueeze(-1)
            difference, true = difference.masked_fill(padding, 0), true.masked_fill(padding, 0)
        # The power of two below the largest value: dividing by it changes no digit.
        largest = self.partition.largest(true.abs().amax((1, 2), keepdim=True))
        unit = torch.where(largest > 0, largest / (2 * torch.frexp(largest).mantissa), 1)
        error, size = (
            self.partition.norm(torch.linalg.vector_norm(x / unit, dim=(1, 2)))
            for x in (difference, true)
        )
        return error / (size + EPSILON)


class GradientScale:
    """Root of the mean of |∇u|² over samples, frames and nodes, for each output channel.

    Computed in float64 on the CPU, of samples that are added batch by batch. Arguments as for
    `gradient`.
    """

    def __init__(self, shape: tuple[int, ...], periodic: tuple[bool, ...]) -> None:
        self.shape, self.periodic = shape, periodic
        self.total: Tensor | float = 0.0
        self.count: Tensor | int = 0  # By channel, if some targets are NaN.

    @torch.no_grad()
    def add(self, targets: Float[Tensor, "S *T N C"], metric: Float[Tensor, "#S N D D"]) -> None:
        """Take samples into account, a few at a time."""
        frames = targets.flatten(1, -3) if targets.ndim > 3 else targets.unsqueeze(1)
        step = max(1, VALUES_PER_CHUNK // prod(frames.shape[1:]))
        for first in range(0, len(frames), step):
            chunk = frames[first : first + step].to("cpu", torch.float64)
            inverse = metric if len(metric) == 1 else metric[first : first + step]
            inverse = inverse.to("cpu", torch.float64)
            for u in chunk.unbind(1):
                slopes = gradient(u, inverse, self.shape, self.periodic)
                unknown = slopes.isnan().any(-1)
                if unknown.any():
                    slopes = slopes.masked_fill(unknown[..., None], 0)
                    self.count = self.count - unknown.sum((0, 1))
                self.total = self.total + slopes.square().sum((0, 1, 3))
        self.count = self.count + prod(frames.shape[:-1])

    @property
    def rms(self) -> Float[Tensor, " C"]:
        """In float64."""
        return torch.as_tensor(self.total / self.count).sqrt()


def gradient_rms(
    targets: Float[Tensor, "S *T N C"],
    metric: Float[Tensor, "#S N D D"],
    shape: tuple[int, ...],
    periodic: tuple[bool, ...],
) -> Float[Tensor, " C"]:
    """`GradientScale` of some samples, in the higher precision of targets and metric."""
    scale = GradientScale(shape, periodic)
    scale.add(targets, metric)
    return scale.rms.to(targets.device, torch.promote_types(targets.dtype, metric.dtype))
