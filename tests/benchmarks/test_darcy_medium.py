import numpy as np
import pytest
import scipy.fft

from cato.benchmarks.darcy.medium import NUM_MODES, cosine_sum, gaussian_field, spectrum


def test_cosine_sum_is_the_plain_sum() -> None:
    coefficients = np.random.default_rng(0).standard_normal((4, 4))
    x = np.linspace(0, 1, 6)
    expected = np.zeros((6, 6))
    for k in range(4):
        for m in range(4):
            norm = (2 if k and m else np.sqrt(2)) if k or m else 1
            wave = np.outer(np.cos(np.pi * k * x), np.cos(np.pi * m * x))
            expected += coefficients[k, m] * norm * wave
    np.testing.assert_allclose(cosine_sum(coefficients, 6), expected, atol=1e-13)


def test_mean_mode_is_absent() -> None:
    """The trapezoidal rule integrates the cosines exactly, so the mean must vanish."""
    field = gaussian_field(np.random.default_rng(1), 65, num_modes=64)
    weights = np.ones(65)
    weights[[0, -1]] = 0.5
    assert abs(weights @ field @ weights) / 64**2 < 1e-13


def test_spectrum_of_draws_is_the_analytic_one() -> None:
    """Cosine coefficients of many draws have variance 9 (π²|k|² + 9)^−2, band by band."""
    num_draws, num_modes = 300, 33
    rng = np.random.default_rng(2)
    energy = np.zeros((num_modes, num_modes))
    for _ in range(num_draws):
        field = gaussian_field(rng, num_modes, num_modes)
        # DCT-I gives 4·(n−1)² c_k/norm_k inside; its ends count twice.
        transform = scipy.fft.dctn(field, type=1) / (num_modes - 1) ** 2
        norm = np.where(np.arange(num_modes) == 0, 2.0, np.sqrt(2.0))
        norm[-1] *= 2
        energy += (transform / np.outer(norm, norm)) ** 2 / num_draws
    k = np.hypot(*np.meshgrid(np.arange(num_modes), np.arange(num_modes)))
    analytic = 9 / (np.pi**2 * k**2 + 9) ** 2
    for low, high in ((1, 2), (2, 4), (4, 8), (8, 16), (16, 32)):
        band = (k >= low) & (k < high)
        ratio = (energy / analytic)[band].mean()
        # A mean of squares of M standard normals deviates by √(2/M).
        assert abs(ratio - 1) < 4 * np.sqrt(2 / (num_draws * band.sum())), (low, high, ratio)


def test_pointwise_covariance_is_the_analytic_one() -> None:
    num_draws, nodes = 2000, 5
    rng = np.random.default_rng(3)
    draws = np.stack([gaussian_field(rng, nodes, 16).ravel() for _ in range(num_draws)])
    modes = []
    for k in range(16):
        for m in range(16):
            unit = np.zeros((16, 16))
            unit[k, m] = spectrum(16)[k, m]
            modes.append(cosine_sum(unit, nodes).ravel())
    basis = np.stack(modes)
    analytic = basis.T @ basis
    sigma = np.sqrt((np.outer(np.diag(analytic), np.diag(analytic)) + analytic**2) / num_draws)
    measured = draws.T @ draws / num_draws
    assert np.abs((measured - analytic) / sigma).max() < 5


@pytest.mark.parametrize(("fine", "stride"), [(421, 5), (141, 5), (29, 2), (841, 2)])
def test_resolutions_sample_one_function(fine: int, stride: int) -> None:
    coarse = (fine - 1) // stride + 1
    on_fine = gaussian_field(np.random.default_rng(4), fine)
    on_coarse = gaussian_field(np.random.default_rng(4), coarse)
    np.testing.assert_allclose(on_coarse, on_fine[::stride, ::stride], atol=1e-12)
    assert NUM_MODES >= 421
