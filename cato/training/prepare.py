"""What a training starts from: a new surrogate sized by its data, and its loss."""

from typing import NamedTuple

from torch import Tensor

from cato.data.dataset import Dataset
from cato.data.normalise import Normaliser
from cato.models.registry import build_model
from cato.physics import PhysicalLoss, gradient_rms, inverse_metric
from cato.runs.settings import RunConfig
from cato.surrogate import Surrogate


class Prepared(NamedTuple):
    """A surrogate before its first step."""

    surrogate: Surrogate
    loss: PhysicalLoss
    metric: Tensor | None
    """Of the training meshes, where the loss needs it; see `cato.physics.inverse_metric`."""


def prepare(config: RunConfig, train_set: Dataset) -> Prepared:
    """Build the model and fit normalisation and gradient scale on the training samples."""
    problem = train_set.problem
    model = build_model(config.model_name, config.model, problem)
    metric, scale = None, None
    if config.loss.needs_metric and problem.geometry != "cloud":
        metric = inverse_metric(train_set.coords, problem.shape, problem.periodic, problem.period)
        if config.loss.needs_scale:
            scale = gradient_rms(train_set.targets, metric, problem.shape, problem.periodic)
    loss = PhysicalLoss(config.loss, problem, scale)
    if model.flux_head is not None and not config.loss.needs_flux:
        # It gets no gradient, and distributed training waits for every gradient.
        model.flux_head.requires_grad_(False)
    coords = train_set.coords if train_set.coords.ndim == 2 else None
    surrogate = Surrogate(
        model, Normaliser.fit(train_set), scale, coords, has_flux=config.loss.needs_flux
    )
    return Prepared(surrogate, loss, metric)
