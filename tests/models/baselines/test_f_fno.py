"""F-FNO against its dense separable operator."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cato.models.baselines.f_fno import FFNO, FactorizedLayer, FFNOConfig, NormedLinear
from cato.problem import Problem


def dense_axis(conv, size):
    """The matrix (node out, channel out, node in, channel in) of the convolution on an axis."""
    weight = torch.view_as_complex(conv.weight.detach()).numpy()
    dense = np.zeros((size, weight.shape[2], size, weight.shape[1]))
    for node_out in range(size):
        for node_in in range(size):
            for k, w in enumerate(weight):
                if 2 * k < size:  # what the mesh has; each k > 0 stands for its conjugate, too
                    wave = np.exp(2j * np.pi * k * (node_out - node_in) / size)
                    dense[node_out, :, node_in] += (2 if k else 1) * (wave * w).real.T / size
    return dense


@settings(max_examples=15)
@given(
    st.tuples(st.integers(2, 7), st.integers(2, 7)),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.integers(0, 2**31),
)
def test_layer_is_its_dense_separable_operator(shape, modes, seed):
    """z = (D₁ ⊗ 1 + 1 ⊗ D₂) x, then the feed-forward network with explicitly scaled rows."""
    torch.manual_seed(seed)
    layer = FactorizedLayer(3, modes, 6).double()
    torch.nn.init.uniform_(layer.hidden.length, 0.5, 2)
    x = torch.randn(1, 3, *shape, dtype=torch.float64)
    rows, columns = (dense_axis(conv, n) for conv, n in zip(layer.axes, shape, strict=True))
    field = x[0].permute(1, 2, 0).numpy()
    eye = [np.eye(n) for n in shape]
    dense = np.einsum("hogi,wv->hwogvi", rows, eye[1]) + np.einsum(
        "wovi,hg->hwogvi", columns, eye[0]
    )
    size = shape[0] * shape[1] * 3
    z = (dense.reshape(size, size) @ field.reshape(size)).reshape(-1, 3)
    for linear, activation in (
        (layer.hidden, lambda v: np.maximum(v, 0)),
        (layer.out, lambda v: v),
    ):
        v, g, b = (p.detach().numpy() for p in (linear.direction, linear.length, linear.bias))
        matrix = np.stack(
            [length * row / np.linalg.norm(row) for length, row in zip(g, v, strict=True)]
        )
        z = activation(z @ matrix.T + b)
    expected = z.reshape(*shape, 3).transpose(2, 0, 1)
    np.testing.assert_allclose(layer(x)[0].detach().numpy(), expected, atol=1e-12)


def test_size_and_direction_of_the_weights_are_apart():
    linear = NormedLinear(5, 4).double()
    x = torch.randn(2, 5, 7, dtype=torch.float64)
    out = linear(x)
    with torch.no_grad():
        linear.direction.mul_(3)
    torch.testing.assert_close(linear(x), out)
    with torch.no_grad():
        linear.length.mul_(2)
        linear.bias.mul_(2)
    torch.testing.assert_close(linear(x), 2 * out)


def test_output_is_read_from_the_last_update():
    torch.manual_seed(0)
    problem = Problem("test", "grid", (9, 8), (), ("u",))
    model = FFNO(FFNOConfig(width=4, depth=3, modes=(3, 3)), problem)
    x = torch.randn(2, 4, 9, 8)
    first, second, last = model.layers
    h = x + first(x)
    h = h + second(h)
    torch.testing.assert_close(model.body(x), last(h))
    torch.nn.init.zeros_(last.out.length)
    torch.nn.init.zeros_(last.out.bias)
    assert torch.equal(model.body(x), torch.zeros_like(x))
