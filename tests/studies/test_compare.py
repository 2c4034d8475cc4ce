"""A study on Darcy `smoke`: complete, resumable, its page made of its results."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cato.errors import InputError
from cato.studies.compare import compare, plan
from cato.studies.jobs import is_done, run_jobs

EPOCHS = 120
"""Enough to be caught in the middle."""
HURRIED = {"scale": "smoke", "workers": 2}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    root = tmp_path_factory.mktemp("study")
    folders = {"data": root / "data", "runs": root / "runs", "out": root / "out"}
    results = compare(["cato"], ["darcy"], seeds=(0, 1), **folders, **HURRIED)
    return root, folders, results


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


def test_the_page_shows_the_results_and_the_picture(study):
    root, _, results = study
    page = (root / "out/compare.md").read_text()
    assert f"{results['rows'][0]['relative_l2']:.2%}" in page
    assert (root / "out/darcy.png").read_bytes().startswith(b"\x89PNG")
    assert "(darcy.png)" in page


def test_finished_jobs_are_not_trained_again(study):
    root, folders, results = study
    before = {path: path.stat().st_mtime_ns for path in (root / "runs").rglob("*.safetensors")}
    assert compare(["cato"], ["darcy"], seeds=(0, 1), **folders, **HURRIED) == results
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_a_failing_job_stops_no_other(study, tmp_path):
    _, folders, _ = study
    jobs = plan(["cato"], ["darcy"], "smoke", (0, 1), None, folders["data"])
    first, second = jobs
    broken = replace(jobs[first], model=replace(jobs[first].model, heads=3))
    with pytest.raises(InputError, match=f"1 of 2 jobs failed \\({first}\\)"):
        run_jobs(jobs | {first: broken}, tmp_path, 1, "test")
    assert is_done(tmp_path / second)
    assert "multiple" in (tmp_path / f"{first}.log").read_text()
    with pytest.raises(InputError, match="other settings"):
        run_jobs({second: broken}, tmp_path, 1, "test")


def test_jobs_end_with_a_killed_queue_and_go_on_later(study, tmp_path):
    _, folders, _ = study
    (job,) = plan(["cato"], ["darcy"], "smoke", (0,), None, folders["data"])
    script = (
        "import sys; from pathlib import Path; from dataclasses import replace;"
        "from cato.studies.compare import plan; from cato.studies.jobs import run_jobs;"
        "jobs = plan(['cato'], ['darcy'], 'smoke', (0,), None, Path(sys.argv[1]));"
        "train = dict(epochs=int(sys.argv[3]), batch_size=24);"
        "jobs = {k: replace(c, train=replace(c.train, **train)) for k, c in jobs.items()};"
        "run_jobs(jobs, Path(sys.argv[2]), 1, 'test')"
    )
    words = [str(folders["data"]), str(tmp_path), str(EPOCHS)]
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


def test_equal_time_and_models_that_cannot(tmp_path):
    jobs = plan(["cato"], ["darcy", "elasticity"], "smoke", (0,), 0.5, Path("data"))
    assert [config.model_name for config in jobs.values()] == ["cato", "cato_pc"]
    assert all(config.train.minutes == 0.5 for config in jobs.values())
    with pytest.raises(InputError, match="at least one"):
        plan([], ["darcy"], "smoke", (0,), None, Path("data"))
    with pytest.raises(InputError, match="unknown model"):
        plan(["nonsense"], ["darcy"], "smoke", (0,), None, Path("data"))
    with pytest.raises(InputError, match="ht_net cannot do elasticity: its windows"):
        plan(["ht_net"], ["elasticity"], "smoke", (0,), None, Path("data"))
    assert len(plan(["ht_net", "fno"], ["elasticity"], "smoke", (0,), None, Path("data"))) == 1
    with pytest.raises(InputError, match="minutes"):
        plan(["fno"], ["darcy"], "smoke", (0,), -1.0, Path("data"))
    with pytest.raises(InputError, match="seeds must differ"):
        plan(["fno"], ["darcy"], "smoke", (0, 0), None, Path("data"))
