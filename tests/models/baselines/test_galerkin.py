"""Galerkin transformer: attention without softmax, and the scalers around it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cato.errors import InputError
from cato.models.baselines.galerkin import (
    Galerkin,
    GalerkinConfig,
    GalerkinLayer,
    interpolate,
    interpolation,
)
from cato.models.layers.attention import galerkin_attention
from cato.problem import Problem


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 9), st.booleans())
def test_attention_is_the_dense_product_and_linear_in_the_values(seed, num_q, num_k, masked):
    torch.manual_seed(seed)
    q = torch.randn(2, 3, num_q, 4, dtype=torch.float64)
    k = torch.randn(2, 3, num_k, 4, dtype=torch.float64)
    v, w = torch.randn(2, 2, 3, num_k, 5, dtype=torch.float64)
    mask = torch.rand(2, num_k) < 0.6 if masked else torch.ones(2, num_k, dtype=torch.bool)
    mask[:, 0] = True

    def attend(values):
        return galerkin_attention(q, k, values, mask if masked else None)

    for b in range(2):
        real = mask[b]
        expected = (q[b] @ k[b][:, real].mT) @ v[b][:, real] / real.sum()
        torch.testing.assert_close(attend(v)[b], expected)
    torch.testing.assert_close(attend(2 * v - 3 * w), 2 * attend(v) - 3 * attend(w))


def layer_reference(layer, h, x):
    """The equations of the module docstring, one head and one pair of points at a time."""
    p = {name: value.detach().numpy() for name, value in layer.named_parameters()}
    h, x = h.numpy(), x.numpy()
    num_points, width = h.shape
    size = width // layer.heads
    heads = []
    for m in range(layer.heads):
        part = slice(m * size, (m + 1) * size)
        q, k, v = (
            h @ p[f"{name}.weight"][part].T + p[f"{name}.bias"][part]
            for name in ("query", "key", "value")
        )

        def norm(y, name, m=m):
            y = (y - y.mean(1, keepdims=True)) / np.sqrt(y.var(1, keepdims=True) + 1e-7)
            return y * p[f"{name}.scale"][m] + p[f"{name}.shift"][m]

        q, k, v = (np.hstack((y, x)) for y in (q, norm(k, "norm_key"), norm(v, "norm_value")))
        z = np.zeros_like(v)
        for i in range(num_points):
            for j in range(num_points):
                z[i] += (q[i] @ k[j]) * v[j] / num_points
        heads.append(z)
    h = h + np.hstack(heads) @ p["out.weight"].T + p["out.bias"]
    hidden = np.maximum(h @ p["mlp.hidden.weight"].T + p["mlp.hidden.bias"], 0)
    return h + hidden @ p["mlp.out.weight"].T + p["mlp.out.bias"]


def test_layer_agrees_with_a_plain_loop():
    torch.manual_seed(0)
    layer = GalerkinLayer(GalerkinConfig(width=8, heads=2, hidden=6), dimension=2).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    h = torch.randn(2, 7, 8, dtype=torch.float64)
    x = torch.rand(2, 7, 2, dtype=torch.float64)
    out = layer(h, x)
    for b in range(2):
        expected = torch.from_numpy(layer_reference(layer, h[b], x[b]))
        torch.testing.assert_close(out[b].detach(), expected)


@settings(max_examples=30)
@given(st.integers(3, 20), st.integers(2, 20))
def test_interpolation_is_exact_for_linear_functions(size, new_size):
    like = torch.zeros((), dtype=torch.float64)
    matrix = interpolation(size, new_size, False, like)
    here, there = (torch.linspace(0, 1, n, dtype=torch.float64) for n in (size, new_size))
    torch.testing.assert_close(matrix @ (3 - 2 * here), 3 - 2 * there)
    wrapped = interpolation(size, new_size, True, like)
    torch.testing.assert_close(wrapped.sum(1), torch.ones(new_size, dtype=torch.float64))


def test_interpolation_converges_with_second_order_across_the_seam():
    errors = []
    for n in (16, 32, 64):
        x, y = (torch.arange(m, dtype=torch.float64) / m for m in (n, 3 * n))
        wave = torch.sin(2 * torch.pi * x)
        fine = interpolate(wave.expand(1, 1, 4, n), (4, 3 * n), (True, True))[0, 0]
        errors.append((fine - torch.sin(2 * torch.pi * y)).abs().max().item())
    orders = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    assert orders == pytest.approx(2, abs=0.05)


def test_a_cloud_sampled_twice_gives_the_same_answer():
    torch.manual_seed(0)
    problem = Problem("t", "cloud", (20,), ("a",), ("u",))
    model = Galerkin(GalerkinConfig(width=8, depth=2, heads=2), problem).double()
    coords, features = torch.rand(1, 20, 3, dtype=torch.float64).split((2, 1), dim=-1)
    twice = model(coords.repeat(1, 2, 1), features.repeat(1, 2, 1)).values
    torch.testing.assert_close(twice[:, :20], model(coords, features).values)


def test_impossible_settings():
    with pytest.raises(InputError, match="multiple of heads; got 10 with 4"):
        GalerkinLayer(GalerkinConfig(width=10), 2)
    with pytest.raises(InputError, match="two axes"):
        Galerkin(GalerkinConfig(), Problem("t", "mesh", (9,), ("a",), ("u",), dimension=1))
