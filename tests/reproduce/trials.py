"""Experiments small enough for a test."""

from reproduce.experiment import load


def trial(name, root, **overrides):
    """An experiment of experiments.toml at smoke scale with one seed, all its files in `root`."""
    folders = {"data": root / "data", "runs": root / "runs", "out": root / "out"}
    return load(name, **folders | {"scale": "smoke", "seeds": (0,), "workers": 1} | overrides)


def measured(**more):
    """A complete provenance, for made-up rows."""
    hardware = {"cores": 2, "processor": "a chip", "gpu": None}
    fixed = {"commit": "0123456789", "cato": "0.2.0", "settings": {}, "data": "key"}
    return fixed | {"hardware": hardware, "date": "2026-11-18", "torch": "2", **more}
