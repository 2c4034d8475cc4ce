"""Settings for own data: the recipe, fitted to what the data are.

Large meshes get a narrower model and smaller batches, so that the recipe's minutes are still
hundreds of steps; problems in time learn one frame of each sample in a step; gradient terms are in
the loss where the mesh has gradients and the problem is steady.
"""

from dataclasses import replace
from pathlib import Path

import torch

from cato.data.dataset import Dataset
from cato.errors import InputError
from cato.models.registry import default_model
from cato.physics import gradient_rms, inverse_metric
from cato.progress import note
from cato.runs.settings import DataConfig, RunConfig, own_recipe
from cato.user_data.open import open_user_data

MANY_NODES = 2**14
"""Beyond this many nodes the small model is half as wide."""
NODES_PER_BATCH = 2**14
"""Nodes of one optimiser step at most, where more than one sample fits."""
STEPS_PER_EPOCH = 20
"""At least so many, where there are as many samples."""


def own_config(data: DataConfig, scale: str = "small", model_name: str | None = None) -> RunConfig:
    """The recommended settings for the data in `data.file`.

    Args:
        data: File and names of its fields. Its fingerprint is filled in.
        scale: paper, small or smoke.
        model_name: CATO for the geometry by default.
    """
    assert data.file is not None
    user_data = open_user_data(
        Path(data.file).resolve(),
        data.naming,
        seed=data.seed,
        count=data.count,
        expected_fingerprint=data.fingerprint,
    )
    data = replace(data, file=str(user_data.path), fingerprint=user_data.fingerprint)
    problem, train = user_data.problem, user_data.splits.train
    config = own_recipe(data, scale, model_name or default_model(problem))
    if config.loss.needs_metric and (why := why_no_gradients(train)):
        if problem.geometry != "cloud" and problem.time == "steady":
            note(f"no gradient terms in the loss: {why}")
        loss = replace(config.loss, gradient=0.0, flux=0.0, consistency=0.0, gdl=0.0)
        config = replace(config, loss=loss)
    if scale == "paper":
        return config
    largest = min(len(train) // STEPS_PER_EPOCH, NODES_PER_BATCH // problem.num_nodes)
    settings = config.train
    batch_size = max(1, min(settings.batch_size, largest))
    frames = None if problem.time == "steady" else 1
    config = replace(config, train=replace(settings, batch_size=batch_size, frames_per_step=frames))
    if scale == "small" and problem.num_nodes > MANY_NODES:
        config = replace(config, model=replace(config.model, width=config.model.width // 2))
    if config.train.optimizer == "muon" and not hasattr(torch.optim, "Muon"):
        note("this PyTorch has no Muon (it came with 2.9): AdamW is used")
        config = replace(config, train=replace(config.train, optimizer="adamw"))
    return config


def why_no_gradients(train: Dataset) -> str:
    """Why the loss has no gradient terms on these data; empty where it has."""
    problem = train.problem
    if problem.geometry == "cloud":
        return "a cloud has no mesh to take gradients on"
    if problem.time != "steady":
        return "in time the recipe has none"
    try:
        metric = inverse_metric(train.coords, problem.shape, problem.periodic, problem.period)
    except InputError as error:
        return str(error)
    sizes = gradient_rms(train.targets, metric, problem.shape, problem.periodic)
    if not ((sizes > 0) & sizes.isfinite()).all():
        return "an output is constant over the mesh"
    return ""
