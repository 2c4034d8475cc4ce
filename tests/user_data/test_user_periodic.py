"""Meshes that close on themselves: O-grids with and without their first line repeated, tori."""

import json
from math import pi

import numpy as np
import pytest
import pyvista

from cato.cli import main
from cato.errors import InputError
from cato.physics.gradient import gradient, inverse_metric
from cato.runs.folder import open_run
from cato.user_data.inspect import inspect_samples
from cato.user_data.naming import Naming, ReadRequest
from cato.user_data.periodic import declared_periodic
from cato.user_data.read import read_samples, split_indices
from cato.user_data.samples import dataset_of, recognise

AROUND, ACROSS, SAMPLES = 12, 5, 11
TINY = [
    *("--scale", "smoke", "--model.width", "8", "--model.depth", "1"),
    *("--train.epochs", "1", "--train.accelerator", "cpu"),
]


def ring(repeated):
    """An O-grid around a circle and smooth fields on it, the first line of nodes at both ends."""
    angle = 2 * pi * np.arange(AROUND + repeated) / AROUND
    radius = 1 + np.linspace(0, 1, ACROSS) ** 1.3
    angle, radius = np.meshgrid(angle, radius, indexing="ij")
    coords = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=-1)
    turns = np.linspace(0, 3, SAMPLES)[:, None, None]
    k = np.cos(angle - turns)
    return coords, k, 2 + k * radius


def torus(repeated=0):
    """A channel: periodic and uniform along x, stretched along y."""
    x, y = np.arange(AROUND + repeated) / 4, np.linspace(0, 1, ACROSS) ** 1.3
    coords = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1)
    turns = np.linspace(0, 3, SAMPLES)[:, None, None]
    k = np.sin(2 * pi * coords[..., 0] / 3 - turns)  # its period is 12 / 4
    return coords, k, 2 + k * (1 + coords[..., 1])


def saved(path, coords, k, p):
    np.savez(path, coords=coords, inputs=k, targets=p)
    return path


def read(path, *periodic):
    return read_samples(path, ReadRequest(Naming(periodic=periodic)))


def found(samples):
    return [f.what for f in inspect_samples(samples, split_indices(samples, 0)).findings]


def targets_gradient(samples):
    problem = recognise(samples)
    data = dataset_of(samples, problem, range(len(samples)))
    metric = inverse_metric(data.coords, problem.shape, problem.periodic, problem.period)
    values = gradient(data.targets, metric, problem.shape, problem.periodic)
    return values.unflatten(1, problem.shape)[:, :, :, 0].numpy()


def test_an_o_grid_is_recognised_and_declared(tmp_path):
    path = saved(tmp_path / "ring.npz", *ring(repeated=True))
    (finding,) = found(read(path))
    assert finding.startswith("the last line of axis 0 has nodes and values of the first")
    assert "--data.periodic 0" in finding
    samples = read(path, 0)
    assert found(samples) == []
    problem = recognise(samples)
    assert (problem.shape, problem.periodic) == ((AROUND, ACROSS), (True, False))
    assert problem.period == (None, None)
    assert samples.has_shared_coords


def test_the_repeated_line_makes_no_difference(tmp_path):
    once = read(saved(tmp_path / "a.npz", *ring(repeated=False)), 0)
    twice = read(saved(tmp_path / "b.npz", *ring(repeated=True)), 0)
    assert recognise(once).periodic == recognise(twice).periodic == (True, False)
    for a, b in zip(once.samples, twice.samples, strict=True):
        for name in ("coords", "inputs", "targets"):
            np.testing.assert_allclose(getattr(a, name), getattr(b, name), atol=1e-6)


@pytest.mark.parametrize(
    ("make", "shift"), [(lambda: ring(True), 0), (torus, 3.0)], ids=["ring", "torus"]
)
def test_gradients_wrap(make, shift, tmp_path):
    """Where the axis begins is a matter of numbering: turned fields have turned gradients."""
    coords, k, p = make()
    p = p**2  # gradients of linear fields are exact on either side
    if shift:
        turned = np.roll(coords, 5, axis=0)
        turned[:5, :, 0] -= shift
        last = None
    else:
        turned, last = np.roll(coords[:-1], 5, axis=0), -1
        turned = np.concatenate((turned, turned[:1]))
    k2, p2 = (np.roll(a[:, :last], 5, axis=1) for a in (k, p))
    if not shift:
        k2, p2 = (np.concatenate((a, a[:, :1]), axis=1) for a in (k2, p2))
    straight = targets_gradient(read(saved(tmp_path / "a.npz", coords, k, p), 0))
    rolled = targets_gradient(read(saved(tmp_path / "b.npz", turned, k2, p2), 0))
    np.testing.assert_allclose(np.roll(straight, 5, axis=1), rolled, atol=2e-5)
    seam = slice(0, 1)
    one_sided = targets_gradient(read(tmp_path / "a.npz"))
    assert np.abs(one_sided[:, seam] - straight[:, seam]).max() > 1e-2  # it matters


def test_the_gradient_at_the_seam_is_right(tmp_path):
    """p = 2 + x cos t + y sin t has the gradient (cos t, sin t), second order everywhere."""
    samples = read(saved(tmp_path / "a.npz", *ring(repeated=True)), 0)
    turns = np.linspace(0, 3, SAMPLES)
    exact = np.stack((np.cos(turns), np.sin(turns)), axis=-1)[:, None, None]
    np.testing.assert_allclose(targets_gradient(samples) - exact, 0, atol=1e-5)  # linear: exactly


def test_a_torus_has_a_period(tmp_path):
    samples = read(saved(tmp_path / "a.npz", *torus()), 0)
    problem = recognise(samples)
    assert (problem.geometry, problem.periodic) == ("mesh", (True, False))
    assert problem.period == (pytest.approx(3.0), None)
    assert "coords" not in problem.normalise  # its length would change
    assert samples.repeated == ()


def test_a_periodic_mesh_trains_and_comes_back_whole(tmp_path, capsys):
    coords, k, p = ring(repeated=True)
    path = saved(tmp_path / "ring.npz", coords, k, p)
    out = ["--out", str(tmp_path / "run")]
    main(["train", str(path), "--data.periodic", "0", *TINY, *out])
    run = open_run(tmp_path / "run")
    assert (run.problem.shape, run.problem.periodic) == ((AROUND, ACROSS), (True, False))
    assert run.config.loss.gradient > 0
    main(["report", str(tmp_path / "run")])
    assert "--data.periodic 0" in (tmp_path / "run" / "report.html").read_text()
    np.savez(tmp_path / "new.npz", inputs=k)  # without nodes: they are the training's
    for name in ("ring", "new"):
        main(["predict", str(tmp_path / "run"), str(tmp_path / f"{name}.npz")])
    whole, bare = (np.load(tmp_path / f"{name}-predicted.npz") for name in ("ring", "new"))
    assert whole["outputs"].shape == (SAMPLES, AROUND + 1, ACROSS, 1)
    np.testing.assert_array_equal(whole["outputs"][:, 0], whole["outputs"][:, -1])
    np.testing.assert_allclose(whole["coords"], coords, atol=1e-6)
    np.testing.assert_allclose(bare["outputs"], whole["outputs"], atol=1e-5)
    capsys.readouterr()
    main(["inspect", str(path), "--json"])
    assert json.loads(capsys.readouterr().out)["periodic"] == [False, False]


def test_structured_vtk_files_come_back_whole(tmp_path):
    coords, k, p = ring(repeated=True)
    (tmp_path / "rings").mkdir()
    for i in range(SAMPLES):
        x, y = np.moveaxis(coords, -1, 0)
        part = pyvista.StructuredGrid(x[..., None], y[..., None], np.zeros_like(x)[..., None])
        part["k"], part["p"] = k[i].T.ravel(), p[i].T.ravel()  # x runs fastest
        part.save(tmp_path / "rings" / f"{i}.vts")
    names = ["--inputs", "k", "--targets", "p", "--data.periodic", "0"]
    main(["train", str(tmp_path / "rings"), *names, *TINY, "--out", str(tmp_path / "run")])
    main(["predict", str(tmp_path / "run"), str(tmp_path / "rings")])
    part = pyvista.read(tmp_path / "rings-predicted" / "3.vts")
    np.testing.assert_allclose(part["p_error"], part["p_predicted"] - part["p"], atol=1e-5)
    predicted = part["p_predicted"].reshape(ACROSS, AROUND + 1)
    np.testing.assert_array_equal(predicted[:, 0], predicted[:, -1])


def refused(path, *periodic):
    with pytest.raises(InputError) as error:
        read(path, *periodic)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_is_not_periodic_is_refused(tmp_path):
    coords, k, p = ring(repeated=True)
    jump = p.copy()
    jump[4, -1, 2] += 0.1
    path = saved(tmp_path / "jump.npz", coords, k, jump)
    assert found(read(path)) == []
    assert "sample 4: the last line of axis 0 lies on the first, but target" in refused(path, 0)
    path = saved(tmp_path / "ring.npz", coords, k, p)
    assert "axis 1 is declared periodic, but does not close" in refused(path, 1)
    assert "here are 2 axes, got 2" in refused(path, 2)
    assert "named once each" in refused(path, 0, 0)
    path = saved(tmp_path / "torus.npz", *torus(repeated=1))
    assert "leave it out, as a periodic grid has every node once" in refused(path, 0)
    points = np.random.default_rng(0).random((20, 2))
    cloud = saved(tmp_path / "cloud.npz", points, points[None, :, 0], points[None, :, 1])
    assert "here are 0 axes" in refused(cloud, 0)


def test_each_sample_its_own_ring(tmp_path):
    coords, k, p = ring(repeated=True)
    many = coords * np.linspace(1, 2, SAMPLES)[:, None, None, None]
    path = saved(tmp_path / "own.npz", many, k, p)
    assert len(found(read(path))) == 1
    assert recognise(read(path, 0)).periodic == (True, False)
    many[3, -1] = 2 * many[3, -1]
    saved(path, many, k, p)
    assert "only some samples repeat" in refused(path, 0)
    samples = read(path)
    assert declared_periodic(samples, ()) is samples


def test_benchmarks_have_their_own_axes(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["train", "darcy", "--data.periodic", "0", "--out", str(tmp_path / "run")])
    assert "are for user data" in capsys.readouterr().err
