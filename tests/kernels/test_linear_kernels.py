"""Linear maps by oneDNN against PyTorch's in float64."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from cato.kernels.linear import FEWEST_ROWS, linear, supported
from cato.models.layers.nodewise import Linear


@pytest.fixture(autouse=True)
def _has_onednn():
    if not torch.backends.mkldnn.is_available():
        pytest.skip("PyTorch without oneDNN")


def inputs(num_in: int, num_out: int, axes: tuple[int, ...], bias: bool) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    shapes = [(*axes, num_in), (num_out, num_in), *([(num_out,)] if bias else [])]
    return [torch.randn(shape, generator=random).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("axes", [(100,), (2, 7, 9)])
@pytest.mark.parametrize(("num_in", "num_out"), [(96, 288), (30, 7), (3, 1), (1, 5)])
def test_values_and_gradients(num_in, num_out, axes, bias):
    tensors = inputs(num_in, num_out, axes, bias)
    assert supported(*tensors)
    doubles = [x.detach().double().requires_grad_() for x in tensors]
    ours, exact = linear(*tensors), F.linear(*doubles)
    weight = torch.cos(torch.arange(exact.numel(), dtype=torch.float64)).view_as(exact)
    found = [ours, *torch.autograd.grad(ours, tensors, weight.float())]
    expected = [exact, *torch.autograd.grad(exact, doubles, weight)]
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x.double(), y, rtol=0, atol=1e-6 * (1 + y.abs().max().item()))


def test_without_gradients_the_values_are_the_same():
    tensors = inputs(12, 24, (80,), bias=True)
    with torch.no_grad():
        without = linear(*tensors)
    assert torch.equal(linear(*tensors), without)


def test_memory_layout_does_not_matter():
    x, weight = inputs(12, 24, (9, 11), bias=False)
    swapped = x.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    ours, theirs = linear(x, weight), linear(swapped, weight)
    assert torch.equal(ours, theirs)
    # Of a sum the gradient comes expanded, without memory of its own.
    (gradient,) = torch.autograd.grad(ours.sum(), x)
    torch.testing.assert_close(gradient, weight.sum(0).expand_as(x))
    assert torch.equal(gradient, torch.autograd.grad(theirs.sum(), swapped)[0])


def test_only_the_gradients_that_are_asked_for():
    x, weight, bias = inputs(12, 24, (80,), bias=True)
    total = linear(x.detach(), weight, bias).sum()
    total.backward()
    assert x.grad is None
    torch.testing.assert_close(bias.grad, torch.full((24,), 80.0))


def test_second_derivatives():
    x, weight, bias = inputs(4, 3, (FEWEST_ROWS,), bias=True)

    def penalty(map_, *tensors):
        (gradient,) = torch.autograd.grad(map_(*tensors).sin().sum(), tensors[0], create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), tensors[1])[0]

    doubles = [tensor.detach().double().requires_grad_() for tensor in (x, weight, bias)]
    exact = penalty(F.linear, *doubles)
    found = penalty(linear, x, weight, bias).double()
    torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-4)


def test_supported_where_results_are_wanted_and_not_operations():
    x, weight = (tensor.detach() for tensor in inputs(12, 24, (80,), bias=False))
    assert supported(x, weight)
    assert not supported(x.double(), weight.double())
    assert not supported(x[:3], weight)
    assert not supported(x[:0], weight)
    with torch.autocast("cpu", torch.bfloat16):
        assert not supported(x, weight)
        assert linear(x, weight).dtype == torch.bfloat16
    with FlopCounterMode(display=False) as counter:
        linear(x, weight)
    assert counter.get_total_flops() == 2 * 80 * 12 * 24


def test_the_layer_is_exported_as_pytorchs():
    layer = Linear(12, 24)
    program = torch.export.export(layer, (torch.zeros(80, 12),))
    assert any(node.target is torch.ops.aten.linear.default for node in program.graph.nodes)
