import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from cato.api import model_config
from cato.data.normalise import Normaliser
from cato.models.registry import build_model
from cato.problem import Problem
from cato.serve.models import ServedModel
from cato.surrogate import Surrogate

GRID = Problem("flow", "grid", (6, 5), ("a",), ("u",))
PROBLEMS = {
    "grid": GRID,
    "other": replace(GRID, name="other flow"),
    "mesh": Problem("foil", "mesh", (6, 5), (), ("p", "q"), normalise=("outputs",)),
    "cloud": Problem("plate", "cloud", (12,), ("s",), ("t",)),
    "rollout": replace(GRID, name="vortex", time="rollout", num_steps=3),
}


def build_served(name):
    """An untrained model: what comes out must be right, not good."""
    problem = PROBLEMS[name]
    torch.manual_seed(sorted(PROBLEMS).index(name))
    kind = "cato_pc" if problem.geometry == "cloud" else "cato"
    model = build_model(kind, model_config(kind, width=8, depth=1, heads=2), problem)
    coords = None
    if problem.geometry == "grid":
        axes = [torch.linspace(0, 1, nodes) for nodes in problem.shape]
        coords = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, 1)
    return ServedModel(name, Surrogate(model, Normaliser(problem), coords=coords).eval(), {})


@pytest.fixture
def models():
    return {name: build_served(name) for name in PROBLEMS}


@pytest.fixture
def gate(models):
    """Holds the model `grid` between `gate.entered` and `gate.open.set()`, and counts forwards."""
    surrogate = models["grid"].surrogate
    predict = surrogate.predict
    gate = SimpleNamespace(open=threading.Event(), entered=threading.Event(), sizes=[])

    def slow(inputs, coords=None, batch_size=16):
        gate.sizes.append(len(inputs))
        gate.entered.set()
        assert gate.open.wait(20)
        return predict(inputs, coords, batch_size)

    surrogate.predict = slow
    yield gate
    gate.open.set()
