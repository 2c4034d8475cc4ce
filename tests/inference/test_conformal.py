"""The conformal band: its definition by plain loops, and its coverage on exchangeable samples."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from cato.errors import InputError
from cato.inference.conformal import (
    MISSED_NODES,
    MISSED_SAMPLES,
    Band,
    Coverage,
    calibrate_quantile,
    fit_scale,
    load_band,
    num_nodes_needed,
    num_samples_needed,
    save_band,
    scores,
)
from cato.problem import Problem
from cato.runs.folder import Run


def test_scores_are_the_smallest_bound_that_holds_for_the_share_of_nodes():
    torch.manual_seed(0)
    errors, scale = torch.randn(5, 3, 17, 2), 0.5 + torch.rand(3, 17, 2)
    found = scores(errors, scale)
    for s in range(5):
        for c in range(2):
            ratios = sorted((errors[s, ..., c].abs() / scale[..., c]).flatten().tolist())
            bound = found[s, c].item()
            inside = sum(r <= bound for r in ratios)
            assert inside >= (1 - MISSED_NODES) * len(ratios)
            assert inside - 1 < (1 - MISSED_NODES) * len(ratios)  # one less would not do


@given(st.integers(1, 2000))
def test_nodes_needed(count):
    needed = num_nodes_needed(count)
    assert 10 * needed >= 9 * count  # in whole numbers: a share of 0.9 exactly
    assert 10 * (needed - 1) < 9 * count


def test_padding_does_not_count():
    torch.manual_seed(0)
    errors, scale = torch.randn(2, 12, 1), torch.ones(1, 1)
    mask = torch.arange(12) < torch.tensor([[7], [12]])
    whole = scores(errors[:1, :7], scale)
    errors[0, 7:] = 1e9
    torch.testing.assert_close(scores(errors, scale, mask)[:1], whole)
    cut = fit_scale([(errors[:1, :7], None)], is_cloud=True)
    torch.testing.assert_close(fit_scale([(errors[:1], mask[:1])], is_cloud=True), cut)
    torch.testing.assert_close(cut, errors[:1, :7].square().mean((0, 1)).sqrt()[None])


def test_scale_of_a_mesh_is_the_rms_at_each_node_and_never_next_to_nothing():
    torch.manual_seed(0)
    errors = torch.randn(30, 20, 1) * torch.linspace(0, 2, 20)[:, None]
    scale = fit_scale([(errors[:13], None), (errors[13:], None)], is_cloud=False)
    rms = errors.square().mean(0).sqrt()
    large = rms[:, 0] > 0.2
    torch.testing.assert_close(scale[large], rms[large])
    assert scale[0, 0] == pytest.approx(0.1 * errors.square().mean().sqrt().item(), rel=1e-5)
    assert (fit_scale([(torch.zeros(3, 4, 2), None)], is_cloud=False) == 1).all()


def test_the_quantile_needs_enough_samples():
    assert num_samples_needed() == 9
    assert calibrate_quantile(torch.rand(8, 1)) is None
    values = torch.arange(9.0)[:, None]
    assert calibrate_quantile(values).item() == 8  # the tenth of ten: the largest of nine
    many = torch.randperm(99)[:, None].float()
    assert calibrate_quantile(many).item() == 89  # ⌈100 · 0.9⌉ = 90th smallest


@pytest.mark.parametrize("count", [9, 20, 50])
def test_coverage_on_exchangeable_samples_is_nominal(count):
    """Over many draws of validation and new samples, whatever the distribution of errors.

    The expected coverage is ⌈(n + 1)(1 − α)⌉ / (n + 1) exactly, for scores without ties.
    """
    rng = np.random.default_rng(count)
    num_trials, num_new = 1500, 4
    scale = torch.from_numpy(0.2 + rng.random((15, 1))).float()
    covered = []
    for _ in range(num_trials):
        sizes = rng.lognormal(sigma=1.0, size=(count + num_new, 1, 1))  # heavy-tailed samples
        errors = torch.from_numpy(sizes * rng.standard_normal((count + num_new, 15, 1))).float()
        quantile = calibrate_quantile(scores(errors[:count], scale))
        band = Band(quantile, scale, count, step=0)
        covered.append(band.covers(errors[count:]).double().mean().item())
    expected = math.ceil(round((count + 1) * (1 - MISSED_SAMPLES), 9)) / (count + 1)
    tolerance = 4 * np.std(covered) / math.sqrt(num_trials)
    assert np.mean(covered) == pytest.approx(expected, abs=tolerance)
    assert np.mean(covered) >= 1 - MISSED_SAMPLES - tolerance


def test_covers_agrees_with_counting_nodes():
    torch.manual_seed(0)
    errors = torch.randn(40, 2, 30, 2)
    band = Band(torch.tensor([1.5, 1.7]), torch.rand(2, 30, 2) + 0.5, 9, step=0)
    inside = (errors.abs() <= band.half_width).flatten(1, 2).sum(1)
    assert (band.covers(errors) == (inside >= num_nodes_needed(60))).all()
    coverage = Coverage(band)
    coverage.add(errors[:15], None)
    coverage.add(errors[15:], None)
    figures = coverage.figures(("u", "v"))
    share = (errors.abs() <= band.half_width).double().mean((0, 1, 2))
    assert figures["covered_nodes"]["v"] == pytest.approx(share[1].item())
    assert figures["mean_half_width"]["u"] == pytest.approx(band.half_width[..., 0].mean().item())


def test_a_band_is_kept_with_the_checkpoint_it_belongs_to(tmp_path):
    problem = Problem("p", "cloud", (5,), ("a",), ("u", "v"), time="conditioned", num_steps=3)
    run = Run(tmp_path, None, problem, {"id": "one"})
    assert load_band(run, 7) is None
    band = Band(torch.rand(2), torch.rand(3, 1, 2), 12, step=7)
    save_band(run, band)
    again = load_band(run, 7)
    assert torch.equal(again.half_width, band.half_width)
    assert (again.num_samples, again.step) == (12, 7)
    assert load_band(run, 8) is None  # other weights have other errors
    for other in (replace(run, record={"id": "two"}), replace(run, record={})):
        with pytest.raises(InputError, match="another run"):
            load_band(other, 7)
    (tmp_path / "band.safetensors").write_bytes(b"damaged")
    with pytest.raises(InputError, match="damaged"):
        load_band(run, 7)


def test_a_band_without_a_checksum_is_that_of_version_0_1(tmp_path):
    problem = Problem("p", "cloud", (5,), ("a",), ("u",))
    old = Run(tmp_path, None, problem, {})
    tensors = {"quantile": torch.rand(1), "scale": torch.rand(1, 1)}
    content = save(tensors, {"num_samples": "12", "step": "7"})
    (tmp_path / "band.safetensors").write_bytes(content)
    assert torch.equal(load_band(old, 7).scale, tensors["scale"])
    with pytest.raises(InputError, match="checksum"):
        load_band(replace(old, record={"id": "one"}), 7)
    with pytest.raises(InputError, match="expected"):
        load_band(replace(old, problem=replace(problem, outputs=("u", "v"))), 7)
