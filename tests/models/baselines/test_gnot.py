"""GNOT: normalised attention and gated mixtures as mathematics."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cato.errors import InputError
from cato.models.baselines.gnot import GNOT, Gates, GNOTConfig, LinearAttention, Mixture
from cato.models.layers.attention import linear_attention
from cato.problem import Problem


def softmax(x):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from([1, 2, 4]), st.integers(1, 9), st.integers(1, 9))
def test_attention_agrees_with_weights_between_all_pairs(seed, heads, num_queries, num_points):
    torch.manual_seed(seed)
    layer = LinearAttention(8, heads).double()
    h = torch.randn(2, num_queries, 8, dtype=torch.float64)
    z = torch.randn(2, num_points, 8, dtype=torch.float64)
    mask = torch.rand(2, num_points) < 0.7
    mask[:, 0] = True
    q, (k, v) = layer.query(h), layer.key_value(z).chunk(2, dim=-1)
    size = 8 // heads
    expected = torch.zeros_like(h)
    for b in range(2):
        for m in range(heads):
            channels = slice(m * size, (m + 1) * size)
            q_soft, k_soft = softmax(q[b, :, channels]), softmax(k[b, mask[b], channels])
            weights = q_soft @ k_soft.T
            weights = weights / weights.sum(1, keepdim=True)
            expected[b, :, channels] = q_soft + weights @ v[b, mask[b], channels]
    torch.testing.assert_close(layer(h, z, mask), layer.out(expected))


@given(st.integers(0, 10**6), st.floats(-50, 50))
def test_normalised_attention_sums_to_one(seed, value):
    """Weights that are not negative and sum to one: constants stay, and nothing is exceeded."""
    torch.manual_seed(seed)
    q, k = torch.rand(2, 1, 2, 7, 3, dtype=torch.float64)
    constant = torch.full((1, 2, 7, 4), value, dtype=torch.float64)
    torch.testing.assert_close(linear_attention(q, k, constant), constant)
    v = torch.randn(1, 2, 7, 4, dtype=torch.float64)
    out = linear_attention(q, k, v)
    assert (out <= v.amax(2, keepdim=True) + 1e-12).all()
    assert (out >= v.amin(2, keepdim=True) - 1e-12).all()


def test_keys_that_are_all_masked_give_no_nan():
    q, v = torch.rand(1, 2, 5, 3), torch.randn(1, 2, 5, 4)
    assert torch.equal(linear_attention(q, torch.zeros_like(q), v), torch.zeros_like(v))


def test_gates_sum_to_one_and_depend_on_the_place():
    torch.manual_seed(0)
    gates = Gates(2, 16, num_experts=3)(5 * torch.randn(2, 30, 2))
    assert (gates > 0).all()
    torch.testing.assert_close(gates.sum(-1), torch.ones(2, 30))
    assert gates.std(1).min() > 0


def test_mixture_is_the_gated_sum_of_its_experts():
    torch.manual_seed(0)
    mixture = Mixture(6, 10, num_experts=3).double()
    mixture.bias.data.normal_()
    h = torch.randn(2, 5, 6, dtype=torch.float64)
    gates = softmax(torch.randn(2, 5, 3, dtype=torch.float64))
    expected = torch.zeros_like(h)
    for e in range(3):
        rows = slice(10 * e, 10 * (e + 1))
        hidden = h @ mixture.hidden.weight[rows].T + mixture.hidden.bias[rows]
        hidden = hidden * (1 + torch.erf(hidden / 2**0.5)) / 2
        expert = hidden @ mixture.out.weight[:, rows].T + mixture.bias[e]
        expected += gates[..., e : e + 1] * expert
    torch.testing.assert_close(mixture(h, gates), expected)


def model_of(num_inputs, **kwargs):
    torch.manual_seed(0)
    inputs = tuple("abc"[:num_inputs])
    problem = Problem("test", "cloud", (20,), inputs, ("u",), **kwargs)
    return GNOT(GNOTConfig(width=16, depth=2, heads=2), problem).double().eval()


def test_every_output_feels_every_input():
    """One block is enough: the cross-attention reaches from each query to all points."""
    model = model_of(1)
    coords = torch.rand(1, 6, 2, dtype=torch.float64)
    features = torch.randn(1, 6, 1, dtype=torch.float64)

    def outputs(features):
        return model(coords, features).values[0, :, 0]

    jacobian = torch.autograd.functional.jacobian(outputs, features)
    assert (jacobian.abs() > 0).all()


@pytest.mark.parametrize("num_inputs", [0, 2])
def test_points_may_be_doubled(num_inputs):
    """Attention takes means, so the operator belongs to functions and not to a number of points."""
    model = model_of(num_inputs)
    coords = torch.rand(1, 20, 2, dtype=torch.float64)
    features = torch.randn(1, 20, num_inputs, dtype=torch.float64)
    twice = model(torch.cat((coords, coords), 1), torch.cat((features, features), 1)).values
    torch.testing.assert_close(twice[:, :20], model(coords, features).values)


def test_width_must_be_a_multiple_of_heads():
    with pytest.raises(InputError, match="multiple of heads; got 10 with 4"):
        GNOT(GNOTConfig(width=10, heads=4), Problem("test", "grid", (8, 8), ("a",), ("u",)))
