"""The compiled attention against the formula over all pairs of nodes in float64."""

import math
import os
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from cato.errors import InputError
from cato.kernels import attention, attention_loops, jit
from cato.kernels.attention import axial_attention, supported
from cato.kernels.attention_loops import LANES, exp2, load, store


def rotated(x: Tensor, turn: Tensor) -> Tensor:
    """(nodes, heads, size) turned by (nodes, pairs, 2)."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = turn[:, None, :, 0], turn[:, None, :, 1]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def formula(qkv: Tensor, turns: list[Tensor], heads: int, turn_values: bool = False) -> Tensor:
    """Attention of all nodes to all nodes, with the weight of those off the line set to zero."""
    batch, *mesh, channels = qkv.shape
    width = 2 * turns[0].shape[-2] * heads
    position = torch.cartesian_prod(*(torch.arange(n) for n in mesh)).reshape(-1, len(mesh))
    samples = []
    for b in range(batch):
        parts = []
        for axis, turn in enumerate(turns):
            first = 0 if channels == 3 * width else 3 * width * axis
            own = qkv[b].flatten(0, -2)[:, first : first + 3 * width]
            q, k, v = own.reshape(len(own), 3, heads, -1).unbind(1)
            turn = turn[b].flatten(0, -3)
            others = [a for a in range(len(mesh)) if a != axis]
            on_line = (position[:, None, others] == position[None, :, others]).all(-1)
            scores = torch.einsum("ihd,jhd->hij", rotated(q, turn), rotated(k, turn))
            scores = (scores / math.sqrt(q.shape[-1])).masked_fill(~on_line, -math.inf)
            values = rotated(v, turn) if turn_values else v
            line = torch.einsum("hij,jhd->ihd", scores.softmax(-1), values)
            if turn_values:
                line = rotated(line, turn * turn.new_tensor((1.0, -1.0)))
            parts.append(line.flatten(1))
        samples.append(torch.cat(parts, dim=-1))
    return torch.stack(samples).unflatten(1, mesh)


def inputs(
    mesh: tuple[int, ...],
    size: int,
    heads: int,
    *,
    shared: bool = True,
    batch: int = 1,
    seed: int = 0,
) -> tuple[Tensor, list[Tensor]]:
    """Random projections, and turns of any length: the gradient of a turn must not assume 1."""
    random = torch.Generator().manual_seed(seed)
    channels = 3 * heads * size * (1 if shared else len(mesh))
    qkv = torch.randn(batch, *mesh, channels, generator=random)
    turns = [torch.randn(batch, *mesh, size // 2, 2, generator=random) for _ in mesh]
    return qkv, turns


def with_gradients(
    function, qkv: Tensor, turns: list[Tensor], heads: int, **options: bool
) -> list[Tensor]:
    """The result, and its gradients for a fixed weighting with respect to qkv and every turn."""
    leaves = [x.detach().clone().requires_grad_() for x in (qkv, *turns)]
    out = function(leaves[0], leaves[1:], heads, **options)
    weight = torch.cos(torch.arange(out.numel(), dtype=torch.float64)).reshape(out.shape)
    return [out.detach(), *torch.autograd.grad(out, leaves, weight.to(out.dtype))]


def assert_equals_formula(
    qkv: Tensor, turns: list[Tensor], heads: int, tolerance: float = 1e-5, **options: bool
) -> None:
    """Result and all gradients, to a tolerance relative to the largest element, or to 1."""
    doubles = [turn.double() for turn in turns]
    exact = with_gradients(formula, qkv.double(), doubles, heads, **options)
    for ours, reference in zip(
        with_gradients(axial_attention, qkv, turns, heads, **options), exact, strict=True
    ):
        scale = max(1.0, reference.abs().max().item())
        torch.testing.assert_close(ours.double(), reference, rtol=0, atol=tolerance * scale)


@settings(max_examples=40, deadline=None)
@given(
    mesh=st.one_of(
        st.tuples(st.integers(1, 90)),
        st.tuples(st.integers(1, 19), st.integers(1, 19)),
        st.tuples(st.integers(1, 7), st.integers(1, 7), st.integers(1, 7)),
    ),
    size=st.sampled_from((2, 4, 6, 8, 12, 16, 18, 32)),
    heads=st.integers(1, 3),
    shared=st.booleans(),
    batch=st.integers(1, 2),
    seed=st.integers(0, 1000),
)
def test_equals_the_formula(mesh, size, heads, shared, batch, seed):
    qkv, turns = inputs(mesh, size, heads, shared=shared, batch=batch, seed=seed)
    assert_equals_formula(qkv, turns, heads)


@settings(max_examples=20, deadline=None)
@given(
    mesh=st.one_of(
        st.tuples(st.integers(1, 90)), st.tuples(st.integers(1, 19), st.integers(1, 19))
    ),
    size=st.sampled_from((2, 8, 12, 18, 32)),
    shared=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_turned_values_equal_the_formula(mesh, size, shared, seed):
    """For rotations proper, since only those can be turned back."""
    qkv, turns = inputs(mesh, size, 2, shared=shared, batch=2, seed=seed)
    turns = [torch.nn.functional.normalize(turn, dim=-1) for turn in turns]
    assert_equals_formula(qkv, turns, 2, turn_values=True)


@pytest.mark.parametrize("turn_values", [False, True])
@pytest.mark.parametrize(("mesh", "size"), [((9, 21), 12), ((70,), 18), ((33, 5), 32)])
def test_bfloat16_is_rounded_at_the_ends_only(mesh, size, turn_values):
    """Result and gradients are those of the formula for the same inputs, rounded to 8 bits."""
    qkv, turns = inputs(mesh, size, 2, batch=2)
    turns = [torch.nn.functional.normalize(turn, dim=-1) for turn in turns]
    qkv, options = qkv.bfloat16(), {"turn_values": turn_values}
    doubles = [turn.double() for turn in turns]
    exact = with_gradients(formula, qkv.double(), doubles, 2, **options)
    ours = with_gradients(axial_attention, qkv, turns, 2, **options)
    assert [x.dtype for x in ours] == [torch.bfloat16] * 2 + [torch.float32] * len(turns)
    for found, reference in zip(ours, exact, strict=True):
        # Both roundings of a gradient that two axes share, and that of the weights.
        assert (found - reference).norm() < 5e-3 * reference.norm()


def test_bfloat16_has_the_bits_of_pytorch():
    @njit
    def copied(x, out):
        for i in range(0, x.size, LANES):
            store(load(x, (i,), x.size - i), out, (i,), x.size - i)

    random = torch.Generator().manual_seed(0)
    x = torch.randn(1000, generator=random) * torch.logspace(-38, 38, 1000)
    ties = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8])
    special = torch.tensor([0.0, -0.0, math.inf, -math.inf, 3.4e38, 1e-45])
    x = torch.cat((x, ties, special))
    out = np.empty(len(x), np.int16)
    copied(x.numpy(), out)
    np.testing.assert_array_equal(out, x.bfloat16().view(torch.int16).numpy())
    back = np.empty(len(x), np.float32)
    copied(out, back)
    np.testing.assert_array_equal(back, x.bfloat16().float().numpy())
    copied(np.full(3, np.nan, np.float32), out[:3])
    copied(out[:3], back[:3])
    assert np.isnan(back[:3]).all()


@pytest.mark.parametrize("length", [63, 64, 65, 128, 515])
def test_lines_longer_than_a_block_of_queries(length):
    qkv, turns = inputs((length,), 12, 1)
    assert_equals_formula(qkv, turns, 1, tolerance=1e-5)


@pytest.mark.parametrize(("largest", "tolerance"), [(80.0, 1e-4), (3e4, None)])
def test_large_scores_do_not_overflow(largest, tolerance):
    qkv, turns = inputs((40,), 4, 1)
    turns = [torch.nn.functional.normalize(turn, dim=-1) for turn in turns]
    qkv[..., :4] *= largest / (
        qkv[..., :4].norm(dim=-1).max() * qkv[..., 4:8].norm(dim=-1).max() / 2
    )
    if tolerance is not None:
        assert_equals_formula(qkv, turns, 1, tolerance)
    assert all(x.isfinite().all() for x in with_gradients(axial_attention, qkv, turns, 1))


def test_nodes_of_very_different_magnitude():
    qkv, turns = inputs((50,), 12, 2)
    qkv[:, 0::3, :24] *= 1e-6
    qkv[:, 1::3, :24] *= 10.0
    qkv[:, 2::5, 48:] *= 1e4
    assert_equals_formula(qkv, turns, 2, tolerance=3e-5)
    # Each query for itself: small ones must not drown in the scale of the large ones
    exact = formula(qkv.double(), [turn.double() for turn in turns], 2)
    error = (axial_attention(qkv, turns, 2) - exact).norm(dim=-1) / exact.norm(dim=-1)
    assert error.max() < 3e-5


def test_power_of_two():
    @njit
    def powers(x, out):
        for i in range(0, x.size, LANES):
            store(exp2(load(x, (i,), LANES)), out, (i,), LANES)

    x = -np.linspace(0, 100, 2**14, dtype=np.float32)
    out = np.empty_like(x)
    powers(x, out)
    assert np.abs(out / np.exp2(x.astype(np.float64)) - 1).max() < 2e-7
    special = np.zeros(LANES, np.float32)
    special[:4] = 0.0, -3e38, -np.inf, np.nan
    powers(special, special)
    np.testing.assert_array_equal(special[:4], [1.0, 2.0**-100, 2.0**-100, np.nan])


def test_nan_stays_on_its_lines():
    qkv, turns = inputs((6, 20), 12, 2)
    qkv[0, 2, 3, 24 + 12 + 5] = math.nan  # a key of the second head
    rows, columns = axial_attention(qkv, turns, 2).unflatten(-1, (2, 2, 12)).unbind(-3)
    for values, line in ((rows[0, :, 3], rows), (columns[0, 2, :], columns)):
        assert values[:, 1].isnan().all()
        assert line.isnan().sum() == values[:, 1].numel()


def test_bits_depend_on_neither_threads_nor_run(monkeypatch):
    monkeypatch.setattr(attention, "SMALLEST_SHARE", 1)
    qkv, turns = inputs((11, 3, 18), 12, 2)
    once = with_gradients(axial_attention, qkv, turns, 2)
    try:
        for num_threads in (1, 2, 3, 7):
            torch.set_num_threads(num_threads)
            again = with_gradients(axial_attention, qkv, turns, 2)
            assert all(map(torch.equal, once, again))
    finally:
        torch.set_num_threads(1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_threads_after_a_fork(monkeypatch):
    monkeypatch.setattr(attention, "SMALLEST_SHARE", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    qkv, turns = inputs((6, 6), 4, 1)
    expected = axial_attention(qkv, turns, 1)
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(axial_attention(qkv, turns, 1), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_memory_layout_does_not_matter():
    qkv, turns = inputs((5, 7), 4, 2)
    swapped = qkv.transpose(1, 2).contiguous().transpose(1, 2)
    assert torch.equal(axial_attention(qkv, turns, 2), axial_attention(swapped, turns, 2))
    leaf = qkv.requires_grad_()
    (gradient,) = torch.autograd.grad(axial_attention(leaf, turns, 2).sum(), leaf)
    ones = torch.ones(1, 5, 7, 2 * 8)
    assert torch.equal(
        gradient, torch.autograd.grad(axial_attention(leaf, turns, 2), leaf, ones)[0]
    )


def test_a_turn_of_another_mesh_is_refused():
    qkv, turns = inputs((5, 7), 4, 2)
    with pytest.raises(RuntimeError, match="expand"):
        attention.axial_attention.__wrapped__(qkv, [turns[0], turns[1][:, :4]], 2)


def test_second_derivatives_are_refused():
    qkv, turns = inputs((5,), 4, 1)
    leaf = qkv.requires_grad_()
    with pytest.raises(InputError, match="differentiated twice"):
        torch.autograd.grad(axial_attention(leaf, turns, 1).sum(), leaf, create_graph=True)


def test_supported_where_results_are_wanted_and_not_operations():
    x = torch.zeros(3)
    assert supported(x)
    assert not supported(x.double())
    assert supported(x.bfloat16())
    assert not supported(x.half())
    assert not supported(x.to("meta"))
    with torch.autocast("cpu", torch.bfloat16):
        assert supported(x)
    with FlopCounterMode(display=False):
        assert not supported(x)
    torch.vmap(lambda row: (row, pytest.fail("vmap"))[0] if supported(row) else row)(x)
    compiled = torch.compile(lambda x: x + supported(x), backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), x)


def test_supported_not_without_numba(monkeypatch):
    monkeypatch.setitem(sys.modules, "cato.kernels.attention_loops", None)
    monkeypatch.delattr("cato.kernels.attention_loops")
    attention.kernels.cache_clear()
    with pytest.warns(UserWarning, match="Numba cannot be imported"):
        assert not supported(torch.zeros(3))
    attention.kernels.cache_clear()


def test_without_a_writable_folder_code_is_not_kept(monkeypatch):
    def read_only(*, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**options)

    monkeypatch.setattr("numba.njit", read_only)
    lines = attention_loops.Lines(6, 5, 3, 1, 0, 0, False)
    assert jit.compiled(attention_loops.first_node.py_func)(lines, 4) == 16
