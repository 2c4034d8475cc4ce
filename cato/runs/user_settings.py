"""Fit the recipe for user data to the data.

Large meshes get a narrower model and smaller batches, so that the recipe's minutes still allow
hundreds of steps. Problems in time learn one frame of each sample per step. The loss has gradient
terms only if the problem is steady and the mesh has gradients.
"""

from typing import Any

import torch

from cato.data.dataset import Dataset
from cato.errors import InputError
from cato.models.registry import model_entry
from cato.physics import LossConfig, gradient_rms, inverse_metric
from cato.progress import note

MANY_NODES = 2**14
"""Meshes with more nodes get a small model of half the width."""
NODES_PER_BATCH = 2**14
"""Maximum nodes per batch of more than one sample."""
STEPS_PER_EPOCH = 20
"""Minimum steps per epoch, if there are that many samples."""
GRADIENT_TERMS = ("gradient", "flux", "consistency", "gdl")


def fit_recipe(recipe: dict[str, Any], train: Dataset) -> dict[str, Any]:
    """Changes to a recipe, all plain values, that the training samples ask for."""
    problem, scale = train.problem, recipe["scale"]
    changes: dict[str, Any] = {}
    if LossConfig(**recipe["loss"]).needs_metric and (why := why_no_gradients(train)):
        if problem.geometry != "cloud" and problem.time == "steady":
            note(f"no gradient terms in the loss: {why}")
        changes["loss"] = dict.fromkeys(GRADIENT_TERMS, 0.0)
    if scale == "paper":
        return changes
    settings = recipe["train"]
    largest = min(len(train) // STEPS_PER_EPOCH, NODES_PER_BATCH // problem.num_nodes)
    changes["train"] = {
        "batch_size": max(1, min(settings["batch_size"], largest)),
        "frames_per_step": None if problem.time == "steady" else 1,
    }
    if scale == "small" and problem.num_nodes > MANY_NODES:
        width = recipe["model"].get("width", model_entry(recipe["model_name"]).config.width)
        changes["model"] = {"width": width // 2}
    if settings.get("optimizer") == "muon" and not hasattr(torch.optim, "Muon"):
        note("this PyTorch has no Muon (added in 2.9): using AdamW")
        changes["train"]["optimizer"] = "adamw"
    return changes


def why_no_gradients(train: Dataset) -> str:
    """Why the loss has no gradient terms on these data; empty if it has them."""
    problem = train.problem
    if problem.geometry == "cloud":
        return "a cloud has no mesh to take gradients on"
    if problem.time != "steady":
        return "the recipe has none for problems in time"
    try:
        metric = inverse_metric(train.coords, problem.shape, problem.periodic, problem.period)
    except InputError as error:
        return str(error)
    sizes = gradient_rms(train.targets, metric, problem.shape, problem.periodic)
    if not ((sizes > 0) & sizes.isfinite()).all():
        return "an output is constant over the mesh"
    return ""
