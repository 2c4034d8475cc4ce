"""Nodes without values: no loss, error, statistic, band or later frame depends on what is there."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import cato
from cato.cli.main import main
from cato.data.dataset import Dataset
from cato.data.normalise import Normaliser
from cato.errors import InputError
from cato.inference.conformal import fit_scale, scores
from cato.physics.gradient import inverse_metric
from cato.physics.losses import LossConfig, PhysicalLoss, gradient_rms
from cato.physics.metrics import relative_l2, relative_l2_per_frame
from cato.problem import Problem
from cato.user_data.naming import Naming, ReadRequest
from cato.user_data.precision import spreads, units_of
from cato.user_data.read import read_samples
from cato.user_data.samples import UserSamples, recognise
from cato.viz.figures import case_of, sample_figure

SHAPE = (9, 8)
GRID = Problem("plate", "grid", SHAPE, ("mask", "k"), ("u",), has_gaps=True, mask="all")
LOSSES = LossConfig(gradient=0.2, flux=0.2, consistency=0.05, gdl=0.1)
TINY = {
    "model_settings": {"width": 8, "depth": 1, "heads": 2},
    "train_settings": {"steps": 2, "minutes": None, "min_steps": None},
}


def nodes() -> np.ndarray:
    lines = (np.linspace(0, 1, n) for n in SHAPE)
    return np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1)


def fields(count: int = 12, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, targets, and where there are values: not in a hole of its own for each sample."""
    rng = np.random.default_rng(seed)
    x = nodes()
    k = 2 + np.sin(3 * x[..., 0] + 6 * rng.random((count, 1, 1)))
    centre = rng.uniform(0.3, 0.7, (count, 1, 1, 2))
    valid = np.linalg.norm(x - centre, axis=-1) > 0.2
    return k, np.sqrt(k), valid


def write(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, x=np.linspace(0, 1, SHAPE[0]), y=np.linspace(0, 1, SHAPE[1]), **arrays)
    return path


def read(path: Path, inputs: str = "k", targets: str = "u", mask: str = "") -> UserSamples:
    naming = replace(Naming.parse("x,y", inputs, targets), mask=mask)
    return read_samples(path, ReadRequest(naming))


@pytest.fixture(scope="module")
def holes(tmp_path_factory) -> Path:
    """A file with NaN in the holes."""
    k, u, valid = fields(40)
    found = {name: np.where(valid, values, np.nan) for name, values in {"k": k, "u": u}.items()}
    return write(tmp_path_factory.mktemp("holes") / "holes.npz", **found)


@pytest.fixture(scope="module")
def run(holes: Path):
    names = {"coords": "x,y", "inputs": "k", "targets": "u", "folds": 0}
    return cato.train(holes, out=holes.parent / "run", data_settings=names, **TINY)


# -- the loss, errors, statistics and bands ----------------------------------------------------


def losses(values: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
    coords = torch.from_numpy(nodes().reshape(-1, 2))
    metric = inverse_metric(coords, SHAPE, GRID.periodic, GRID.period)
    scale = gradient_rms(target, metric, SHAPE, GRID.periodic)
    flux = torch.stack((values, -values), dim=-1)
    loss = PhysicalLoss(LOSSES, GRID, scale)
    total, terms = loss(values, target, flux=flux, metric=metric)
    return {"total": total, "scale": scale.sum(), **terms}


def test_no_term_of_the_loss_depends_on_predictions_in_holes() -> None:
    _, u, valid = fields(2)
    target = torch.from_numpy(np.where(valid, u, np.nan)).reshape(2, -1, 1)
    values = torch.from_numpy(u + 0.1 * nodes()[..., 0]).reshape(2, -1, 1).requires_grad_()
    found = losses(values, target)
    found["total"].backward()
    hole = torch.from_numpy(~valid).reshape(2, -1, 1)
    assert hole.any()
    assert (values.grad[hole] == 0).all()
    assert values.grad.isfinite().all()
    assert (values.grad[~hole] != 0).any()
    other = losses(values.detach().masked_fill(hole, 1e3), target)
    for name, term in found.items():
        assert term.isfinite(), name
        assert torch.equal(term.detach(), other[name]), name


def test_the_value_term_is_the_relative_error_over_known_nodes() -> None:
    _, u, valid = fields(1)
    target, values = np.where(valid, u, np.nan), u + 0.1
    found = losses(*(torch.from_numpy(a).reshape(1, -1, 1) for a in (values, target)))
    expected = np.linalg.norm((values - u)[valid]) / np.linalg.norm(u[valid])
    assert found["value"].item() == pytest.approx(expected, rel=1e-10)
    error = relative_l2(*(torch.from_numpy(a).reshape(1, -1, 1) for a in (values, target)))
    assert error.item() == pytest.approx(expected, rel=1e-12)


def test_gradients_count_where_the_whole_stencil_is_inside() -> None:
    """A prediction with the true slope everywhere but next to the hole has no gradient error."""
    x = torch.from_numpy(nodes().reshape(1, -1, 2))
    target = x[..., :1].clone()
    on_mesh = target.view(*SHAPE)
    on_mesh[4, 4] = torch.nan
    values = x[..., :1].clone()
    values.view(*SHAPE)[4, 4] = 7.0  # enters the stencils of its four neighbours
    assert losses(values, target)["gradient"].item() == pytest.approx(0, abs=1e-20)


def test_statistics_are_those_of_known_values() -> None:
    k, u, valid = fields(30)
    data = dataset(k, np.where(valid, u, np.nan), valid)
    normaliser = Normaliser.fit(data)
    assert normaliser.outputs_mean.item() == pytest.approx(u[valid].mean(), rel=1e-6)
    assert normaliser.outputs_std.item() == pytest.approx(u[valid].std(), rel=1e-6)
    conditioned = replace(GRID, conditioning=replace(GRID.conditioning, reference="node"))
    by_node = Normaliser.fit(data.on(conditioned)).outputs_mean.reshape(SHAPE).numpy()
    expected = np.nanmean(np.where(valid, u, np.nan), axis=0)
    known = valid.any(0)
    assert by_node[known] == pytest.approx(expected[known], rel=1e-6)
    assert torch.allclose(data.mean_target().reshape(SHAPE)[known], torch.tensor(expected[known]))


def dataset(k: np.ndarray, u: np.ndarray, valid: np.ndarray) -> Dataset:
    inputs = np.stack((valid, np.where(valid, k, k.mean())), axis=-1)
    arrays = {"coords": nodes(), "inputs": inputs, "targets": u[..., None]}
    return Dataset.from_checked(GRID, arrays, None)


def test_nan_that_is_no_gap_is_refused() -> None:
    k, u, valid = fields(5)
    data = dataset(k, np.where(valid, u, np.nan), valid)
    with pytest.raises(InputError, match="training outputs contain NaN"):
        Normaliser.fit(data.on(replace(GRID, has_gaps=False)))


def test_bands_are_those_of_known_errors() -> None:
    errors = torch.randn(20, 50, 2, generator=torch.Generator().manual_seed(0))
    gaps = errors.clone()
    gaps[:, 40:] = torch.nan
    gaps[3, :10, 1] = torch.nan
    scale = fit_scale([(gaps, None)], is_cloud=False)
    assert scale.isfinite().all()
    assert torch.equal(scale[:10, 0], fit_scale([(errors[:, :40], None)], is_cloud=False)[:10, 0])
    found = scores(gaps, scale)
    assert torch.equal(found[:, 0], scores(errors[:, :40], scale[:40])[:, 0])
    assert torch.equal(found[3, 1:], scores(errors[3:4, 10:40, 1:], scale[10:40, 1:])[0])


def test_frames_without_truth_have_no_error() -> None:
    true = torch.ones(2, 3, 5, 1)
    true[0, 2] = torch.nan
    found = relative_l2_per_frame(1.1 * torch.ones_like(true), true)
    assert found[0, 2].isnan()
    assert found.nanmean(0).tolist() == pytest.approx([0.1, 0.1, 0.1], rel=1e-5)


# -- files -------------------------------------------------------------------------------------


def test_nan_is_a_mask(holes: Path) -> None:
    samples = read(holes)
    assert samples.inputs == ("mask", "k")
    assert samples.mask == "all"
    problem = recognise(samples)
    assert problem.has_gaps
    k, _, valid = fields(40)
    first = samples.samples[0]
    assert np.array_equal(first.inputs[..., 0], valid[0])
    assert np.array_equal(np.isfinite(first.targets[..., 0]), valid[0])
    assert first.inputs[..., 1][~valid[0]] == pytest.approx(k[0][valid[0]].mean(), rel=1e-12)


@pytest.mark.parametrize("mask", ["mask", "fluid", "solid=0"])
@pytest.mark.parametrize("is_shared", [True, False])
def test_named_masks(tmp_path: Path, mask: str, is_shared: bool) -> None:
    k, u, valid = fields(6)
    valid = np.broadcast_to(valid[0], valid.shape) if is_shared else valid
    name, _, value = mask.partition("=")
    array = (~valid if value else valid).astype(int)
    path = write(tmp_path / "a.npz", k=k, u=u, **{name: array[0] if is_shared else array})
    samples = read(path, mask="" if mask == "mask" else mask)
    for sample, inside in zip(samples.samples, valid, strict=True):
        assert np.array_equal(sample.inputs[..., 0], inside)
        assert np.array_equal(np.isfinite(sample.targets[..., 0]), inside)


def test_inputs_that_are_missing_hide_no_target(tmp_path: Path) -> None:
    k, u, valid = fields(6)
    samples = read(write(tmp_path / "a.npz", k=np.where(valid, k, np.nan), u=u))
    assert (samples.mask, recognise(samples).has_gaps) == ("inputs", False)


def test_targets_that_are_missing_need_no_mask(tmp_path: Path) -> None:
    k, u, valid = fields(6)
    samples = read(write(tmp_path / "a.npz", k=k, u=np.where(valid, u, np.nan)))
    assert (samples.inputs, samples.mask) == (("k",), "")
    assert recognise(samples).has_gaps


def test_series_of_different_lengths(tmp_path: Path) -> None:
    time = np.arange(7)[:, None, None]
    u = 2 + np.sin(3 * nodes()[..., 0] + 0.2 * time + np.arange(9)[:, None, None, None])
    lengths = np.array([7, 4, 5, 6, 7, 3, 7, 7, 7])
    path = write(tmp_path / "a.npz", u=u, lengths=lengths)
    samples = read(path, "u[:2]", "u[2:]")
    assert samples.inputs == ("u[0]", "u[1]")
    for sample, length in zip(samples.samples, lengths, strict=True):
        assert np.isfinite(sample.targets).all(axis=(1, 2, 3)).sum() == length - 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": "nan"}, r"bad.npz, sample 2: input k is NaN at all nodes"),
        ({"u": "nan"}, r"bad.npz, sample 2: target u is NaN at all nodes"),
        ({"k": "inf"}, r"bad.npz, sample 2: input k has infinite values"),
        ({"x": "nan"}, r"coordinate 1 is NaN at some nodes; give every node a position"),
        ({"mask": (4, 4)}, r"the mask should have the shape of the nodes, \(9, 8\)"),
        ({"mask": (9, 8)}, r"the mask is 0 at all nodes"),
    ],
    ids=["input", "target", "infinite", "coordinate", "shape", "empty"],
)
def test_bad_masks_are_refused(tmp_path: Path, capsys, change, message: str) -> None:
    k, u, _ = fields(5)
    arrays = {"k": k, "u": u, "x": np.linspace(0, 1, 9), "y": np.linspace(0, 1, 8)}
    for name, what in change.items():
        if name == "mask":
            arrays["mask"] = np.zeros(what)
        else:
            place = 2 if name != "x" else 0
            arrays[name][place] = float(what)
    np.savez(tmp_path / "bad.npz", **arrays)
    words = ["train", str(tmp_path / "bad.npz"), "--coords", "x,y", "--inputs", "k"]
    with pytest.raises(SystemExit) as raised:
        main([*words, "--targets", "u", "--out", str(tmp_path / "run")])
    assert raised.value.code == 2
    assert re.search(message, " ".join(capsys.readouterr().err.split()))


# -- trainings, predictions and pictures -------------------------------------------------------


def test_predictions_have_no_values_in_holes(run, holes: Path, tmp_path: Path, capsys) -> None:
    _, u, valid = fields(40)
    target = tmp_path / "solved.npz"
    main(["predict", str(run.folder), str(holes), str(target), "--json"])
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    with np.load(target) as file:
        found = dict(file)
    assert np.array_equal(np.isfinite(found["u_predicted"]), valid)
    error = (found["u_predicted"] - u)[valid]
    assert found["u_error"][valid] == pytest.approx(error, abs=1e-6)
    by_sample = [
        np.linalg.norm((p - t)[v]) / np.linalg.norm(t[v])
        for p, t, v in zip(found["u_predicted"], u, valid, strict=True)
    ]
    assert figures["relative_l2"] == pytest.approx(np.mean(by_sample), rel=1e-5)


def test_predict_takes_inputs_without_their_mask(run) -> None:
    k, _, valid = fields(3)
    model = cato.load(run.folder)
    inputs = np.where(valid, k, np.nan)[..., None].astype(np.float32)
    found = model.predict(inputs)
    assert np.array_equal(np.isfinite(found[..., 0]), valid)
    assert np.array_equal(found, model.predict(k[..., None].astype(np.float32), mask=valid), True)


def test_pictures_leave_holes_empty(run, holes: Path) -> None:
    model = cato.load(run.folder)
    k, u, valid = fields(4)
    data = dataset(k, np.where(valid, u, np.nan), valid).on(model.problem)
    case = case_of(data, 1, model)
    hole = ~valid[1].ravel()
    for values in (case.truth[0, :, 0], case.prediction[0, :, 0], case.inputs[:, 1]):
        assert np.array_equal(np.isnan(values), hole)
    assert np.isnan(case.slopes.prediction).sum() > hole.sum()
    sample_figure(model, data, 1).canvas.draw()


def test_rollouts_do_not_see_what_they_predict_in_holes(tmp_path: Path, monkeypatch) -> None:
    time = np.arange(5)[:, None, None]
    u = 2 + np.sin(3 * nodes()[..., 0] + 0.2 * time + np.arange(12)[:, None, None, None])
    u[..., 4, 4] = np.nan
    names = {"coords": "x,y", "inputs": "u[:1]", "targets": "u[1:]", "folds": 0}
    path = write(tmp_path / "a.npz", u=u)
    run = cato.train(path, out=tmp_path / "run", data_settings=names, **TINY)
    model = cato.load(run.folder)
    assert model.problem.static == 1
    seen: list[torch.Tensor] = []
    plain = type(model).forward

    def recorded(self, coords, inputs, **more):
        seen.append(inputs)
        return plain(self, coords, inputs, **more)

    monkeypatch.setattr(type(model), "forward", recorded)
    found = model.predict(u[:2, 0][..., None].astype(np.float32))
    assert found.shape == (2, 4, *SHAPE, 1)
    assert np.isnan(found[..., 4, 4, :]).all()
    hole = 4 * SHAPE[1] + 4
    fill = np.nanmean(u[:2, 0], axis=(1, 2))
    assert len(seen) == 4
    for inputs in seen:
        assert (inputs[:, hole, 0] == 0).all()
        assert inputs[:, hole, 1].numpy() == pytest.approx(fill, rel=1e-6)


# -- clouds of different sizes, and fields of unlike magnitudes --------------------------------


def test_predict_takes_clouds_of_different_sizes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    coords = rng.random((12, 30, 2)).astype(np.float32)
    k = coords.sum(-1, keepdims=True)
    arrays = {"coords": coords, "inputs": k, "targets": np.sin(k) + 1}
    run = cato.train(arrays, out=tmp_path / "run", data_settings={"folds": 0}, **TINY)
    model = cato.load(run.folder)
    model.training_range = None
    sizes = (30, 20, 20, 25)
    inputs = [k[i, :n] for i, n in enumerate(sizes)]
    points = [coords[i, :n] for i, n in enumerate(sizes)]
    found = model.predict(inputs, points)
    for one, given, at in zip(found, inputs, points, strict=True):
        assert one == pytest.approx(model.predict(given[None], at[None])[0], abs=1e-5)
    mask = np.arange(30) < np.array(sizes)[:, None]
    padded = model.predict(k[:4], coords[:4], mask=mask)
    assert np.array_equal(np.isfinite(padded[..., 0]), mask)
    for one, full, kept in zip(found, padded, mask, strict=True):
        assert np.array_equal(full[kept], one)


def test_fields_of_unlike_magnitudes_weigh_alike() -> None:
    rng = np.random.default_rng(0)
    values = np.stack((300 + 5 * rng.standard_normal(900), 1e-6 * rng.random(900)), axis=-1)
    units, deviations = units_of(("T", "q"), spreads([values]))
    assert units == pytest.approx(np.sqrt(np.square(values).mean(0)), rel=1e-9)
    assert deviations == pytest.approx(values.std(0), rel=1e-9)
    problem = replace(GRID, inputs=("k",), mask="", has_gaps=False, outputs=("T", "q"))
    problem = replace(problem, shape=(30, 30), units=units, deviations=deviations)
    target = torch.from_numpy(values)[None]
    terms = []
    for field_weights in ("equal", "raw"):
        loss = PhysicalLoss(LossConfig(field_weights=field_weights), problem)
        for channel in (0, 1):
            wrong = target.clone()
            wrong[..., channel] += deviations[channel]
            terms.append(loss(wrong, target)[0].item())
    equal, raw = terms[:2], terms[2:]
    assert equal[0] == pytest.approx(equal[1], rel=1e-9)
    assert raw[1] < 1e-6 * raw[0]


def test_alike_fields_and_rounding_have_no_units_of_their_own() -> None:
    rng = np.random.default_rng(0)
    u = 1 + rng.random((900, 3))
    assert units_of(("U_1", "U_2", "U_3"), spreads([u])) == ((), ())
    u[:, 2] = 1e-17 * rng.standard_normal(900)
    assert units_of(("U_1", "U_2", "U_3"), spreads([u])) == ((), ())
    u[:, 2] = 1e-3 * rng.standard_normal(900)
    assert len(units_of(("U_1", "U_2", "U_3"), spreads([u]))[0]) == 3
