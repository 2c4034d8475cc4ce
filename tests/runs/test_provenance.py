"""Every result can be traced to the code, the machine and the date that produced it."""

import subprocess
from datetime import datetime
from pathlib import Path

import pytest

import cato
from cato.problem import Problem
from cato.runs import folder
from cato.runs.provenance import commit_of, environment
from cato.runs.settings import build_settings
from reproduce import provenance as module
from reproduce.provenance import provenance

ENVIRONMENT = {"python", "torch", "system", "processor", "cores", "threads", "gpu"}
"""Keys of a run of version 0.1."""


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.org"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "code.py").write_text("x = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    return tmp_path


def test_commit_of_a_checkout_and_of_a_changed_one(checkout: Path) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    (checkout / "untracked.txt").write_text("results")
    assert commit_of(checkout) == head
    (checkout / "code.py").write_text("x = 2\n")
    assert commit_of(checkout) == f"{head}+changes"


def test_a_wheel_has_no_commit_even_inside_another_checkout(checkout: Path) -> None:
    installed = checkout / ".venv" / "site-packages"
    installed.mkdir(parents=True)
    assert commit_of(installed) is None


def test_no_git_no_commit(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(checkout / "nothing"))
    assert commit_of(checkout) is None


def test_provenance_names_code_machine_and_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "commit", lambda: "abc")
    found = provenance()
    assert list(found) == ["commit", "cato", "hardware", "python", "torch", "date"]
    assert (found["commit"], found["cato"]) == ("abc", cato.__version__)
    assert set(found["hardware"]) == ENVIRONMENT - {"python", "torch"}
    assert datetime.fromisoformat(found["date"]).tzinfo is not None


def test_environment_keeps_the_keys_of_old_runs() -> None:
    assert set(environment()) == ENVIRONMENT


def test_a_new_run_records_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "commit", lambda: "abc")
    problem = Problem("darcy", "grid", (8, 8), ("a",), ("u",))
    run = folder.create_run(tmp_path / "run", build_settings("darcy", "smoke"), problem)
    assert folder.open_run(run.folder).record["commit"] == "abc"
