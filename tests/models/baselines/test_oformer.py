"""OFormer: rotary Galerkin attention, its norms and its start."""

from math import cos, sin

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cato.errors import InputError
from cato.models.baselines.oformer import (
    OFormer,
    OFormerConfig,
    RotaryAttention,
    rotation,
)
from cato.problem import Problem


def turned(x, place, size, nodes_per_length):
    """R(place) x for one point, pair by pair; each coordinate has an equal share of the pairs."""
    out, half = x.clone(), size // 2
    share = half // len(place)
    for axis, coordinate in enumerate(place.tolist()):
        for r in range(share):
            angle = nodes_per_length * coordinate * 10000 ** (-r / share)
            i = axis * share + r
            a, b = x[i].clone(), x[i + half].clone()
            out[i], out[i + half] = a * cos(angle) - b * sin(angle), a * sin(angle) + b * cos(angle)
    return out


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 3), st.sampled_from([6, 8, 12]))
def test_rotary_score_depends_on_differences_only(seed, dimension, size):
    torch.manual_seed(seed)
    q, k = torch.randn(2, 1, 1, 5, size, dtype=torch.float64)
    x, y = torch.rand(2, 1, 5, dimension, dtype=torch.float64)
    shift = torch.randn(dimension, dtype=torch.float64)

    def score(x, y):
        turn_q, turn_k = (rotation(place, size, 7.0) for place in (x, y))
        return turn_q(q) @ turn_k(k).mT

    torch.testing.assert_close(score(x, y), score(x + shift, y + shift), rtol=1e-6, atol=1e-6)
    assert not torch.allclose(score(x, y), score(x + 0.1, y), rtol=1e-3)
    expected = turned(q[0, 0, 2], x[0, 2], size, 7.0)
    torch.testing.assert_close(rotation(x, size, 7.0)(q)[0, 0, 2], expected)


def test_attention_agrees_with_a_plain_loop():
    torch.manual_seed(0)
    layer = RotaryAttention(8, heads=2).double()
    h, source = torch.randn(2, 1, 6, 8, dtype=torch.float64)
    coords = torch.rand(1, 6, 2, dtype=torch.float64)
    heads = []
    for m in range(2):
        part = slice(8 * m, 8 * m + 8)
        q, k, v = (
            (x @ linear.weight[part].T)[0].detach()
            for x, linear in ((h, layer.query), (source, layer.key), (source, layer.value))
        )
        k, v = (((x.T - x.mean(1)) / (x.var(1, correction=0) + 1e-5).sqrt()).T for x in (k, v))
        q, k = (
            torch.stack(
                [turned(row, place, 8, 5.0) for row, place in zip(x, coords[0], strict=True)]
            )
            for x in (q, k)
        )
        heads.append(sum((q @ k[j])[:, None] * v[j] for j in range(6)) / 6)
    expected = layer.out(torch.cat(heads, dim=-1))[None]
    torch.testing.assert_close(layer(h, source, rotation(coords, 8, 5.0), None), expected)


def test_every_head_starts_near_a_scaled_identity():
    layer = RotaryAttention(6, heads=3)
    for linear in (layer.query, layer.key, layer.value):
        for block in linear.weight.detach().chunk(3):
            omega = 6 * block - torch.eye(6)
            torch.testing.assert_close(omega @ omega.T, torch.eye(6), atol=1e-5, rtol=0)


def test_the_latent_state_is_propagated_in_rollouts_only():
    config = OFormerConfig(width=8, depth=1, heads=2, latent=12)
    steady = Problem("t", "grid", (5, 4), ("a",), ("u",))
    rollout = Problem("t", "grid", (5, 4), ("a",), ("u",), time="rollout", num_steps=3)
    assert OFormer(config, steady).decoder.propagator is None
    model = OFormer(config, rollout)
    coords, features = torch.rand(1, 20, 2), torch.randn(1, 20, 1)
    before = model(coords, features).values
    torch.nn.init.zeros_(model.decoder.propagator[-1].weight)
    assert not torch.allclose(before, model(coords, features).values)


def test_random_frequencies_are_saved_and_not_trained():
    model = OFormer(OFormerConfig(), Problem("t", "cloud", (9,), (), ("u",)))
    assert "decoder.fourier.frequency" in model.state_dict()
    assert "decoder.fourier.frequency" not in dict(model.named_parameters())


def test_width_must_be_even():
    with pytest.raises(InputError, match="even, to turn pairs; got 7"):
        RotaryAttention(7, heads=1)
