"""Gradients on meshes, the physical loss and the error metrics."""
