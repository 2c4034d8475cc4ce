"""The chart study: its mathematics on sets of points where the answer is known, and its page."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from trials import trial

from cato.runs.folder import open_run
from cato.runs.load import load_splits
from cato.training.loop import new_model, prepare
from reproduce.pages import page_of
from reproduce.runner import run as run_experiment
from reproduce.studies import chart as study
from reproduce.studies.chart import along_shares, folded_share, principal, through

SIDE = np.linspace(-1, 1, 41)
SQUARE = np.stack(np.meshgrid(SIDE, SIDE, indexing="ij"), axis=-1)
sizes = st.floats(0.1, 10)
angles = st.floats(0, 2 * math.pi)


def rotation(angle):
    return np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])


# -- principal components -----------------------------------------------------------------------


def test_a_square_has_two_dimensions_and_a_line_one():
    square = principal(SQUARE.reshape(-1, 2))
    np.testing.assert_allclose(square.shares, 0.5)
    assert square.dimension == pytest.approx(2)
    line = principal(SIDE[:, None] * np.array([3.0, -4.0]) + 7)
    assert line.dimension == pytest.approx(1)
    np.testing.assert_allclose(np.abs(line.axes[0]), [0.6, 0.8])
    np.testing.assert_allclose(line.variances, [25 * SIDE.var(), 0], atol=1e-12)


def test_dimensions_are_counted_in_any_number_of_coordinates():
    cube = np.stack(np.meshgrid(SIDE, SIDE, SIDE), axis=-1).reshape(-1, 3)
    assert principal(cube).dimension == pytest.approx(3)
    assert principal(cube * [1, 1, 0]).dimension == pytest.approx(2)


@given(a=sizes, b=sizes, angle=angles, shift=st.floats(-5, 5))
def test_an_ellipse_however_it_lies(a, b, angle, shift):
    """Of half-axes a and b: variances a²/2 and b²/2 along them, dimension (a²+b²)²/(a⁴+b⁴)."""
    turns = np.arange(360) * math.pi / 180
    ellipse = np.stack([a * np.cos(turns), b * np.sin(turns)], axis=-1)
    found = principal(ellipse @ rotation(angle).T + [shift, -shift])
    np.testing.assert_allclose(found.variances, sorted((a * a / 2, b * b / 2))[::-1], rtol=1e-9)
    assert found.dimension == pytest.approx((a * a + b * b) ** 2 / (a**4 + b**4))
    np.testing.assert_allclose(found.centre, [shift, -shift], atol=1e-9)
    if not 0.99 < a / b < 1.01:
        long = rotation(angle) @ ([1, 0] if a > b else [0, 1])
        assert abs(found.axes[0] @ long) == pytest.approx(1)


def test_the_papers_numbers_agree_with_each_other():
    """94.0 % and 6.0 % give a participation ratio of 1.127; 1.126 is within their rounding."""
    low, high = (1 / (s * s + (1 - s) ** 2) for s in (0.9405, 0.9395))
    assert low < 1.1265
    assert high > 1.1255


def test_segments_span_an_evenly_filled_box():
    even = (np.arange(2000) + 0.5) / 1000 - 1
    box = np.stack(np.meshgrid(3 * even[::20], even[::20]), axis=-1).reshape(-1, 2)
    (left, right), (bottom, top) = principal(box).segments
    assert np.abs(right - left) == pytest.approx([6, 0], rel=1e-3, abs=1e-9)
    assert np.abs(top - bottom) == pytest.approx([0, 2], rel=1e-3, abs=1e-9)


# -- on the mesh --------------------------------------------------------------------------------


@given(kept=st.integers(1, 40), angle=angles, mirror=st.booleans())
def test_folded_cells_are_counted(kept, angle, mirror):
    """Folding the square along a mesh line turns over the cells on one side of it."""
    x = SQUARE[..., 0]
    folded = SQUARE.copy()
    folded[..., 0] = np.abs(x - SIDE[kept])
    turned = folded @ rotation(angle).T * ([-1, 1] if mirror else [1, 1])
    assert folded_share(turned) == pytest.approx(min(kept, 40 - kept) / 40)


def test_collapsed_cells_count_as_folded():
    assert folded_share(SQUARE) == 0
    collapsed = SQUARE.copy()
    collapsed[:11] = collapsed[0]
    assert folded_share(collapsed) == pytest.approx(10 / 40)


@given(slope=st.floats(-4, 4))
def test_variance_along_the_own_axis(slope):
    """Of ξ = x + s·y on a square the part 1/(1 + s²) is along the axis of x."""
    x, y = np.moveaxis(SQUARE, -1, 0)
    shares = along_shares(np.stack([x + slope * y, 2 * y], axis=-1))
    np.testing.assert_allclose(shares, [1 / (1 + slope**2), 1], rtol=1e-9)
    np.testing.assert_allclose(along_shares(np.stack([y, x], axis=-1)), 0, atol=1e-12)


# -- the study ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    root = tmp_path_factory.mktemp("chart")
    experiment = trial("chart", root, benchmarks=("darcy",), share=0.34, workers=1)
    return root, experiment, run_experiment(experiment)


@pytest.mark.slow
def test_the_figures_are_those_of_the_trained_chart(done):
    root, _, results = done
    run = open_run(root / "runs/darcy-smoke-cato-share0.34-seed0")
    rows = {row["space"]: row for row in results["spaces"]}
    assert list(rows) == ["physical", "normalised", "untrained", "learned"]
    assert rows["physical"]["dimension"] == pytest.approx(2)
    assert rows["normalised"]["along"] == pytest.approx([1, 1])
    surrogate = study.load_surrogate(run)
    nodes = load_splits(run.config).test.coords
    zeta = surrogate.model.chart(nodes[None])[0].detach()
    first, second = torch.linalg.svdvals(zeta - zeta.mean(0)).square().tolist()
    assert rows["learned"]["first"] == pytest.approx(first / (first + second), rel=1e-3)
    assert rows["learned"]["shares"] == rows["learned"]["mean_shares"]


@pytest.mark.slow
def test_untrained_is_what_the_training_began_with(done):
    root, _, _ = done
    run = open_run(root / "runs/darcy-smoke-cato-share0.34-seed0")
    splits = load_splits(run.config)
    began, *_ = prepare(run.config, splits.train, new_model(run.config, run.problem))
    nodes = study.nodes_of(splits.test)
    found = through(study.untrained_chart(run, 0), nodes)[0]
    np.testing.assert_array_equal(found, through(began.model.chart, nodes)[0])


@pytest.mark.slow
def test_trainings_are_shared_with_the_ablation(done):
    root, experiment, results = done
    runs = experiment.runs
    before = {path: path.stat().st_mtime_ns for path in runs.rglob("*.safetensors")}
    some = {"benchmarks": ("darcy",), "questions": ("chart",), "share": 0.34}
    rows = run_experiment(trial("ablation", root, **some))["rows"]
    after = {path: path.stat().st_mtime_ns for path in runs.rglob("*.safetensors")}
    assert before == after
    assert [row["errors"] for row in rows] == [row["errors"] for row in results["errors"]]


@pytest.mark.slow
def test_the_page_follows_from_the_results(done):
    root, _, results = done
    assert json.loads((root / "out/chart.json").read_text()) == results
    page = page_of(results)
    assert page == (root / "out/chart.md").read_text()
    assert "with one seed" in page or "**not shown**" in page
    assert (root / "out/chart-darcy.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("learned", "normalised", "spread", "verdict"),
    [
        (0.040, 0.045, 0.001, "**shown**; the learned chart's error is 11.1% lower"),
        (0.040, 0.045, 0.006, "**within the spread**; the learned chart's error is 11.1% lower"),
        (0.050, 0.040, 0.001, "**not shown**; the learned chart's error is 25.0% higher"),
    ],
)
def test_verdicts_on_errors(done, learned, normalised, spread, verdict):
    _, _, results = done
    of_seeds = {"errors": 3 * [0.0], "spread": spread, "validation_spread": spread}
    errors = [row | of_seeds for row in results["errors"]]
    errors[0]["relative_l2"], errors[1]["relative_l2"] = learned, normalised
    assert verdict in page_of(results | {"errors": errors})
