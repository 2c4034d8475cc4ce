"""The contract that every benchmark keeps: draw, solve, generate, read, show, edit."""

import tomllib
from dataclasses import asdict, fields
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from cato.benchmarks import BENCHMARKS, NAMES, editor_for, get_benchmark, view_of
from cato.benchmarks.editor import Editor
from cato.benchmarks.view import DEFORMED, is_deformed
from cato.data.arrays import sample_shapes
from cato.data.dataset import load_spec
from cato.data.published import read_published
from cato.data.sampling import generate_sample
from cato.data.spec import DataSpec
from cato.errors import InputError
from cato.models.registry import MODELS
from cato.problem import Problem
from reproduce.paper import PAPER

SEED = 5
SCALES = {"paper", "small", "smoke"}
TESTS = Path(__file__).parent
ROOT = TESTS.parents[1]

every_benchmark = pytest.mark.parametrize("name", BENCHMARKS)


def smoke_editor(name) -> Editor:
    benchmark = BENCHMARKS[name]
    return benchmark.editor(benchmark, benchmark.parameters("smoke"))


# Declarations


def test_every_folder_is_listed():
    folders = {path.parent.name for path in (ROOT / "cato/benchmarks").glob("*/benchmark.py")}
    assert folders == set(NAMES) == set(BENCHMARKS)


@every_benchmark
def test_names_and_scales(name):
    benchmark = BENCHMARKS[name]
    assert benchmark is get_benchmark(name)
    assert benchmark.name == name
    assert benchmark.title
    assert benchmark.description.endswith(".")
    assert set(benchmark.scales) == SCALES
    assert benchmark.revision >= 1
    for scale in benchmark.scales:
        problem = benchmark.problem(scale)
        assert problem.name == name
        assert Problem.from_dict(problem.to_dict()) == problem
        parameters = benchmark.parameters(scale)
        assert type(parameters)(**asdict(parameters)) == parameters
        assert {f.name for f in fields(parameters)} == set(asdict(parameters))


@every_benchmark
def test_the_solver_is_tested_against_theory(name):
    """Its tests measure an order of convergence, or an exact solution, and its card says so."""
    sources = [path.read_text() for path in TESTS.glob("test_*.py")]
    own = [source for source in sources if f"from cato.benchmarks.{name}" in source]
    assert any("order" in source or "exact" in source for source in own)
    card = (ROOT / "docs/benchmarks" / f"{name}.md").read_text()
    assert "order" in card or "exact" in card


@every_benchmark
def test_the_recipe_has_every_scale(name):
    recipe = BENCHMARKS[name].recipe
    text = (files("cato.benchmarks") / name / "recipe.toml").read_text()
    assert recipe == tomllib.loads(text)
    assert set(recipe) == SCALES
    for models in recipe.values():
        assert set(models) <= {"all", *MODELS}


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_numbers(name):
    paper = PAPER[name]
    assert 0 < paper.error < paper.rival_error < 0.1
    assert paper.rival in MODELS
    assert set(paper.public_millions) == {"transolver", "saot"}


def test_the_papers_mean_gain_is_that_of_its_abstract():
    gains = {name: 1 - paper.error / paper.rival_error for name, paper in PAPER.items()}
    assert np.mean(list(gains.values())) == pytest.approx(0.2676, abs=2e-3)
    largest = sorted(gains, key=lambda name: gains[name])[-2:]
    assert {name for name, paper in PAPER.items() if paper.is_highlighted} == set(largest)


# Draw, solve, generate


@every_benchmark
def test_samples_are_reproducible_and_solved(name):
    benchmark, spec = BENCHMARKS[name], DataSpec(name, "smoke")
    sample = generate_sample(spec, "train", 0).sample
    again = generate_sample(spec, "train", 0).sample
    other = generate_sample(spec, "train", 1).sample
    assert np.array_equal(sample.targets, again.targets)
    assert np.array_equal(sample.inputs, again.inputs)
    assert not np.array_equal(sample.targets, other.targets)
    assert all(isinstance(value, float) for value in sample.diagnostics.values())
    assert sample.diagnostics.keys() == other.diagnostics.keys()
    assert sample.diagnostics
    shared = benchmark.coords(benchmark.parameters("smoke"))
    assert (shared is None) == (sample.coords is not None)
    if shared is not None:
        assert shared.shape == sample_shapes(benchmark.problem("smoke"))["coords"]
        assert shared.dtype == np.float32


@every_benchmark
def test_a_sample_is_drawn_and_then_solved(name):
    benchmark = BENCHMARKS[name]
    parameters = benchmark.parameters("smoke")
    drawn, again, other = (
        benchmark.draw(np.random.default_rng(seed), parameters) for seed in (1, 1, 2)
    )
    assert np.array_equal(drawn, again)
    assert drawn.shape == other.shape
    assert not np.array_equal(drawn, other)
    before = drawn.copy()
    sample = benchmark.solve(drawn, parameters)
    assert np.array_equal(drawn, before)  # a pure function
    whole = benchmark.sample(np.random.default_rng(1), parameters)
    assert np.array_equal(sample.targets, whole.targets)


@every_benchmark
def test_generated_files_hold_the_samples(name, tmp_path):
    spec = DataSpec(name, "smoke", count=1, splits=("train",))
    splits = load_spec(spec, tmp_path, workers=1)
    sample = generate_sample(spec, "train", 0).sample
    arrays = splits.train.arrays()
    assert len(splits.train) == 1
    np.testing.assert_array_equal(arrays["targets"][0], sample.targets)
    np.testing.assert_array_equal(arrays["inputs"][0], sample.inputs)


# Published files


@every_benchmark
def test_published_arrays_become_samples(name, tmp_path):
    """tests/data/published writes such files and reads them."""
    benchmark = BENCHMARKS[name]
    published, scale = benchmark.published, benchmark.scale("paper")
    for layout in published.layouts:
        assert len(layout.shape) == 1 + sum(size is not None for size in layout.shape)
        assert set(layout.samples) <= {"train", "test"}
    for split, count in (("train", scale.train + scale.validation), ("test", scale.test)):
        parts = [layout for layout in published.layouts if split in layout.samples]
        assert parts, split
        for layout in parts:
            assert len(range(layout.at_least)[layout.samples[split]]) == count
    rng, arrays = np.random.default_rng(0), {"train": [], "test": []}
    for layout in published.layouts:
        axis = layout.shape.index(None)
        for split in layout.samples:
            shape = [size or 2 for size in layout.shape]
            array = rng.random(shape, np.float32)
            pick = list(layout.pick) + [slice(None)] * (len(shape) - len(layout.pick))
            pick[axis] = slice(None)
            arrays[split].append(np.moveaxis(array[tuple(pick)], axis, 0))
    problem = benchmark.problem("paper")
    shapes = sample_shapes(problem)
    for split in ("train", "test"):
        coords, inputs, targets = published.assemble(*arrays[split])
        assert targets.shape == (2, *shapes["targets"])
        assert (inputs is None) == (problem.num_inputs == 0)
        if inputs is not None:
            assert inputs.shape == (2, *shapes["inputs"])
        assert (coords is None) == (benchmark.coords(benchmark.parameters("paper")) is not None)
        if coords is not None:
            assert coords.shape == (2, *shapes["coords"])
    with pytest.raises(InputError, match=f"{published.layouts[0].file} with"):
        read_published(name, tmp_path)


# How it is shown


@every_benchmark
def test_the_view_covers_the_outputs(name):
    benchmark, problem = BENCHMARKS[name], BENCHMARKS[name].problem("smoke")
    view = view_of(problem)
    assert view is benchmark.view
    assert view.label
    assert set(view.names) <= {*problem.inputs, *problem.outputs}
    assert len(problem.outputs) == 1 or set(DEFORMED) <= set(problem.outputs)
    assert is_deformed(problem) == (len(problem.outputs) > 1)
    assert (view.first_time is not None) == (problem.time != "steady")
    if view.die_travel:
        assert problem.inputs == ("die",)
    if view.window is not None:
        sample = generate_sample(DataSpec(name, "smoke"), "train", 0).sample
        shown = view.window.contains(sample.coords.reshape(-1, 2))
        assert 0 < shown.sum() < shown.size


# What the explorer edits


@every_benchmark
def test_values_of_a_drawn_sample_give_that_very_sample(name):
    editor, benchmark = smoke_editor(name), BENCHMARKS[name]
    sample = benchmark.sample(np.random.default_rng(SEED), editor.parameters)
    if editor.needs_solver:  # its values are a seed, and two numbers that change the draw
        values = np.array([*editor.first()[:-1], SEED])
    else:
        values = editor.draw(np.random.default_rng(SEED))
    values = editor.check(values)
    inputs, coords = editor.model_inputs(values)
    expected = sample.coords
    if expected is None:
        expected = benchmark.coords(editor.parameters)
    np.testing.assert_array_equal(inputs, sample.inputs)
    np.testing.assert_array_equal(coords, expected)
    assert inputs.dtype == coords.dtype == np.float32
    np.testing.assert_array_equal(editor.solve(values)[0].targets, sample.targets)


@every_benchmark
def test_random_and_plain_values_are_allowed_and_differ(name):
    editor = smoke_editor(name)
    first, again, other = (editor.draw(np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    for values in (first, other, editor.first()):
        np.testing.assert_array_equal(editor.check(values), values)
    with pytest.raises(InputError, match=name):
        editor.check(np.zeros(1))


@every_benchmark
def test_the_page_is_told_everything(name):
    editor, problem = smoke_editor(name), BENCHMARKS[name].problem("smoke")
    about = editor.describe()
    assert about["hint"].endswith(".")
    assert about["label"] == BENCHMARKS[name].view.label
    assert about["shape"] == list(problem.shape)
    assert about["deformed"] == is_deformed(problem)
    num_past = problem.num_inputs if problem.time == "rollout" else 0
    assert len(about["times"]) == num_past + problem.num_steps
    assert len(set(about["times"])) == len(about["times"])
    assert ("die" in about) == bool(BENCHMARKS[name].view.die_travel)
    assert (editor.kind == "paint") == (not about["controls"]) == ("paint" in about)
    assert (editor.kind == "void") == ("void" in about)
    for control in about["controls"]:
        assert control["low"] < control["high"]
        assert (control["anchor"] is not None) == (editor.kind == "points")
    (left, right, bottom, top), (x0, x1, y0, y1) = about["view"], about["box"]
    assert left < right
    assert bottom < top
    assert x0 < x1
    assert y0 < y1
    assert (editor.triangles() is not None) == (problem.geometry == "cloud")


@every_benchmark
def test_the_editor_of_a_model_has_its_mesh(name):
    for scale in ("small", "smoke"):
        problem = BENCHMARKS[name].problem(scale)
        editor = editor_for(problem, scale)
        assert editor.problem.shape == problem.shape
        assert editor.parameters == BENCHMARKS[name].parameters(scale)
