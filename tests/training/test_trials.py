"""Model auto: every candidate gets a trial, and the best of them on validation is trained."""

import json
import math
import re

import numpy as np
import pytest

import cato
from cato.cli import main
from cato.errors import Diverged, InputError
from cato.inference.improve import CLOSE, expected_error
from cato.models.registry import MODELS, candidates, num_parameters
from cato.problem import Problem
from cato.runs.folder import open_run
from cato.runs.settings import build_candidates, build_settings, run_config
from cato.training import loop, trials
from cato.training.train import resume, train
from cato.training.trials import EARLY_SHARE, SHARE, extrapolated, share_left, shortened
from cato.viz.report import write_report

NUM_EARLY_STEPS, NUM_TRIAL_STEPS = 2, 4  # Of the trials in this file.
ALL_TRIAL_STEPS = 3 * (NUM_EARLY_STEPS + NUM_TRIAL_STEPS)
STEPS = {"steps": 10, "accelerator": "cpu", "batch_size": 5}
NAMES = {"coords": "x", "inputs": "k", "targets": "u", "folds": 0}
CANDIDATES = ["cato", "factformer", "gnot"]  # Of the file below, which has one dimension.


@pytest.fixture(scope="module", autouse=True)
def _short_trials():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trials, "MIN_STEPS", NUM_TRIAL_STEPS)
        yield


@pytest.fixture(scope="module")
def user_file(tmp_path_factory):
    """Smooth fields on a line, enough samples to hold some out."""
    x = np.linspace(0, 1, 12)
    k = 2 + np.sin(3 * x + 6 * np.random.default_rng(0).random((60, 1)))
    path = tmp_path_factory.mktemp("user") / "user.npz"
    np.savez(path, x=x, k=k, u=np.sqrt(k))
    return path


@pytest.fixture(scope="module")
def chosen(user_file, tmp_path_factory):
    """A finished run of model auto on user data at smoke scale."""
    folder = tmp_path_factory.mktemp("runs") / "auto"
    return cato.train(
        user_file, "smoke", out=folder, model="auto", data_settings=NAMES, train_settings=STEPS
    )


@pytest.mark.parametrize(
    "problem",
    [
        Problem("line", "grid", (9,), ("a",), ("u",), dimension=1),
        Problem("plane", "grid", (9, 8), ("a",), ("u",)),
        Problem("mesh", "mesh", (9, 8), (), ("u",), periodic=(True, False)),
        Problem("block", "mesh", (9, 8, 7), ("a",), ("u",), dimension=3),
        Problem("cloud", "cloud", (30,), (), ("u", "v")),
        Problem("cloud in space", "cloud", (30,), (), ("u", "v"), dimension=3),
    ],
    ids=lambda problem: problem.name,
)
def test_there_are_three_candidates_for_every_geometry(problem):
    names = candidates(problem)
    assert len(set(names)) == 3
    for name in names:
        assert num_parameters(name, MODELS[name].config_class(), problem) > 0


def test_the_best_on_validation_is_trained(chosen):
    rows = chosen.trials
    assert [row["model"] for row in rows] == CANDIDATES
    assert [row["steps"] for row in rows] == 3 * [NUM_TRIAL_STEPS]
    assert all(row["seconds"] > 0 for row in rows)
    assert [row["early_steps"] for row in rows] == 3 * [NUM_EARLY_STEPS]
    best = min(rows, key=lambda row: row["expected"])
    assert chosen.config.model_name == best["model"]
    assert chosen.log()[-1]["step"] == STEPS["steps"]
    assert open_run(chosen.folder).trials == rows


def test_a_trial_is_a_short_training(chosen, user_file, tmp_path):
    """With the same seed, steps and schedule: the last validation error of the real training."""
    row = chosen.trials[0]
    for steps, error in (("steps", "validation"), ("early_steps", "early")):
        changes = {"data": NAMES, "train": STEPS | {"steps": row[steps]}}
        config = build_settings(user_file, "smoke", row["model"], changes)
        assert train(config, tmp_path / steps).log()[-1]["validation"] == row[error]


def test_the_expected_error_continues_the_decay():
    assert extrapolated(0.08, 30, 0.04, 90) == pytest.approx(0.02)
    assert extrapolated(0.08, 100, 0.04, 141) == pytest.approx(0.04 / 1.41)  # no faster than 1/n
    assert extrapolated(0.04, 30, 0.05, 90) == 0.05  # it has risen
    assert extrapolated(0.04, 30, 0.03, 30) == 0.03  # the same length
    assert extrapolated(0.04, 30, 0.0, 90) == 0.0


def test_trials_of_earlier_runs_are_compared_by_their_error():
    assert expected_error({"validation": 0.1}) == 0.1
    assert expected_error({"validation": 0.1, "expected": 0.05}) == 0.05
    assert expected_error({"validation": None, "expected": None}) == math.inf


def test_a_model_that_starts_slowly_and_gets_further_is_chosen():
    """Pipe flow after 0.5 and 1.5 minutes: the order after 3 minutes (docs/studies)."""
    measured = {
        "cato": (0.125, 0.0349, 0.0152),
        "f_fno": (0.0576, 0.0355, 0.0163),
        "geo_fno": (0.0676, 0.0311, 0.0194),
    }
    expected = {name: extrapolated(a, 1, b, 3) for name, (a, b, _) in measured.items()}
    assert min(expected, key=lambda name: expected[name]) == "cato"


def test_the_command_of_the_run_names_the_chosen_model(chosen, tmp_path):
    assert f"--model {chosen.config.model_name} " in chosen.command
    again = tmp_path / "again"
    main([*chosen.command.split()[1:-1], str(again)])
    assert open_run(again).log()[-1]["loss"] == chosen.log()[-1]["loss"]
    assert not open_run(again).trials


def test_the_report_shows_the_trials(chosen):
    page = write_report(chosen)[0].read_text()
    section = page.split("Choice of the model")[1].split("<h2>")[0]
    shown = re.findall(r"<td>([\d.]+) %</td>", section)
    ordered = sorted(chosen.trials, key=lambda row: row["expected"])
    columns = [[row["validation"], row["expected"]] for row in ordered]
    assert shown == [f"{100 * error:.2f}" for errors in columns for error in errors]
    errors = [row["expected"] for row in ordered]
    close = [error for error in errors[1:] if error <= CLOSE * errors[0]]
    assert ("another model could be better" in section) == bool(close)


def test_the_report_of_a_single_model_says_that_others_may_be_better(user_file, tmp_path):
    config = build_settings(user_file, "smoke", None, {"data": NAMES, "train": STEPS})
    page = write_report(train(config, tmp_path / "run"))[0].read_text()
    assert "FactFormer or GNOT might be better" in page
    assert "Choice of the model" not in page


def test_trials_are_inside_a_time_budget(config_with):
    config = config_with(train={"minutes": 3.0, "min_steps": 600})
    for share in (SHARE, EARLY_SHARE):
        trial = shortened(config, 100, share).train
        assert trial.minutes == pytest.approx(share * 3)
        assert trial.min_steps == share * 600
    without = config_with(train={"minutes": 3.0})
    assert shortened(without, 100, SHARE).train.min_steps == NUM_TRIAL_STEPS
    assert shortened(without, 100, EARLY_SHARE).train.min_steps == NUM_EARLY_STEPS


@pytest.mark.parametrize(
    ("length", "steps"),
    [
        ({"steps": 1000}, 100),
        ({"steps": 3}, 3),
        ({"epochs": 50}, 100),
        ({"epochs": 1}, NUM_TRIAL_STEPS),
    ],
)
def test_trials_before_a_number_of_steps(config_with, length, steps):
    config = config_with(train={"batch_size": 5, **length})
    assert shortened(config, 100, SHARE).train.steps == steps


def test_what_the_trials_leave_of_a_time_budget(data_root, tmp_path, monkeypatch):
    monkeypatch.setattr(loop.Training, "seconds_per_step", lambda self, duration: 60.0)
    budget = {"minutes": 1.0, "min_steps": 3, "accelerator": "cpu"}
    changes = {"data": {"root": str(data_root)}, "train": budget}
    config, *rivals = build_candidates("darcy", "smoke", "auto", changes)
    run = train(config, tmp_path / "run", rivals)
    assert run.config.train.minutes == pytest.approx(share_left(3))
    assert run.log()[-1]["step"] == 3
    assert f"--train.minutes {share_left(3):g}" in run.command


def test_a_killed_trial_leaves_nothing_and_a_killed_training_resumes(
    user_file, tmp_path, monkeypatch, chosen
):
    changes = {"data": NAMES, "train": STEPS}
    config, *rivals = build_candidates(user_file, "smoke", "auto", changes)
    original = loop.Training.step

    def killed_at(count):
        calls = iter(range(count))

        def step(self, *arguments):
            if next(calls, None) is None:
                raise KeyboardInterrupt
            return original(self, *arguments)

        return step

    monkeypatch.setattr(loop.Training, "step", killed_at(NUM_EARLY_STEPS + NUM_TRIAL_STEPS + 1))
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "run", rivals)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(loop.Training, "step", killed_at(ALL_TRIAL_STEPS + 7))
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "run", rivals)
    monkeypatch.setattr(loop.Training, "step", original)
    resumed = resume(tmp_path / "run")
    assert resumed.config.model_name == chosen.config.model_name
    assert resumed.log()[-1]["loss"] == chosen.log()[-1]["loss"]
    assert [t["validation"] for t in resumed.trials] == [t["validation"] for t in chosen.trials]


def test_a_candidate_that_diverges_is_not_chosen(user_file, tmp_path, monkeypatch, chosen, capsys):
    """The one that would have won."""
    changes = {"data": NAMES, "train": STEPS}
    config, *rivals = build_candidates(user_file, "smoke", "auto", changes)
    original, winner = loop.Training.step, chosen.config.model_name
    bad = {winner}

    def step(self, *arguments):
        if self.run.config.model_name in bad:
            self._require_finite("loss", math.inf)
        return original(self, *arguments)

    monkeypatch.setattr(loop.Training, "step", step)
    run = train(config, tmp_path / "run", rivals)
    assert run.config.model_name != winner
    assert {row["model"]: row["validation"] for row in run.trials}[winner] is None
    assert f"{winner}: diverged in its trial" in capsys.readouterr().err
    assert "<td>diverged</td>" in write_report(run)[0].read_text()
    json.loads((run.folder / "run.json").read_text(), parse_constant=pytest.fail)
    bad |= set(MODELS)
    with pytest.raises(Diverged, match="all diverged in their trials"):
        train(config, tmp_path / "other", rivals)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model.width", "8"], "leave out model.width, or name the model"),
        (["--from", "darcy"], "darcy is a cato; leave out the model auto or the start"),
        (["--train.steps", "5", "--train.minutes", "1"], "set train.steps or train.minutes"),
    ],
)
def test_what_auto_refuses(options, message, tmp_path, capsys):
    out = tmp_path / "run"
    with pytest.raises(SystemExit) as stop:
        main(["train", "darcy", "--scale", "smoke", "--model", "auto", "--out", str(out), *options])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_a_study_needs_the_name_of_a_model():
    with pytest.raises(InputError, match="unknown model 'auto'"):
        build_settings("darcy", "smoke", "auto")
    with pytest.raises(InputError, match="unknown model 'auto'"):
        run_config({"benchmark": "darcy", "scale": "smoke", "model_name": "auto"}, "job")


def test_the_command_line_shows_the_choice(data_root, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    data = ["--data.root", str(data_root), "--train.accelerator", "cpu"]
    length = ["--train.steps", "2", "--json"]
    main(["train", "darcy", "--scale", "smoke", "--model", "auto", *data, *length])
    printed = capsys.readouterr()
    figures = json.loads(printed.out)
    assert figures["run"] == "runs/darcy-smoke-auto"
    assert set(figures["trials"]) == {"cato", "f_fno", "geo_fno"}
    assert figures["model"] in figures["trials"]
    assert f"training {figures['model']}, the best on validation" in printed.err


def test_help_shows_the_settings_of_the_default(capsys):
    main(["train", "darcy", "--model", "auto", "--help"])
    assert "settings of cato on darcy small" in capsys.readouterr().out
