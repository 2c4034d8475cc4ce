"""Layers that two or more models share."""
