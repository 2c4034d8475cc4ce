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
UNCHECKED = {"wmt", "u_no"}  # official/README.md says why.


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


def read(path):
    """Problem, filled model and arrays of a case."""
    arrays = dict(np.load(path))
    case = json.loads(str(arrays.pop("case")))
    problem = Problem.from_dict(case["problem"])
    config = from_dict(model_class(case["model"]).config_class, case["config"], path.stem)
    model = fill(build_model(case["model"], config, problem).double())
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


def test_all_baselines_are_checked_but_two():
    checked = {json.loads(str(np.load(path)["case"]))["model"] for path in CASES}
    assert checked | UNCHECKED | {"cato", "cato_pc"} == set(MODELS)
    assert not checked & UNCHECKED
