"""A run knows its data again: others are refused, and runs without a record of theirs take any."""

import pytest

from cato.benchmarks import get_benchmark
from cato.errors import InputError
from cato.files import write_sealed
from cato.inference.evaluate import evaluate_run
from cato.runs.folder import open_run
from cato.training.train import resume, train
from cato.viz.report import write_report


@pytest.fixture
def run(tmp_path, config_with):
    return train(config_with(train={"steps": 1}), tmp_path / "run")


def use_again(folder):
    yield lambda: resume(folder)
    yield lambda: evaluate_run(open_run(folder))
    yield lambda: write_report(open_run(folder))
    yield lambda: evaluate_run(open_run(folder), resolution=21)


def test_data_of_another_revision_are_refused(run, tmp_path, monkeypatch):
    """Before they are looked for: nobody is told to delete the data of the run."""
    monkeypatch.setattr(type(get_benchmark("darcy")), "revision", 99)
    for use in use_again(run.folder):
        with pytest.raises(InputError, match="other data than this cato generates") as refused:
            use()
        assert f"use cato {run.record['cato']}" in str(refused.value)


def test_a_run_that_recorded_no_data_goes_on(run, capsys):
    record = dict(run.record)
    assert record.pop("data")
    write_sealed(run.folder / "run.json", record, run.id)
    for use in use_again(run.folder):
        use()
    assert "already trained" in capsys.readouterr().err
