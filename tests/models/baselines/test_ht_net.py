"""HT-Net: window attention against a dense one, the reach of the hierarchy, and padding."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cato.errors import InputError
from cato.models.baselines.ht_net import (
    Hierarchy,
    HTNet,
    HTNetConfig,
    WindowAttention,
)
from cato.models.layers.mesh import pad_to_multiple
from cato.problem import Problem

SMALL = {"width": 8, "depth": 1, "heads": 2, "window": 2, "spectral_layers": 2, "modes": 3}


def model_of(shape, periodic=(False, False), **kwargs):
    problem = Problem("test", "mesh", shape, ("a",), ("u",), periodic=periodic)
    return HTNet(HTNetConfig(**(SMALL | kwargs)), problem).double()


def dense_reference(layer, h, window, shape):
    """One matrix over all nodes of the mesh without its padding: pairs in one window only."""
    heads, size = layer.heads, h.shape[-1] // layer.heads
    qkv = layer.qkv(h).detach().numpy().reshape(*h.shape[:3], 3, heads, size)
    bias = layer.bias.detach().numpy()
    nodes = list(np.ndindex(*shape))
    mixed = np.zeros((len(h), *shape, heads, size))
    for m in range(heads):
        for b in range(len(h)):
            dense = np.zeros((len(nodes), len(nodes)))
            for i, x in enumerate(nodes):
                for j, y in enumerate(nodes):
                    if x[0] // window == y[0] // window and x[1] // window == y[1] // window:
                        score = qkv[b][x][0, m] @ qkv[b][y][1, m] / window**2
                        offset = (x[0] - y[0] + window - 1, x[1] - y[1] + window - 1)
                        dense[i, j] = score + bias[m][offset]
            v = np.stack([qkv[b][y][2, m] for y in nodes])
            mixed[b, ..., m, :] = (dense @ v).reshape(*shape, size)
    return layer.out(torch.from_numpy(mixed).flatten(-2))


@settings(max_examples=10)
@given(st.integers(2, 6), st.integers(2, 6), st.integers(1, 4), st.integers(0, 2**31))
def test_window_attention_is_masked_dense_attention(num_rows, num_columns, window, seed):
    torch.manual_seed(seed)
    layer = WindowAttention(6, 2, window).double()
    torch.nn.init.normal_(layer.bias)
    h = torch.randn(2, num_rows, num_columns, 6, dtype=torch.float64)
    padded, inside = pad_to_multiple(h, (window, window), (False, False))
    padded = torch.where(inside.bool(), padded, 7.0)  # whatever the padding holds
    result = layer(padded, inside)[:, :num_rows, :num_columns]
    expected = dense_reference(layer, h, window, (num_rows, num_columns))
    torch.testing.assert_close(result, expected, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_every_level_doubles_the_reach(levels):
    """A change at one node is felt by all nodes of its window on the coarsest level, and by no
    others."""
    torch.manual_seed(0)
    config = HTNetConfig(**SMALL, levels=levels)
    hierarchy = Hierarchy(8, levels - 1, config).double()
    reach = 2 * 2 ** (levels - 1)
    h = torch.randn(1, 3 * reach, 2 * reach, 8, dtype=torch.float64)
    inside = torch.ones(3 * reach, 2 * reach, 1, dtype=torch.float64)
    moved = h.clone()
    moved[0, reach, reach - 1] += torch.randn(8)
    change = (hierarchy(moved, inside) - hierarchy(h, inside)).abs().amax(-1)[0] > 1e-12
    expected = torch.zeros_like(change)
    expected[reach : 2 * reach, :reach] = True
    assert torch.equal(change, expected)


def test_padding_changes_no_node():
    torch.manual_seed(0)
    hierarchy = Hierarchy(8, 2, HTNetConfig(**SMALL, levels=3)).double()
    h, inside = pad_to_multiple(torch.randn(2, 9, 13, 8).double(), (8, 8), (False, False))
    assert h.shape == (2, 16, 16, 8)
    other = torch.where(inside.bool(), h, torch.randn_like(h))
    real = (slice(None), slice(9), slice(13))
    torch.testing.assert_close(hierarchy(h, inside)[real], hierarchy(other, inside)[real])


def test_periodic_axes_are_continued_by_themselves():
    h = torch.arange(5.0).reshape(1, 5, 1, 1).expand(1, 5, 3, 1)
    padded, inside = pad_to_multiple(h, (16, 8), (True, False))
    assert padded[0, :, 0, 0].tolist() == [float(i % 5) for i in range(16)]
    assert inside.sum() == 16 * 3
    assert padded[0, :, 3:].abs().sum() == 0


def test_a_torus_may_be_shifted_by_whole_windows_of_the_coarsest_level():
    torch.manual_seed(0)
    model = model_of((12, 8), (True, True))
    coords = torch.rand(2, 96, 2, dtype=torch.float64)
    features = torch.randn(2, 96, 1, dtype=torch.float64)

    def mismatch(shifts):
        def roll(x):
            return x.unflatten(1, (12, 8)).roll(shifts, (1, 2)).flatten(1, 2)

        moved = model(roll(coords), roll(features)).values
        return (moved - roll(model(coords, features).values)).abs().max().item()

    assert mismatch((4, 4)) < 1e-12
    assert mismatch((1, 0)) > 1e-6


def test_only_two_axes():
    problem = Problem("line", "grid", (16,), ("a",), ("u",), dimension=1)
    with pytest.raises(InputError, match="two axes; 'line' has"):
        HTNet(HTNetConfig(**SMALL), problem)
