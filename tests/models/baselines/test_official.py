"""Baselines give the outputs of their authors' public code.

official/*.npz hold inputs and the outputs that the authors' code computed from them, once, in
double precision where it allows that; official/README.md says how. The weights are a rule of their
names in this library, so that files stay small and a renamed or reshaped weight fails.
"""

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from cato.config import from_dict
from cato.models.registry import MODELS, build_model, model_class
from cato.problem import Problem

CASES = sorted(Path(__file__).with_name("official").glob("*.npz"))


@torch.no_grad()
def fill(model):
    """Weights from their names: signals keep their size, scales of norms are within 1 ± 0.5.

    Random frequencies, which are not trained, are filled as well.
    """
    trained = dict(model.named_parameters())
    for name, weight in model.state_dict().items():
        if name not in trained and not name.endswith("frequency"):
            continue  # running statistics start as the model starts them
        draw = np.random.RandomState(zlib.crc32(name.encode())).uniform(-0.5, 0.5, weight.shape)
        if weight.ndim > 1:
            draw *= (12 / weight[0].numel()) ** 0.5
        elif name.endswith(("weight", "length", "temperature")):
            draw += 1
        weight.copy_(torch.from_numpy(draw))
    return model


@torch.no_grad()
def without_mixed_details(model):
    """WMT as its published code has it: details across both axes alone."""
    for layer in model.layers:
        mixed = slice(0, 2 * layer.t.in_features)
        layer.a.out.weight[mixed] = layer.a.out.weight[:, mixed] = layer.a.out.bias[mixed] = 0
        layer.b.out.weight[mixed] = layer.b.out.bias[mixed] = 0
        layer.c.stencil.weight[:, mixed] = 0


def read(path):
    """Problem, filled model and arrays of a case."""
    arrays = dict(np.load(path))
    case = json.loads(str(arrays.pop("case")))
    problem = Problem.from_dict(case["problem"])
    config = from_dict(model_class(case["model"]).config_class, case["config"], path.stem)
    model = fill(build_model(case["model"], config, problem).double())
    if case["model"] == "wmt":
        without_mixed_details(model)
    return model, {name: torch.from_numpy(array).double() for name, array in arrays.items()}


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_outputs_are_those_of_the_official_code(path):
    model, arrays = read(path)
    for mode in ("training", "evaluation"):  # a training step first, for running statistics
        if mode in arrays:
            model.train(mode == "training")
            values = model(arrays["coords"], arrays["features"], time=arrays.get("time")).values
            expected = arrays[mode]
            assert expected.std() > 1e-3
            torch.testing.assert_close(values.detach(), expected, atol=1e-5, rtol=1e-5)


def test_all_baselines_are_checked():
    checked = {json.loads(str(np.load(path)["case"]))["model"] for path in CASES}
    assert checked | {"cato", "cato_pc"} == set(MODELS)


@pytest.mark.slow
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_every_weight_is_seen_by_the_comparison(path):
    """A case whose outputs do not notice a weight would pass with a wrong one."""
    model, arrays = read(path)
    model.train("training" in arrays)
    given = arrays["coords"], arrays["features"]
    random = torch.Generator().manual_seed(0)
    unseen = ("kinds.0", "kinds.1") if "wmt" in path.stem else ()
    with torch.no_grad():
        expected = model(*given).values
        for name, weight in model.named_parameters():
            kept = weight.clone()
            noise = torch.randn(weight.shape, generator=random, dtype=weight.dtype)
            weight.add_(0.3 * (weight.abs().mean() + 1e-3) * noise)
            is_seen = not torch.allclose(model(*given).values, expected, atol=1e-5, rtol=1e-5)
            weight.copy_(kept)
            assert is_seen or any(part in name for part in unseen), name
