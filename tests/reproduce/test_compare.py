"""A study on Darcy `smoke`: complete, resumable, its page made of its results."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from trials import trial

from cato.errors import InputError
from cato.runs.folder import open_run
from cato.runs.settings import build_settings
from cato.training.train import train
from reproduce.experiment import Experiment, load
from reproduce.jobs import KEPT, figures_of, has_weights, is_done, run_jobs
from reproduce.results import PROVENANCE, by_headline, outcome
from reproduce.runner import run
from reproduce.step_timing import _training, in_equal_time, measure_speeds, speed_key
from reproduce.studies.compare import models_for, plan, strongest

EPOCHS = 120
"""Enough to be caught in the middle."""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    root = tmp_path_factory.mktemp("study")
    experiment = trial(
        "epochs", root, models=("cato",), benchmarks=("darcy",), seeds=(0, 1), share=1
    )
    return root, experiment, run(experiment)


def test_a_row_summarises_its_runs(study):
    root, _, results = study
    (row,) = results["rows"]
    found = sorted((root / "runs").glob("*/job.json"))
    errors = [json.loads(path.read_text())["relative_l2"] for path in found]
    assert row["errors"] == errors
    assert row["relative_l2"] == pytest.approx(sum(errors) / 2)
    assert row["spread"] == pytest.approx(abs(errors[0] - errors[1]) / 2**0.5)
    assert row["epochs"] == 3
    assert json.loads((root / "out/compare.json").read_text()) == results


@pytest.mark.slow
def test_a_study_on_a_cluster_has_the_same_results(study, tmp_path):
    _, _, results = study
    there = trial(
        "epochs", tmp_path, models=("cato",), benchmarks=("darcy",), seeds=(0, 1), share=1
    )
    (row,) = run(replace(there, cluster="local"))["rows"]
    assert row["errors"] == results["rows"][0]["errors"]


def test_a_row_has_the_errors_of_all_fields_if_all_its_runs_have(study, tmp_path):
    root, _, results = study
    (row,) = results["rows"]
    assert {key: row[key] for key in row["fields"]["u"]} == row["fields"]["u"]
    shutil.copytree(root / "runs", tmp_path / "runs")
    runs = [open_run(path.parent) for path in sorted((tmp_path / "runs").glob("*/job.json"))]
    figures = figures_of(runs[1])
    del figures["fields"], figures["headline"]  # as version 0.1 wrote it
    (runs[1].folder / "job.json").write_text(json.dumps(figures))
    assert outcome(runs)["fields"] == {}
    assert outcome(runs)["errors"] == row["errors"]
    (shown,) = by_headline([row | outcome(runs)])
    assert (shown["field"], shown["relative_l2"]) == ("", row["relative_l2"])


def test_a_row_says_where_it_comes_from(study):
    root, experiment, results = study
    (row,) = results["rows"]
    assert set(PROVENANCE) <= set(row["provenance"])
    record = open_run(next(experiment.runs.glob("*seed1"))).record
    settings = row["provenance"]["settings"]
    assert settings["model"] == record["config"]["model"]
    assert settings["train"] == record["config"]["train"] | {"seed": [0, 1]}
    assert row["provenance"]["data"] == record["data"] != ""
    assert row["provenance"]["commit"] == str(record["commit"])
    assert str(root) not in json.dumps(results)


def test_entries_that_a_kind_does_not_read_are_refused():
    with pytest.raises(InputError, match="theory has no --models"):
        load("theory", models=("cato",))
    with pytest.raises(InputError, match="no experiment 'compare'; choose one of theory"):
        load("compare")


def test_trials_do_not_replace_committed_results():
    assert str(load("time").out) == "docs/studies/time"
    assert str(load("time", workers=1).out) == "docs/studies/time"
    assert str(load("time", seeds=(0,)).out) == "results/time"


def test_the_page_shows_the_results_and_the_picture(study):
    root, _, results = study
    page = (root / "out/compare.md").read_text()
    assert f"{results['rows'][0]['relative_l2']:.2%}" in page
    assert (root / "out/darcy.png").read_bytes().startswith(b"\x89PNG")
    assert "(darcy.png)" in page


def test_finished_jobs_are_not_trained_again(study):
    root, experiment, results = study
    before = {path: path.stat().st_mtime_ns for path in (root / "runs").rglob("*.safetensors")}
    assert run(experiment) == results
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_trainings_of_another_machine_are_not_repeated(study, tmp_path):
    _, experiment, results = study
    jobs = plan({"darcy": ["cato"]}, experiment, (0, 1))
    kept = experiment.kept / KEPT
    found = run_jobs(jobs, tmp_path, 1, "test", kept=kept)
    assert outcome(list(found.values()))["errors"] == results["rows"][0]["errors"]
    assert found.keys() == jobs.keys()
    assert not list(tmp_path.rglob("*.safetensors"))
    first, second = jobs
    run_jobs({first: jobs[first]}, tmp_path, 1, "test", kept=kept, need_weights=True)
    assert has_weights(tmp_path / first)
    assert not has_weights(tmp_path / second)
    assert figures_of(open_run(tmp_path / first))["relative_l2"] == results["rows"][0]["errors"][0]


def test_kept_trainings_with_other_settings_are_repeated(study, tmp_path):
    _, experiment, _ = study
    (name, config), *_ = plan({"darcy": ["cato"]}, experiment, (0,)).items()
    shorter = replace(config, train=replace(config.train, epochs=1))
    (run,) = run_jobs({name: shorter}, tmp_path, 1, "test", kept=experiment.kept / KEPT).values()
    assert run.log()[-1]["epoch"] == 1


def test_records_of_trials_are_not_committed():
    assert str(load("time").kept) == "docs/studies/time"
    assert str(load("gallery").kept) == "docs/studies/time"
    assert str(load("time", seeds=(0,)).kept) == "runs/studies/time"


def test_a_failing_job_stops_no_other(study, tmp_path):
    _, experiment, _ = study
    jobs = plan({"darcy": ["cato"]}, experiment, (0, 1))
    first, second = jobs
    broken = replace(jobs[first], model=replace(jobs[first].model, heads=3))
    with pytest.raises(InputError, match=f"1 of 2 jobs failed \\({first}\\)"):
        run_jobs(jobs | {first: broken}, tmp_path, 1, "test")
    assert is_done(tmp_path / second)
    assert "multiple" in (tmp_path / f"{first}.log").read_text()
    with pytest.raises(InputError, match="other settings"):
        run_jobs({second: broken}, tmp_path, 1, "test")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": ()}, "at least one seed"),
        ({"seeds": (1, 1)}, "each once; got 1, 1"),
        ({"share": 0.0}, "share must be above 0"),
        ({"share": 2.0}, "at most 1; got 2"),
        ({"minutes": (0.0,)}, "minutes must be above 0"),
        ({"minutes": (1.0,), "share": 0.5}, "not both"),
    ],
)
def test_experiments_that_make_no_sense(options, message):
    with pytest.raises(InputError, match=message):
        Experiment("test", "compare", **options)


def test_equal_time_is_that_of_a_cpu(study, monkeypatch):
    _, experiment, _ = study
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    with pytest.raises(InputError, match="hide the GPUs"):
        replace(experiment, minutes=(1.0,)).train(plan({"darcy": ["cato"]}, experiment, (0,)))


@pytest.mark.slow
def test_a_training_that_diverges_has_a_result(study, tmp_path):
    """It would diverge again, so a queue that waited for it would never end."""
    _, experiment, _ = study
    ((name, config),) = plan({"darcy": ["cato"]}, experiment, (0,)).items()
    rates = {"learning_rate": 1e9, "muon_learning_rate": 1e9, "weight_decay": 1e9}
    wild = replace(config.train, clip=0.0, **rates)
    jobs = {name: replace(config, train=wild)}
    runs = run_jobs(jobs, tmp_path, 1, "test")
    assert outcome(list(runs.values()))["diverged"] == 1
    assert "learning-rate" in figures_of(runs[name])["diverged"]


@pytest.mark.slow
def test_jobs_end_with_a_killed_queue_and_go_on_later(study, tmp_path):
    _, experiment, _ = study
    (job,) = plan({"darcy": ["cato"]}, experiment, (0,))
    script = (
        "import sys; from pathlib import Path; from dataclasses import replace;"
        "from reproduce.studies.compare import plan; from reproduce.jobs import run_jobs;"
        "from reproduce.experiment import load;"
        "experiment = load('epochs', scale='smoke', share=1.0, data=Path(sys.argv[1]));"
        "jobs = plan({'darcy': ['cato']}, experiment, (0,));"
        "train = dict(epochs=int(sys.argv[3]), batch_size=24);"
        "jobs = {k: replace(c, train=replace(c.train, **train)) for k, c in jobs.items()};"
        "run_jobs(jobs, Path(sys.argv[2]), 1, 'test')"
    )
    words = [str(experiment.data), str(tmp_path), str(EPOCHS)]
    command = [sys.executable, "-c", script, *words]
    queue = subprocess.Popen(command)
    log = tmp_path / job / "log.jsonl"
    wait_until(lambda: log.exists() and len(log.read_text().splitlines()) > 3)
    os.kill(queue.pid, signal.SIGKILL)
    queue.wait()
    wait_until(lambda: "stopped and saved" in (tmp_path / f"{job}.log").read_text())
    lines = len(log.read_text().splitlines())
    time.sleep(0.5)
    assert len(log.read_text().splitlines()) == lines < EPOCHS
    subprocess.run(command, check=True)
    assert is_done(tmp_path / job)
    assert len(log.read_text().splitlines()) == EPOCHS
    assert f"resuming at step {lines}" in (tmp_path / f"{job}.log").read_text()


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def test_models_that_cannot_are_left_out_or_refused():
    assert models_for("elasticity", "smoke", ["cato", "fno", "ht_net"]) == ["cato_pc", "fno"]
    with pytest.raises(InputError, match="unknown model"):
        models_for("darcy", "smoke", ["nonsense"])
    with pytest.raises(InputError, match="ht_net cannot do elasticity: its windows"):
        models_for("elasticity", "smoke", ["ht_net"])


@pytest.mark.parametrize(
    ("models", "rivals", "message"), [((), 2, "at least one model"), (("fno",), -1, "at least 0")]
)
def test_bad_plans_are_refused(models, rivals, message, tmp_path):
    with pytest.raises(InputError, match=message):
        run(trial("epochs", tmp_path, models=models, benchmarks=("darcy",), rivals=rivals))


@pytest.mark.slow
def test_equal_time_and_the_rivals_with_more_seeds(study, tmp_path):
    """Half the speed, half the steps; only CATO and its best rival train with the second seed."""
    _, experiment, _ = study
    known = {"cato": 0.1, "fno": 0.2, "f_fno": 0.1}
    speeds = {speed_key(build_settings("darcy", "smoke", name)): known[name] for name in known}
    (tmp_path / "speeds.json").write_text(json.dumps(speeds))
    timed = replace(
        experiment,
        name="time",
        models=("cato", "fno", "f_fno"),
        minutes=(0.05,),
        rivals=1,
        runs=tmp_path,
        out=tmp_path / "out",
    )
    results = run(timed)
    runs = {path.parent.name: open_run(path.parent) for path in tmp_path.glob("*/job.json")}
    assert {run.config.model_name: run.config.train.steps for run in runs.values()} == {
        "cato": 30,
        "fno": 15,
        "f_fno": 30,
    }
    assert all(run.log()[-1]["step"] == run.config.train.steps for run in runs.values())
    first = {name: run for name, run in runs.items() if name.endswith("seed0")}
    rows = {row["model"]: row for row in results["rows"]}
    rival = min(("fno", "f_fno"), key=lambda n: min(first_validations(first, n)))
    assert strongest(first, 1) == {"darcy": ["cato", rival]}
    assert {name: len(row["errors"]) for name, row in rows.items()} == {
        name: 2 if name in ("cato", rival) else 1 for name in rows
    }
    page = (tmp_path / "out" / "compare.md").read_text()
    best = min(rows.values(), key=lambda row: row["relative_l2"])
    assert f"**{best['relative_l2']:.2%}** | 1.0 |" in page


def first_validations(runs, model):
    return [
        line["validation"]
        for run in runs.values()
        if run.config.model_name == model
        for line in run.log()
    ]


@pytest.mark.slow
def test_steps_are_timed_once_on_the_real_training(study, tmp_path):
    _, experiment, _ = study
    jobs = plan({"darcy": ["cato"]}, experiment, (0, 1))
    speeds = measure_speeds(jobs, tmp_path / "speeds.json", 1)
    (key,) = {speed_key(job) for job in jobs.values()}
    assert 1e-4 < speeds[key] < 1
    again = measure_speeds(jobs, tmp_path / "speeds.json", 1)
    assert again == speeds == json.loads((tmp_path / "speeds.json").read_text())
    fitted = in_equal_time(jobs, 1.0, tmp_path, 1)
    assert {c.train.steps for c in fitted.values()} == {int(60 / speeds[key])}


def test_the_timed_training_has_the_conditioning_of_the_real_one(config_with, tmp_path):
    config = config_with(data={"reference": "node"}, train={"steps": 1})
    run = train(config, tmp_path / "run")
    with _training(config) as timed:
        assert timed.train_set.problem == timed.surrogate.problem == run.problem
    assert run.problem.conditioning.reference == "node"
    published = config_with(data={"conditioning": "published"}, train={"steps": 1})
    assert speed_key(published) != speed_key(config)


@pytest.mark.parametrize("same", [{"seed": 7}, {"schedule": "wsd"}, {"steps": 9}])
def test_what_a_step_does_not_depend_on_is_timed_once(same):
    config = build_settings("darcy", "smoke", "cato")
    changed = replace(config, train=replace(config.train, **same))
    assert speed_key(changed) == speed_key(config)
    assert speed_key(replace(config, train=replace(config.train, clip=0.0))) != speed_key(config)


@pytest.mark.slow
def test_what_cannot_be_timed_is_an_error(study, tmp_path):
    _, experiment, _ = study
    (job,) = plan({"darcy": ["cato"]}, experiment, (0,)).values()
    broken = replace(job, model=replace(job.model, heads=3))
    with pytest.raises(InputError, match=r"darcy-smoke-cato-\w+ cannot be timed: .*multiple"):
        measure_speeds({"job": broken}, tmp_path / "speeds.json", 1)


def test_a_share_of_the_steps_is_another_job(study):
    """The published protocol in less time: every model gets the same share of its steps."""
    _, experiment, _ = study
    able = {"darcy": ["cato", "fno"]}
    whole = plan(able, experiment, (0,))
    part = plan(able, replace(experiment, share=0.34), (0,))
    assert [c.train.steps for c in whole.values()] == [None, None]
    assert [c.train.steps for c in part.values()] == 2 * [round(0.34 * 3 * 24 / 4)]
    assert not set(whole) & set(part)
