import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cato.errors import InputError
from cato.models.layers.attention import PointSliceAttention, SliceAttention


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def loop_reference(layer, x, f, mask):
    """The four equations of the module docstring, one sample and one head at a time, in float64."""
    p = {name: value.detach().double().numpy() for name, value in layer.named_parameters()}
    x, f = x.double().numpy(), f.double().numpy()
    size = x.shape[-1] // layer.heads
    out = np.zeros_like(x)
    for b in range(len(x)):
        for m in range(layer.heads):
            channels = slice(m * size, (m + 1) * size)
            tau = min(max(p["temperature"][m], 0.1), 5.0)
            w = softmax((x[b, :, channels] @ p["slice.weight"].T + p["slice.bias"]) / tau)
            tokens = []
            for g in range(w.shape[1]):
                real = np.flatnonzero(mask[b])
                total = sum(w[n, g] for n in real)
                tokens.append(sum(w[n, g] * f[b, n, channels] for n in real) / (total + 1e-5))
            z = np.stack(tokens)
            q, k, v = (z @ p[f"{name}.weight"].T for name in ("query", "key", "value"))
            z = softmax(q @ k.T / np.sqrt(size)) @ v
            out[b, :, channels] = (w * mask[b][:, None]) @ z
    return out @ p["out.weight"].T + p["out.bias"]


@given(
    seed=st.integers(0, 10**6),
    heads=st.sampled_from([1, 2, 4]),
    slices=st.integers(1, 9),
    num_points=st.integers(1, 12),
)
@settings(max_examples=25, deadline=None)
def test_agrees_with_a_plain_loop(seed, heads, slices, num_points):
    torch.manual_seed(seed)
    layer = SliceAttention(8, heads, slices)
    torch.nn.init.uniform_(layer.temperature, 0.0, 1.0)  # some below the clamp
    x, f = torch.randn(2, 2, num_points, 8)
    mask = torch.rand(2, num_points) < 0.7
    mask[:, 0] = True
    torch.testing.assert_close(
        layer(x, f, mask).detach().double(),
        torch.from_numpy(loop_reference(layer, x, f, mask.numpy())),
        atol=1e-5,
        rtol=1e-4,
    )


def test_weights_sum_to_one_over_slices_and_to_zero_at_padding():
    torch.manual_seed(0)
    layer = SliceAttention(12, heads=3, slices=7)
    mask = torch.tensor([[True] * 5 + [False] * 4, [True] * 9])
    weights = layer.slice_weights(torch.randn(2, 9, 12), mask)
    assert weights.shape == (2, 3, 9, 7)
    assert (weights >= 0).all()
    expected = mask[:, None].expand(2, 3, 9).float()
    torch.testing.assert_close(weights.sum(-1), expected)


@pytest.mark.parametrize(("outside", "bound"), [(1e-4, 0.1), (-3.0, 0.1), (40.0, 5.0)])
def test_temperature_is_clamped(outside, bound):
    torch.manual_seed(0)
    layer, x = SliceAttention(8, heads=2, slices=4), torch.randn(1, 6, 8)
    layer.temperature.data.fill_(outside)
    clamped = layer.slice_weights(x)
    layer.temperature.data.fill_(bound)
    assert torch.equal(clamped, layer.slice_weights(x))


@pytest.mark.parametrize("lag", [10.0, 34.0, 40.0, 1e4])
def test_empty_slices_give_no_nan(lag):
    """One slice takes all; the others hold as little as 1e-9, 1e-30, 1e-35 and nothing."""
    layer = SliceAttention(8, heads=2, slices=4)
    layer.slice.bias.data[1:] -= lag
    h = torch.randn(2, 5, 8, requires_grad=True)
    out = layer(h, h, torch.zeros(2, 5, dtype=torch.bool))
    (out + layer(h, h)).square().sum().backward()
    assert h.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


def test_points_may_be_permuted_and_padded():
    torch.manual_seed(0)
    layer, h = PointSliceAttention(16, heads=2, slices=8), torch.randn(2, 20, 16)
    order = torch.randperm(20)
    torch.testing.assert_close(layer(h[:, order]), layer(h)[:, order], atol=1e-6, rtol=1e-5)
    padded = torch.cat((h, 1e3 * torch.randn(2, 7, 16)), dim=1)
    mask = torch.arange(27).expand(2, 27) < 20
    torch.testing.assert_close(layer(padded, mask)[:, :20], layer(h), atol=1e-6, rtol=1e-5)


def test_a_cloud_sampled_twice_gives_the_same_answer():
    """Tokens are means and not sums, so the layer does not depend on the number of points."""
    torch.manual_seed(0)
    layer, h = PointSliceAttention(16, heads=2, slices=8), torch.randn(1, 20, 16)
    doubled = layer(torch.cat((h, h), dim=1))[:, :20]
    torch.testing.assert_close(doubled, layer(h), atol=1e-5, rtol=1e-4)


def test_width_must_be_a_multiple_of_heads():
    with pytest.raises(InputError, match="multiple of heads; got 10 with 4"):
        SliceAttention(10, heads=4, slices=3)
