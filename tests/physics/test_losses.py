"""Every term of the objective against hand calculation and plain loops, and its invariances."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cato.config import checked
from cato.errors import InputError
from cato.physics.gradient import gradient, inverse_metric
from cato.physics.losses import LossConfig, PhysicalLoss, gradient_rms
from cato.problem import Problem

SHAPE = (5, 6)
PAPER = LossConfig(gradient=0.2, flux=0.2, consistency=0.05)
EVERYTHING = LossConfig(gradient=0.2, flux=0.3, consistency=0.05, gdl=0.1)


def problem(num_outputs: int = 1, geometry: str = "mesh") -> Problem:
    shape = (30,) if geometry == "cloud" else SHAPE
    return Problem("test", geometry, shape, (), tuple("uvw"[:num_outputs]))


def sheared_mesh(num_samples: int) -> Tensor:
    """A different valid mesh for every sample, in float64."""
    i, j = torch.meshgrid(*[torch.arange(n, dtype=torch.float64) for n in SHAPE], indexing="ij")
    shear = torch.linspace(0.1, 0.5, num_samples, dtype=torch.float64)[:, None]
    i, j = i.flatten(), j.flatten()
    return torch.stack([i + shear * j, (0.5 * j + 0.02 * j**2).expand(num_samples, -1)], -1)


class Case:
    """Random predictions, targets and fluxes on distorted meshes."""

    def __init__(self, num_samples: int = 3, num_outputs: int = 2, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        size = (num_samples, 30, num_outputs)

        def field(*shape: int) -> Tensor:
            return torch.randn(*shape, dtype=torch.float64, generator=generator)

        self.problem = problem(num_outputs)
        self.coords = sheared_mesh(num_samples)
        self.metric = inverse_metric(self.coords, SHAPE, self.problem.periodic, self.problem.period)
        self.target = field(*size) * torch.tensor([1.0, 20.0, 3.0])[:num_outputs]
        self.values = (self.target + 0.3 * field(*size)).requires_grad_()
        self.flux = field(*size, 2).requires_grad_()
        self.scale = gradient_rms(self.target, self.metric, SHAPE, self.problem.periodic)

    def loss(self, config: LossConfig) -> tuple[Tensor, dict[str, Tensor]]:
        return PhysicalLoss(config, self.problem, self.scale)(
            self.values, self.target, flux=self.flux, metric=self.metric
        )


def test_value_term_by_hand() -> None:
    """Errors (3, 4) of norm 5 on targets (0, 10), and none: relative errors 0.5 and 0."""
    cloud = Problem("test", "cloud", (2,), (), ("u",))
    target = torch.tensor([[[0.0], [10.0]], [[1.0], [1.0]]])
    values = torch.tensor([[[3.0], [6.0]], [[1.0], [1.0]]])
    total, terms = PhysicalLoss(LossConfig(), cloud)(values, target)
    assert terms.keys() == {"value"}
    assert float(total) == pytest.approx(0.25)


def test_gradient_terms_by_hand() -> None:
    """On linear fields ∇û = (3, 4), ∇u = (1, 2) and q̂ = (0, 2): |(2,2)|², |(−1,0)|², |(−3,−2)|²."""
    mesh = problem()
    coords = sheared_mesh(1)
    metric = inverse_metric(coords, SHAPE, mesh.periodic, mesh.period)
    slopes = torch.tensor([[3.0, 4.0], [1.0, 2.0]], dtype=torch.float64)
    values, target = (coords @ slopes[:1].T, coords @ slopes[1:].T)
    flux = torch.tensor([0.0, 2.0], dtype=torch.float64).expand(1, 30, 1, 2)
    config = LossConfig(gradient=0.5, flux=2.0, consistency=0.1, gdl=1.0, gradient_scale="raw")
    total, terms = PhysicalLoss(config, mesh)(values, target, flux=flux, metric=metric)
    expected = {"gradient": 8.0, "flux": 1.0, "consistency": 13.0, "gdl": 2 / 1 + 2 / 2}
    for name, value in expected.items():
        assert float(terms[name]) == pytest.approx(value, rel=1e-10)
    assert float(total - terms["value"]) == pytest.approx(4.0 + 2.0 + 1.3 + 3.0, rel=1e-10)
    scaled = PhysicalLoss(
        LossConfig(gradient=0.5, flux=2.0), mesh, torch.tensor([2.0], dtype=torch.float64)
    )
    terms = scaled(values, target, flux=flux, metric=metric)[1]
    assert float(terms["gradient"]) == pytest.approx(2.0, rel=1e-10)
    assert float(terms["flux"]) == pytest.approx(0.25, rel=1e-10)


@pytest.mark.parametrize("gradient_scale", ["rms", "raw"])
def test_all_terms_against_plain_loops(gradient_scale: str) -> None:
    case = Case()
    config = LossConfig(0.2, 0.3, 0.05, 0.1, gradient_scale=gradient_scale)
    total, terms = case.loss(config)
    u, v, q = (t.detach().numpy() for t in (case.target, case.values, case.flux))
    grad_u, grad_v = (
        gradient(t.detach(), case.metric, SHAPE, case.problem.periodic).numpy()
        for t in (case.target, case.values)
    )
    num_samples, num_nodes, num_channels = u.shape
    scale = case.scale.numpy() if gradient_scale == "rms" else np.ones(num_channels)
    expected = dict.fromkeys(("value", "gradient", "flux", "consistency", "gdl"), 0.0)
    for b in range(num_samples):
        error = sum((v[b, n, c] - u[b, n, c]) ** 2 for n, c in np.ndindex(num_nodes, num_channels))
        size = sum(u[b, n, c] ** 2 for n, c in np.ndindex(num_nodes, num_channels))
        expected["value"] += math.sqrt(error / size) / num_samples
        for d in range(2):
            error = size = 0.0
            for n, c in np.ndindex(num_nodes, num_channels):
                error += (grad_v[b, n, c, d] - grad_u[b, n, c, d]) ** 2
                size += grad_u[b, n, c, d] ** 2
            expected["gdl"] += math.sqrt(error / size) / num_samples
        for n, c, d in np.ndindex(num_nodes, num_channels, 2):
            share = 1 / (num_samples * num_nodes * num_channels * scale[c] ** 2)
            true, predicted, flux = grad_u[b, n, c, d], grad_v[b, n, c, d], q[b, n, c, d]
            expected["gradient"] += share * (predicted - true) ** 2
            expected["flux"] += share * (flux - true) ** 2
            expected["consistency"] += share * (flux - predicted) ** 2
    weights = {"value": 1, "gradient": 0.2, "flux": 0.3, "consistency": 0.05, "gdl": 0.1}
    assert terms.keys() == weights.keys()
    for name, value in expected.items():
        assert float(terms[name]) == pytest.approx(value, rel=1e-10), name
    assert float(total.detach()) == pytest.approx(sum(w * expected[k] for k, w in weights.items()))


def test_gradient_rms_against_a_plain_mean_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cato.physics.losses.VALUES_PER_CHUNK", 130)
    case = Case(num_samples=5)
    grad = gradient(case.target, case.metric, SHAPE, case.problem.periodic)
    expected = grad.square().sum(-1).mean((0, 1)).sqrt()
    torch.testing.assert_close(case.scale, expected)
    frames = torch.stack([case.target, 3 * case.target], 1)  # mean square (1 + 9) / 2
    rms = gradient_rms(frames, case.metric, SHAPE, case.problem.periodic)
    torch.testing.assert_close(rms, math.sqrt(5) * expected)
    shared = gradient_rms(case.target, case.metric[:1], SHAPE, case.problem.periodic)
    grad = gradient(case.target, case.metric[:1], SHAPE, case.problem.periodic)
    torch.testing.assert_close(shared, grad.square().sum(-1).mean((0, 1)).sqrt())


def test_a_term_without_weight_is_not_computed() -> None:
    case = Case()
    for name in ("gradient", "flux", "consistency", "gdl"):
        assert case.loss(LossConfig(**{name: 0.1}))[1].keys() == {"value", name}


def test_exact_prediction_has_no_loss_and_a_finite_gradient() -> None:
    case = Case()
    case.values = case.target.clone().requires_grad_()
    true = gradient(case.target, case.metric, SHAPE, case.problem.periodic)
    case.flux = true.clone().requires_grad_()
    total, terms = case.loss(EVERYTHING)
    assert float(total.detach()) == 0
    assert all(float(term) == 0 for term in terms.values())
    total.backward()
    assert not case.values.grad.any()
    assert not case.flux.grad.any()


def test_one_exact_sample_does_not_disturb_the_others() -> None:
    case = Case()
    values = case.values.detach().clone()
    values[1] = case.target[1]
    case.values = values.requires_grad_()
    total, _ = case.loss(LossConfig(gdl=0.1))
    total.backward()
    assert case.values.grad.isfinite().all()
    assert case.values.grad[0].any()
    assert case.values.grad[2].any()


def test_gradient_of_the_total() -> None:
    case = Case(num_samples=2, num_outputs=1)
    loss = PhysicalLoss(EVERYTHING, case.problem, case.scale)

    def total(values: Tensor, flux: Tensor) -> Tensor:
        return loss(values, case.target, flux=flux, metric=case.metric)[0]

    assert torch.autograd.gradcheck(total, (case.values, case.flux))


@settings(max_examples=25, deadline=None)
@given(st.floats(1e-4, 1e4), st.floats(1e-3, 1e3))
def test_units_of_field_and_length_do_not_matter(field_unit: float, length_unit: float) -> None:
    """With scale "rms", u → s u and x → t x leave every term unchanged."""
    case = Case()
    _, before = case.loss(EVERYTHING)
    case.metric = inverse_metric(
        length_unit * case.coords, SHAPE, case.problem.periodic, case.problem.period
    )
    case.target, case.values = field_unit * case.target, field_unit * case.values
    case.flux = field_unit / length_unit * case.flux
    case.scale = gradient_rms(case.target, case.metric, SHAPE, case.problem.periodic)
    _, after = case.loss(EVERYTHING)
    for name, value in before.items():
        assert float(after[name]) == pytest.approx(float(value), rel=1e-6), name


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 1000))
def test_uneven_shards_add_up_to_the_whole_batch(sizes: list[int], seed: int) -> None:
    case = Case(num_samples=sum(sizes), seed=seed)
    loss = PhysicalLoss(EVERYTHING, case.problem, case.scale)
    whole, terms = case.loss(EVERYTHING)
    expected = torch.autograd.grad(whole, (case.values, case.flux))
    total, sums, first = 0.0, dict.fromkeys(terms, 0.0), 0
    for size in sizes:
        part = slice(first, first + size)
        shard, shard_terms = loss(
            case.values[part],
            case.target[part],
            flux=case.flux[part],
            metric=case.metric[part],
            weights=torch.full((size,), 1 / sum(sizes), dtype=torch.float64),
        )
        shard.backward()
        total += float(shard.detach())
        sums = {name: value + float(shard_terms[name]) for name, value in sums.items()}
        first += size
    assert total == pytest.approx(float(whole.detach()), rel=1e-12)
    assert sums == pytest.approx({name: float(term) for name, term in terms.items()})
    torch.testing.assert_close(case.values.grad, expected[0])
    torch.testing.assert_close(case.flux.grad, expected[1])


def test_a_sample_of_weight_zero_counts_nowhere() -> None:
    case = Case(num_samples=3)
    loss = PhysicalLoss(EVERYTHING, case.problem, case.scale)
    inputs = {"flux": case.flux, "metric": case.metric}
    weights = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    total, _ = loss(case.values, case.target, **inputs, weights=weights)
    expected, _ = loss(case.values[:2], case.target[:2], flux=case.flux[:2], metric=case.metric[:2])
    torch.testing.assert_close(total, expected)


def test_padding_counts_nowhere() -> None:
    cloud = problem(2, "cloud")
    target, values = torch.randn(2, 30, 2), torch.randn(2, 30, 2)
    mask = torch.ones(2, 30, dtype=torch.bool)
    mask[0, 20:] = False
    values[0, 20:], target[0, 20:] = math.nan, 1e6
    values.requires_grad_()
    loss = PhysicalLoss(LossConfig(), cloud)
    total, _ = loss(values, target, mask=mask)
    apart = loss(values[:1, :20], target[:1, :20])[0] + loss(values[1:], target[1:])[0]
    torch.testing.assert_close(total, apart / 2)
    total.backward()
    assert not values.grad[0, 20:].any()
    assert values.grad.isfinite().all()


@pytest.mark.parametrize("name", ["gradient", "flux", "consistency", "gdl"])
def test_gradient_terms_need_a_mesh(name: str) -> None:
    with pytest.raises(InputError, match="is a cloud"):
        PhysicalLoss(LossConfig(**{name: 0.1}), problem(geometry="cloud"), torch.ones(1))


@pytest.mark.parametrize("name", ["flux", "consistency"])
def test_flux_terms_need_a_flux_head(name: str) -> None:
    case = Case(num_outputs=1)
    loss = PhysicalLoss(LossConfig(**{name: 0.1}), case.problem, case.scale)
    with pytest.raises(InputError, match="flux head"):
        loss(case.values, case.target, metric=case.metric)


def test_gradient_terms_need_metric_and_scale() -> None:
    case = Case(num_outputs=1)
    with pytest.raises(InputError, match="gradient_rms"):
        PhysicalLoss(PAPER, case.problem)
    with pytest.raises(InputError, match="inverse_metric"):
        PhysicalLoss(PAPER, case.problem, case.scale)(case.values, case.target, flux=case.flux)


def test_a_constant_output_has_no_gradient_scale() -> None:
    case = Case(num_outputs=2)
    case.target[..., 1] = 7.0
    scale = gradient_rms(case.target, case.metric, SHAPE, case.problem.periodic)
    with pytest.raises(InputError, match="output 'v'"):
        PhysicalLoss(PAPER, case.problem, scale)
    PhysicalLoss(LossConfig(gdl=0.1), case.problem, scale)


@pytest.mark.parametrize(
    "config", [LossConfig(gradient=-0.1), LossConfig(gdl=math.nan)], ids=["negative", "nan"]
)
def test_impossible_weights_are_named(config: LossConfig) -> None:
    with pytest.raises(InputError, match=r"loss: (gradient|gdl)"):
        PhysicalLoss(config, problem(), torch.ones(1))
    assert checked(PAPER, "loss") == PAPER
