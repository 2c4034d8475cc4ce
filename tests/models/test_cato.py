"""CATO on structured meshes: attention, rotary encoding, block and model as mathematics."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cato.errors import InputError
from cato.models.cato.attention import AxialAttention, attend_along, frequencies, rotate, rotation
from cato.models.cato.chart import Chart
from cato.models.cato.grid import Cato, CatoConfig, LocalOperator
from cato.problem import Problem

shapes = st.lists(st.integers(3, 7), min_size=1, max_size=3).map(tuple)
seeds = st.integers(0, 2**31)


def problem_of(shape, **kwargs):
    defaults = {"inputs": ("a",), "outputs": ("u",), "dimension": len(shape)}
    return Problem("test", "mesh", shape, **(defaults | kwargs))


def inputs_of(problem, batch=2):
    coords = torch.rand(batch, problem.num_nodes, problem.dimension)
    features = torch.randn(batch, problem.num_nodes, problem.num_inputs)
    time = torch.rand(batch) if problem.has_time else None
    return coords, features, time


def dense_masked_attention(q, k, v, axis, heads):
    """Attention among all nodes, in which only nodes of one line along `axis` see each other."""
    batch, *mesh, width = q.shape
    index = torch.cartesian_prod(*(torch.arange(n) for n in mesh)).reshape(-1, len(mesh))
    other = [a for a in range(len(mesh)) if a != axis - 1]
    same_line = (index[:, None, other] == index[None, :, other]).all(-1)
    q, k, v = (x.reshape(batch, -1, heads, width // heads).transpose(1, 2) for x in (q, k, v))
    score = q @ k.transpose(-1, -2) / (width // heads) ** 0.5
    weights = score.masked_fill(~same_line, -torch.inf).softmax(-1)
    return (weights @ v).transpose(1, 2).reshape(batch, *mesh, width)


@settings(max_examples=25, deadline=None)
@given(shapes, st.sampled_from([(1, 4), (2, 2), (3, 6)]), seeds)
def test_axial_attention_is_dense_attention_masked_to_the_line(shape, head_sizes, seed):
    torch.manual_seed(seed)
    heads, head_dim = head_sizes
    q, k, v = torch.randn(3, 2, *shape, heads * head_dim, dtype=torch.float64)
    for axis in range(1, len(shape) + 1):
        expected = dense_masked_attention(q, k, v, axis, heads)
        torch.testing.assert_close(attend_along(q, k, v, axis, heads), expected)


@settings(max_examples=25, deadline=None)
@given(st.floats(-3, 3), st.sampled_from([2, 6, 12]), seeds)
def test_rotary_score_depends_on_the_chart_difference_only(shift, head_dim, seed):
    torch.manual_seed(seed)
    q, k = torch.randn(2, 5, head_dim, dtype=torch.float64)
    p, r = torch.rand(2, 5, dtype=torch.float64)
    omega = 10 * frequencies(head_dim, 100.0).double()

    def score(p, r):
        return (rotate(q, rotation(p, omega)) * rotate(k, rotation(r, omega))).sum(-1)

    torch.testing.assert_close(score(p, r), score(p + shift, r + shift))
    # and it is qᵀ R(r − p) k, which is not constant
    torch.testing.assert_close(score(p, r), (q * rotate(k, rotation(r - p, omega))).sum(-1))
    assert not torch.allclose(score(p, r), score(p + 0.1, r))


def test_rotation_is_the_papers_matrix():
    omega = frequencies(4, 100.0)
    assert omega.tolist() == pytest.approx([1.0, 100.0**-0.5])
    x, p = torch.randn(4), torch.tensor(0.7)
    turned = rotate(x, rotation(p, omega))
    for r in range(2):
        c, s = torch.cos(omega[r] * p), torch.sin(omega[r] * p)
        matrix = torch.stack((torch.stack((c, -s)), torch.stack((s, c))))
        torch.testing.assert_close(turned[2 * r : 2 * r + 2], matrix @ x[2 * r : 2 * r + 2])


def test_every_head_turns_alike():
    x = torch.randn(3, 4).repeat(1, 2)  # two equal heads
    turned = rotate(x, rotation(torch.rand(3), frequencies(4, 10.0)))
    torch.testing.assert_close(turned[:, :4], turned[:, 4:])


@settings(max_examples=10, deadline=None)
@given(st.floats(-3, 3), st.booleans(), seeds)
def test_turned_values_depend_on_the_chart_difference_only(shift, own_projections, seed):
    torch.manual_seed(seed)
    attention = AxialAttention(8, 2, (0, 1), not own_projections, turn_values=True).double()
    h, p = torch.randn(1, 4, 5, 8).double(), torch.rand(1, 4, 5).double()
    omega = 10 * frequencies(4, 100.0).double()

    def attended(p):
        return attention(h, 2 * [rotation(p, omega)])

    torch.testing.assert_close(attended(p + shift), attended(p))
    assert not torch.allclose(attended(2 * p), attended(p))


def test_our_variant_closes_over_the_seam_of_a_torus():
    """A period further is the same place; the paper's chart is of an interval."""
    shape = (6, 5)
    problem = problem_of(shape, periodic=(True, False), period=(2.0, None))
    coords = torch.rand(1, 30, 2).double()
    further = coords + torch.tensor((2.0, 0.0)).double()
    for variant in ("ours", "paper"):
        model = Cato(CatoConfig(8, 1, variant=variant, heads=2), problem).double()
        ours, there = (model.rotations(x, shape) for x in (coords, further))
        closes = [torch.allclose(a, b) for a, b in zip(ours, there, strict=True)]
        assert closes[0] == (variant == "ours")


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (2, 1)])
@pytest.mark.parametrize("share_qkv", [True, False])
def test_attention_along_some_axes_is_the_sum_over_them(axes, share_qkv):
    """In PyTorch's operations and in the kernels, forwards and backwards."""
    torch.manual_seed(0)
    some = AxialAttention(8, 2, axes, share_qkv)
    h = torch.randn(2, 4, 5, 3, 8)
    turns = [rotation(torch.rand(2, 4, 5, 3), frequencies(4, 100.0)) for _ in range(3)]
    expected = torch.zeros(2, 4, 5, 3, 8)
    for number, axis in enumerate(axes):
        one = AxialAttention(8, 2, (axis,))
        rows = slice(None) if share_qkv else slice(24 * number, 24 * number + 24)
        one.qkv.weight = torch.nn.Parameter(some.qkv.weight[rows].detach())
        one.out.weight = torch.nn.Parameter(
            some.out.weight[:, 8 * number : 8 * number + 8].detach()
        )
        dense = dense_masked_attention
        q, k, v = one.qkv(h).chunk(3, -1)
        q, k = rotate(q, turns[axis]), rotate(k, turns[axis])
        expected = expected + one.out(dense(q, k, v, axis + 1, 2))
    torch.testing.assert_close(some(h, turns), expected, atol=1e-5, rtol=1e-4)
    fast = torch.autograd.grad(some(h, turns).square().sum(), some.parameters())
    some.double()
    slow = torch.autograd.grad(
        some(h.double(), [t.double() for t in turns]).square().sum(), some.parameters()
    )
    for a, b in zip(fast, slow, strict=True):
        torch.testing.assert_close(a, b.float(), atol=1e-3, rtol=1e-3)


def test_parts_can_be_left_out():
    problem = problem_of((5, 6))
    coords, features, _ = inputs_of(problem)
    whole = Cato(CatoConfig(8, 2, 2), problem)
    names = set(dict(whole.named_parameters()))
    bare = Cato(CatoConfig(8, 2, 2, kernel=0, norm=False), problem)
    assert names - set(dict(bare.named_parameters())) == {
        n for n in names if "norm" in n or "local" in n
    }
    # without local operator, a change in one node reaches its row and its column only
    one = Cato(CatoConfig(8, 1, 2, kernel=0, axes=(1,)), problem)
    changed = features.clone().unflatten(1, (5, 6))
    changed[:, 2, 3] += 1
    moved = (one(coords, changed.flatten(1, 2))[0] - one(coords, features)[0]).unflatten(1, (5, 6))
    assert moved[:, 2].abs().min() > 0
    assert moved[:, [0, 1, 3, 4]].abs().max() == 0
    with pytest.raises(InputError, match="different axes of the mesh, 0 to 1; got 2"):
        Cato(CatoConfig(axes=(2,)), problem)
    with pytest.raises(InputError, match="kernel must be odd"):
        Cato(CatoConfig(kernel=2), problem)


@pytest.mark.parametrize("kind", ["learned", "normalised", "raw", "none"])
def test_chart_kinds(kind):
    coords = torch.randn(2, 10, 2) * 5
    chart = Chart(2, kind)(coords)
    if kind == "raw":
        assert torch.equal(chart, coords)
    else:
        assert chart.abs().max() <= 1
    if kind == "none":
        assert not chart.any()
    if kind == "normalised":  # blind to translation and scaling of every coordinate
        moved = Chart(2, kind)(coords * torch.tensor([3.0, 0.5]) + 7)
        torch.testing.assert_close(chart, moved, atol=1e-5, rtol=0)
        torch.testing.assert_close(chart.amax(1), torch.ones(2, 2))


def test_masked_points_do_not_move_the_normalised_chart():
    coords, mask = torch.rand(1, 8, 2), torch.ones(1, 8, dtype=torch.bool)
    padded = torch.cat((coords, torch.full((1, 2, 2), 50.0)), 1)
    mask = torch.cat((mask, torch.zeros(1, 2, dtype=torch.bool)), 1)
    chart = Chart(2, "normalised")
    torch.testing.assert_close(chart(padded, mask)[:, :8], chart(coords))


@pytest.mark.parametrize("shape", [(9,), (7, 6), (5, 4, 6)])
def test_local_operator_is_a_loop_over_the_stencil(shape):
    torch.manual_seed(0)
    periodic = tuple(axis % 2 == 0 for axis in range(len(shape)))
    local = LocalOperator(3, 3, periodic).double()
    h = torch.randn(2, *shape, 3, dtype=torch.float64)
    weight, bias = local.depthwise.weight[:, 0], local.depthwise.bias
    expected = torch.zeros_like(h) + bias
    for node in torch.cartesian_prod(*(torch.arange(n) for n in shape)).reshape(-1, len(shape)):
        for offset in torch.cartesian_prod(*(len(shape) * [torch.arange(3)])).reshape(
            -1, len(shape)
        ):
            neighbour = (node + offset - 1).tolist()
            neighbour = [
                n % size if wraps else n
                for n, size, wraps in zip(neighbour, shape, periodic, strict=True)
            ]
            if all(0 <= n < size for n, size in zip(neighbour, shape, strict=True)):
                here, there = (slice(None), *node.tolist()), (slice(None), *neighbour)
                expected[here] += h[there] * weight[(slice(None), *offset.tolist())]
    expected = local.pointwise(torch.nn.functional.gelu(expected))
    torch.testing.assert_close(local(h), expected)


PAPER = {  # benchmark: (width, problem, parameters)
    "darcy": (96, Problem("darcy", "grid", (85, 85), ("a",), ("u",)), 761_605),
    "navier_stokes": (
        128,
        Problem(
            "navier_stokes",
            "grid",
            (64, 64),
            tuple(f"w{t}" for t in range(10)),
            ("w",),
            periodic=(True, True),
            period=(1.0, 1.0),
            time="rollout",
            num_steps=10,
        ),
        1_348_293,
    ),
    "plasticity": (
        160,
        Problem(
            "plasticity",
            "mesh",
            (101, 31),
            ("die",),
            ("x", "y", "dx", "dy"),
            time="conditioned",
            num_steps=20,
        ),
        2_131_054,
    ),
    "airfoil": (128, Problem("airfoil", "mesh", (221, 51), (), ("mach",)), 1_347_013),
    "pipe": (96, Problem("pipe", "mesh", (129, 129), (), ("ux",)), 761_509),
}


@pytest.mark.parametrize("name", PAPER)
def test_parameter_counts_of_the_paper_configurations(name):
    width, problem, expected = PAPER[name]
    model = Cato(CatoConfig(width=width, depth=8, heads=8), problem)
    assert sum(p.numel() for p in model.parameters()) == expected


@settings(max_examples=12, deadline=None)
@given(shapes, st.booleans(), seeds)
def test_any_mesh_vector_outputs_and_time(shape, conditioned, seed):
    torch.manual_seed(seed)
    problem = problem_of(
        shape,
        outputs=("u", "v", "p"),
        time="conditioned" if conditioned else "steady",
        num_steps=3 if conditioned else 1,
    )
    model = Cato(CatoConfig(width=8, depth=2, heads=2), problem)
    coords, features, time = inputs_of(problem)
    values, flux = model(coords, features, time=time)
    assert values.shape == (2, problem.num_nodes, 3)
    assert flux.shape == (2, problem.num_nodes, 3, len(shape))
    (values.square().sum() + flux.square().sum()).backward()
    assert all(torch.isfinite(p.grad).all() and p.grad.any() for p in model.parameters())
    if conditioned:
        other = model(coords, features, time=time + 0.3).values
        assert not torch.allclose(values, other)


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 6), st.integers(1, 5), seeds)
def test_periodic_model_commutes_with_shifts_of_the_mesh(shift_i, shift_j, seed):
    """On a torus, moving coordinates and inputs along the mesh moves the output."""
    torch.manual_seed(seed)
    problem = problem_of((7, 6), periodic=(True, True))
    model = Cato(CatoConfig(width=8, depth=2, heads=2), problem)
    coords, features, _ = inputs_of(problem)

    def roll(x):
        return x.unflatten(1, (7, 6)).roll((shift_i, shift_j), (1, 2)).flatten(1, 2)

    torch.testing.assert_close(
        model(roll(coords), roll(features)).values,
        roll(model(coords, features).values),
        atol=1e-5,
        rtol=1e-4,
    )


def test_block_without_stencil_is_equivariant_to_permutations_along_an_axis():
    """Attention sees positions through the chart only: with the local operator silenced, reordering
    whole rows together with their chart reorders the output; with it, the order matters."""
    torch.manual_seed(0)
    problem = problem_of((6, 5))
    model = Cato(CatoConfig(width=8, depth=2, heads=2), problem)
    coords, features, _ = inputs_of(problem)
    order = torch.tensor([3, 0, 5, 1, 4, 2])

    def permute(x):
        return x.unflatten(1, (6, 5))[:, order].flatten(1, 2)

    def mismatch():
        moved = model(permute(coords), permute(features)).values
        return (moved - permute(model(coords, features).values)).abs().max().item()

    assert mismatch() > 1e-3
    with torch.no_grad():
        for block in model.blocks:
            block.local.pointwise.weight.zero_()
    assert mismatch() < 1e-5


def test_samples_of_a_batch_do_not_see_each_other():
    torch.manual_seed(0)
    problem = problem_of((6, 5))
    model = Cato(CatoConfig(width=8, depth=2, heads=2), problem)
    coords, features, _ = inputs_of(problem, batch=3)
    alone = model(coords[1:2], features[1:2]).values
    torch.testing.assert_close(model(coords, features).values[1:2], alone, atol=1e-6, rtol=1e-5)


def test_runs_at_another_resolution():
    problem = problem_of((6, 5))
    model = Cato(CatoConfig(width=8, depth=1, heads=2), problem)
    coords, features, _ = inputs_of(problem_of((11, 9)))
    assert model(coords, features, shape=(11, 9)).values.shape == (2, 99, 1)


def test_learned_rotary_scale_is_trained():
    problem = problem_of((6, 5))
    model = Cato(CatoConfig(width=8, depth=1, heads=2, learn_rotary_scale=True), problem)
    model(*inputs_of(problem)[:2]).values.sum().backward()
    assert model.rotary_scale.grad.abs() > 0


def test_separate_projections_cost_more_parameters():
    problem = problem_of((6, 5))
    shared, separate = (
        sum(
            p.numel()
            for p in Cato(CatoConfig(width=8, depth=1, heads=2, share_qkv=s), problem).parameters()
        )
        for s in (True, False)
    )
    assert separate - shared == 3 * 8 * 8


@pytest.mark.parametrize(
    ("settings_", "message"),
    [({"width": 10, "heads": 4}, "multiple of 2"), ({"kernel": 4}, "odd")],
)
def test_impossible_settings(settings_, message):
    with pytest.raises(InputError, match=message):
        Cato(CatoConfig(**settings_), problem_of((6, 5)))


def test_bf16_autocast_stays_close():
    torch.manual_seed(0)
    problem = problem_of((6, 5))
    model = Cato(CatoConfig(width=16, depth=2, heads=2), problem)
    coords, features, _ = inputs_of(problem)
    exact = model(coords, features).values
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(coords, features).values
        charted = model.chart(coords)
    assert (rough - exact).norm() < 0.05 * exact.norm()
    # Only the blocks are rounded: results have more digits than bfloat16, positions have all.
    assert not torch.equal(rough, rough.bfloat16().float())
    assert torch.equal(charted, model.chart(coords))
