"""Why CATO is not first: which benchmarks, what remedies bring, where the curves lead."""

import json
from dataclasses import replace

import pytest
from test_minutes import curve_rows
from trials import measured, trial

from cato.errors import InputError
from reproduce.experiment import load
from reproduce.pages import page_of
from reproduce.results import FORMAT
from reproduce.studies.why_not import draw, not_first, remedies

MORE = {"diverged": 0, "frame_errors": None, "parameters": 1, "epochs": 1.0}


def row(benchmark, model, error, spread=0.0005, **more):
    fixed = {"errors": 5 * [error] if spread else [error], "mean_predictor": 0.5}
    fixed |= {"benchmark": benchmark, "model": model, "relative_l2": error, "spread": spread}
    return fixed | {"provenance": measured()} | MORE | more


def compared(ours, theirs):
    """CATO and two rivals on Navier–Stokes; CATO is clearly first on Darcy."""
    return [
        row("darcy", "cato", 0.01),
        row("darcy", "f_fno", 0.02),
        row("navier_stokes", "cato", ours),
        row("navier_stokes", "saot", theirs + 0.05, None),
        row("navier_stokes", "f_fno", theirs),
    ]


@pytest.mark.parametrize(
    ("ours", "theirs", "lost"),
    [(0.05, 0.1, []), (0.1, 0.05, ["navier_stokes"]), (0.1, 0.1002, ["navier_stokes"])],
)
def test_it_is_about_benchmarks_where_cato_is_not_clearly_first(ours, theirs, lost):
    found = not_first(compared(ours, theirs))
    assert list(found) == lost
    for recipe, winner in found.values():
        assert (recipe["model"], winner["model"]) == ("cato", "f_fno")


@pytest.mark.parametrize("benchmark", load("time").all_benchmarks)
def test_three_remedies_or_more_are_tried_everywhere(benchmark):
    experiment = load("why-not")
    assert len(remedies(benchmark, experiment)) >= 3
    assert experiment.minutes[-1] == load("time").minutes[-1]


def results(remedy, ours=0.1, winner=0.05):
    """A page's results: one remedy, and curves of CATO and the winner that are power laws."""
    settings = {"scale": "small", "minutes": 10.0, "seeds": [0], "extrapolate": 64.0, "share": 1}
    first, *_, last = compared(ours, winner)[2:]
    curves = curve_rows("cato", [(4 * ours,) * 2, (2 * ours,) * 2, (ours,) * 2], 5.0)
    curves += curve_rows("f_fno", [(4 * winner,) * 2, (2 * winner,) * 2, (winner,) * 2], 5.0)
    changed = row("navier_stokes", "cato", remedy, None, changes={}, answer="twice the width")
    return {
        "format": FORMAT,
        "experiment": "why-not",
        "kind": "why-not",
        "settings": settings,
        "rows": [changed],
        "first": [row("darcy", "cato", 0.01)],
        "recipes": [first],
        "winners": [last],
        "curves": [line | MORE | {"benchmark": "navier_stokes"} for line in curves],
    }


@pytest.mark.parametrize(
    ("remedy", "against_recipe", "against_winner"),
    [
        (0.08, "shown with one seed", "not shown"),
        (0.0999, "within the spread", "not shown"),
        (0.12, "not shown", "not shown"),
        (0.04, "shown with one seed", "shown with one seed"),
    ],
)
def test_a_remedy_is_judged_against_recipe_and_winner(remedy, against_recipe, against_winner):
    page = page_of(results(remedy))
    assert f"| twice the width | {remedy:.2%} | {remedy / 0.1 - 1:+.1%} |" in page
    assert "| F-FNO, the best rival | 5.00% ± 0.05% | -50.0% |" in page
    assert f"better than the recipe: {against_recipe}." in page
    assert f"better than the best rival: {against_winner}." in page


def test_the_curves_are_extrapolated_with_their_intervals(tmp_path):
    found = results(0.08)
    page = page_of(found)
    assert "extrapolated to 64 min" in page
    assert "the 95 % intervals are apart" in page
    level = results(0.08, winner=0.1)
    assert "overlap, so the order then is open" in page_of(level)
    draw(found, tmp_path)
    assert (tmp_path / "navier_stokes.png").stat().st_size > 10_000


def test_nothing_to_explain():
    none = results(0.08) | {"rows": [], "recipes": [], "winners": [], "curves": []}
    page = page_of(none)
    assert "CATO is clearly first on Darcy flow." in page
    assert "best rival |" not in page


def test_the_comparison_comes_first(tmp_path):
    experiment = trial("why-not", tmp_path)
    assert experiment.source == load("time").results
    own = tmp_path / "time/compare.json"
    own.parent.mkdir()
    own.write_text(json.dumps({}))
    assert experiment.source == own
    with pytest.raises(InputError, match="run `make study-long-run` first"):
        _ = replace(experiment, best_of="long-run").source
