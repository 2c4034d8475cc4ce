"""The one-block CATO of Lemma 1, as weights of the real module.

The proof reserves channels of the hidden state: P_r ≈ a_r(ζ(x)), U_r ≈ b_r(ζ(x)) z, Q_s, V_s, Λ
alike and Z = z are written by the lift; M_r and N_s receive the row and column means of U_r and V_s
from attention with zero queries and keys; the MLP writes F = Σ P_r M_r + Σ Q_s N_s + Λ Z into O,
which the head reads. The module has no layer norm and no local operator, and four hidden units in
its MLP for every product.

Where the proof uses universal approximation, the weights are explicit as far as they can be.
GELU has the exact identity g(t) − g(−t) = t, which makes Z = z exact, and two expansions in a small
step h, both of second order:

    (g(t + h z) − g(t − h z)) / 2h   = g'(t) z + O(h²)        what U_r, V_s are made of
    (e(h(p+u)) − e(h(p−u))) / 4h²√(2/π) = p u + O(h²)         what F is made of, e(t) = g(t) + g(−t)

Only functions of x are fitted: a_r∘Φ_chart by the g(w_k·x + β_k) and b_r∘Φ_chart by the
g'(w_k·x + β_k) with random w_k, β_k, by least squares. That error, and nothing else, depends on the
width C, which is also the number of the lift's hidden units.

The module's heads run along both axes with one set of values. Head r carries U_r in its first and
V_r in its second value coordinate; the row output reads the first, the column output the second, so
that max(R_ξ, R_η) heads are R_ξ row heads and R_η column heads.
"""

from math import pi, sqrt
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn import functional as F

from cato.errors import InputError
from cato.models.cato.attention import AxialAttention
from cato.models.cato.chart import Chart
from cato.models.cato.grid import Cato, CatoBlock, CatoConfig
from cato.models.layers.nodewise import MLP
from cato.problem import Problem
from reproduce.theory.operators import ChartedAxialOperator

STEP = torch.finfo(torch.float64).eps ** (1 / 3)
"""h: its truncation error h² and the rounding error ε / h are then alike."""
SHARPNESS = 5.0
"""Size of the random w_k, per unit of x."""
COLUMNS, ROWS = 0, 1
"""Mesh axes that the attention runs along."""


class Channels(NamedTuple):
    """Indices of the reserved channels, in the proof's names."""

    p: Tensor
    u: Tensor
    m: Tensor
    q: Tensor
    v: Tensor
    n: Tensor
    local: Tensor
    z: Tensor
    o: Tensor

    @classmethod
    def reserve(cls, num_rows: int, num_columns: int) -> "Channels":
        """3 R_ξ + 3 R_η + 3 channels, side by side."""
        sizes = [*3 * [num_rows], *3 * [num_columns], 1, 1, 1]
        return cls(*torch.arange(sum(sizes)).split(sizes))


@torch.no_grad()
def realise(
    operator: ChartedAxialOperator,
    chart: Chart,
    width: int,
    shape: tuple[int, int],
    samples: Float[Tensor, "S 2"],
    generator: Generator,
) -> Cato:
    """The CATO of Lemma 1 for T_ζ with ζ = Φ_chart(x).

    Args:
        operator: T, of ranks at least 1.
        chart: Φ_chart; the network gets the same weights.
        width: C, at least 3 R_ξ + 3 R_η + 3 and a multiple of twice the heads.
        shape: (H, W) of the mesh.
        samples: Points of the compact set 𝒳 to fit the lift at; they need not be nodes.
        generator: Draws the features of the lift.
    """
    channels = Channels.reserve(*operator.ranks)
    if width <= int(channels.o):
        raise InputError(f"ranks {operator.ranks} need {int(channels.o) + 1} channels; got {width}")
    problem = Problem("charted axial operator", "mesh", shape, ("f",), ("Tf",))
    config = CatoConfig(
        width=width,
        depth=1,
        heads=max(operator.ranks),
        mlp_ratio=4 * (sum(operator.ranks) + 1) / width,
        kernel=0,
        norm=False,
        chart_hidden=chart.hidden.out_features,
    )
    model = Cato(config, problem).double().requires_grad_(False)
    for parameter in model.parameters():
        parameter.zero_()
    model.chart.load_state_dict(chart.state_dict())
    _fit_lift(model.lift, operator, chart, channels, samples, generator)
    (block,) = model.blocks
    assert isinstance(block, CatoBlock)
    _average(block.attention, channels)
    _multiply(block.mlp, channels)
    model.solution_head.weight[0, channels.o] = 1
    return model


def _fit_lift(
    lift: MLP,
    operator: ChartedAxialOperator,
    chart: Chart,
    channels: Channels,
    samples: Float[Tensor, "S 2"],
    generator: Generator,
) -> None:
    """P, Q, Λ from sums of hidden units in pairs ±h z, and U, V from their differences."""
    num_pairs = (lift.hidden.out_features - 2) // 2
    normal = torch.randn(num_pairs, 2, generator=generator, dtype=samples.dtype)
    w = SHARPNESS * normal
    # The bend of every unit goes through a point of 𝒳: elsewhere it would be a plane there.
    centres = samples[torch.randint(len(samples), (num_pairs,), generator=generator)]
    beta = -(w * centres).sum(-1)
    plus, minus = slice(2, 2 + num_pairs), slice(2 + num_pairs, 2 + 2 * num_pairs)
    lift.hidden.weight[:2, 2] = torch.tensor([1.0, -1.0])
    for pair, sign in ((plus, 1), (minus, -1)):
        lift.hidden.weight[pair, :2] = w
        lift.hidden.weight[pair, 2] = sign * STEP
        lift.hidden.bias[pair] = beta

    zeta = chart(samples[None])[0]
    t = samples @ w.T + beta
    even = torch.cat((operator.a(zeta), operator.c(zeta), operator.local(zeta)))
    weights, offsets = _least_squares(F.gelu(t), even)
    written = torch.cat((channels.p, channels.q, channels.local))
    lift.out.weight[written, plus] = lift.out.weight[written, minus] = weights / 2
    lift.out.bias[written] = offsets

    odd = torch.cat((operator.b(zeta), operator.d(zeta)))
    weights, offsets = _least_squares(gelu_slope(t), odd)
    written = torch.cat((channels.u, channels.v))
    lift.out.weight[written, plus] = weights / (2 * STEP)
    lift.out.weight[written, minus] = -weights / (2 * STEP)
    identity = torch.tensor([1.0, -1.0], dtype=samples.dtype)
    lift.out.weight[written, :2] = offsets[:, None] * identity
    lift.out.weight[channels.z, :2] = identity


def _least_squares(
    features: Float[Tensor, "S K"], targets: Float[Tensor, "n S"]
) -> tuple[Float[Tensor, "n K"], Float[Tensor, " n"]]:
    """Weights and offset of the features, large weights held back by the error they would cause."""
    num_samples, num_features = features.shape
    ones = torch.ones(num_samples, 1, dtype=features.dtype)
    penalty = STEP**2 * sqrt(num_samples) * torch.eye(num_features + 1, dtype=features.dtype)
    matrix = torch.cat((torch.cat((features, ones), dim=1), penalty))
    zeros = torch.zeros(num_features + 1, len(targets), dtype=features.dtype)
    solution = torch.linalg.lstsq(matrix, torch.cat((targets.T, zeros))).solution.T
    return solution[:, :-1], solution[:, -1]


def gelu_slope(t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """g'(t) = Φ(t) + t φ(t)."""
    return torch.special.ndtr(t) + t * (-t.square() / 2).exp() / sqrt(2 * pi)


def _average(attention: AxialAttention, channels: Channels) -> None:
    """Queries and keys stay zero, so that softmax is uniform; values U, V; outputs M, N."""
    width = attention.out.out_features
    head_dim = width // attention.heads
    values = attention.qkv.weight[2 * width :]
    outputs = attention.out.weight.unflatten(1, (len(attention.axes), width))
    sources = ((channels.u, channels.m, ROWS, 0), (channels.v, channels.n, COLUMNS, 1))
    for source, target, axis, coordinate in sources:
        slots = head_dim * torch.arange(len(source)) + coordinate
        values[slots, source] = 1
        outputs[target, attention.axes.index(axis), slots] = 1


def _multiply(mlp: MLP, channels: Channels) -> None:
    """O = Σ P M + Σ Q N + Λ Z, four hidden units for every product."""
    left = torch.cat((channels.p, channels.q, channels.local))
    right = torch.cat((channels.m, channels.n, channels.z))
    hidden, out = product_weights(STEP, mlp.hidden.weight.dtype)
    for index, pair in enumerate(torch.stack((left, right), dim=1)):
        units = slice(4 * index, 4 * index + 4)
        mlp.hidden.weight[units, pair] = hidden
        mlp.out.weight[channels.o, units] = out


def product_weights(
    step: float, dtype: torch.dtype
) -> tuple[Float[Tensor, "4 2"], Float[Tensor, " 4"]]:
    """Weights of p u = Σ out g(hidden (p, u)); the relative error is at most h² (p² + u²) / 3.

    For √(π/2) e(t) = t² + r(t) with |r'(t)| ≤ 2|t|³/3, so r(p+u) − r(p−u) is at most
    |(p+u)⁴ − (p−u)⁴| / 6 = 4 |p u| (p² + u²) / 3.
    """
    hidden = step * torch.tensor([[1, 1], [-1, -1], [1, -1], [-1, 1]], dtype=dtype)
    signs = torch.tensor([1, 1, -1, -1], dtype=dtype)
    return hidden, signs * sqrt(pi / 2) / (4 * step**2)


def product(p: Float[Tensor, " n"], u: Float[Tensor, " n"], step: float) -> Float[Tensor, " n"]:
    """p u as four GELU units compute it."""
    hidden, out = product_weights(step, p.dtype)
    return F.gelu(torch.stack((p, u), dim=-1) @ hidden.T) @ out


def random_chart(samples: Float[Tensor, "S 2"], generator: Generator, hidden: int = 16) -> Chart:
    """A learned chart with random weights, scaled so that the samples fill much of K."""
    chart = Chart(2, "learned", hidden).double().requires_grad_(False)
    for parameter in chart.parameters():
        parameter.normal_(generator=generator)
    raw = chart.out(F.silu(chart.hidden(samples)))
    scale = 0.6 / raw.std(0)
    chart.out.weight *= scale[:, None]
    chart.out.bias.copy_(scale * (chart.out.bias - raw.mean(0)))
    return chart


def perturbed(chart: Chart, size: float, generator: Generator) -> Chart:
    """Another chart: the weights with noise of the given size relative to their own."""
    other = Chart(2, "learned", chart.hidden.out_features).double().requires_grad_(False)
    other.load_state_dict(chart.state_dict())
    for parameter in other.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        parameter.add_(noise, alpha=size * float(parameter.square().mean().sqrt()))
    return other
