"""Ablations and sweeps: which settings are tried, and what is made of the outcomes."""

import json
from dataclasses import replace

import numpy as np
import pytest
from trials import trial

from cato.errors import InputError
from cato.inference import evaluate
from cato.runs.folder import open_run
from cato.runs.load import data_spec, load_splits, load_surrogate
from cato.runs.settings import build_settings, run_config
from cato.training.train import train
from reproduce.experiment import definitions, load
from reproduce.jobs import gradient_error
from reproduce.runner import run
from reproduce.studies.ablation import answers_for

QUESTIONS = definitions()["questions"]
FEW = 64


def test_every_answer_is_the_recipe_of_some_benchmark_or_asked_there():
    names = ("darcy", "navier_stokes", "plasticity")
    models = dict.fromkeys(names, "cato") | {"elasticity": "cato_pc"}
    asked = {key for name in models for key in answers_for(name, "small", ())}
    bases = [build_settings(name, "small", model).to_dict() for name, model in models.items()]
    for question, answers in QUESTIONS.items():
        for answer, changes in answers.items():
            settings = [(group, *item) for group, new in changes.items() for item in new.items()]
            is_recipe = any(all(base[g].get(k) == v for g, k, v in settings) for base in bases)
            assert is_recipe or (question, answer) in asked


def test_answers_that_come_to_the_same_are_one():
    """Airfoil's recipe has no gdl term: to leave the others out leaves the values alone."""
    darcy, airfoil = (answers_for(name, "small", ["loss"]) for name in ("darcy", "airfoil"))
    assert {("loss", "no physical terms"), ("loss", "values alone")} <= set(darcy)
    assert ("loss", "no physical terms") in airfoil
    assert ("loss", "values alone") not in airfoil


def test_a_question_may_name_one_answer():
    both = answers_for("darcy", "small", ["heads"])
    one = answers_for("darcy", "small", ["heads/2"])
    assert list(one) == [("", "the recipe"), ("heads", "2")]
    assert one["heads", "2"] == both["heads", "2"]
    with pytest.raises(InputError, match="no answer 'heads/3'; choose from 1, 2, 4, 8"):
        answers_for("darcy", "small", ["heads/3"])
    with pytest.raises(InputError, match="no question 'head'"):
        answers_for("darcy", "small", ["head"])


def test_with_few_samples_there_are_as_many_steps():
    experiment = load("ablation", share=0.4)
    answers = answers_for("darcy", "small", ["few samples"])
    _, base = experiment.one_change("darcy", {}, 1)
    for answer in ("physical loss", "no physical terms"):
        _, few = experiment.one_change("darcy", answers["few samples", answer], 1)
        assert few.train == base.train
        assert data_spec(few).counts == data_spec(base).counts | {"train": FEW}
    unsteady = answers_for("navier_stokes", "small", ["few samples"])  # has no physical terms
    assert ("few samples", "no physical terms") not in unsteady


def test_clouds_are_asked_what_they_have():
    questions = {question for question, _ in answers_for("elasticity", "small", ())}
    assert {"neighbours", "slices", "chart"} <= questions
    assert not questions & {"attention", "rotary scale", "stencil", "frames in a step"}
    assert "neighbours" not in {question for question, _ in answers_for("darcy", "small", ())}


def test_an_unknown_question_names_the_known():
    with pytest.raises(InputError, match="no question 'colour'; choose from chart, attention"):
        answers_for("darcy", "small", ["colour"])


def test_a_question_that_no_benchmark_has_trains_nothing(tmp_path):
    experiment = trial("ablation", tmp_path, benchmarks=("darcy",), questions=("chart", "slices"))
    with pytest.raises(InputError, match="'slices' changes nothing in CATO's recipe on darcy"):
        run(experiment)
    with pytest.raises(InputError, match="must be 1 to 1; got 2"):
        run(replace(experiment, questions=("chart",), change_seeds=2))
    assert not experiment.runs.exists()


@pytest.mark.slow
def test_answers_differ_in_their_setting_only_and_are_compared_on_validation(tmp_path):
    some = {"benchmarks": ("darcy",), "questions": ("attention",), "seeds": (0, 1)}
    experiment = trial("ablation", tmp_path, share=0.5, change_seeds=1, **some)
    results = run(experiment)
    found = experiment.runs.glob("*/job.json")
    runs = {path.parent.name: open_run(path.parent) for path in found}
    axes = {run.config.model.axes for run in runs.values()}
    assert axes == {(), (0,), (1,)}
    assert {run.config.train.steps for run in runs.values()} == {round(0.5 * 3 * 24 / 4)}
    base, *rest = results["rows"]
    assert base["answer"] == "the recipe"
    for row in results["rows"]:
        logs = [r.log() for r in runs.values() if r.config.model.axes == tuple(axes_of(row))]
        assert len(logs) == (2 if row is base else 1)  # seeds
        lowest = [min(line["validation"] for line in log) for log in logs]
        assert row["validation"] == pytest.approx(np.mean(lowest))
        assert (row["validation_spread"] is not None) == (row is base)
    page = experiment.page.read_text()
    for row in rest:
        assert f"{row['validation'] / base['validation'] - 1:+.1%}" in page
    assert json.loads(experiment.results.read_text()) == results
    assert base["gradient_error"] > 0


@pytest.mark.parametrize(
    ("answer", "error"), [(lambda u: 1.1 * u, 0.1), (lambda u: u + 3, 0.0), (lambda u: 0 * u, 1.0)]
)
def test_gradients_of_answers_whose_error_is_known(answer, error, tmp_path, monkeypatch):
    values = build_settings("darcy", "smoke", "cato").to_dict()
    values["data"]["root"] = str(tmp_path / "data")
    values["train"]["steps"] = 1
    run = train(run_config(values, "test"), tmp_path / "run")
    monkeypatch.setattr(evaluate, "solve_all", lambda _, data: answer(data.targets))
    validation = load_splits(run.config).validation
    assert gradient_error(load_surrogate(run), validation) == pytest.approx(error, abs=1e-4)


def axes_of(row):
    return row["changes"].get("model", {}).get("axes", ())
