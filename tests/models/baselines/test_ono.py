"""ONO: orthonormal features and the kernel they make, as mathematics."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cato.errors import InputError
from cato.models.baselines.ono import ONO, EfficientAttention, ONOBlock, ONOConfig, Whitening
from cato.problem import Problem


def uniform(num_points):
    return torch.full((1, num_points, 1), 1 / num_points, dtype=torch.float64)


def gram(psi, weights):
    """⟨ψ_i, ψ_j⟩, the mean over the samples of sums over their points."""
    matrix = torch.zeros(psi.shape[-1], psi.shape[-1], dtype=psi.dtype)
    for sample, weight in zip(psi, weights.expand(len(psi), -1, -1), strict=True):
        for point, share in zip(sample, weight, strict=True):
            matrix += share * torch.outer(point, point) / len(psi)
    return matrix


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 6), st.floats(1e-3, 1e3))
def test_features_are_orthonormal(seed, num_features, scale):
    """Whatever their scale and correlation, and whichever points are padding."""
    torch.manual_seed(seed)
    mixing = torch.randn(num_features, num_features, dtype=torch.float64)
    phi = scale * (torch.randn(3, 15, num_features, dtype=torch.float64) @ mixing + 1)
    mask = torch.rand(3, 15, 1) < 0.8
    mask[:, 0] = True
    weights = mask.double() / mask.sum(1, keepdim=True)
    psi = Whitening(num_features).double()(phi, weights)
    identity = torch.eye(num_features, dtype=torch.float64)
    torch.testing.assert_close(gram(psi, weights), identity, atol=1e-6, rtol=0)
    # ψ_i is made of φ_1 … φ_i alone, as by Gram and Schmidt
    first = Whitening(1).double()(phi[..., :1], weights)
    torch.testing.assert_close(psi[..., :1], first, atol=1e-6, rtol=1e-6)


def test_features_that_depend_on_each_other_are_harmless():
    torch.manual_seed(0)
    phi = torch.randn(2, 50, 1) * torch.linspace(1, 2, 32)  # rank 1 of 32
    phi.requires_grad_()
    psi = Whitening(32)(phi, uniform(50).float())
    psi.square().sum().backward()
    assert phi.grad.isfinite().all()
    assert psi.square().mean((0, 1)).max() < 1.1
    torch.testing.assert_close(psi[..., 0].square().mean(), torch.tensor(1.0), atol=1e-2, rtol=0)


@pytest.mark.parametrize("seed", range(20))
def test_many_points_with_nearly_linear_features_can_be_whitened(seed):
    """Their sum rounds by more than one of them; Pipe at paper scale failed in single precision."""
    torch.manual_seed(seed)
    place = torch.cat((torch.ones(2, 16641, 1), 0.1 * torch.rand(2, 16641, 2)), dim=-1)
    psi = Whitening(8)(place @ torch.randn(3, 8), uniform(16641).float())
    assert psi.isfinite().all()
    assert psi.square().mean((0, 1)).max() < 1.1


def test_running_covariance_is_the_mean_first_and_then_forgets():
    torch.manual_seed(0)
    whitening = Whitening(3).double()
    expected = torch.zeros(3, 3, dtype=torch.float64)
    for step in range(25):
        phi = torch.randn(2, 9, 3, dtype=torch.float64)
        whitening(phi, uniform(9))
        covariance = gram(phi, uniform(9))
        if step < 10:
            expected = (step * expected + covariance) / (step + 1)
        else:
            expected = 0.9 * expected + 0.1 * covariance
        torch.testing.assert_close(whitening.covariance, expected)


def test_evaluation_whitens_by_the_running_covariance():
    torch.manual_seed(0)
    whitening = Whitening(3).double()
    phi = torch.randn(4, 9, 3, dtype=torch.float64)
    trained = whitening(phi, uniform(9))
    whitening.eval()
    torch.testing.assert_close(whitening(phi, uniform(9)), trained)  # after one batch: the same
    torch.testing.assert_close(whitening(phi[:1], uniform(9)), trained[:1])  # and for any batch
    assert whitening.num_batches == 1


def block_of(num_features=3):
    torch.manual_seed(0)
    config = ONOConfig(width=8, heads=2, num_features=num_features)
    return ONOBlock(config, 8, torch.nn.Identity()).double()


def test_update_is_a_symmetric_positive_kernel_with_the_eigenvalues_softplus_mu():
    """K = N Σ_i softplus(μ_i) ψ_i ψ_iᵀ in the inner product of a batch of one sample."""
    block = block_of()
    block.mu.data = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64)
    block.norm_mix = torch.nn.Identity()
    x = torch.randn(1, 8, 8, dtype=torch.float64)
    identity = torch.eye(8, dtype=torch.float64)[None]
    kernel = block(x, identity, uniform(8), None)[1][0] - identity[0]
    torch.testing.assert_close(kernel, kernel.T)
    expected = torch.zeros(8, dtype=torch.float64)
    expected[-3:] = 8 * torch.log1p(block.mu.exp())
    torch.testing.assert_close(torch.linalg.eigvalsh(kernel), expected, atol=1e-6, rtol=0)


@given(st.integers(0, 10**6), st.sampled_from([1, 2, 4]))
@settings(max_examples=20)
def test_attention_agrees_with_weights_between_all_pairs(seed, heads):
    torch.manual_seed(seed)
    layer = EfficientAttention(8, heads).double()
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    mask = torch.rand(2, 7) < 0.7
    mask[:, 0] = True
    q, k, v = layer.qkv(x).chunk(3, dim=-1)
    size = 8 // heads
    expected = torch.zeros_like(x)
    for b in range(2):
        for m in range(heads):
            channels = slice(m * size, (m + 1) * size)
            e_q, e_k = q[b, :, channels].exp(), k[b, mask[b], channels].exp()
            weights = e_q / e_q.sum(1, keepdim=True) @ (e_k / e_k.sum(0)).T
            torch.testing.assert_close(weights.sum(1), torch.ones(7, dtype=torch.float64))
            expected[b, :, channels] = weights @ v[b, mask[b], channels] / size**0.5
    torch.testing.assert_close(layer(x, mask), layer.out(expected))


def test_points_may_be_doubled():
    """All sums over points are means, so the operator does not depend on their number."""
    torch.manual_seed(0)
    problem = Problem("test", "cloud", (20,), ("a",), ("u",))
    model = ONO(ONOConfig(width=16, depth=2, heads=2, num_features=4), problem).double()
    coords = torch.rand(2, 20, 2, dtype=torch.float64)
    features = torch.randn(2, 20, 1, dtype=torch.float64)
    for mode in (True, False):
        model.train(mode)
        once = model(coords, features).values
        twice = model(torch.cat((coords, coords), 1), torch.cat((features, features), 1)).values
        torch.testing.assert_close(twice[:, :20], once, atol=1e-6, rtol=1e-5)


def test_padding_does_not_count_in_training_either():
    torch.manual_seed(0)
    problem = Problem("test", "cloud", (20,), ("a",), ("u",))
    model = ONO(ONOConfig(width=16, depth=2, heads=2, num_features=4), problem).double()
    coords = torch.rand(2, 20, 2, dtype=torch.float64)
    features = torch.randn(2, 20, 1, dtype=torch.float64)
    padded = [torch.cat((x, torch.full_like(x[:, :7], torch.inf)), 1) for x in (coords, features)]
    mask = torch.arange(27).expand(2, 27) < 20
    out = model(*padded, mask=mask).values
    torch.testing.assert_close(out[:, :20], model(coords, features).values, atol=1e-6, rtol=1e-5)


def test_width_must_be_a_multiple_of_heads():
    with pytest.raises(InputError, match="multiple of heads; got 10 with 4"):
        ONO(ONOConfig(width=10, heads=4), Problem("test", "grid", (8, 8), ("a",), ("u",)))
