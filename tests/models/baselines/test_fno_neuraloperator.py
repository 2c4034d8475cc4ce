"""Our FNO with the weights of the `neuraloperator` library (2.0) gives the library's output.

The library is set to the published model: linear lift of the given channels, no positional
embedding or channel MLP of its own. Then no layer is left out of the comparison. Three of its ways
differ from the paper and are worked around here: without a channel MLP it applies the activation of
a block twice; it pads by zeros on both sides, which on a torus is to pad one side by the sum; and
with an odd number of rows it moves the spectrum by one row on the way back, so we take even ones.
"""

import pytest
import torch

from cato.models.baselines.fno import FNO, FNOConfig
from cato.problem import Problem

models = pytest.importorskip("neuralop.models")


class OncePerBlock:
    """GELU in every other call."""

    def __init__(self):
        self.num_calls = 0

    def __call__(self, x):
        self.num_calls += 1
        return torch.nn.functional.gelu(x) if self.num_calls % 2 else x


def library_model(config, problem):
    modes = config.modes
    return models.FNO(
        n_modes=(2 * modes[0], 2 * modes[1] - 2),  # they count both sides of zero
        in_channels=2 + problem.num_inputs,
        out_channels=problem.num_outputs,
        hidden_channels=config.width,
        n_layers=config.depth,
        lifting_channel_ratio=0,
        projection_channel_ratio=128 / config.width,
        positional_embedding=None,
        use_channel_mlp=False,
        fno_skip="linear",
        domain_padding=config.padding / 2 or None,
        non_linearity=OncePerBlock(),
    )


@torch.no_grad()
def copy_weights(ours, theirs):
    ours.lift.weight.copy_(theirs.lifting.fcs[0].weight[..., 0])
    ours.lift.bias.copy_(theirs.lifting.fcs[0].bias)
    head = theirs.projection.fcs
    for linear, conv in zip((ours.project.hidden, ours.project.out), head, strict=True):
        linear.weight.copy_(conv.weight[..., 0])
        linear.bias.copy_(conv.bias)
    blocks = theirs.fno_blocks
    for layer, conv, skip in zip(ours.layers, blocks.convs, blocks.fno_skips, strict=True):
        # They order the rows −m … m−1 and we 0 … m−1, −m … −1.
        weight = conv.weight.tensor.roll(layer.spectral.modes[0], dims=2).permute(2, 3, 0, 1)
        layer.spectral.weight.copy_(torch.view_as_real(weight))
        layer.pointwise.weight.copy_(skip.conv.weight[..., 0])
        layer.pointwise.bias.copy_(conv.bias.flatten())


@pytest.mark.parametrize("shape", [(20, 16), (16, 21)])
@pytest.mark.parametrize("padding", [0.0, 0.5])
def test_output_of_the_library(shape, padding):
    torch.manual_seed(0)
    problem = Problem("test", "grid", shape, ("a", "b"), ("u", "v", "w"))
    config = FNOConfig(width=8, padding=padding, depth=4, modes=(5, 4))
    ours, theirs = FNO(config, problem), library_model(config, problem)
    copy_weights(ours, theirs)
    coords, features = torch.rand(3, problem.num_nodes, 2), torch.randn(3, problem.num_nodes, 2)
    x = torch.cat((coords, features), -1).transpose(1, 2).unflatten(2, shape)
    expected = theirs(x).flatten(2).transpose(1, 2)
    torch.testing.assert_close(ours(coords, features).values, expected, atol=1e-5, rtol=1e-5)
    assert expected.std() > 0.01
    num_ours, num_theirs = (
        # A complex number of theirs is two real ones of ours.
        sum(p.numel() * (2 if p.is_complex() else 1) for p in model.parameters())
        for model in (ours, theirs)
    )
    assert num_ours == num_theirs
