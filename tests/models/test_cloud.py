from math import erf, exp, sqrt

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree
from torch._dynamo.testing import CompileCounter

from cato.errors import InputError
from cato.kernels import neighbours
from cato.kernels.neighbours import gather_neighbours, nearest_neighbours
from cato.models.cato.cloud import CatoPC, CatoPCConfig, LocalOperator
from cato.problem import Problem

SMALL = CatoPCConfig(width=16, depth=2, heads=2, neighbours=6, slices=8)


def cloud_problem(**changes):
    settings = {"inputs": ("a",), "outputs": ("u", "v"), **changes}
    return Problem("cloud", "cloud", (40,), **settings)


def model_and_cloud(seed, num_points, problem=None, config=SMALL, batch=1):
    """A model whose blocks count for much, so that a slip in them cannot hide, and its inputs."""
    problem = problem or cloud_problem()
    torch.manual_seed(seed)
    model = CatoPC(config, problem)
    for name, parameter in model.named_parameters():
        if ".scale_" in name:
            torch.nn.init.normal_(parameter)
    coords = torch.rand(batch, num_points, problem.dimension)
    return model, coords, torch.randn(batch, num_points, problem.num_inputs)


def assert_same(actual, expected, atol=2e-5):
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b, atol=atol, rtol=1e-4)


# Neighbour search -------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 10**6),
    num_points=st.integers(1, 60),
    dimension=st.sampled_from([1, 2, 3]),
    num_neighbours=st.integers(1, 20),
)
@settings(max_examples=40, deadline=None)
def test_neighbours_equal_a_kd_tree(seed, num_points, dimension, num_neighbours):
    coords = torch.rand(2, num_points, dimension, generator=torch.Generator().manual_seed(seed))
    index, absent = nearest_neighbours(coords, num_neighbours, (None,) * dimension)
    assert not absent.any()
    for points, found in zip(coords.numpy(), index.numpy(), strict=True):
        _, expected = cKDTree(points).query(points, k=range(1, found.shape[1] + 1))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("period", [(1.0, 1.0), (1.0, None), (None, 2.0)])
def test_periodic_neighbours_equal_a_periodic_kd_tree(period):
    torch.manual_seed(0)
    coords = torch.rand(1, 80, 2) * torch.tensor([length or 1.0 for length in period])
    index, _ = nearest_neighbours(coords, 9, period)
    points = coords[0].double().numpy()
    tree = cKDTree(points, boxsize=[length or 0.0 for length in period])
    np.testing.assert_array_equal(index[0], tree.query(points, k=9)[1])
    assert not torch.equal(index, nearest_neighbours(coords, 9, (None, None))[0])


def test_search_in_pieces_is_the_same_search(monkeypatch):
    torch.manual_seed(0)
    coords, mask = torch.rand(3, 50, 2), torch.rand(3, 50) < 0.2
    whole = nearest_neighbours(coords, 12, (None, None), mask)
    monkeypatch.setattr(neighbours, "_MAX_PAIRS", 3 * 50 * 7)
    pieces = nearest_neighbours(coords, 12, (None, None), mask)
    assert all(torch.equal(a, b) for a, b in zip(whole, pieces, strict=True))


def test_every_point_is_its_own_first_neighbour_even_among_coincident_points():
    index, _ = nearest_neighbours(torch.zeros(2, 9, 2), 4, (None, None))
    assert torch.equal(index[..., 0], torch.arange(9).expand(2, 9))
    assert all(len(set(row.tolist())) == 4 for row in index.flatten(0, 1))


def test_missing_neighbours_are_marked_and_never_padding():
    coords = torch.zeros(1, 6, 1)
    coords[0, :, 0] = torch.arange(6)
    mask = torch.tensor([[True, False, True, True, False, False]])
    index, absent = nearest_neighbours(coords, 5, (None,), mask)
    assert index[0, 0].tolist() == [0, 2, 3, 0, 0]
    assert absent[0, 0].tolist() == [False, False, False, True, True]
    assert index[0, 3].tolist() == [3, 2, 0, 3, 3]


def test_gather_picks_rows_of_the_same_sample():
    torch.manual_seed(0)
    values, index = torch.randn(3, 7, 4), torch.randint(7, (3, 7, 5))
    expected = torch.stack([rows[i] for rows, i in zip(values, index, strict=True)])
    assert torch.equal(gather_neighbours(values, index), expected)


# Message passing --------------------------------------------------------------------------------


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(erf)(x / sqrt(2)))


@pytest.mark.parametrize("num_points", [3, 9])  # fewer and more than K
@pytest.mark.parametrize("period", [(), (0.7, None)])
def test_messages_agree_with_a_plain_loop(num_points, period):
    """The appendix's equations for m_ij, α_ij and L_pc, from coordinates to the result."""
    model, coords, _ = model_and_cloud(1, num_points, cloud_problem(period=period))
    local: LocalOperator = model.blocks[0].local
    h = torch.randn(1, num_points, 16)
    zeta = model.chart(coords)
    actual = local(h, model.graph(coords, zeta))[0].detach().numpy()

    p = {name: value.detach().numpy() for name, value in local.named_parameters()}
    edge_weight, edge_bias = (value.detach().numpy() for value in model.edge.parameters())
    x, z, h = coords[0].numpy(), zeta[0].detach().numpy(), h[0].numpy()
    for i in range(num_points):
        steps = x - x[i]
        if period:
            steps[:, 0] -= 0.7 * np.round(steps[:, 0] / 0.7)
        distances = np.linalg.norm(steps, axis=1)
        messages = []
        for j in np.argsort(distances)[: SMALL.neighbours]:
            g = np.concatenate((steps[j], [distances[j]], z[j] - z[i]))
            geo = p["geometry.weight"] @ gelu(edge_weight @ (sqrt(40) * g) + edge_bias)
            centre = p["centre.weight"] @ h[i] + p["centre.bias"]
            messages.append(gelu(centre + p["delta.weight"] @ (h[j] - h[i]) + geo))
        scores = [exp(p["score"] @ m / sqrt(16)) for m in messages]
        soft = sum(s / sum(scores) * m for s, m in zip(scores, messages, strict=True))
        pooled = np.concatenate((soft, np.max(messages, axis=0)))
        expected = p["out.weight"] @ pooled + p["out.bias"]
        np.testing.assert_allclose(actual[i], expected, atol=1e-5)


# The whole operator -----------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), num_points=st.integers(1, 40))
@settings(max_examples=25, deadline=None)
def test_permuting_points_permutes_outputs(seed, num_points):
    model, coords, features = model_and_cloud(seed, num_points)
    order = torch.randperm(num_points)
    straight = model(coords, features)
    permuted = model(coords[:, order], features[:, order])
    assert_same(permuted, (straight.values[:, order], straight.flux[:, order]))


@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    chart=st.sampled_from(["learned", "normalised", "raw"]),
)
@settings(max_examples=25, deadline=None)
def test_padding_changes_nothing(seed, sizes, chart):
    """Clouds of different sizes, some smaller than K, padded with anything, against each alone."""
    assume(chart != "normalised" or min(sizes) > 1)  # one point has no bounding box
    config = CatoPCConfig(width=16, depth=2, heads=2, neighbours=6, slices=8, chart=chart)
    longest = max(sizes) + 3
    model, coords, features = model_and_cloud(seed, longest, config=config, batch=len(sizes))
    mask = torch.arange(longest) < torch.tensor(sizes)[:, None]
    mask = torch.stack([row[torch.randperm(longest)] for row in mask])
    coords[~mask] = 10.0 ** torch.randint(-9, 30, coords[~mask].shape)
    features[~mask] = 1e20
    together = model(coords, features, mask=mask)
    for b, real in enumerate(mask):
        alone = model(coords[b : b + 1, real], features[b : b + 1, real])
        assert_same((together.values[b, real], together.flux[b, real]), (alone[0][0], alone[1][0]))


def test_padding_has_no_gradient():
    model, coords, features = model_and_cloud(0, 12, batch=2)
    mask = torch.arange(12) < torch.tensor([[12], [4]])
    features[1, 4:] = torch.inf
    coords.requires_grad_()
    out = model(coords, features, mask=mask)
    (out.values[mask].square().sum() + out.flux[mask].square().sum()).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    assert torch.equal(coords.grad[~mask], torch.zeros(8, 2))


def test_batch_mates_do_not_matter():
    model, coords, features = model_and_cloud(0, 30, batch=3)
    together = model(coords, features)
    for b in range(3):
        alone = model(coords[b : b + 1], features[b : b + 1])
        assert_same((together.values[b], together.flux[b]), (alone.values[0], alone.flux[0]))


def test_shapes_in_three_dimensions():
    problem = cloud_problem(dimension=3, inputs=(), outputs=("u", "v"))
    model, coords, features = model_and_cloud(0, 25, problem, batch=2)
    out = model(coords, features)
    assert out.values.shape == (2, 25, 2)
    assert out.flux.shape == (2, 25, 2, 3)


@pytest.mark.parametrize("chart", ["learned", "normalised", "raw"])
def test_gradients_reach_every_parameter_and_the_geometry(chart):
    problem = cloud_problem(time="conditioned", num_steps=3)
    config = CatoPCConfig(width=16, depth=2, heads=2, chart=chart)
    model, coords, features = model_and_cloud(0, 30, problem, config, batch=2)
    coords.requires_grad_()
    out = model(coords, features, time=torch.tensor([0.0, 0.5]))
    (out.values.square().mean() + out.flux.square().mean()).backward()
    for name, parameter in [*model.named_parameters(), ("coords", coords)]:
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


def test_the_graph_depends_on_differences_only_and_the_operator_does_not():
    """With the raw chart the messages are translation invariant; lift and chart are not."""
    config = CatoPCConfig(width=16, depth=2, heads=2, neighbours=6, slices=8, chart="raw")
    model, coords, features = model_and_cloud(0, 30, cloud_problem(), config)
    here, there = (model.graph(x, x) for x in (coords, coords + 0.5))
    assert torch.equal(here.neighbours, there.neighbours)
    torch.testing.assert_close(here.edges, there.edges, atol=1e-5, rtol=1e-4)
    moved = model(coords + 0.5, features).values
    assert not torch.allclose(model(coords, features).values, moved, atol=1e-2)


def test_on_a_torus_the_graph_closes_over_the_seam():
    """Rolling all points around the torus leaves neighbours and steps between them as they were."""
    model, coords, _ = model_and_cloud(0, 40, cloud_problem(period=(1.0, 1.0)))
    rolled = (coords + torch.tensor([0.37, 0.81])) % 1.0
    still = torch.zeros_like(coords)
    here, there = model.graph(coords, still), model.graph(rolled, still)
    assert torch.equal(here.neighbours, there.neighbours)
    torch.testing.assert_close(here.edges, there.edges, atol=1e-4, rtol=1e-3)


def test_time_changes_the_output_and_is_required():
    problem = cloud_problem(time="conditioned", num_steps=3)
    model, coords, features = model_and_cloud(0, 20, problem)
    early, late = (model(coords, features, time=torch.tensor([t])).values for t in (0.0, 1.0))
    assert not torch.allclose(early, late, atol=1e-3)
    with pytest.raises(InputError, match="pass time="):
        model(coords, features)


def test_width_must_be_a_multiple_of_heads():
    with pytest.raises(InputError, match="multiple of heads"):
        CatoPC(CatoPCConfig(width=10, heads=4), cloud_problem())


def test_parameter_count_of_the_paper_elasticity():
    problem = Problem("elasticity", "cloud", (972,), (), ("stress",))
    model = CatoPC(CatoPCConfig(width=144, depth=8, heads=8), problem)
    assert sum(p.numel() for p in model.parameters()) == 1_944_085


def test_hidden_matrices_are_the_matrices_of_the_blocks():
    model = CatoPC(SMALL, cloud_problem())
    inside = {id(p) for p in model.blocks.parameters() if p.ndim == 2}
    matrices = model.hidden_matrices()
    assert {id(p) for p in matrices} == inside
    assert len(matrices) == SMALL.depth * 13
    assert all(min(p.shape) > 1 for p in matrices)


def test_bf16_autocast_stays_near_float32():
    model, coords, features = model_and_cloud(0, 40, config=CatoPCConfig(width=32, depth=2))
    exact = model(coords, features).values
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(coords, features).values
    assert (rough.float() - exact).norm() < 0.05 * exact.norm()
    rough.float().square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.blocks.parameters())


def test_compiled_model_gives_the_same_values_and_gradients_for_any_number_of_points(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # checks cannot be traced
    config = CatoPCConfig(width=16, depth=1, heads=2, neighbours=6, slices=8)
    model, _, _ = model_and_cloud(0, 1, config=config)
    weights = model.hidden_matrices()
    compilations = CompileCounter()
    compiled = torch.compile(model, backend=compilations, fullgraph=True)
    for num_points in (30, 41, 50, 59):
        cloud = torch.rand(2, num_points, 2), torch.randn(2, num_points, 1)
        ours, theirs = model(*cloud), compiled(*cloud)
        assert_same(theirs, ours)
        assert_same(*(torch.autograd.grad(out.values.sum(), weights) for out in (theirs, ours)))
    assert compilations.frame_count == 2  # one for the first size, one for all others
