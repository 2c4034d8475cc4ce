"""Models that only experiments train: rivals with CATO's loss, CATO without compiled loops."""

import json
from dataclasses import replace

import pytest
import torch

from cato.benchmarks import get_benchmark
from cato.errors import InputError
from cato.models.registry import MODELS, build_model, model_class
from cato.runs.settings import build_settings
from reproduce import experiment
from reproduce.experiment import Experiment, all_experiments, load
from reproduce.pages import costs_to_come, plan_of_the_table
from reproduce.studies import ablation, compare
from reproduce.variants import VARIANTS, recipe_of_variant

FLUXED = ("f_fno_flux", "transolver_flux")


@pytest.mark.parametrize("name", FLUXED)
def test_a_rival_with_a_flux_has_more_read_outs_and_else_its_own_weights(name):
    problem = get_benchmark("darcy").problem("smoke")
    config = build_settings("darcy", "smoke", VARIANTS[name][0]).model
    torch.manual_seed(0)
    ours = build_model(name, config, problem)
    rival = build_model(VARIANTS[name][0], config, problem)
    sizes = {n: tuple(p.shape) for n, p in rival.named_parameters()}
    changed = {n for n, p in ours.named_parameters() if sizes[n] != tuple(p.shape)}
    assert 1 <= len(changed) <= 3  # matrix and bias (and row lengths) of the last layer
    coords = torch.rand(2, problem.num_nodes, problem.dimension)
    features = torch.rand(2, problem.num_nodes, problem.num_inputs)
    values, flux = ours(coords, features)
    assert values.shape == (2, problem.num_nodes, 1)
    assert flux.shape == (2, problem.num_nodes, 1, 2)
    flux.square().mean().backward()
    assert all(p.grad is not None for p in ours.parameters())


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_have_the_recipes_of_their_models(name):
    base = VARIANTS[name][0]
    assert base in MODELS
    experiment = load("flux-head")
    config = experiment.config("airfoil", name)
    recipe = experiment.config("airfoil", base)
    assert config.train == recipe.train
    assert config.data == recipe.data
    settings = vars(config.model)
    assert {key: settings[key] for key in vars(recipe.model)} == vars(recipe.model)
    flux = experiment.config("airfoil", "cato").loss if name in FLUXED else recipe.loss
    assert config.loss == flux
    assert config.loss.needs_flux


def test_models_of_the_library_have_their_own_recipes():
    assert all(recipe_of_variant("darcy", "small", name) == {} for name in MODELS)


def test_variants_are_left_out_where_they_cannot():
    assert compare.variants_for("airfoil", "small", ("plain_cato",)) == ["plain_cato"]
    assert compare.variants_for("elasticity", "small", ("plain_cato",)) == []


def test_published_inputs_are_those_of_the_paper():
    published = load("published")
    for name in ("cato", "transolver"):
        assert published.config("airfoil", name).data.conditioning == "published"
        assert load("time").config("airfoil", name).data.conditioning == "auto"


def rows_of(errors):
    """A model's error on two benchmarks."""
    return [
        {
            "benchmark": name,
            "model": model,
            "relative_l2": 1.0 - e / 2,  # the test split chooses nothing
            "validation": e,
            "spread": None,
            "mean_predictor": 2.0,
        }
        for model, pair in errors.items()
        for name, e in zip(("darcy", "pipe"), pair, strict=True)
    ]


def test_the_best_models_on_average_are_compared_again(tmp_path, monkeypatch):
    errors = {
        "cato": (0.1, 0.1),
        "saot": (0.2, 0.2),
        "fno": (0.3, 0.6),
        "lsm": (0.35, 0.3),
        "gnot": (0.5, 0.5),
    }
    screen = Experiment("screen", "compare", out=tmp_path)
    monkeypatch.setattr(experiment, "load", lambda name: screen)
    after = replace(load("time"), models=("cato", "saot"), best=2)
    with pytest.raises(InputError, match="run `make study-screen` first"):
        compare.best_models(after)
    results = {"format": 2, "rows": rows_of(errors)}
    screen.results.write_text(json.dumps(results))
    assert compare.best_models(after) == ["lsm", "fno"]
    assert compare.best_models(replace(after, best=0)) == []
    assert compare.best_models(replace(after, benchmarks=("darcy",))) == ["fno", "lsm"]


def test_the_plan_counts_every_training():
    time = replace(load("time"), benchmarks=("darcy", "elasticity"), best=1)
    planned = compare.planned(time)
    # Four models on both, the variant on Darcy; CATO and two rivals with four more seeds, two of
    # them with the longest time alone.
    assert len(planned) == 3 * (2 * 4 + 1) + 2 * 3 * (2 * 3 + 2 * 1)
    assert {training.minutes for training in planned} == {2.5, 5, 10}
    screen = compare.planned(load("screen"))
    can = [m for m in load("screen").models if "cloud" in model_class(m).geometries or m == "cato"]
    assert len(screen) == 5 * len(load("screen").models) + len(can)


def test_the_plan_counts_shared_trainings_once():
    costs = costs_to_come()
    assert set(costs["lr-sweep"]) == {1.0}
    after_the_sweep = 2.5 - 0.8  # the trunk of the sweep's best
    assert costs["screen"] == pytest.approx([after_the_sweep] * len(costs["screen"]))
    assert {round(m, 6) for m in costs["time"]} == {2.5, 5 - 2, 10 - 4, 10}
    assert costs["long-run"] == pytest.approx(2 * [30 - 8, 120 - 24])
    assert 2.5 in costs["ablation"]
    recipe = 3 * len(load("ablation").all_benchmarks)
    assert len(costs["ablation"]) == len(ablation.planned(load("ablation"))) - recipe
    assert plan_of_the_table(costs)["hours"] < 46


def test_every_experiment_of_the_table_says_what_was_saved():
    parts = [e for e in all_experiments() if e.plan]
    assert {str(e.runs) for e in parts if e.name != "published"} == {"runs/studies/time"}
    assert {part.schedule for e in parts for part in e.by_budget} == {"wsd"}
    assert all(e.minutes for e in parts)
