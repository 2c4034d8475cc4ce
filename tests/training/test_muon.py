"""Muon: what it does to singular values, and that it is PyTorch's."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cato.training.muon import SIZE_OF_ADAMW, Muon, orthogonalised

SHAPES = [(8, 24), (24, 8), (16, 16), (8, 24)]


def matrices(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator) for shape in SHAPES]


def test_singular_values_become_about_one_and_singular_vectors_stay():
    found = []
    for x in matrices():
        left, values, right = torch.linalg.svd(x, full_matrices=False)
        found.append(left @ torch.linspace(0.02, 1, len(values)).diag() @ right)
    for x, direction in zip(found, orthogonalised(found), strict=True):
        values = torch.linalg.svdvals(direction)
        assert values.min() > 0.6
        assert values.max() < 1.3
        left, _, right = torch.linalg.svd(x, full_matrices=False)
        diagonal = left.mT @ direction @ right.mT
        torch.testing.assert_close(diagonal, diagonal.diagonal().diag(), atol=1e-4, rtol=0)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.floats(1e-3, 1e3))
def test_a_direction_turns_with_its_matrix_and_forgets_its_size(seed, factor):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(6, 10, generator=generator)
    turn, _ = torch.linalg.qr(torch.randn(6, 6, generator=generator))
    plain, turned, scaled, flipped = orthogonalised([x, turn @ x, factor * x, x.mT])
    torch.testing.assert_close(turned, turn @ plain, atol=2e-3, rtol=0)
    torch.testing.assert_close(scaled, plain, atol=2e-3, rtol=0)
    torch.testing.assert_close(flipped.mT, plain, atol=2e-3, rtol=0)


def test_matrices_of_one_shape_do_not_mix():
    together = orthogonalised(matrices())
    for x, direction in zip(matrices(), together, strict=True):
        torch.testing.assert_close(orthogonalised([x])[0], direction, atol=1e-5, rtol=0)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this PyTorch has no Muon")
def test_steps_are_those_of_pytorch_up_to_its_bfloat16():
    ours, theirs = ([nn.Parameter(x.clone()) for x in matrices()] for _ in range(2))
    one = Muon(ours, lr=0.02, weight_decay=0.1)
    other = torch.optim.Muon(theirs, lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for seed in range(1, 4):
        for parameters, optimizer in ((ours, one), (theirs, other)):
            for parameter, gradient in zip(parameters, matrices(seed), strict=True):
                parameter.grad = gradient
            optimizer.step()
    for a, b, start in zip(ours, theirs, matrices(), strict=True):
        moved = (b - start).norm()
        assert (a - b).norm() < 0.03 * moved
    buffers = [other.state[p]["momentum_buffer"] for p in theirs]
    torch.testing.assert_close([one.state[p]["momentum_buffer"] for p in ours], buffers)


def test_an_update_has_the_size_of_one_of_adamw():
    parameter = nn.Parameter(torch.zeros(32, 64))
    parameter.grad = torch.randn(32, 64)
    Muon([parameter], lr=1.0, weight_decay=0.0).step()
    assert float(parameter.detach().square().mean().sqrt()) == pytest.approx(SIZE_OF_ADAMW, rel=0.2)


def test_matrices_without_a_gradient_stay():
    parameter = nn.Parameter(torch.ones(4, 4))
    Muon([parameter], lr=1.0, weight_decay=0.5).step()
    assert (parameter == 1).all()
