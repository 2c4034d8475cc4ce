"""Recomputing blocks in the backward pass changes no number."""

import pytest
import torch

from cato.errors import InputError
from cato.models.registry import MODELS, build_model
from cato.problem import Problem

GRID = Problem("grid", "grid", (16, 16), ("a",), ("u",))
WITH_BLOCKS = ("cato", "transolver", "gnot")


def gradients(name, is_recomputed):
    torch.manual_seed(0)
    model = build_model(name, MODELS[name].config_class(width=16, depth=2, heads=2), GRID)
    if is_recomputed:
        model.rematerialise()
    generator = torch.Generator().manual_seed(1)
    coords, features = (torch.rand(2, 256, c, generator=generator) for c in (2, 1))
    values = model(coords, features).values
    values.square().mean().backward()
    return values, [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("name", WITH_BLOCKS)
def test_gradients_are_identical(name):
    values, plain = gradients(name, is_recomputed=False)
    same_values, recomputed = gradients(name, is_recomputed=True)
    assert torch.equal(values, same_values)
    assert len(plain) == len(recomputed) > 0
    assert all(torch.equal(a, b) for a, b in zip(plain, recomputed, strict=True))


def test_models_without_blocks_say_so():
    model = build_model("u_no", MODELS["u_no"].config_class(width=8), GRID)
    with pytest.raises(InputError, match=r"leave out --train\.remat"):
        model.rematerialise()
