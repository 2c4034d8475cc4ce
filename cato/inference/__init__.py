"""Inference: evaluation, prediction, conformal bands."""
