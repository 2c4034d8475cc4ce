"""What samples are taken for follows from their nodes and shapes alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cato.data.arrays import is_uniform
from cato.errors import InputError
from cato.user_data.axes import ArrayFile, field_dims, mesh_dims, name_axes
from cato.user_data.naming import Naming, ReadRequest
from cato.user_data.periodic import num_folded_cells
from cato.user_data.read import read_samples, split_indices
from cato.user_data.samples import UserSample, UserSamples, assemble, dataset_of, recognise

sizes = st.integers(3, 6)
meshes = st.lists(sizes, min_size=1, max_size=3).map(tuple)


def samples_of(tmp_path, naming=None, truth=True, known=None, **arrays):
    path = tmp_path / "data.npz"
    np.savez(path, **arrays)
    return read_samples(path, ReadRequest(naming or Naming(), truth, coords=known))


def tensor_grid(mesh, start, step):
    axes = [start[k] + step[k] * np.arange(n) for k, n in enumerate(mesh)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)


@given(meshes, st.floats(-5, 5), st.floats(0.01, 3), st.booleans())
def test_uniform_tensor_grids_are_grids_and_nothing_else_is(mesh, start, step, down):
    coords = tensor_grid(mesh, [start, 1, 2], [-step if down else step, 2 * step, 0.3 * step])
    assert is_uniform(coords)
    moved = coords.copy()
    moved[(1,) * len(mesh)][0] += 0.1 * step
    assert not is_uniform(moved)
    if len(mesh) > 1 and mesh[0] != mesh[1]:
        assert not is_uniform(coords[..., ::-1])  # coordinate d must run along axis d


def test_what_is_recognised_as_a_grid_is_accepted_as_one(tmp_path):
    coords = tensor_grid((10, 10), [0.0, 0.0], [1.0, 1.0])
    coords[9, 9, 0], coords[9, 4, 0] = 9.008, 8.992  # both in place, but not from each other
    ones = np.ones((2, 10, 10, 1))
    samples = samples_of(tmp_path, coords=coords, inputs=ones, targets=ones)
    problem = recognise(samples)
    assert problem.geometry == "grid"
    assert len(dataset_of(samples, problem, [0, 1])) == 2


@pytest.mark.parametrize("mesh", [(4, 5), (3, 4, 5), (7,)])
@pytest.mark.parametrize("own", [False, True])
def test_geometry_of_arrays(mesh, own, tmp_path):
    rng = np.random.default_rng(0)
    grid = tensor_grid(mesh, [0, 0, 0], [1, 1, 1])
    bent = grid + 0.2 * np.sin(grid) * (1 + np.arange(len(mesh)))
    for coords, geometry in ((grid, "grid"), (bent, "mesh")):
        nodes = np.stack([coords, coords * 2]) if own else coords
        fields = {"inputs": rng.random((2, *mesh, 3)), "targets": 1 + rng.random((2, *mesh, 2))}
        samples = samples_of(tmp_path, coords=nodes, **fields)
        problem = recognise(samples)
        assert (problem.geometry, problem.shape) == (geometry, mesh)
        assert samples.has_shared_coords == (not own)
        data = dataset_of(samples, problem, [1, 0])
        back = data.arrays("inputs", "targets", "coords")
        np.testing.assert_allclose(back["targets"], fields["targets"][::-1], rtol=1e-6)
        np.testing.assert_allclose(back["coords"], nodes[::-1] if own else nodes, rtol=1e-6)


def test_points_without_rows_are_clouds(tmp_path):
    rng = np.random.default_rng(0)
    cloud = samples_of(tmp_path, coords=rng.random((4, 30, 2)), targets=rng.random((4, 30, 1)))
    assert (recognise(cloud).geometry, recognise(cloud).shape) == ("cloud", (30,))
    shared = samples_of(tmp_path, coords=rng.random((30, 3)), targets=rng.random((4, 30)))
    assert (recognise(shared).geometry, recognise(shared).dimension) == ("cloud", 3)
    surface = samples_of(tmp_path, coords=rng.random((5, 6, 3)), targets=rng.random((4, 5, 6, 1)))
    assert (recognise(surface).geometry, recognise(surface).shape) == ("cloud", (30,))
    thin = samples_of(tmp_path, coords=rng.random((2, 9, 2)), targets=rng.random((4, 2, 9, 1)))
    assert recognise(thin).geometry == "cloud"


def test_as_many_samples_as_rows_are_not_confused(tmp_path):
    """40 samples on one mesh of 40 × 30, or 40 clouds of 30 points in 40 frames."""
    coords = tensor_grid((40, 30), [0, 0], [1, 1])
    values = np.random.default_rng(0).random((40, 40, 30))
    for targets in (values, values[..., None]):
        with pytest.raises(
            InputError, match=r"one mesh for all .* or one for each; repeat .*u\[:\]"
        ):
            samples_of(tmp_path, Naming.parse("", "", "u"), coords=coords, u=targets)
        in_time = samples_of(tmp_path, Naming.parse("", "", "u[:]"), coords=coords, u=targets)
        assert (in_time.samples[0].mesh, in_time.num_frames) == ((30,), 40)
        repeated = samples_of(tmp_path, coords=np.stack([coords] * 40), targets=targets)
        assert (repeated.samples[0].mesh, repeated.time) == ((40, 30), "steady")
        axes = {"x": np.arange(40), "y": np.arange(30)}  # of a grid, which is for all samples
        grid = samples_of(tmp_path, Naming.parse("x,y", "", "u"), **axes, u=targets)
        assert (grid.samples[0].mesh, grid.time) == ((40, 30), "steady")
        torus = samples_of(tmp_path, Naming(periodic=(0,)), coords=coords, targets=targets)
        assert (torus.samples[0].mesh, torus.time) == ((40, 30), "steady")
    clouds = samples_of(tmp_path, coords=coords, targets=np.ones((40, 30, 1)))
    assert clouds.samples[0].mesh == (30,)


def test_as_many_samples_as_frames_are_not_confused(tmp_path):
    """A mesh has no more axes than coordinates, and the targets say which nodes there are."""
    rng = np.random.default_rng(0)
    meshes_ = samples_of(
        tmp_path, coords=rng.random((6, 4, 5, 2)), targets=rng.random((6, 6, 4, 5, 1))
    )
    assert (meshes_.samples[0].mesh, meshes_.time, meshes_.num_frames) == (
        (4, 5),
        "conditioned",
        6,
    )
    series = {"inputs": rng.random((6, 6, 9, 1)), "targets": rng.random((6, 9, 1))}
    clouds = samples_of(tmp_path, coords=rng.random((6, 9, 2)), **series)
    assert (clouds.samples[0].mesh, clouds.time, len(clouds.inputs)) == ((9,), "steady", 6)


@pytest.mark.parametrize(
    ("fields", "channels"),
    [({}, 0), ({"scalars": np.ones((6, 3))}, 3), ({"inputs": np.ones((6, 9))}, 1)],
)
def test_clouds_without_targets_stay_apart(fields, channels, tmp_path):
    coords = np.random.default_rng(0).random((6, 9, 2))
    clouds = samples_of(tmp_path, truth=False, coords=coords, **fields).samples
    np.testing.assert_allclose([cloud.coords for cloud in clouds], coords, rtol=1e-6)
    assert {cloud.inputs.shape for cloud in clouds} == {(9, channels)}


def test_nodes_for_all_samples_without_targets(tmp_path):
    """Scalars fit any nodes; those of the training are known, and a cloud is no grid."""
    rng = np.random.default_rng(0)
    surface = rng.random((6, 9, 3))  # as many rows as samples
    scalars = {"scalars": rng.random((6, 1))}
    known = surface.reshape(-1, 3)
    samples = samples_of(tmp_path, truth=False, known=known, coords=surface, **scalars)
    assert (len(samples), samples.samples[0].mesh) == (6, (6, 9))
    points = {"x": rng.random(9), "y": rng.random(9), "a": rng.random(6)}
    cloud = samples_of(tmp_path, Naming.parse("x,y", "a", "p"), truth=False, **points)
    assert (len(cloud), cloud.samples[0].mesh) == (6, (9,))


def test_a_folder_of_single_scalars_without_targets(tmp_path):
    for i in range(3):
        np.savez(tmp_path / f"{i}.npz", coords=np.ones((9, 2)), scalars=float(i))
    samples = read_samples(tmp_path, ReadRequest(Naming(), truth=False))
    assert [sample.inputs.mean() for sample in samples.samples] == [0, 1, 2]


def test_padded_clouds_are_cut_and_padded_again(tmp_path):
    rng = np.random.default_rng(0)
    sizes_ = np.array([5, 9, 7])
    mask = np.arange(9) < sizes_[:, None]
    coords, targets = rng.random((3, 9, 2)), rng.random((3, 9, 1))
    targets[~mask], coords[~mask] = np.nan, np.nan  # padding may be anything
    samples = samples_of(tmp_path, coords=coords, targets=targets, mask=mask)
    assert [sample.mesh for sample in samples.samples] == [(5,), (9,), (7,)]
    data = dataset_of(samples, recognise(samples), [0, 1, 2])
    assert (data.mask.numpy() == mask).all()
    np.testing.assert_allclose(data.targets.numpy()[mask], targets[mask], rtol=1e-6)


def inputs_of(mesh, values):
    """The inputs that a field of one sample becomes on a cloud or mesh."""
    arrays = {"coords": np.zeros((*mesh, 3)), "inputs": values}
    shapes = {name: array.shape for name, array in arrays.items()}
    file = ArrayFile(Path("data.npz"), shapes, arrays.__getitem__)
    dataset = name_axes(file, ReadRequest(Naming(), truth=False, num_axes=len(mesh)), False)
    return assemble(file.path, [dataset], Naming()).samples[0].inputs


@given(meshes, st.integers(1, 4), st.integers(1, 4))
def test_axes_of_fields_are_told_from_the_mesh(mesh, frames, channels):
    axes = mesh_dims(len(mesh))
    names = {
        mesh: axes,
        (*mesh, channels): (*axes, "channel"),
        (frames, *mesh): ("time", *axes),
        (frames, *mesh, channels): ("time", *axes, "channel"),
    }
    for shape, expected in names.items():
        others = [s for s in names if s == shape and names[s] != expected]
        try:
            found = field_dims(shape, mesh)
        except InputError:
            assert len(set(shape)) <= 2  # it can only be ambiguous where sizes repeat
            continue
        if not others and len(names) == 4:
            assert found == expected
            values = np.arange(np.prod(shape, dtype=int)).reshape(shape)
            inputs = inputs_of(mesh, values)
            if "time" in expected:  # frames are channels, the oldest first
                inputs = np.moveaxis(inputs.reshape(*mesh, frames, -1), -2, 0)
            assert inputs.ravel().tolist() == values.ravel().tolist()


def test_ambiguous_axes_are_refused():
    with pytest.raises(InputError, match="both axes"):
        field_dims((20, 20, 20), (20, 20))


def test_scalars_are_spread_over_the_mesh():
    assert field_dims((2,), (3, 4)) == ("channel",)
    spread = inputs_of((3, 4), np.array([1.0, 2.0]))
    assert spread.shape == (3, 4, 2)
    assert (spread == [1, 2]).all()


def test_time_is_told_by_the_inputs(tmp_path):
    rng = np.random.default_rng(0)
    coords = tensor_grid((4, 5), [0, 0], [1, 1])
    u, k = rng.random((3, 6, 4, 5)), rng.random((3, 4, 5))
    arrays = {"coords": coords, "u": u, "k": k}
    past = samples_of(tmp_path, Naming.parse("", "u[:2]", "u[2:]"), **arrays)
    assert (past.time, past.num_frames, past.inputs) == ("rollout", 4, ("u[0]", "u[1]"))
    np.testing.assert_allclose(past.samples[0].inputs, np.moveaxis(u[0, :2], 0, -1), rtol=1e-6)
    asked = samples_of(tmp_path, Naming.parse("", "k", "u"), **arrays)
    assert (asked.time, asked.num_frames) == ("conditioned", 6)
    mixed = samples_of(tmp_path, Naming.parse("", "k,u[:1]", "u[1:]"), **arrays)
    assert (mixed.time, mixed.inputs, mixed.static) == ("rollout", ("k", "u[0]"), 1)
    as_told = replace(Naming.parse("", "k,u[:1]", "u[1:]"), time="conditioned")
    told = samples_of(tmp_path, as_told, **arrays)
    assert (told.time, told.inputs, told.static) == ("conditioned", ("k", "u[0]"), 0)
    with pytest.raises(InputError, match="starts from earlier frames of all its targets"):
        samples_of(tmp_path, replace(Naming.parse("", "k", "u"), time="rollout"), **arrays)
    frames = {"coords": coords, "inputs": u[:, :2, ..., None], "targets": u[:, 2:, ..., None]}
    layout = samples_of(tmp_path, **frames)
    assert (layout.time, layout.inputs) == ("rollout", ("input[0]", "input[1]"))
    same = samples_of(tmp_path, **frames, input_names=["u"], target_names=["u"])
    assert (same.time, same.inputs) == ("rollout", ("u[0]", "u[1]"))
    forced = samples_of(tmp_path, **frames, input_names=["force"], target_names=["u"])
    assert (forced.time, forced.inputs) == ("conditioned", ("force[0]", "force[1]"))
    with pytest.raises(InputError, match="frame after"):
        samples_of(tmp_path, Naming.parse("", "u[:2]", "u[3:]"), **arrays)


def test_rollouts_of_several_fields_keep_frames_together(tmp_path):
    """The surrogate drops the oldest frame of all fields, and appends the newest."""
    rng = np.random.default_rng(0)
    u, v = rng.random((2, 2, 5, 4, 4, 1))
    arrays = {"coords": tensor_grid((4, 4), [0, 0], [1, 1]), "u": u, "v": v}
    samples = samples_of(tmp_path, Naming.parse("", "u[:2],v[:2]", "u[2:],v[2:]"), **arrays)
    assert samples.inputs == ("u[0]", "v[0]", "u[1]", "v[1]")
    np.testing.assert_allclose(samples.samples[1].inputs[..., 1], v[1, 0, ..., 0], rtol=1e-6)
    np.testing.assert_allclose(samples.samples[1].inputs[..., 2], u[1, 1, ..., 0], rtol=1e-6)


@given(st.integers(3, 60), st.integers(0, 5))
def test_drawn_splits_cover_everything_once(count, seed):
    nodes = np.zeros((3, 2), np.float32)
    one = UserSample("somewhere", nodes, nodes, nodes)
    samples = UserSamples(Path("data.npz"), [one] * count, ("a", "b"), ("c", "d"))
    splits = split_indices(samples, seed)
    assert sorted(i for part in splits.values() for i in part) == list(range(count))
    assert min(map(len, splits.values())) >= 1
    assert splits == split_indices(samples, seed)
    assert len(splits["test"]) == len(splits["validation"]) == max(1, round(0.1 * count))


def test_named_splits_are_kept_and_validation_is_held_out_of_training(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {"coords": rng.random((12, 9, 2)), "targets": rng.random((12, 9, 1))}
    words = ["train"] * 8 + ["validation"] * 2 + ["test"] * 2
    by_word = samples_of(tmp_path, split=np.array(words), **arrays)
    by_number = samples_of(tmp_path, split=np.repeat([0, 1, 2], [8, 2, 2]), **arrays)
    expected = {"train": [*range(8)], "validation": [8, 9], "test": [10, 11]}
    assert split_indices(by_word, 0) == split_indices(by_number, 3) == expected
    two = samples_of(tmp_path, split=np.array(["train"] * 10 + ["test"] * 2), **arrays)
    splits = split_indices(two, 0)
    assert splits["test"] == [10, 11]
    assert sorted(splits["train"] + splits["validation"]) == list(range(10))


@given(st.integers(2, 3).flatmap(lambda d: st.tuples(*[sizes] * d)), st.integers(0, 100))
def test_folded_cells(mesh, seed):
    """A smooth mesh has none in any orientation; a node beyond its neighbours folds its cells."""
    rng = np.random.default_rng(seed)
    coords = tensor_grid(mesh, [0, 0, 0], [1, 1, 1])
    coords = coords + 0.1 * rng.random(coords.shape)
    matrix = rng.standard_normal((len(mesh), len(mesh))) + 3 * np.eye(len(mesh))
    assert num_folded_cells(coords @ matrix) == 0
    assert num_folded_cells(coords[::-1]) == 0
    folded = coords.copy()
    folded[(1,) * len(mesh)][0] += 1.5  # an inner node, all of whose cells lose their shape
    assert 1 <= num_folded_cells(folded) <= 2 ** len(mesh) * 2
