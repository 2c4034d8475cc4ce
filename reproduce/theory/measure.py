"""How far a network is from an operator: a lower and an upper estimate of the largest error.

sup over ‖f‖ ≤ M of ‖N(f) − T f‖ is approached from below by ascent on the real network, and from
above by the estimate of Lemma 2's proof with the errors of the lift's channels in the place of the
coefficients' changes.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cato.models.cato.chart import Chart
from cato.models.cato.grid import Cato, CatoBlock
from reproduce.theory.construction import STEP, Channels
from reproduce.theory.operators import Changes, ChartedAxialOperator

Fields = Callable[[Float[Tensor, "B H W"]], Float[Tensor, "B H W"]]
"""A map of mesh functions, many at a time."""


def chart_points(chart: Chart, nodes: Float[Tensor, "H W 2"]) -> Float[Tensor, "H W 2"]:
    """ζ of the nodes."""
    return chart(nodes.flatten(0, 1)[None])[0].unflatten(0, nodes.shape[:2])


def apply_network(
    model: Cato, nodes: Float[Tensor, "H W 2"], f: Float[Tensor, "B H W"]
) -> Float[Tensor, "B H W"]:
    """N(f, X)."""
    coords = nodes.flatten(0, 1).expand(len(f), -1, -1)
    values = model(coords, f.flatten(1)[..., None]).values[..., 0]
    return values.unflatten(1, nodes.shape[:2])


def on_sphere(f: Float[Tensor, "B H W"], radius: float) -> Float[Tensor, "B H W"]:
    """Fields scaled to ‖f‖ = M."""
    return radius * f / f.flatten(1).norm(dim=1)[:, None, None]


def largest_error(
    error: Fields,
    shape: tuple[int, int],
    radius: float,
    generator: Generator,
    num_random: int = 16,
    num_starts: int = 2,
    num_steps: int = 8,
) -> float:
    """The largest ‖error(f)‖ found on the ball ‖f‖ ≤ M: a lower estimate of its supremum.

    From the worst of some random f, gradient ascent with the whole step to the sphere. For linear
    maps this is power iteration, and the networks of Lemma 1 are linear but for O(h²).
    """
    noise = torch.randn(num_random, *shape, generator=generator, dtype=torch.float64)
    f = on_sphere(noise, radius)
    with torch.no_grad():
        sizes = error(f).flatten(1).norm(dim=1)
    f, best = f[sizes.topk(num_starts).indices], float(sizes.max())
    for _ in range(num_steps):
        f = f.detach().requires_grad_()
        sizes = error(f).flatten(1).norm(dim=1)
        best = max(best, float(sizes.detach().max()))
        (slope,) = torch.autograd.grad(sizes.sum(), f)
        f = on_sphere(slope, radius)
    return best


@torch.no_grad()
def lift_errors(
    model: Cato,
    operator: ChartedAxialOperator,
    zeta: Float[Tensor, "H W 2"],
    nodes: Float[Tensor, "H W 2"],
    radius: float,
) -> Changes:
    """max |P − a|, |U/z − b|, |Q − c|, |V/z − d|, |Λ − ℓ| over the nodes and some |z| ≤ M."""
    channels = Channels.reserve(*operator.ranks)
    z = radius * torch.tensor([1.0, -1.0, 0.5, -0.5, 0.125, -0.125], dtype=torch.float64)
    z = z[:, None, None, None].expand(-1, *nodes.shape[:2], 1)
    hidden = model.lift(torch.cat((nodes.expand(len(z), -1, -1, -1), z), dim=-1))

    def error(values: Tensor, exact: Tensor) -> Tensor:
        return (values - exact.movedim(0, -1)).abs().flatten(0, 2).amax(0)

    return Changes(
        error(hidden[..., channels.p], operator.a(zeta)),
        error(hidden[..., channels.u] / z, operator.b(zeta)),
        error(hidden[..., channels.q], operator.c(zeta)),
        error(hidden[..., channels.v] / z, operator.d(zeta)),
        error(hidden[..., channels.local], operator.local(zeta)),
    )


def realisation_bound(
    model: Cato,
    operator: ChartedAxialOperator,
    zeta: Float[Tensor, "H W 2"],
    nodes: Float[Tensor, "H W 2"],
    radius: float,
) -> float:
    """An upper estimate of ε_nn = sup ‖N(f) − T_ζ f‖, rounding errors aside.

    The lift's errors τ enter as in Lemma 2's proof, with b within B + τ; every product p u adds its
    relative error h² (p² + u²) / 3.
    """
    tau = lift_errors(model, operator, zeta, nodes, radius)
    total = operator.stability_bound(tau) + float(tau.a @ tau.b + tau.c @ tau.d)
    left = torch.cat(
        (operator.a.sup + tau.a, operator.c.sup + tau.c, operator.local.sup + tau.local)
    )
    right = torch.cat((operator.b.sup + tau.b, operator.d.sup + tau.d, torch.ones(1)))
    squares = left.square() + (radius * right).square()
    return radius * (total + float((STEP**2 / 3 * squares * left * right).sum()))


@torch.no_grad()
def summary_error(
    model: Cato, ranks: tuple[int, int], nodes: Float[Tensor, "H W 2"], f: Float[Tensor, "B H W"]
) -> float:
    """Largest difference between what attention adds and the means of U and V in M and N alone.

    In units of the largest |U|, |V|: the rounding of softmax and sums.
    """
    channels = Channels.reserve(*ranks)
    coords = nodes.expand(len(f), -1, -1, -1)
    hidden = model.lift(torch.cat((coords, f[..., None]), dim=-1))
    turns = model.rotations(coords.flatten(1, 2), tuple(nodes.shape[:2]))
    (block,) = model.blocks
    assert isinstance(block, CatoBlock)
    added = block.attention(hidden, turns)
    expected = torch.zeros_like(added)
    u, v = hidden[..., channels.u], hidden[..., channels.v]
    expected[..., channels.m] = u.mean(2, keepdim=True).expand_as(u)
    expected[..., channels.n] = v.mean(1, keepdim=True).expand_as(v)
    return float((added - expected).abs().max() / torch.cat((u, v), dim=-1).abs().max())
