"""The band of a benchmark run: its file, and its coverage on test samples against the promise.

The smoke scale has too few validation samples for a band; these are the samples of Darcy `small` on
the mesh and with the training samples of `smoke`.
"""

import json
import shutil
from dataclasses import replace

import pytest
from safetensors import safe_open
from scipy.stats import betabinom

from cato.data.generate import generate
from cato.errors import InputError
from cato.inference.conformal import load_band
from cato.inference.evaluate import evaluate_run, solve_all
from cato.runs.checkpoint import load_checkpoint
from cato.runs.load import load_splits, load_surrogate
from cato.runs.settings import build_settings, run_config
from cato.training.train import train

VALIDATION, TEST = 100, 200
RANK = 91  # ⌈(100 + 1) · 0.9⌉
CHANCE = 1e-4


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """A trained run, its figures, and the truth and answers on its test samples."""
    folder = tmp_path_factory.mktemp("band")
    values = build_settings("darcy", "small", "cato").to_dict()
    values["data"] |= {"root": str(folder / "data"), "count": 24, "resolution": 15}
    values["train"] |= {"accelerator": "cpu", "epochs": 14, "optimizer": "adamw"}
    values["model"] |= {"width": 8, "depth": 1}
    generate("darcy", "small", count=24, resolution=15, root=folder / "data", workers=1)
    run = train(run_config(values, "test"), folder / "run")
    evaluate_run(run)
    test = load_splits(run.config).test
    figures = json.loads((run.folder / "evaluation.json").read_text())
    errors = solve_all(load_surrogate(run), test) - test.targets
    return run, figures["band"], errors


def tolerated():
    """The range of the number of covered test samples, but for one chance in ten thousand.

    The coverage of a band of n samples is Beta(k, n + 1 − k) with its rank k, so that the number of
    covered new samples is beta-binomial.
    """
    law = betabinom(TEST, RANK, VALIDATION + 1 - RANK)
    return law.ppf(CHANCE / 2), law.ppf(1 - CHANCE / 2)


def test_coverage_on_test_is_what_is_promised(evaluated):
    run, band, _ = evaluated
    assert band["promised_samples"] == band["promised_nodes"] == 0.9
    assert band["num_validation_samples"] == VALIDATION
    low, high = tolerated()
    assert set(band["covered_samples"]) == set(run.problem.outputs) == {"u"}
    assert low <= round(TEST * band["covered_samples"]["u"]) <= high
    assert 0.9 < band["covered_nodes"]["u"] < 1  # nine tenths of the nodes of most samples


def test_a_band_half_as_wide_would_be_found(evaluated):
    run, _, errors = evaluated
    band = load_band(run, stored_step(run))
    low, _ = tolerated()
    narrow = replace(band, quantile=band.quantile / 2)
    assert narrow.covers(errors).sum() < low


def test_the_figures_follow_from_the_file(evaluated):
    run, figures, errors = evaluated
    band = load_band(run, stored_step(run))
    assert band.quantile.shape == (1,)
    assert band.scale.shape == band.half_width.shape == (15 * 15, 1)
    assert (band.half_width > 0).all()
    inside = errors.abs() <= band.half_width
    assert figures["covered_nodes"]["u"] == pytest.approx(inside.double().mean().item())
    covered = sum(sample.double().mean() >= 0.9 for sample in inside)
    assert figures["covered_samples"]["u"] == pytest.approx(int(covered) / TEST)
    assert figures["mean_half_width"]["u"] == pytest.approx(band.half_width.mean().item(), rel=1e-5)


def stored_step(run):
    """The step in the band's file, which is that of the best weights."""
    with safe_open(run.folder / "band.safetensors", "pt") as file:
        assert sorted(file.keys()) == ["quantile", "scale"]
        assert int(file.metadata()["num_samples"]) == VALIDATION
        step = int(file.metadata()["step"])
    assert step == load_checkpoint(run.checkpoints, "best").state["step"]
    return step


def test_a_band_is_not_used_with_other_weights(evaluated, tmp_path):
    """Nor other weights than the best, if those are damaged."""
    run, _, _ = evaluated
    copy = replace(run, folder=shutil.copytree(run.folder, tmp_path / "run"))
    steps = sorted(copy.checkpoints.folder.glob("best-*.safetensors"))
    assert len(steps) == 2
    assert load_band(copy, load_surrogate(copy).step) is not None
    assert load_band(copy, int(steps[0].stem.split("-")[1])) is None
    steps[-1].write_bytes(b"damaged")
    with pytest.raises(InputError, match=r"best weights in .* are damaged"):
        load_surrogate(copy)
