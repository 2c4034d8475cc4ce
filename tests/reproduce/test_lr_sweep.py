"""The sweep of optimisers and learning rates: its ladder, what recipes take, and its page."""

import json
from math import inf

import pytest
from trials import measured, trial

from cato.models.registry import MODELS
from cato.runs.folder import open_run
from cato.runs.settings import build_settings
from reproduce.experiment import load
from reproduce.pages import ROOT, page_of
from reproduce.results import read_results
from reproduce.runner import run
from reproduce.step_timing import speed_key
from reproduce.studies.lr_sweep import (
    FIRST,
    OPTIMIZERS,
    RATES,
    differing_recipes,
    next_rates,
    optimizers_for,
)

RESULTS = ROOT / load("lr-sweep").results


@pytest.mark.parametrize("best", RATES)
@pytest.mark.parametrize("better", OPTIMIZERS)
def test_the_best_rate_of_a_valley_is_found(best, better):
    """With the optimiser that is better at the first rate; the other one is not tried further."""
    valley = {rate: abs(RATES.index(rate) - RATES.index(best)) for rate in RATES}
    errors = {name: {} for name in OPTIMIZERS}
    while any(rates := next_rates(errors).items()):
        new = [(name, rate) for name, found in rates for rate in found]
        if not new:
            break
        for name, rate in new:
            errors[name][rate] = valley[rate] + 0.1 * (name != better)
    (other,) = set(OPTIMIZERS) - {better}
    assert set(errors[other]) == {FIRST}
    found, place = errors[better], RATES.index(best)
    assert min(found, key=found.get) == best
    assert set(RATES[max(0, place - 1) : place + 2]) <= set(found)


def test_an_optimiser_that_diverges_is_left():
    errors = {"adamw": {FIRST: inf}, "muon": {FIRST: 0.1}}
    assert next_rates(errors) == {"muon": [1e-3, 1e-2]}


def test_every_model_can_reach_the_floor():
    assert RATES[0] == 1e-4
    assert load("lr-sweep").minutes[0] >= 1
    assert set(load("lr-sweep").all_benchmarks) == set(load("time").all_benchmarks)
    assert set(load("lr-sweep").all_models) >= set(MODELS) - {"cato_pc"}


def test_muon_is_tried_where_it_has_matrices():
    assert optimizers_for(build_settings("darcy", "smoke", "cato")) == OPTIMIZERS


def test_small_recipes_have_the_best_of_the_sweep():
    assert not differing_recipes(read_results(RESULTS))


def test_a_recipe_with_another_rate_is_named():
    results = read_results(RESULTS)
    row = next(row for row in results["rows"] if row["model"] == "fno")
    row["rate"] = 1e-4
    (found,) = differing_recipes(results)
    assert found.startswith(f"fno on {row['benchmark']}")


def test_the_page_has_the_best_in_bold_and_what_was_not_tried():
    tried = [("adamw", 1e-3, 0.3), ("adamw", 3e-3, 0.4), ("muon", 1e-3, 0.2)]
    keys = ("optimizer", "rate", "validation")
    row = {
        "benchmark": "darcy",
        "model": "fno",
        "optimizer": "muon",
        "rate": 1e-3,
        "tried": [dict(zip(keys, values, strict=True)) for values in tried],
        "provenance": measured(),
    }
    settings = {"scale": "small", "minutes": 1.0, "share": 1.0, "seeds": [0]}
    page = page_of(
        {"experiment": "lr-sweep", "kind": "lr-sweep", "settings": settings, "rows": [row]}
    )
    assert "| FNO | adamw | 30.00% | 40.00% |" in page
    assert "| FNO | muon | **20.00%** | / |" in page


@pytest.mark.slow
def test_the_sweep_goes_on_next_to_the_better_rate(tmp_path):
    (tmp_path / "runs").mkdir()
    speeds = {
        speed_key(build_settings("darcy", "smoke", "fno", {"train": {"optimizer": name}})): 0.2
        for name in OPTIMIZERS
    }
    (tmp_path / "runs/speeds.json").write_text(json.dumps(speeds))
    experiment = trial(
        "lr-sweep", tmp_path, models=("fno",), benchmarks=("darcy",), minutes=(0.02,)
    )
    results = run(experiment)
    (row,) = results["rows"]
    best = min(row["tried"], key=lambda found: found["validation"])
    assert (row["optimizer"], row["rate"]) == (best["optimizer"], best["rate"])
    errors = {name: {} for name in optimizers_for(experiment.config("darcy", "fno"))}
    for found in row["tried"]:
        errors[found["optimizer"]][found["rate"]] = found["validation"]
    assert all(FIRST in tried for tried in errors.values())
    assert next_rates(errors) == {best["optimizer"]: []}
    rates = {
        run.config.train.learning_rate: run.config.train.muon_learning_rate
        for run in map(open_run, (path.parent for path in tmp_path.glob("runs/*/job.json")))
    }
    assert all(muon == 2 * rate for rate, muon in rates.items())
    assert run(experiment) == results  # nothing is trained again
