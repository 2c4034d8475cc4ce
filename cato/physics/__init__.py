"""Gradients on meshes, the physical loss and the error metrics."""

from cato.physics.gradient import gradient, inverse_metric
from cato.physics.losses import LossConfig, PhysicalLoss, gradient_rms
from cato.physics.metrics import ErrorSummary, relative_l2, relative_l2_per_frame, summarise

__all__ = [
    "ErrorSummary",
    "LossConfig",
    "PhysicalLoss",
    "gradient",
    "gradient_rms",
    "inverse_metric",
    "relative_l2",
    "relative_l2_per_frame",
    "summarise",
]
