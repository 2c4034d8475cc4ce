"""Models of the benchmarks for tests of the explorer: untrained, but of the right size."""

import json

import numpy as np
import torch
from safetensors.numpy import load, save

from cato.api import model_config
from cato.benchmarks import BENCHMARKS
from cato.data.normalise import Normaliser
from cato.models.registry import build_model
from cato.serve.models import ServedModel
from cato.surrogate import Surrogate

OUTPUTS = {
    "darcy": ([0.007], [0.002]),
    "navier_stokes": ([0.0], [0.5]),
    "airfoil": ([0.8], [0.1]),
    "pipe": ([0.6], [0.3]),
    "plasticity": ([25.0, 7.0, 0.0, -0.5], [5.0, 2.0, 0.2, 0.2]),
    "elasticity": ([180.0], [60.0]),
}
"""Mean and deviation about which the answers lie: near enough to be less than 100 % wrong."""


def build_explored(name, scale="smoke"):
    benchmark = BENCHMARKS[name]
    problem = benchmark.problem(scale)
    torch.manual_seed(sorted(BENCHMARKS).index(name))
    kind = "cato_pc" if problem.geometry == "cloud" else "cato"
    model = build_model(kind, model_config(kind, width=8, depth=1, heads=2), problem)
    normaliser = Normaliser(problem)
    mean, std = OUTPUTS[name]
    normaliser.get_buffer("outputs_mean").copy_(torch.tensor(mean))
    normaliser.get_buffer("outputs_std").copy_(torch.tensor(std))
    coords = benchmark.coords(benchmark.parameters(scale))
    if coords is not None:
        coords = torch.from_numpy(coords).flatten(0, -2)
    about = {"benchmark": name, "scale": scale, "model": kind}
    return ServedModel(name, Surrogate(model, normaliser, coords=coords).eval(), about)


def pack(**arrays):
    """A body as the page sends it."""
    return save({name: np.asarray(array, order="C") for name, array in arrays.items()})


def unpack(data):
    """Facts and arrays of a response, as the page reads them."""
    length = int.from_bytes(data[:8], "little")
    metadata = json.loads(data[8 : 8 + length]).get("__metadata__", {})
    return {name: json.loads(value) for name, value in metadata.items()}, load(data)
