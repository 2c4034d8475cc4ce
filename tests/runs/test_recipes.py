"""Recipes: `paper` holds the paper's tables, and every recipe trains."""

import shlex
from pathlib import Path

import pytest
import torch

from cato.benchmarks import BENCHMARKS, get_benchmark
from cato.cli.commands import Train
from cato.cli.parsing import parse, split_overrides
from cato.data.sampling import generate_sample
from cato.data.spec import DataSpec
from cato.errors import InputError
from cato.inference.evaluate import evaluate_run
from cato.models.registry import MODELS, build_model
from cato.runs.settings import build_settings, command_of, run_config
from cato.training.train import train

ROOT = Path(__file__).parents[2]
TABLES = {
    # benchmark: width, gradient, flux, consistency, gdl, learning rate, batch
    "darcy": (96, 0.2, 0.2, 0.05, 0.1, 5e-4, 4),
    "navier_stokes": (128, 0, 0, 0, 0, 5e-4, 2),
    "elasticity": (144, 0, 0, 0, 0, 1e-3, 1),
    "plasticity": (160, 0, 0, 0, 0, 1e-3, 8),
    "airfoil": (128, 0.2, 0.2, 0.05, 0, 1e-3, 4),
    "pipe": (96, 0.2, 0.2, 0.05, 0, 1e-3, 4),
}
"""The paper's tables of training and architecture configurations."""

each_benchmark = pytest.mark.parametrize("name", BENCHMARKS)


@each_benchmark
def test_paper_recipes_are_the_papers_tables(name):
    config = build_settings(name, "paper")
    model, loss, training = config.model, config.loss, config.train
    weights = (loss.gradient, loss.flux, loss.consistency, loss.gdl)
    assert (model.width, *weights, training.learning_rate, training.batch_size) == TABLES[name]
    assert (model.depth, model.heads) == (8, 8)
    assert (training.epochs, training.optimizer, training.minutes) == (500, "adamw", None)
    scale = BENCHMARKS[name].scale("paper")
    expected = (900, 80) if name == "plasticity" else (1000, 200)
    assert (scale.train + scale.validation, scale.test) == expected


@each_benchmark
@pytest.mark.parametrize("scale", ["paper", "small", "smoke"])
def test_every_recipe_builds_its_model(name, scale):
    config = build_settings(name, scale)
    build_model(config.model_name, config.model, BENCHMARKS[name].problem(scale))
    assert command_of(config).split()[:3] == ["cato", "train", name]


@pytest.mark.parametrize("scale", ["paper", "small", "smoke"])
@pytest.mark.parametrize("model", MODELS)
def test_every_model_has_a_recipe_for_every_benchmark_it_can(model, scale):
    for name, benchmark in BENCHMARKS.items():
        problem, config = benchmark.problem(scale), build_settings(name, scale, model)
        if problem.geometry in MODELS[model].geometries:
            with torch.device("meta"):
                built = build_model(model, config.model, problem)
            assert not (config.loss.needs_flux and not hasattr(built, "flux_head"))
        else:
            with pytest.raises(InputError, match="works on"):
                build_model(model, config.model, problem)


@each_benchmark
def test_recipes_name_known_models_only(name):
    table = get_benchmark(name).recipe
    assert set(table) == {"paper", "small", "smoke"}
    for models in table.values():
        assert set(models) <= {"all", *MODELS}
        assert all(set(groups) <= {"data", "model", "loss", "train"} for groups in models.values())


@pytest.mark.parametrize("model", MODELS)
def test_the_command_of_a_run_repeats_it(model):
    """Also where settings are tuples or nested."""
    name = "elasticity" if model == "cato_pc" else "darcy"
    config = build_settings(name, "paper", model)  # differs from small in many settings
    other = run_config({**config.to_dict(), "scale": "small"}, "test")
    _, _, *words = shlex.split(command_of(other))
    changes, own = split_overrides(words)
    assert parse(Train, own, "test").configs(changes) == [other]


@pytest.mark.parametrize("model", [name for name in MODELS if name not in ("cato", "cato_pc")])
def test_every_baseline_goes_the_whole_way(model, tmp_path, data_root):
    values = build_settings("darcy", "smoke", model).to_dict()
    values["data"]["root"] = str(data_root)
    values["train"] |= {"accelerator": "cpu", "epochs": 1, "batch_size": 12, "optimizer": "muon"}
    run = train(run_config(values, "test"), tmp_path / "run")
    first, again = (evaluate_run(run).figures["relative_l2"] for _ in range(2))
    assert 0 < first == again < 2


@each_benchmark
def test_samples_are_a_function_of_the_seed(name):
    spec = DataSpec(name, "smoke")
    first, again, other = (generate_sample(spec, "test", index).sample for index in (0, 0, 1))
    assert (first.targets == again.targets).all()
    assert (first.inputs == again.inputs).all()
    assert not (first.targets == other.targets).all()


MESHES = [pytest.param(name, marks=pytest.mark.slow) for name in ("airfoil", "pipe", "plasticity")]


@pytest.mark.parametrize("name", ["darcy", "navier_stokes", "elasticity", *MESHES])
def test_every_benchmark_goes_the_whole_way(name, tmp_path):
    values = build_settings(name, "smoke").to_dict()
    values["data"]["root"] = str(tmp_path / "data")
    values["train"] |= {"accelerator": "cpu", "epochs": 1}
    values["model"] |= {"width": 8, "depth": 1}
    run = train(run_config(values, "test"), tmp_path / "run")
    figures = evaluate_run(run).figures
    assert 0 < figures["relative_l2"] < 2
    assert (figures["frame_errors"] is None) == (run.problem.time == "steady")
