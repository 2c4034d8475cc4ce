"""Transolver: slices, tokens and sizes against the paper."""

import pytest
import torch
from torch.nn import functional as F

from cato.errors import InputError
from cato.models.baselines.transolver import MeshSliceAttention, Transolver, TransolverConfig
from cato.problem import Problem


def attention_matrices(layer, x, f):
    """The N × N matrix of each head, of which the layer never forms more than two thin factors."""
    heads = layer.heads
    x, f = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in (x, f))
    tau = layer.temperature.clamp(0.1, 5)[:, None, None]
    w = ((x @ layer.slice.weight.T + layer.slice.bias) / tau).softmax(-1)
    gather = (w / w.sum(2, keepdim=True)).transpose(2, 3)
    z = gather @ f
    q, k = z @ layer.query.weight.T, z @ layer.key.weight.T
    among = (q @ k.transpose(2, 3) / z.shape[-1] ** 0.5).softmax(-1)
    return w, w @ among @ gather, f @ layer.value.weight.T


def test_mesh_attention_is_a_dense_average_of_all_nodes():
    torch.manual_seed(0)
    config = TransolverConfig(width=8, heads=2, slices=5)
    layer = MeshSliceAttention(config, (False, False)).double()
    h = torch.randn(2, 6, 7, 8, dtype=torch.float64)
    weight, bias = layer.project.weight, layer.project.bias
    x, f = (
        F.conv2d(h.permute(0, 3, 1, 2), weight[part], bias[part], padding=1).flatten(2).mT
        for part in (slice(0, 8), slice(8, 16))
    )
    w, dense, values = attention_matrices(layer.attention, x, f)
    one = torch.ones(2, 2, 42, dtype=torch.float64)
    torch.testing.assert_close(layer.attention.slice_weights(x), w)
    torch.testing.assert_close(w.sum(-1), one)
    torch.testing.assert_close(dense.sum(-1), one)  # hence constants stay constants
    expected = (dense @ values).transpose(1, 2).flatten(2)
    expected = F.linear(expected, layer.attention.out.weight, layer.attention.out.bias)
    torch.testing.assert_close(layer(h), expected.unflatten(1, (6, 7)))


PAPER = {  # benchmark: (settings, problem, millions of parameters of the public model)
    "darcy": ({"reference_grid": 8}, Problem("d", "grid", (85, 85), ("a",), ("u",)), 2.83),
    "navier_stokes": (
        {"reference_grid": 8, "width": 256, "slices": 32},
        Problem("n", "grid", (64, 64), tuple("abcdefghij"), ("w",), time="rollout", num_steps=10),
        11.23,
    ),
    "airfoil": ({}, Problem("a", "mesh", (221, 51), (), ("mach",)), 2.81),
    "pipe": ({"mlp_ratio": 2.0}, Problem("p", "mesh", (129, 129), (), ("u",)), 3.07),
    "plasticity": (
        {},
        Problem("pl", "mesh", (101, 31), ("die",), tuple("xyuv"), time="conditioned", num_steps=20),
        2.84,
    ),
    "elasticity": ({}, Problem("e", "cloud", (972,), (), ("stress",)), 0.71),
}


@pytest.mark.parametrize("name", PAPER)
def test_size_of_the_public_settings(name):
    settings, problem, millions = PAPER[name]
    config = TransolverConfig(**({"width": 128, "depth": 8, "heads": 8} | settings))
    num_parameters = sum(p.numel() for p in Transolver(config, problem).parameters())
    assert num_parameters / 1e6 == pytest.approx(millions, rel=0.01)


def test_positions_are_distances_to_the_reference_grid():
    model = Transolver(
        TransolverConfig(width=8, depth=1, heads=2, reference_grid=3), PAPER["darcy"][1]
    )
    coords = torch.rand(1, 4, 2)
    places = model.place(coords)
    assert places.shape == (1, 4, 9)
    for n, (x, y) in enumerate(coords[0].tolist()):
        expected = [
            ((x - i / 2) ** 2 + (y - j / 2) ** 2) ** 0.5 for i in range(3) for j in range(3)
        ]
        assert places[0, n].tolist() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("wraps", [True, False])
def test_commutes_with_shifts_of_the_mesh_along_periodic_axes_only(wraps):
    torch.manual_seed(0)
    problem = Problem("t", "mesh", (7, 6), ("a",), ("u",), periodic=(wraps, False))
    model = Transolver(TransolverConfig(width=8, depth=2, heads=2, slices=4), problem)
    # The small initial weights hide the convolutions behind the residual path.
    torch.nn.init.normal_(model.blocks[0].attention.attention.slice.weight)
    torch.nn.init.normal_(model.blocks[0].attention.attention.out.weight)
    model = model.double()
    coords, features = torch.rand(2, 42, 3, dtype=torch.float64).split((2, 1), dim=-1)

    def roll(x):
        return x.unflatten(1, (7, 6)).roll(3, 1).flatten(1, 2)

    moved, still = model(roll(coords), roll(features)).values, model(coords, features).values
    assert torch.allclose(moved, roll(still), rtol=1e-9, atol=1e-12) is wraps


def test_meshes_have_two_axes():
    with pytest.raises(InputError, match="two axes"):
        Transolver(TransolverConfig(), Problem("t", "mesh", (9,), ("a",), ("u",), dimension=1))
