"""The theory's exact parts hold exactly, its inequalities in every draw, its orders as proven."""

import json
from dataclasses import replace
from math import pi, sqrt

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from cato.errors import InputError
from cato.models.cato.grid import Cato
from reproduce.experiment import load
from reproduce.pages import page_of
from reproduce.runner import run
from reproduce.theory import experiments
from reproduce.theory.construction import (
    Channels,
    gelu_slope,
    perturbed,
    product,
    random_chart,
    realise,
)
from reproduce.theory.experiments import DISPLACEMENTS, bend, seeded, sharp_ratio, stability_ratios
from reproduce.theory.measure import (
    apply_network,
    chart_points,
    largest_error,
    lift_errors,
    on_sphere,
    realisation_bound,
    summary_error,
)
from reproduce.theory.operators import (
    ChartedAxialOperator,
    Planes,
    Waves,
    chart_distance,
    random_remainder,
    sharp_operator,
)

SHAPE = (6, 5)
SAMPLES = bend(20, 18).flatten(0, 1)


def random_case(seed, ranks=(2, 2)):
    random = seeded(seed)
    return ChartedAxialOperator.draw(*ranks, random), random_chart(SAMPLES, random), random


def network(seed, width=64, ranks=(2, 2)):
    operator, chart, random = random_case(seed, ranks)
    model = realise(operator, chart, width, SHAPE, SAMPLES, random)
    nodes = bend(*SHAPE)
    return model, operator, nodes, chart_points(chart, nodes)


def random_fields(num, seed=0):
    return torch.randn(num, *SHAPE, generator=seeded(seed), dtype=torch.float64)


def test_operator_is_the_formula_of_definition_1():
    operator, chart, _ = random_case(0, (2, 3))
    zeta = chart_points(chart, bend(*SHAPE))
    (f,) = random_fields(1)
    a, b, c, d = (part(zeta) for part in (operator.a, operator.b, operator.c, operator.d))
    height, width = SHAPE
    expected = operator.local(zeta)[0] * f
    for i in range(height):
        for j in range(width):
            for r in range(2):
                mean = sum(b[r, i, t] * f[i, t] for t in range(width)) / width
                expected[i, j] += a[r, i, j] * mean
            for s in range(3):
                mean = sum(d[s, p, j] * f[p, j] for p in range(height)) / height
                expected[i, j] += c[s, i, j] * mean
    torch.testing.assert_close(operator(f[None], zeta)[0], expected)
    torch.testing.assert_close((operator.matrix(zeta) @ f.flatten()).unflatten(0, SHAPE), expected)


@pytest.mark.parametrize("kind", ["waves", "planes"])
def test_constants_of_coefficients_are_reached_and_not_exceeded(kind):
    if kind == "waves":
        functions = Waves.draw(6, seeded(1))
    else:
        slope, offset = torch.randn(6, 3, generator=seeded(1), dtype=torch.float64).split([2, 1], 1)
        functions = Planes(slope, offset[:, 0])
    line = torch.linspace(-1, 1, 301, dtype=torch.float64)
    zeta = torch.stack(torch.meshgrid(line, line, indexing="ij"), dim=-1)
    values = functions(zeta)
    assert (values.abs().amax((1, 2)) <= functions.sup + 1e-12).all()
    torch.testing.assert_close(values.abs().amax((1, 2)), functions.sup, rtol=1e-3, atol=0)
    spacing = line[1] - line[0]
    steps = values[:, 1:, :-1] - values[:, :-1, :-1], values[:, :-1, 1:] - values[:, :-1, :-1]
    slopes = (torch.stack(steps) / spacing).norm(dim=0).amax((1, 2))
    torch.testing.assert_close(slopes, functions.lipschitz, rtol=1e-2, atol=0)
    pairs = 2 * torch.rand(2, 20_000, 2, generator=seeded(2), dtype=torch.float64) - 1
    quotients = (functions(pairs[0]) - functions(pairs[1])).abs() / (pairs[0] - pairs[1]).norm(
        dim=-1
    )
    assert (quotients.amax(1) <= functions.lipschitz + 1e-9).all()


def test_chart_constant_is_the_sum_of_lemma_2():
    operator, _, _ = random_case(3, (2, 3))
    expected = operator.local.lipschitz[0]
    for x, y in ((operator.a, operator.b), (operator.c, operator.d)):
        for k in range(len(x.sup)):
            expected = expected + x.lipschitz[k] * y.sup[k] + x.sup[k] * y.lipschitz[k]
    assert operator.chart_constant == pytest.approx(float(expected))


@given(st.sampled_from(DISPLACEMENTS), st.floats(1e-4, 2.0), st.integers(0, 2**31))
@hypothesis_settings(max_examples=150)
def test_lemma_2_holds_in_every_draw(kind, delta, seed):
    _, worst, typical = stability_ratios(kind, delta, seeded(seed))
    assert 0 < typical <= worst <= 1 + experiments.ROUNDING


@pytest.mark.parametrize("delta", [0.1, 0.001])
def test_lemma_2_is_sharp(delta):
    assert sharp_ratio(delta) == pytest.approx(1 - 4 * delta / 9, rel=1e-9)
    assert sharp_operator(2, 2).chart_constant == 9


@pytest.mark.parametrize("ranks", [(1, 1), (2, 2), (1, 3), (3, 1)])
def test_attention_writes_the_means_and_nothing_else(ranks):
    model, operator, nodes, _ = network(0, width=48, ranks=ranks)
    assert isinstance(model, Cato)
    assert summary_error(model, operator.ranks, nodes, random_fields(3)) < 1e-15


def test_lift_leaves_summaries_empty_and_copies_the_field():
    model, operator, nodes, _ = network(0)
    channels = Channels.reserve(*operator.ranks)
    f = random_fields(2)
    hidden = model.lift(torch.cat((nodes.expand(2, -1, -1, -1), f[..., None]), dim=-1))
    assert not hidden[..., torch.cat((channels.m, channels.n, channels.o))].any()
    torch.testing.assert_close(hidden[..., channels.z][..., 0], f, rtol=1e-15, atol=1e-15)


def test_gelu_slope_is_the_derivative():
    t = torch.linspace(-5, 5, 101, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(torch.nn.functional.gelu(t).sum(), t)
    torch.testing.assert_close(gelu_slope(t.detach()), slope)


def test_products_are_of_second_order_and_within_their_bound():
    p, u = 4 * torch.rand(2, 1000, generator=seeded(0), dtype=torch.float64) - 2
    steps = (0.2, 0.1, 0.05)
    errors = [(product(p, u, h) - p * u).abs() for h in steps]
    for h, error in zip(steps, errors, strict=True):
        assert (error <= h**2 / 3 * (p * u).abs() * (p**2 + u**2) + 1e-12).all()
    assert float(errors[1].max() / errors[2].max()) == pytest.approx(4, rel=0.05)


@pytest.mark.parametrize("ranks", [(1, 1), (1, 3)])
def test_error_decreases_with_the_width(ranks):
    found, bounds = [], []
    for width in (30, 60, 120, 240):
        model, operator, nodes, zeta = network(5, width, ranks)

        def error(f, model=model, operator=operator, nodes=nodes, zeta=zeta):
            return apply_network(model, nodes, f) - operator(f, zeta)

        found.append(largest_error(error, SHAPE, 1.0, seeded(0)))
        bounds.append(realisation_bound(model, operator, zeta, nodes, 1.0))
    assert found == sorted(found, reverse=True)
    assert found[-1] < 0.02 * found[0]
    assert all(error <= bound for error, bound in zip(found, bounds, strict=True))


def test_constant_coefficients_are_realised_to_rounding():
    def constants(num, seed):
        offset = torch.randn(num, generator=seeded(seed), dtype=torch.float64)
        return Planes(torch.zeros(num, 2, dtype=torch.float64), offset)

    operator = ChartedAxialOperator(*(constants(n, k) for k, n in enumerate((2, 2, 1, 1, 1))))
    chart, nodes = random_chart(SAMPLES, seeded(0)), bend(*SHAPE)
    model = realise(operator, chart, 32, SHAPE, SAMPLES, seeded(1))
    f = on_sphere(random_fields(8), 1.0)
    error = apply_network(model, nodes, f) - operator(f, chart_points(chart, nodes))
    assert float(error.flatten(1).norm(dim=1).max()) < 1e-8


def test_widths_below_the_reserved_channels_are_refused():
    operator, chart, random = random_case(0, (4, 4))
    with pytest.raises(InputError, match="need 27 channels; got 24"):
        realise(operator, chart, 24, SHAPE, SAMPLES, random)


def test_network_does_not_look_at_its_chart():
    model, _, nodes, _ = network(0)
    f = random_fields(2)
    before = apply_network(model, nodes, f)
    model.chart.load_state_dict(random_chart(SAMPLES, seeded(99)).state_dict())
    assert torch.equal(apply_network(model, nodes, f), before)
    model.blocks[0].attention.qkv.weight += 0.1  # a network that attends does look
    looking = apply_network(model, nodes, f)
    model.chart.load_state_dict(random_chart(SAMPLES, seeded(98)).state_dict())
    assert not torch.allclose(apply_network(model, nodes, f), looking)


def test_ascent_finds_the_norm_of_a_matrix():
    num_nodes = SHAPE[0] * SHAPE[1]
    matrix = random_remainder(num_nodes, seeded(4))
    matrix = matrix @ matrix @ matrix

    def linear(f):
        return (f.flatten(1) @ matrix.T).unflatten(1, SHAPE)

    norm = float(torch.linalg.matrix_norm(matrix, 2))
    found = largest_error(linear, SHAPE, 3.0, seeded(5), num_steps=40)
    assert 3 * 0.98 * norm < found <= 3 * norm * (1 + 1e-12)


def test_remainder_has_unit_norm_and_charts_move_by_delta():
    assert float(torch.linalg.svdvals(random_remainder(30, seeded(0)))[0]) == pytest.approx(1)
    _, chart, _ = random_case(0)
    zeta = chart_points(chart, bend(*SHAPE))
    sizes = (1e-3, 1e-4)
    moved = [chart_points(perturbed(chart, size, seeded(1)), bend(*SHAPE)) for size in sizes]
    distances = [chart_distance(zeta, other) for other in moved]
    assert distances[0] / distances[1] == pytest.approx(10, rel=0.02)
    assert float((zeta - moved[0]).norm(dim=-1).max()) == distances[0]
    assert zeta.abs().max() <= 1


@given(st.integers(0, 2**31), st.floats(0, 0.1), st.floats(0, 1))
@hypothesis_settings(max_examples=20)
def test_theorem_1_holds_for_random_f(seed, noise, size):
    operator, chart, random = random_case(seed)
    nodes = bend(*SHAPE)
    other = perturbed(chart, noise, random)
    model = realise(operator, other, 64, SHAPE, SAMPLES, random)
    zeta, moved = chart_points(chart, nodes), chart_points(other, nodes)
    f = on_sphere(random_fields(8, seed), 1.0)
    rest = size * random_remainder(SHAPE[0] * SHAPE[1], random)
    target = operator(f, zeta) + (f.flatten(1) @ rest.T).unflatten(1, SHAPE)
    measured = (apply_network(model, nodes, f) - target).flatten(1).norm(dim=1).max()
    chart_term = operator.chart_constant * chart_distance(moved, zeta)
    bound = size + chart_term + realisation_bound(model, operator, moved, nodes, 1.0)
    assert float(measured) <= bound


def test_lift_errors_are_those_of_the_channels():
    model, operator, nodes, zeta = network(2)
    tau = lift_errors(model, operator, zeta, nodes, 1.0)
    z = torch.full((*SHAPE, 1), 0.5, dtype=torch.float64)
    hidden = model.lift(torch.cat((nodes, z), dim=-1))
    channels = Channels.reserve(*operator.ranks)
    u = hidden[..., channels.u[1]] / 0.5 - operator.b(zeta)[1]
    assert float(u.abs().max()) <= float(tau.b[1]) * (1 + 1e-6)
    assert 0 < float(tau.b[1]) < 1


def test_mesh_is_a_quarter_of_an_annulus():
    nodes = bend(5, 9)
    torch.testing.assert_close(nodes[2].norm(dim=-1), torch.full((9,), 0.7, dtype=torch.float64))
    torch.testing.assert_close(
        nodes[4, 4], torch.full((2,), sqrt(0.5), dtype=torch.float64), rtol=1e-12, atol=0
    )
    assert torch.atan2(nodes[0, 1, 1], nodes[0, 1, 0]).item() == pytest.approx(pi / 16)


@pytest.fixture
def quick(monkeypatch):
    changes = {"SHAPE": SHAPE, "RANKS": (1,), "WIDTHS": (16, 32), "NUM_OPERATORS": 1}
    changes |= {"NUM_DRAWS": 3, "THEOREM_WIDTH": 32, "NOISES": (0.0, 0.01)}
    for name, value in changes.items():
        monkeypatch.setattr(experiments, name, value)


def test_study_writes_numbers_page_and_figures(tmp_path, quick):
    results = run(replace(load("theory"), seeds=(1,), out=tmp_path))
    assert json.loads((tmp_path / "theory.json").read_text()) == results
    page = (tmp_path / "theory.md").read_text()
    for name in ("realisation", "stability", "theorem"):
        assert (tmp_path / f"theory-{name}.png").stat().st_size > 5000
        assert f"theory-{name}.png" in page
    assert "None of 36 draws exceeds the bound" in page
    assert results["theorem"]["chart_effect"] == 0
    results["stability"]["rows"][0]["violations"] = 2
    assert "2 of 36 draws exceed the bound" in page_of(results)
