"""Scaling: what is varied, the slopes, and what the page makes of them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cato.data.dataset import load_dataset
from cato.errors import InputError
from cato.runs.folder import open_run
from cato.runs.load import data_spec
from reproduce import scaling as module
from reproduce.experiment import Setup
from reproduce.outcomes import log_slope
from reproduce.scaling import plan, scaling, write_page


def test_one_quantity_at_a_time_and_the_recipe_once():
    points = list(plan("darcy", Setup(share=0.5), 0))
    assert len(points) == 2 * 16
    assert len({point.job for point in points}) == 2 * (16 - 3)  # the recipe is on all four axes
    by_axis = {(p.model, p.axis, p.value): p.config for p in points}
    for model in ("cato", "saot"):
        base = by_axis[model, "depth", 4]
        assert by_axis[model, "samples", 900] == base == by_axis[model, "resolution", 29]
        few = by_axis[model, "samples", 225]
        assert data_spec(few).counts == {"train": 225, "validation": 100, "test": 200}
        assert few.train == base.train  # as many steps as with all samples
        assert base.train.steps == 14 * 225 / 2
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
    slopes = [
        {"benchmark": "pipe", "model": model, "axis": "depth", "slope": number}
        for model, number in (("cato", -1.0), ("transolver", 0.0))
    ]
    settings = {"scale": "small", "share": 1.0, "seeds": [0]}
    write_page({"settings": settings, "rows": rows, "slopes": slopes}, tmp_path)
    page = (tmp_path / "scaling.md").read_text()
    assert verdict in page
    assert "| depth | CATO | 1: 4.00%, 2: 2.00% | -1.00 |" in page
    assert (tmp_path / "scaling-pipe.png").exists()


def test_the_whole_study(tmp_path, monkeypatch):
    """Resolutions are generated, smaller sets are the first samples of the scale's file."""
    axes = {"darcy": {"samples": (1 / 2, 1), "resolution": (1 / 2, 1)}}
    monkeypatch.setattr(module, "AXES", axes)
    folders = {"data": tmp_path / "data", "runs": tmp_path / "runs", "out": tmp_path / "out"}
    results = scaling(["darcy"], Setup("smoke", share=0.1, workers=2, **folders))
    assert len(results["rows"]) == 8
    assert len(list(folders["runs"].glob("*/job.json"))) == 6
    assert json.loads((folders["out"] / "scaling.json").read_text()) == results
    files = {path.name for path in folders["data"].glob("*.h5")}
    assert files == {"darcy-smoke-seed0.h5", "darcy-smoke-seed0-r8.h5"}
    whole = load_dataset("darcy", "smoke", root=folders["data"])
    some = load_dataset("darcy", "smoke", count=12, root=folders["data"])
    assert len(some.train) == 12
    assert some.train.targets.equal(whole.train.targets[:12])
    assert some.test.targets.equal(whole.test.targets)
    half = open_run(next(folders["runs"].glob("*cato*n12*seed0")))
    assert half.log()[-1]["step"] == half.config.train.steps


def test_other_benchmarks_are_refused(tmp_path):
    with pytest.raises(InputError, match="studied on darcy, pipe; got airfoil"):
        scaling(["airfoil"], Setup(data=tmp_path))
