"""U-NO: blocks that change the mesh act on functions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from cato.models.baselines.u_no import UNO, OperatorBlock, UNOConfig, level_shapes
from cato.problem import Problem

meshes = st.tuples(st.integers(6, 14), st.integers(6, 14))


def torus(shape):
    """The angles of the nodes."""
    axes = (2 * torch.pi * torch.arange(n, dtype=torch.float64) / n for n in shape)
    return torch.meshgrid(*axes, indexing="ij")


def smooth(shape):
    """Two trigonometric polynomials of degree at most 2 in each variable."""
    x, y = torus(shape)
    return torch.stack((torch.sin(x) * torch.cos(2 * y) + 0.3, torch.cos(2 * x - y)))[None]


@settings(max_examples=15)
@given(meshes, meshes, meshes, st.integers(0, 2**31))
def test_block_does_not_depend_on_the_mesh_it_reads(shape, other, target, seed):
    torch.manual_seed(seed)
    block = OperatorBlock(2, 3, (3, 3)).double()
    out = block(smooth(shape), target)
    assert out.shape == (1, 3, *target)
    torch.testing.assert_close(out, block(smooth(other), target))


@settings(max_examples=10)
@given(meshes, meshes)
def test_block_with_identity_samples_the_function_elsewhere(shape, target):
    block = OperatorBlock(2, 2, (3, 3)).double()
    torch.nn.init.zeros_(block.spectral.weight)
    torch.nn.init.eye_(block.pointwise.weight)
    torch.nn.init.zeros_(block.pointwise.bias)
    torch.testing.assert_close(block(smooth(shape), target), F.gelu(smooth(target)))


def test_levels():
    assert level_shapes((64, 40)) == [(64, 40), (48, 30), (32, 20), (16, 10)]
    assert min(level_shapes((12, 3))[-1]) == 2
    problem = Problem("test", "grid", (12, 13), (), ("u",))
    model = UNO(UNOConfig(width=8, modes=(8, 4)), problem)
    blocks = (*model.down, model.middle, *model.up)
    sizes = [(b.pointwise.in_features, b.pointwise.out_features) for b in blocks]
    assert sizes == [(8, 12), (12, 24), (24, 48), (48, 48), (48, 24), (48, 12), (24, 8)]
    modes = [b.spectral.modes for b in blocks]
    down = [(6, 3), (4, 2), (2, 1)]
    assert modes == [*down, (2, 1), *reversed(down)]


def test_finer_meshes_converge_to_one_operator():
    """On a torus and with smooth inputs, the error against a fine mesh falls with the mesh."""
    torch.manual_seed(0)
    problem = Problem("test", "grid", (16, 16), (), ("u",), periodic=(True, True))
    model = UNO(UNOConfig(width=4, modes=(4, 4)), problem).double()

    def outputs(size):
        x, y = (a.flatten() for a in torus((size, size)))
        coords = torch.stack((torch.sin(x), torch.cos(y + torch.sin(x))), -1)[None]
        empty = coords.new_zeros(1, size**2, 0)
        values = model(coords, empty, shape=(size, size)).values
        return values.reshape(size, size)[:: size // 16, :: size // 16]

    exact = outputs(128)
    errors = [(outputs(size) - exact).norm() / exact.norm() for size in (16, 32, 64)]
    assert errors[1] < 0.2 * errors[0]
    assert errors[2] < 0.2 * errors[1]


@pytest.mark.parametrize("level", [0, 1, 2])
def test_every_skip_is_seen(level):
    """Silencing the way back leaves the output to the skips: level 0 comes last of all."""
    torch.manual_seed(0)
    problem = Problem("test", "grid", (16, 16), (), ("u",))
    model = UNO(UNOConfig(width=4), problem)
    x = torch.randn(1, 4, 16, 16)
    out = model.body(x)
    with torch.no_grad():
        block = model.up[2 - level]
        block.spectral.weight.zero_()
        block.pointwise.weight.zero_()
        block.pointwise.bias.zero_()
    cut = model.body(x)
    assert not torch.allclose(cut, out)
    seen = cut[:, :4] if level == 0 else cut[:, 4:]  # the lifted state comes first
    assert seen.std(dim=(2, 3)).min() > 1e-4
