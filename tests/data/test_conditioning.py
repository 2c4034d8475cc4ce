"""Conditioning: what the network sees, undone at its output, and which one suits which data."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cato.data.conditioning import recommend
from cato.data.dataset import Dataset
from cato.data.normalise import Normaliser, index_coords
from cato.data.statistics import deviations
from cato.errors import InputError
from cato.models.baselines.f_fno import FFNO
from cato.models.baselines.fno import FNO
from cato.models.baselines.geo_fno import GeoFNO
from cato.models.baselines.lsm import LSM
from cato.models.baselines.ono import ONO
from cato.models.baselines.transolver import Transolver
from cato.problem import Conditioning, Problem
from cato.runs.settings import DataConfig

SHAPE = (6, 5)


def samples(time="steady", geometry="mesh", conditioning=None, count=12, seed=0):
    """Deforming meshes whose outputs are a position, and a field about a mean of its own."""
    rng = np.random.default_rng(seed)
    axes = np.meshgrid(*(np.linspace(0, 1, n) for n in SHAPE), indexing="ij")
    mesh = np.stack(axes, -1)
    size = rng.normal(size=(count, 1, 1))
    bend = np.sin(np.pi * axes[0]) * axes[1]
    coords = mesh + 0.05 * np.stack((size * bend, size * bend**2), -1)
    inputs = (
        rng.normal(size=(count, *SHAPE, 2))
        if time == "rollout"
        else size[..., None] * bend[..., None].repeat(2, -1)
    )
    position = coords[..., 0] + 0.001 * rng.normal(size=(count, *SHAPE))
    field = 7 + 3 * axes[0] + 0.1 * size * bend
    targets = np.stack((position, field), -1)
    num_steps = 1
    if time != "steady":
        num_steps = 4
        growth = np.linspace(0.5, 1, num_steps)[:, None, None, None]
        targets = targets[:, None] * growth
    if geometry == "cloud":
        flat = lambda a: a.reshape(*a.shape[: -len(SHAPE) - 1], -1, a.shape[-1])  # noqa: E731
        coords, inputs, targets = map(flat, (coords, inputs, targets))
    shape = coords.shape[1:-1]
    problem = Problem(
        "test",
        geometry,
        shape,
        ("a", "b"),
        ("x", "u"),
        time=time,
        num_steps=num_steps,
        conditioning=conditioning or Conditioning(),
    )
    return Dataset.from_arrays(problem, coords, inputs, targets)


CONDITIONINGS = [
    Conditioning("channel"),
    Conditioning("node"),
    Conditioning("node", mesh_inputs=True),
    Conditioning("channel", positions=(0, None)),
    Conditioning("node", positions=(0, None)),
    Conditioning("last"),
]


@pytest.mark.parametrize("time", ["steady", "conditioned", "rollout"])
@pytest.mark.parametrize("conditioning", CONDITIONINGS, ids=str)
def test_what_the_network_should_predict_has_unit_size_and_decodes_to_the_target(
    time, conditioning
):
    if (conditioning.reference == "last") != (time == "rollout"):
        return
    data = samples(time, conditioning=conditioning)
    normaliser = Normaliser.fit(data)
    problem, batch = data.problem, data.batch(slice(None))
    mean, std = normaliser.get_buffer("outputs_mean"), normaliser.get_buffer("outputs_std")
    wanted = ((deviations(problem, batch) - mean) / std).float()
    torch.testing.assert_close(
        wanted.flatten(0, -2).square().mean(0), torch.ones(2), rtol=1e-3, atol=0
    )
    history = (
        torch.cat((batch.inputs[:, None, :, -2:], batch.targets), 1) if time == "rollout" else None
    )
    for step in range(problem.num_steps):
        target = batch.targets if time == "steady" else batch.targets[:, step]
        network = wanted if time == "steady" else wanted[:, step]
        times = torch.full((len(data),), step / 3) if time == "conditioned" else None
        inputs = batch.inputs if history is None else history[:, step]
        decoded = normaliser.decode_outputs(network, batch.coords, inputs, times, problem.shape)
        torch.testing.assert_close(decoded, target, rtol=1e-5, atol=1e-5)


def test_node_means_leave_less_to_learn_than_channel_means():
    by_channel = Normaliser.fit(samples(conditioning=Conditioning("channel")))
    by_node = Normaliser.fit(samples(conditioning=Conditioning("node")))
    assert (10 * by_node.get_buffer("outputs_std")[0] < by_channel.get_buffer("outputs_std")).all()


@settings(max_examples=30, deadline=None)
@given(offset=st.floats(-1e4, 1e4), seed=st.integers(0, 1000))
def test_an_offset_of_the_outputs_is_not_seen_by_the_network(offset, seed):
    data = samples(conditioning=Conditioning("node"), seed=seed)
    moved = replace(data, targets=data.targets + offset)
    ours, theirs = Normaliser.fit(data), Normaliser.fit(moved)
    close = {"rtol": 1e-4, "atol": 1e-6 * abs(offset)}
    std = [n.get_buffer("outputs_std") for n in (ours, theirs)]
    torch.testing.assert_close(*std, **close)
    mean = [n.get_buffer("outputs_mean") for n in (ours, theirs)]
    torch.testing.assert_close(mean[0] + offset, mean[1], **close)


@pytest.mark.parametrize("periodic", [(False, False), (True, False)])
def test_statistics_of_nodes_are_interpolated_for_other_meshes(periodic):
    problem = Problem(
        "test", "mesh", (8, 5), (), ("u",), periodic=periodic, conditioning=Conditioning("node")
    )
    normaliser = Normaliser(problem)

    def field(shape):
        i, j = (
            torch.arange(n) / (n if wraps else n - 1)
            for n, wraps in zip(shape, periodic, strict=True)
        )
        along = (i - 0.5).abs() if periodic[0] else i  # linear between nodes, also around the seam
        return (along[:, None] + 3 * j)[..., None].flatten(0, 1)

    normaliser.get_buffer("outputs_mean").copy_(field((8, 5)))
    for shape in ((8, 5), (16, 9), (24, 33)):
        nothing = torch.zeros(1, shape[0] * shape[1], 1)
        mean = normaliser.decode_outputs(nothing, nothing, nothing, None, shape)
        torch.testing.assert_close(mean[0], field(shape))


def test_statistics_of_frames_are_interpolated_in_time():
    data = samples("conditioned", conditioning=Conditioning("node"))
    normaliser, batch = Normaliser.fit(data), data.batch([0, 1])
    nothing = torch.zeros_like(batch.targets[:, 0])
    at = lambda t: normaliser.decode_outputs(  # noqa: E731
        nothing, batch.coords, batch.inputs, torch.tensor([t, t]), data.problem.shape
    )
    torch.testing.assert_close(at(0.5), (at(1 / 3) + at(2 / 3)) / 2)
    torch.testing.assert_close(at(1 / 3)[0], data.targets[:, 1].mean(0))


def test_mesh_inputs_tell_meshes_apart():
    data = samples(conditioning=Conditioning(mesh_inputs=True))
    batch, seen = data.batch(slice(None)), data.problem.seen_by_network
    features = Normaliser.fit(data).encode_inputs(batch.inputs, batch.coords, SHAPE)
    assert features.shape[-1] == seen.num_inputs == 2 + 2 + 2
    displacement, index = features[..., 2:4], features[..., 4:]
    moving = (data.coords.std(0) > 0.01 * data.coords.std(0).max()).flatten()
    spread = displacement.flatten(1).std(0, correction=0)
    torch.testing.assert_close(spread[moving], torch.ones(int(moving.sum())), rtol=1e-2, atol=0)
    assert displacement.flatten(1)[:, ~moving].abs().max() < 1
    torch.testing.assert_close(index[0], index_coords(SHAPE, (False, False)))
    assert index.aminmax() == (-1, 1)


def test_models_published_with_node_indices_get_them_on_meshes():
    """With the published conditioning; the recommended one has them for every model."""
    published = DataConfig(conditioning="published")
    data = samples()
    for model in (FNO, FFNO, LSM, ONO, GeoFNO):
        problem = published.condition(data, model)
        assert problem.conditioning == Conditioning(index_inputs=True)
        assert problem.seen_by_network.inputs == ("a", "b", "index0", "index1")
    assert published.condition(data, Transolver).conditioning == Conditioning()
    assert published.condition(samples(geometry="cloud"), FNO).conditioning == Conditioning()
    auto = DataConfig().condition(data, FNO)
    assert auto == DataConfig().condition(data, Transolver)
    assert auto.has_index_inputs
    indexed = replace(data, problem=problem)
    batch = indexed.batch([0, 1])
    features = Normaliser.fit(indexed).encode_inputs(batch.inputs, batch.coords, SHAPE)
    assert torch.equal(features[1, :, 2:], index_coords(SHAPE, (False, False)))


def test_index_coordinates_of_a_periodic_axis_close():
    index = index_coords((8, 3), (True, False)).unflatten(0, (8, 3))
    steps = (index.roll(-1, 0) - index)[..., :2].norm(dim=-1)
    torch.testing.assert_close(steps, steps[0, 0].expand(8, 3))


def test_recommended_for_deforming_meshes():
    conditioning, reasons = recommend(samples())
    assert conditioning == Conditioning("node", (0, None), mesh_inputs=True)
    assert "x as mesh plus displacement" in reasons["positions"]
    assert "explain" in reasons["reference"]
    assert recommend(samples(geometry="cloud")).conditioning == conditioning


def test_recommended_for_one_mesh():
    data = samples()
    shared = replace(data, coords=data.coords[0])
    assert recommend(shared).conditioning == Conditioning("node")


def test_recommended_for_clouds_without_order():
    data = samples(geometry="cloud")
    rng = np.random.default_rng(0)
    orders = [torch.from_numpy(rng.permutation(30)) for _ in range(len(data))]
    shuffled = replace(
        data,
        **{
            name: torch.stack([v[o] for v, o in zip(getattr(data, name), orders, strict=True)])
            for name in ("coords", "inputs", "targets")
        },
    )
    conditioning, reasons = recommend(shuffled)
    assert conditioning.reference == "channel"
    assert not conditioning.mesh_inputs
    assert "do not correspond" in reasons["mesh_inputs"]
    with pytest.raises(InputError, match="do not correspond"):
        Normaliser.fit(
            replace(shuffled, problem=replace(data.problem, conditioning=Conditioning("node")))
        )


def test_recommended_for_clouds_of_different_sizes():
    data = samples(geometry="cloud")
    padded = replace(data, mask=torch.rand(len(data), 30) < 0.9)
    assert recommend(padded).conditioning.reference == "channel"


@pytest.mark.parametrize(("growth", "reference"), [(0.01, "last"), (5.0, "channel")])
def test_recommended_for_rollouts(growth, reference):
    data = samples("rollout")
    rng = np.random.default_rng(1)
    steps = torch.from_numpy(rng.normal(size=data.targets.shape)).float()
    first = data.inputs[:, None]
    targets = first + growth * steps.cumsum(1) if growth < 1 else steps
    conditioning, reasons = recommend(replace(data, targets=targets))
    assert conditioning == Conditioning(reference, mesh_inputs=True)
    assert "a rollout" in reasons["positions"]  # these samples do not share their mesh


def test_noise_about_zero_keeps_the_mean_of_the_channel():
    data = samples(count=200)
    noise = torch.randn(data.targets.shape, generator=torch.Generator().manual_seed(0))
    assert recommend(replace(data, targets=noise)).conditioning.reference == "channel"


def test_conditionings_that_make_no_sense():
    with pytest.raises(InputError, match="need a rollout"):
        samples(conditioning=Conditioning("last"))
    with pytest.raises(InputError, match="every output"):
        samples(conditioning=Conditioning(positions=(0,)))
    data = samples(geometry="cloud", conditioning=Conditioning("node"))
    batch = data.batch(slice(0, 1))
    few = batch.coords[:, :9], batch.inputs[:, :9], batch.targets[:, :9]
    with pytest.raises(InputError, match="30 corresponding points and these have 9"):
        Normaliser.fit(data).decode_outputs(few[2], few[0], few[1], None, (9,))
    masked = replace(data, mask=torch.rand(len(data), 30) < 0.9)
    with pytest.raises(InputError, match="different sizes"):
        Normaliser.fit(masked)


def test_a_problem_survives_json():
    problem = samples(conditioning=Conditioning("node", (0, None), True)).problem
    assert Problem.from_dict(problem.to_dict()) == problem
    old = problem.to_dict()
    del old["conditioning"]
    assert Problem.from_dict(old).conditioning == Conditioning()
