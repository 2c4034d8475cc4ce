"""Several training times from one trunk: extended jobs, their rows, tables and figures."""

import json
import shutil
from dataclasses import replace
from math import inf

import pytest
import torch
from trials import measured, trial

from cato.errors import InputError
from cato.runs.checkpoint import load_checkpoint
from cato.runs.folder import open_run
from cato.runs.settings import build_settings
from cato.training import loop
from cato.training.optim import decay_start
from cato.training.train import train
from reproduce.curves import curve_table, curves_of
from reproduce.experiment import Experiment, load
from reproduce.jobs import _train_and_evaluate, figures_of, run_jobs, trunks_of
from reproduce.pages import page_of
from reproduce.results import FORMAT
from reproduce.runner import run
from reproduce.step_timing import speed_key
from reproduce.studies.compare import draw

MINUTES = (0.025, 0.05, 0.1)
STEPS = {"cato": (15, 30, 60), "fno": (7, 15, 30)}
"""Steps of a tenth and a fifth of a second in these minutes."""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    root = tmp_path_factory.mktemp("minutes")
    (root / "runs").mkdir()
    keys = {name: speed_key(build_settings("darcy", "smoke", name)) for name in STEPS}
    (root / "runs/speeds.json").write_text(json.dumps({keys["cato"]: 0.1, keys["fno"]: 0.2}))
    compared = {"models": tuple(STEPS), "best": 0, "variants": (), "benchmarks": ("darcy",)}
    experiment = trial("time", root, **compared, minutes=MINUTES)
    return experiment, run(experiment)


def run_of(experiment, minutes, model="cato"):
    return open_run(experiment.runs / f"darcy-smoke-{model}-{minutes:g}min-seed0")


def job_of(folder, config, shorter=None):
    """A finished job, without the queue, whose processes take seconds to start."""
    _train_and_evaluate(folder, config, shorter)
    return open_run(folder)


def weights(run, kind):
    return load_checkpoint(run.checkpoints, kind).tensors


def without_times(figures):
    return {name: value for name, value in figures.items() if name != "seconds_per_sample"}


def test_every_time_is_a_run_of_its_own(study):
    experiment, _ = study
    for model, steps in STEPS.items():
        for minutes, number in zip(MINUTES, steps, strict=True):
            found = run_of(experiment, minutes, model)
            assert found.config.train.steps == found.log()[-1]["step"] == number
            assert found.config.train.schedule == "wsd"
            assert figures_of(found)["diverged"] is None


def test_an_extended_job_is_bit_for_bit_a_training_of_that_length(study, tmp_path):
    experiment, _ = study
    extended = run_of(experiment, MINUTES[-1])
    scratch = job_of(tmp_path / "scratch", extended.config)
    for kind in ("last", "best"):
        ours, theirs = weights(extended, kind), weights(scratch, kind)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert without_times(figures_of(extended)) == without_times(figures_of(scratch))


def test_the_trunk_is_paid_once(study):
    experiment, results = study
    steps = STEPS["cato"]
    starts = [0, *map(decay_start, steps[:-1])]
    for minutes, start, end in zip(MINUTES, starts, steps, strict=True):
        found = run_of(experiment, minutes)
        assert found.record.get("branch", {"step": 0})["step"] == start
        whole = found.log()[-1]["seconds"] / 60
        paid = results["minutes"][found.folder.name]
        assert (paid == whole) if start == 0 else (0 < paid < whole), (start, end)


def test_results_have_the_errors_of_every_time(study):
    experiment, results = study
    assert results["settings"]["minutes"] == MINUTES[-1]
    curves = {(row["model"], row["budget"]): row for row in results["curves"]}
    assert set(curves) == {(model, minutes) for model in STEPS for minutes in MINUTES}
    for (model, minutes), row in curves.items():
        found = run_of(experiment, minutes, model)
        assert row["errors"] == [figures_of(found)["relative_l2"]]
        assert row["provenance"]["settings"]["train"]["steps"] == found.config.train.steps
    for row in results["rows"]:
        assert row["errors"] == curves[row["model"], MINUTES[-1]]["errors"]
    page = (experiment.out / "compare.md").read_text()
    assert page.index("## All benchmarks") < page.index(
        "| model | 0.025 min | 0.05 min | 0.1 min |"
    )
    assert "(minutes-darcy.png)" in page
    assert (experiment.out / "minutes-darcy.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_times_and_seeds_are_added_to_finished_ones(study):
    experiment, _ = study
    before = {p: p.stat().st_mtime_ns for p in experiment.runs.rglob("*.safetensors")}
    more = replace(experiment, minutes=(*MINUTES, 0.2), seeds=(0, 1), rivals=0)
    results = run(more)
    assert before == {path: path.stat().st_mtime_ns for path in before}
    curves = {(row["model"], row["budget"]): row for row in results["curves"]}
    assert {len(curves["cato", minutes]["errors"]) for minutes in more.minutes} == {2}
    assert {len(curves["fno", minutes]["errors"]) for minutes in more.minutes} == {1}
    assert curves["cato", 0.2]["provenance"]["settings"]["train"]["steps"] == 120


def test_a_job_extends_the_longest_finished_one_of_its_settings(config_with, tmp_path):
    """Whichever experiment it is of; not one of other settings, nor one without weights."""

    def config(steps, **more):
        return config_with(train={"steps": steps, "schedule": "wsd", **more})

    for steps in (4, 6, 12):
        job_of(tmp_path / f"steps{steps}", config(steps))
    job_of(tmp_path / "faster", config(8, learning_rate=2e-3))
    jobs = {"longer": config(12), "slower": config(10, learning_rate=1e-4), "once": config(3)}
    assert trunks_of(jobs, tmp_path) == {"longer": "steps6"}
    shutil.rmtree(tmp_path / "steps6/checkpoints")
    assert trunks_of(jobs, tmp_path) == {"longer": "steps4"}
    (run,) = run_jobs({"longer": config(12)}, tmp_path, 1, "test").values()
    assert run.record["branch"]["step"] == decay_start(4)
    ours, theirs = weights(run, "last"), weights(open_run(tmp_path / "steps12"), "last")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_killed_extension_resumes(config_with, tmp_path, monkeypatch):
    config = config_with(train={"steps": 10, "schedule": "wsd"})
    longer = replace(config, train=replace(config.train, steps=20))
    scratch = train(longer, tmp_path / "scratch")
    short = job_of(tmp_path / "short", config)
    original = loop.Training.step

    def killed_at_14(self, *wishes):
        if self.state.step == 14:
            raise KeyboardInterrupt
        return original(self, *wishes)

    monkeypatch.setattr(loop.Training, "step", killed_at_14)
    with pytest.raises(KeyboardInterrupt):
        job_of(tmp_path / "stopped", longer, short)
    monkeypatch.undo()
    (tmp_path / "copied").mkdir()  # killed while it was copied: no run.json yet
    (tmp_path / "copied/.new").touch()
    (tmp_path / "copied/log.jsonl").write_text("")
    for name in ("stopped", "copied"):
        extended = job_of(tmp_path / name, longer, short)
        assert extended.config == longer
        ours, theirs = weights(extended, "last"), weights(scratch, "last")
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_what_diverged_is_the_result_of_longer_times_too(config_with, tmp_path):
    wild = {"steps": 400, "schedule": "wsd", "learning_rate": 1e9, "clip": 0.0}
    config = config_with(train=wild)
    longer = replace(config, train=replace(config.train, steps=800))
    first = job_of(tmp_path / "short", config)
    second = job_of(tmp_path / "long", longer, first)
    assert "learning-rate" in figures_of(second)["diverged"]
    assert without_times(figures_of(second)) == without_times(figures_of(first))
    assert second.config == longer
    record = Experiment("test", "compare").record({"short": first, "long": second})
    assert record["minutes"]["long"] == 0


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("compare", {"minutes": (5.0, 2.5)}, "above 0 and ascending; got 5, 2.5"),
        ("compare", {"minutes": (5.0, 5.0)}, "ascending; got 5, 5"),
        ("compare", {"minutes": (0.0, 5.0)}, "above 0"),
        ("ablation", {"minutes": (2.5, 5.0)}, "test takes one number of minutes; got 2"),
        ("compare", {"minutes": (2.5, 5.0), "extrapolate": 60.0}, "at least 3 numbers of minutes"),
        ("compare", {"minutes": (1.0, 2.0, 4.0), "extrapolate": 4.0}, "above 4 minutes; got 4"),
    ],
)
def test_times_that_make_no_sense(kind, options, message):
    with pytest.raises(InputError, match=message):
        Experiment("test", kind, **options)


def test_a_number_of_minutes_is_a_list_of_one():
    assert load("time", minutes=2.5).minutes == (2.5,)
    assert load("time").minutes == (2.5, 5, 10)
    (whole,) = load("epochs").by_budget
    assert whole.schedule is None  # the recipe's
    assert (
        {part.schedule for part in load("time").by_budget} == {load("screen").schedule} == {"wsd"}
    )


# -- tables and figures of made-up errors ---------------------------------------------------------


def curve_rows(model, errors, mean=0.5, **more):
    """A row for each of the minutes 2, 4, 8, …, with a list of errors of seeds."""
    return [
        {
            "benchmark": "darcy",
            "model": model,
            "budget": 2.0 ** (1 + number),
            "errors": list(some),
            "relative_l2": sum(some) / len(some),
            "spread": None if len(some) == 1 else 0.001,
            "mean_predictor": mean,
            "provenance": measured(),
            **more,
        }
        for number, some in enumerate(errors)
    ]


def test_the_best_model_comes_first_with_its_exponent():
    rows = curve_rows("fno", [(0.4,), (0.2,), (0.1,)])
    rows += curve_rows("cato", [(0.08, 0.08), (0.04, 0.04), (0.02, 0.02)])
    table = curve_table(curves_of(rows)["darcy"], 64.0)
    assert table["columns"][-2:] == ["exponent", "extrapolated to 64 min"]
    (ours, theirs) = table["rows"]
    assert ours[0] == "CATO"
    assert ours[1] == "8.00% ± 0.10%"
    assert ours[-2:] == ["1.00 ± 0.00", "0.25% (0.25% to 0.25%)"]
    assert theirs[:2] == ["FNO", "40.00%"]
    assert "extrapolated" not in curve_table(curves_of(rows)["darcy"], None)["columns"][-1]


@pytest.mark.parametrize(
    ("errors", "has_law"),
    [
        ([(0.3,), (0.2,), (0.1,)], True),
        ([(0.3,), (0.2,)], False),
        ([(0.48,), (0.3,), (0.2,)], False),  # nothing learnt in the first
        ([(0.48,), (0.3,), (0.2,), (0.1,)], True),
        ([(0.3, inf), (0.2, inf), (0.1, inf)], False),
    ],
)
def test_a_law_needs_three_times_at_which_something_is_learnt(errors, has_law):
    (curve,) = curves_of(curve_rows("cato", errors))["darcy"]
    assert (curve.law is not None) == has_law
    assert (curve_table([curve], 64.0)["rows"][0][-1] == "–") != has_law


def test_seeds_with_the_longest_time_alone_do_not_enter_the_law():
    rows = curve_rows("cato", [(0.08, 0.081), (0.04, 0.041), (0.02, 0.021)])
    more = curve_rows("cato", [(0.08, 0.081), (0.04, 0.041), (0.02, 0.021, 0.09)])
    laws = [curve.law for found in (rows, more) for curve in curves_of(found)["darcy"]]
    assert laws[0].exponent == laws[1].exponent
    assert laws[0].interval(64) == laws[1].interval(64)


def test_only_the_first_seeds_have_all_times():
    time = load("time")
    assert [len(time.parts_of(seed)) for seed in time.seeds] == [3, 3, 3, 1, 1]
    assert time.parts_of(4)[0].minutes == (10,)
    assert len(replace(time, curve_seeds=None).parts_of(4)) == 3


def test_the_headline_is_what_curves_show():
    headline = {"errors": [0.1], "relative_l2": 0.1, "spread": None, "mean_predictor": 1.0}
    more = {"headline": "displacement", "fields": {"displacement": headline}}
    (curve,) = curves_of(curve_rows("cato", [(0.001,), (0.001,), (0.001,)], 0.01, **more))["darcy"]
    assert curve.field == "displacement"
    assert [row["relative_l2"] for row in curve.rows] == [0.1, 0.1, 0.1]
    (curve,) = curves_of(curve_rows("cato", [(0.001,)], 0.01, headline=None, fields={}))["darcy"]
    assert (curve.field, curve.rows[0]["relative_l2"]) == ("", 0.001)


@pytest.mark.parametrize("extrapolate", [None, 64.0])
def test_the_page_says_what_is_extrapolated(extrapolate, tmp_path):
    curves = curve_rows("cato", [(0.08, 0.081), (0.04, 0.041), (0.02, 0.02)])
    curves += curve_rows("fno", [(0.4,), (0.3,), (0.2,)])
    more = {"diverged": 0, "frame_errors": None, "parameters": 1, "epochs": 1.0}
    more |= {"seconds_per_sample": 0.1, "solver_seconds_per_sample": 0.2}
    settings = {"scale": "small", "minutes": 8.0, "seeds": [0, 1], "extrapolate": extrapolate}
    results = {
        "format": FORMAT,
        "experiment": "time",
        "kind": "compare",
        "settings": settings,
        "rows": [row | more for row in curves if row["budget"] == 8.0],
        "curves": curves,
    }
    page = page_of(results)
    assert ("Dashed lines are extrapolated" in page) == (extrapolate is not None)
    assert ("extrapolated to 64 min" in page) == (extrapolate is not None)
    assert "| CATO | 8.05% ± 0.10% | 4.05% ± 0.10% | 2.00% ± 0.10% | 1.00 ± " in page
    draw(results, tmp_path)
    assert (tmp_path / "minutes-darcy.png").stat().st_size > 10_000
