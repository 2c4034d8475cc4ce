"""Operations against hand counts, power laws recovered, charts that can be read, a small study."""

import json
from dataclasses import replace
from itertools import combinations
from math import log2

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from cato.benchmarks import get_benchmark
from cato.errors import InputError
from cato.models.registry import build_model
from cato.runs.settings import build_settings
from reproduce import profiling as costs
from reproduce.attention_variants import full_attention
from reproduce.experiment import load
from reproduce.figures.efficiency import Bubble, Curve, bubble_chart, growth_chart
from reproduce.figures.labels import overlap, place_labels
from reproduce.flops import count_flops
from reproduce.pages import page_of
from reproduce.profiling import (
    count_forward,
    growth,
    inputs_of,
    kept_at,
    measured,
    operations,
    subject,
)
from reproduce.runner import run
from reproduce.studies.efficiency import claims, exponent, with_epochs, with_exponents


def backward_of(work):
    return lambda: work().sum().backward()


# Operations


def test_a_linear_layer_costs_two_per_weight_and_row_and_thrice_that_with_its_backward():
    layer = nn.Linear(5, 7)
    work = lambda: layer(torch.randn(3, 11, 5, requires_grad=True))  # noqa: E731
    assert count_flops(work) == 2 * 33 * 5 * 7
    assert count_flops(backward_of(work)) == 3 * 2 * 33 * 5 * 7


def test_attention_costs_two_products_and_four_backward():
    def work():
        q, k = torch.randn(2, 3, 7, 8, requires_grad=True), torch.randn(2, 3, 9, 8)
        return F.scaled_dot_product_attention(q, k, torch.randn(2, 3, 9, 8))

    assert count_flops(work) == 2 * (2 * 2 * 3 * 7 * 9 * 8)
    assert count_flops(backward_of(work)) == 6 * (2 * 2 * 3 * 7 * 9 * 8)


@pytest.mark.parametrize("groups", [1, 6])
def test_a_convolution_costs_its_stencil_and_twice_that_backward(groups):
    stencil = nn.Conv2d(6, 6, 3, padding=1, groups=groups)
    work = lambda: stencil(torch.randn(2, 6, 10, 4, requires_grad=True))  # noqa: E731
    forward = 2 * (2 * 40) * 9 * 6 * (6 // groups)
    assert count_flops(work) == forward
    assert count_flops(backward_of(work)) == 3 * forward


def test_complex_products_cost_four_real_ones():
    real, imaginary = (
        lambda kind=kind: torch.randn(3, 4, dtype=kind) @ torch.randn(4, 5, dtype=kind)
        for kind in (torch.float32, torch.complex64)
    )
    assert count_flops(imaginary) == 4 * count_flops(real) == 4 * 2 * 3 * 4 * 5


def test_fourier_transforms_cost_n_log_n():
    nodes = 16 * 32
    assert count_flops(
        lambda: torch.fft.fftn(torch.randn(3, 16, 32, dtype=torch.complex64), dim=(1, 2))
    ) == 3 * 5 * nodes * log2(nodes)
    assert count_flops(
        lambda: torch.fft.rfftn(torch.randn(3, 16, 32), dim=(1, 2))
    ) == 3 * 2.5 * nodes * log2(nodes)
    there_and_back = lambda: torch.fft.irfft(torch.fft.rfft(torch.randn(3, nodes)), n=nodes)  # noqa: E731
    assert count_flops(there_and_back) == 3 * 5 * nodes * log2(nodes)


def test_triangular_factorisations():
    assert count_flops(lambda: torch.linalg.cholesky_ex(torch.randn(2, 6, 6))) == 2 * 72
    solve = lambda: torch.linalg.solve_triangular(torch.randn(6, 6), torch.randn(6, 4), upper=True)  # noqa: E731
    assert count_flops(solve) == 6 * 6 * 4


def test_counting_neither_needs_data_nor_leaves_any():
    weight = nn.Parameter(torch.randn(4, 4))
    huge = lambda: torch.empty(10**7, 10**6, 4) @ weight  # noqa: E731
    assert count_flops(huge) == 2 * 10**13 * 16
    assert type(weight.data) is torch.Tensor


def cato_by_hand(height, width, config, problem):
    """GFLOP of a forward of CATO."""
    nodes, c = height * width, config.width
    hidden = round(config.mlp_ratio * c)
    ends = (2 + problem.num_inputs) * c + c * c + 3 * c + 2 * (2 * config.chart_hidden)
    block = 3 * c * c + 2 * c * c + config.kernel**2 * c + c * c + 2 * c * hidden
    attention = config.depth * 2 * nodes * 2 * c * (height + width)
    return (2 * nodes * (ends + config.depth * block) + attention) / 1e9


def test_catos_operations_agree_with_its_closed_formula():
    problem = get_benchmark("darcy").problem("paper")
    config = build_settings("darcy", "paper", "cato")
    expected = cato_by_hand(*problem.shape, config.model, problem)
    found = operations("darcy", "paper", "cato")
    assert found["gflop_forward"] == pytest.approx(expected, rel=1e-12)
    assert found["gflop_forward"] == pytest.approx(14.8, rel=0.01)  # known from layer shapes
    # The gradients of coordinates and features are not needed.
    assert 2.98 * expected < found["gflop_step"] <= 3 * expected


def test_the_closed_formula_holds_on_meshes_that_are_not_square():
    problem = replace(get_benchmark("pipe").problem("smoke"), shape=(9, 20))
    config = build_settings("pipe", "smoke", "cato").model
    expected = cato_by_hand(9, 20, config, problem)
    found = count_forward(build_model("cato", config, problem), problem)
    assert found / 1e9 == pytest.approx(expected, rel=1e-12)


def test_transolvers_forward_is_that_known_from_layer_shapes():
    problem = get_benchmark("darcy").problem("paper")
    model = build_model("transolver", build_settings("darcy", "paper", "transolver").model, problem)
    assert count_forward(model, problem) == pytest.approx(43.3e9, rel=0.01)


# Growth


def counted(name, size):
    problem = replace(get_benchmark("darcy").problem("small"), shape=(size, size))
    return count_forward(subject(name, "small", problem), problem)


def test_attention_grows_by_eight_and_the_rest_by_four_when_the_mesh_doubles():
    small, large = (counted("axial_attention", size) for size in (24, 48))
    assert large == 8 * small
    rest = [counted("cato", size) - counted("axial_attention", size) for size in (24, 48)]
    assert rest[1] == 4 * rest[0]


@pytest.mark.parametrize("scale", ["smoke", "small"])  # the published block, and ours
def test_without_compiled_loops_cato_is_the_same_function(scale):
    problem = get_benchmark("darcy").problem("smoke")
    inputs = inputs_of(problem)
    torch.manual_seed(0)
    fast = subject("cato", scale, problem)
    torch.manual_seed(0)
    plain = subject("plain_cato", scale, problem)
    plain.load_state_dict(fast.state_dict())
    torch.testing.assert_close(plain(*inputs), fast(*inputs), rtol=1e-4, atol=1e-5)


def test_full_attention_grows_by_sixteen_and_sees_every_node():
    width, depth = 64, 4
    for size in (12, 24):
        linear = counted("cato", size) - counted("axial_attention", size)
        linear -= depth * 2 * size**2 * width * width  # one output projection less
        assert counted("full_attention", size) - linear == depth * 4 * width * size**4
    problem = get_benchmark("darcy").problem("smoke")
    model = full_attention(
        replace(build_settings("darcy", "smoke", "cato").model, depth=1, kernel=0), problem
    )
    coords, features = costs.inputs_of(problem)
    features.requires_grad_()
    model(coords, features).values[0, 0].sum().backward()
    assert (features.grad.abs().sum(-1) > 0).all()


@given(st.floats(0.5, 3), st.floats(1e-3, 1e3), st.integers(2, 8))
def test_exponents_of_power_laws_are_recovered(power, factor, count):
    nodes = [32**2 * 2**k for k in range(count)]
    assert exponent(nodes, [factor * n**power for n in nodes]) == pytest.approx(power)


def test_exponents_are_those_of_the_largest_meshes_that_were_run():
    sizes = [8, 16, 32, 64, 128]
    rows = [{"size": n, "gflop": n**4 if n > 8 else 1e9, "matmuls": n**3} for n in sizes]
    del rows[-1]["matmuls"]
    found = with_exponents({"model": "cato", "rows": rows})
    assert found["flop_exponent"] == pytest.approx(2)
    assert found["time_exponent"] == pytest.approx(1.5)
    assert exponent([4], [1.0]) is None


def test_sizes_that_would_take_too_long_are_counted_but_not_run(monkeypatch):
    monkeypatch.setattr(costs, "timed", lambda work, repeats, patience: (3.0, 15.0))
    rows = growth("full_attention", "smoke", (8, 12, 24), repeats=1)["rows"]
    assert ["seconds" in row for row in rows] == [True, True, False]
    assert rows[2]["gflop"] > rows[1]["gflop"]


# Claims and charts


def row_of(model, benchmark="pipe", **figures):
    base = {"parameters": 1, "gflop_forward": 1.0, "epoch_seconds": 1.0}
    return {"benchmark": benchmark, "model": model, **base, **figures}


def test_claims_follow_the_numbers():
    darcy = [
        row_of("cato", "darcy", parameters=15, gflop_forward=31.0),
        row_of("saot", "darcy", parameters=100, gflop_forward=100.0),
    ]
    assert [claim["verdict"] for claim in claims(darcy)] == ["shown", "shown"]
    assert [claim["measured"] for claim in claims(darcy)] == ["85.0% fewer", "69.0% fewer"]
    darcy[0] = row_of("cato", "darcy", parameters=29, gflop_forward=120.0)
    assert [claim["verdict"] for claim in claims(darcy)] == ["shown in part", "not shown"]
    assert claims(darcy)[1]["measured"] == "20.0% more"
    pipe = [
        row_of("cato", parameters=2),
        row_of("transolver", gflop_forward=2.0, epoch_seconds=2.0),
    ]
    assert claims(pipe) == []
    pipe.append(row_of("saot", gflop_forward=3.0, epoch_seconds=0.5))
    assert [claim["verdict"] for claim in claims(pipe)] == ["shown", "not shown", "not shown"]


def test_an_epoch_is_all_samples_whatever_the_machine_did_meanwhile():
    quiet = {"benchmark": "darcy", "step_seconds_per_sample": 0.1, "step_in_matmuls": 4.0}
    busy = quiet | {"step_seconds_per_sample": 0.3}  # the matmuls around it were slow as well
    rows = with_epochs([quiet, quiet, busy], "paper")
    assert [row["epoch_seconds"] for row in rows] == pytest.approx([100.0] * 3)


@given(st.lists(st.tuples(st.floats(60, 740), st.floats(40, 560), st.floats(2, 25)), max_size=17))
def test_labels_lie_in_the_frame_and_on_no_label_or_mark(marks):
    boxes = place_labels(marks, [(60.0, 12.0)] * len(marks), (0, 0, 1600, 1200))
    assert not any(overlap(a, b) for a, b in combinations(boxes, 2))
    discs = [(x - r, y - r, x + r, y + r) for x, y, r in marks]
    assert not any(overlap(box, disc) for box in boxes for disc in discs)
    assert all(min(b[:2]) >= 0 and b[2] <= 1600 and b[3] <= 1200 for b in boxes)
    assert all(b[2] - b[0] == pytest.approx(60) for b in boxes)


def test_names_in_the_bubble_chart_do_not_overlap():
    rng = np.random.default_rng(0)
    names = ["cato", "saot", "transolver", *(f"model{k}" for k in range(13))]
    bubbles = [
        Bubble(name, name.title(), *np.exp(rng.normal(2, 0.5, 2)), int(rng.integers(1e6, 2e7)))
        for name in names
    ]
    figure = bubble_chart(bubbles, "crowded")
    figure.draw_without_rendering()
    axes, frame = figure.axes[0], figure.axes[0].get_window_extent().extents
    boxes = [tuple(text.get_window_extent().extents) for text in axes.texts]
    assert len(boxes) == len(names)
    assert not any(overlap(a, b) for a, b in combinations(boxes, 2))
    assert all((b[0] >= frame[0]) and (b[2] <= frame[2]) for b in boxes)


def test_curves_end_where_the_time_does():
    curve = Curve("full_attention", "full", [64, 256, 1024], [1, 16, 256], [0.1, 1.6])
    left, right = growth_chart([curve], "growth").axes
    assert len(left.lines[0].get_xdata()) == 3
    assert list(right.lines[0].get_xdata()) == [64, 256]


# The study


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    root = tmp_path_factory.mktemp("efficiency")
    small = {"models": ("fno",), "benchmarks": ("darcy",), "sizes": (8, 12), "repeats": 1}
    scales = {"scale": "smoke", "growth_scale": "smoke"}
    experiment = load("efficiency", runs=root / "runs", out=root / "out", **small, **scales)
    return root, run(experiment), lambda: run(experiment)


@pytest.mark.slow
def test_a_study_measures_once_and_writes_its_page_and_charts(study):
    root, results, again = study
    assert results["failed"] == []
    (row,) = results["rows"]
    model = build_model(
        "fno",
        build_settings("darcy", "smoke", "fno").model,
        get_benchmark("darcy").problem("smoke"),
    )
    assert row["parameters"] == sum(p.numel() for p in model.parameters())
    assert [row["model"] for row in results["plain"]] == ["plain_cato"]
    assert {g["model"] for g in results["growth"]} == {"fno", "axial_attention", "full_attention"}
    assert json.loads((root / "out/efficiency.json").read_text()) == results
    for name in ("bubble-darcy.png", "growth.png"):
        assert (root / "out" / name).read_bytes().startswith(b"\x89PNG")
    before = {path: path.stat().st_mtime_ns for path in (root / "runs").iterdir()}
    # Parameters are counted each time and then have the date of that.
    first, second = (
        found | {"parameters": [row | {"provenance": None} for row in found["parameters"]]}
        for found in (results, again())
    )
    assert first == second
    assert before == {path: path.stat().st_mtime_ns for path in before}


@pytest.mark.slow
def test_the_page_tells_failures_and_verdicts(study):
    _, results, _ = study
    provenance = results["rows"][0]["provenance"]
    failed = [{"what": "growth of x", "why": "no memory", "provenance": provenance}]
    rows = [results["rows"][0] | {"model": name} for name in ("cato", "saot")]
    page = page_of(results | {"rows": rows, "failed": failed})
    assert "| Darcy: GFLOPs reduced by 69 % compared to SAOT | -0.0% more | **not shown** |" in page
    assert "growth of x: no memory" in page
    assert "operations 1.50, which agrees" in page


def test_a_measurement_that_fails_is_told_and_not_kept(tmp_path):
    settings = {"model": "cato", "scale": "smoke", "sizes": (-8,), "repeats": 1}
    assert "failed" in measured("growth", tmp_path, settings)
    assert list(tmp_path.iterdir()) == []


def test_settings_that_mean_nothing_are_refused(tmp_path):
    some = {"runs": tmp_path, "out": tmp_path}
    with pytest.raises(InputError, match="unknown model"):
        load("efficiency", models=("nonsense",), **some)
    with pytest.raises(InputError, match="two sizes"):
        run(load("efficiency", sizes=(32,), **some))
    with pytest.raises(InputError, match="at least 1 for --repeats"):
        run(load("efficiency", repeats=0, **some))
    with pytest.raises(InputError, match="elasticity is a cloud"):
        run(load("efficiency", benchmarks=("elasticity",), **some))


def test_variants_are_measured_anew_with_the_recipe_they_are_built_by(tmp_path, monkeypatch):
    settings = {"model": "full_attention", "scale": "smoke", "sizes": (8,), "repeats": 1}
    before = kept_at("growth", tmp_path, settings)
    wide = build_settings("darcy", "small", "cato")
    monkeypatch.setattr(costs, "build_settings", lambda *_: wide)
    assert kept_at("growth", tmp_path, settings) != before
