"""Scaling: what is varied, the slopes, and what the page makes of them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trials import measured, trial

from cato.data.dataset import load_dataset
from cato.errors import InputError
from cato.runs.folder import open_run
from cato.runs.load import data_spec
from reproduce.experiment import definitions, load
from reproduce.pages import page_of
from reproduce.results import log_slope
from reproduce.runner import run
from reproduce.studies.scaling import draw, plan


def test_one_quantity_at_a_time_and_the_recipe_once():
    points = list(plan("darcy", load("scaling", share=0.5), 0))
    assert len(points) == 2 * 16
    assert len({point.job for point in points}) == 2 * (16 - 3)  # the recipe is on all four axes
    by_axis = {(p.model, p.axis, p.value): p.config for p in points}
    for model in ("cato", "saot"):
        base = by_axis[model, "depth", 4]
        assert by_axis[model, "samples", 900] == base == by_axis[model, "resolution", 29]
        few = by_axis[model, "samples", 225]
        assert data_spec(few).counts == {"train": 225, "validation": 100, "test": 200}
        assert few.train == base.train  # as many steps as with all samples
        assert base.train.steps == base.train.epochs * 225 / 2
        assert data_spec(by_axis[model, "resolution", 43]).problem.shape == (43, 43)
        assert by_axis[model, "width", 128].model.width == 128


@given(st.floats(-3, 3), st.floats(1e-3, 1))
def test_slope_of_a_power_law(exponent, factor):
    values = (2, 5, 11, 60)
    found = log_slope(values, [factor * value**exponent for value in values])
    assert found == pytest.approx(exponent, abs=1e-6)


def row(model, axis, value, error):
    return {
        "benchmark": "pipe",
        "model": model,
        "axis": axis,
        "value": value,
        "relative_l2": error,
        "mean_predictor": 0.2,
        "spread": None,
        "errors": [error],
        "provenance": measured(),
    }


@pytest.mark.parametrize(
    ("rival", "verdict"),
    [
        (0.1, "**shown with one seed**, at 2 of 2"),
        (0.03, "**shown in part**, at 1 of 2"),
        (1e-3, "**not shown**, at 0 of 2"),
    ],
)
def test_the_verdict_follows_the_numbers(rival, verdict, tmp_path):
    rows = [row("cato", "depth", 1, 0.04), row("cato", "depth", 2, 0.02)]
    rows += [row("transolver", "depth", n, rival) for n in (1, 2)]
    settings = {"scale": "small", "share": 1.0, "seeds": [0]}
    results = {"experiment": "scaling", "kind": "scaling", "settings": settings, "rows": rows}
    page = page_of(results)
    draw(results, tmp_path)
    assert verdict in page
    assert "| depth | CATO | 1: 4.00%, 2: 2.00% | -1.00 |" in page
    assert (tmp_path / "scaling-pipe.png").exists()


@pytest.mark.slow
def test_the_whole_study(tmp_path, monkeypatch):
    """Resolutions are generated, smaller sets are the first samples of the scale's file."""
    axes = {"darcy": {"rival": "saot", "samples": (1 / 2, 1), "resolution": (1 / 2, 1)}}
    monkeypatch.setitem(definitions(), "scaling", axes)
    experiment = trial("scaling", tmp_path, benchmarks=("darcy",), share=0.1)
    results = run(experiment)
    assert len(results["rows"]) == 8
    assert len(list(experiment.runs.glob("*/job.json"))) == 6
    assert json.loads(experiment.results.read_text()) == results
    files = {path.name for path in experiment.data.glob("*.h5")}
    assert files == {"darcy-smoke-seed0.h5", "darcy-smoke-seed0-r8.h5"}
    whole = load_dataset("darcy", "smoke", root=experiment.data)
    some = load_dataset("darcy", "smoke", count=12, root=experiment.data)
    assert len(some.train) == 12
    assert some.train.targets.equal(whole.train.targets[:12])
    assert some.test.targets.equal(whole.test.targets)
    half = open_run(next(experiment.runs.glob("*cato*n12*seed0")))
    assert half.log()[-1]["step"] == half.config.train.steps


def test_other_benchmarks_are_refused(tmp_path):
    with pytest.raises(InputError, match="studied on darcy, pipe; got airfoil"):
        run(trial("scaling", tmp_path, benchmarks=("airfoil",)))
