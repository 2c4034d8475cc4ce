"""The gallery: one sample for all, one scale for all, and the right sample."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.collections import PathCollection, QuadMesh
from PIL import Image
from trials import trial

from cato.benchmarks.view import DEFORMED
from cato.errors import InputError
from cato.inference.evaluate import evaluate
from cato.problem import Problem
from cato.runs.folder import open_run
from cato.runs.load import load_splits, load_surrogate
from cato.viz.figures import Case
from reproduce.figures.gallery import Answer, gallery_animation, gallery_figure
from reproduce.pages import page_of
from reproduce.results import median_sample
from reproduce.runner import run as run_experiment
from reproduce.studies.gallery import compared_runs, gallery

NAMES = ("CATO", "SAOT", "Transolver")


def answers_to(geometry="grid", time="steady", num_steps=1, outputs=("u",)):
    """Three models that are wrong by 1, 2 and 4 times the same noise."""
    shape = (30,) if geometry == "cloud" else (6, 5)
    problem = Problem(
        "own", geometry, shape, inputs=("a",), outputs=outputs, time=time, num_steps=num_steps
    )
    rng = np.random.default_rng(0)
    x = np.stack(np.meshgrid(np.arange(6.0), np.arange(5.0), indexing="ij"), -1).reshape(-1, 2)
    truth = rng.normal(size=(num_steps, 30, len(outputs)))
    if outputs == DEFORMED:
        truth = np.concatenate([x + 0.1 * truth[..., :2], 0.1 * truth[..., :2]], axis=-1)
    noise = rng.normal(size=truth.shape)
    case = Case(problem, x, rng.normal(size=(30, 1)), truth, truth)
    return [
        Answer(name, replace(case, prediction=truth + size * noise), size)
        for name, size in zip(NAMES, (1, 2, 4), strict=True)
    ]


def fields(figure):
    """Colour maps with limits and values of all fields, in the order of their panels."""
    found = []
    for axes in figure.axes:
        if axes.get_label() != "<colorbar>":
            found += [c for c in axes.collections if isinstance(c, QuadMesh | PathCollection)]
    return found


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30, unique=True))
def test_the_median_sample_has_as_many_above_as_below(errors):
    shown = errors[median_sample(torch.tensor(errors, dtype=torch.float64))]
    below, above = sum(e < shown for e in errors), sum(e > shown for e in errors)
    assert 0 <= below - above <= 1


@pytest.mark.parametrize("geometry", ["grid", "mesh", "cloud"])
def test_values_share_the_scale_of_the_truth_and_errors_one_of_their_own(geometry):
    answers = answers_to(geometry)
    truth, *others = fields(gallery_figure(answers))
    predictions, (given_, *errors) = others[:3], others[3:]
    values = answers[0].case.truth
    assert truth.get_clim() == (values.min(), values.max())
    assert {p.get_clim() for p in predictions} == {truth.get_clim()}
    worst = np.abs(answers[2].case.prediction - values).max()
    assert [e.get_clim() for e in errors] == [(-worst, worst)] * 3
    for answer, prediction, error in zip(answers, predictions, errors, strict=True):
        np.testing.assert_allclose(np.ravel(prediction.get_array()), answer.case.prediction.ravel())
        np.testing.assert_allclose(
            np.ravel(error.get_array()), (answer.case.prediction - values).ravel()
        )
    np.testing.assert_allclose(np.ravel(given_.get_array()), answers[0].case.inputs.ravel())


def test_strips_share_scales_over_all_times():
    answers = answers_to(time="rollout", num_steps=7)
    figure = gallery_figure(answers)
    shown = fields(figure)
    assert len(shown) == (1 + 3 + 3) * 5
    values = answers[0].case.truth
    assert {f.get_clim() for f in shown[:20]} == {(values.min(), values.max())}
    assert len({f.get_clim() for f in shown[20:]}) == 1
    np.testing.assert_allclose(np.ravel(shown[4].get_array()), values[-1].ravel())
    titles = [axes.get_title() for axes in figure.axes]
    assert f"{answers[1].frame_errors[-1]:.2%}" in titles


def test_frame_errors_are_relative():
    answer = answers_to(time="rollout", num_steps=3)[1]
    truth = answer.case.truth[1].ravel()
    expected = np.linalg.norm(answer.case.prediction[1].ravel() - truth) / np.linalg.norm(truth)
    assert answer.frame_errors[1] == pytest.approx(expected)


def test_deformed_meshes_stand_where_their_nodes_are():
    answers = answers_to("mesh", "conditioned", 4, DEFORMED)
    shown = fields(gallery_figure(answers))
    assert len(shown) == 2 * (1 + 3 + 3)
    last = shown[7]
    np.testing.assert_allclose(
        last.get_coordinates().reshape(-1, 2), answers[0].case.truth[-1, :, :2]
    )
    assert len({f.get_clim() for f in (*shown[:4], *shown[7:11])}) == 1
    assert len({f.get_clim() for f in (*shown[4:7], *shown[11:])}) == 1
    apart = (answers[2].case.prediction - answers[2].case.truth)[-1, :, :2]
    np.testing.assert_allclose(np.ravel(shown[13].get_array()), np.linalg.norm(apart, axis=-1))


def test_the_animation_has_a_frame_for_each_step(tmp_path):
    answers = answers_to(time="rollout", num_steps=4)
    gallery_animation(answers, tmp_path / "own.gif")
    with Image.open(tmp_path / "own.gif") as animation:
        assert animation.format == "GIF"
        assert animation.n_frames == 4
        frames = []
        for number in range(4):
            animation.seek(number)
            frames.append(animation.convert("RGB").tobytes())
    assert len(set(frames)) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["own.gif"]


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    root = tmp_path_factory.mktemp("gallery")
    some = {"benchmarks": ("darcy",), "models": ("cato", "transolver"), "workers": 1, "share": 1}
    run_experiment(trial("epochs", root, **some | {"out": root / "compare"}))
    experiment = trial("gallery", root, **some)
    return root, experiment, run_experiment(experiment)


@pytest.mark.slow
def test_the_sample_is_the_median_of_ours(compared):
    root, _, results = compared
    (row,) = results["rows"]
    figures = json.loads((root / "runs/darcy-smoke-cato-recipe-seed0/job.json").read_text())
    assert row["mean_errors"]["cato"] == pytest.approx(figures["relative_l2"])
    run = open_run(root / "runs/darcy-smoke-cato-recipe-seed0")
    errors = evaluate(load_surrogate(run), load_splits(run.config).test, None).errors
    assert (errors < row["errors"]["cato"] * (1 - 1e-6)).sum() == len(errors) // 2
    assert row["num_samples"] == figures["num_samples"]
    assert not row["animated"]


@pytest.mark.slow
def test_the_page_follows_from_the_results(compared):
    root, _, results = compared
    assert json.loads((root / "out/gallery.json").read_text()) == results
    page = page_of(results)
    assert page == (root / "out/gallery.md").read_text()
    assert f"sample {results['rows'][0]['sample']} of" in page
    assert (root / "out/gallery-darcy.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ours", "words"),
    [
        (0.02, "Of these 2 models CATO has the lowest error on it, 50% below the next."),
        (0.06, "that of CATO is 50% higher."),
    ],
)
def test_the_caption_says_who_is_best(compared, ours, words):
    _, _, results = compared
    row = results["rows"][0] | {"errors": {"cato": ours, "transolver": 0.04}}
    assert words in page_of(results | {"rows": [row]})


@pytest.mark.slow
def test_missing_runs_are_named(compared, tmp_path):
    _, experiment, _ = compared
    with pytest.raises(InputError, match="darcy-smoke-saot-recipe-seed0"):
        compared_runs(replace(experiment, models=("saot",)))
    runs = compared_runs(experiment)
    with pytest.raises(InputError, match="add a run of it on darcy"):
        gallery({"darcy": {"transolver": runs["darcy"]["transolver"]}}, tmp_path)
