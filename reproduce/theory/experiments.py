"""The experiments of `python -m reproduce theory`: every inequality is tried where it could fail.

The suprema over f of Lemma 2 are exact, the largest singular values of matrices; those of networks
are found by ascent and are lower estimates.
"""

from itertools import product as combinations
from math import pi
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cato.models.cato.grid import Cato
from cato.progress import progress_bar
from reproduce.theory.construction import perturbed, product, random_chart, realise
from reproduce.theory.measure import (
    apply_network,
    chart_points,
    largest_error,
    on_sphere,
    realisation_bound,
    summary_error,
)
from reproduce.theory.operators import (
    ChartedAxialOperator,
    chart_distance,
    random_remainder,
    sharp_operator,
)

SHAPE = (16, 12)
SMALL_SHAPE = (8, 6)
"""Of Lemma 2's draws, each of which takes a singular value decomposition of an N × N matrix."""
RADIUS = 1.0
"""M."""
RANKS = (1, 2, 4)
"""R_ξ = R_η."""
WIDTHS = (32, 64, 128, 256, 512)
NUM_OPERATORS = 3
STEPS = (0.5, 0.25, 0.125, 0.0625, 0.03125)
DELTAS = (0.001, 0.01, 0.1, 0.5)
DISPLACEMENTS = ("each node", "all nodes alike", "chart weights")
NUM_DRAWS = 150
"""Of every kind and size of displacement."""
SHARP_RANK = 2
REMAINDERS = (0.0, 0.03, 0.3)
"""ε_rk."""
NOISES = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)
"""Of the chart's weights, relative to their size."""
THEOREM_WIDTH, THEOREM_RANK = 256, 2
ROUNDING = 1e-9
"""A ratio to a bound may be this much above 1."""
QUANTILES = (0, 0.25, 0.5, 0.75, 1)


def seeded(*seed: int) -> Generator:
    """A generator of its own for every use, so that one does not shift another."""
    return Generator().manual_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))


def bend(height: int, width: int) -> Float[Tensor, "H W 2"]:
    """Nodes of a quarter of an annulus, rows along the arc: its directions are not x and y."""
    radius = torch.linspace(0.4, 1, height, dtype=torch.float64)[:, None]
    angle = torch.linspace(0, pi / 2, width, dtype=torch.float64)
    return torch.stack((radius * angle.cos(), radius * angle.sin()), dim=-1)


def fitting_points() -> Float[Tensor, "S 2"]:
    """Where lifts are fitted: a finer mesh of the same domain."""
    return bend(40, 36).flatten(0, 1)


def product_errors(seed: int) -> list[dict[str, float]]:
    """Largest relative error of products made of GELU by step, for |p|, |u| in [0.1, 1]."""
    p, u = 0.1 + 0.9 * torch.rand(2, 10_000, generator=seeded(seed), dtype=torch.float64)
    rows = []
    for step in STEPS:
        error = (product(p, u, step) / (p * u) - 1).abs()
        bound = step**2 * (p.square() + u.square()) / 3
        ratio = float((error / bound).max())
        rows.append({"step": step, "error": float(error.max()), "ratio": ratio})
    return rows


def realisation(seed: int) -> list[dict[str, Any]]:
    """ε_nn of Lemma 1's networks by rank and width: one row each."""
    rows = []
    cases = list(combinations(RANKS, WIDTHS))
    with progress_bar("Lemma 1", len(cases)) as bar:
        for index, (rank, width) in enumerate(cases):
            found = [_realised(rank, width, seed, draw) for draw in range(NUM_OPERATORS)]
            errors, bounds, summaries = zip(*found, strict=True)
            rows.append(
                {
                    "rank": rank,
                    "width": width,
                    "errors": list(errors),
                    "bounds": list(bounds),
                    "summary_error": max(summaries),
                }
            )
            bar(index + 1, f"rank {rank}, width {width}")
    return rows


def _realised(rank: int, width: int, seed: int, draw: int) -> tuple[float, float, float]:
    """One network: its error found, the upper estimate of it, and the error of its averages."""
    random = seeded(seed, rank, draw)  # the same operator and chart for all widths
    samples, nodes = fitting_points(), bend(*SHAPE)
    operator = ChartedAxialOperator.draw(rank, rank, random)
    chart = random_chart(samples, random)
    zeta = chart_points(chart, nodes)
    model = realise(operator, chart, width, SHAPE, samples, random)
    f = on_sphere(torch.randn(4, *SHAPE, generator=random, dtype=torch.float64), RADIUS)
    return (
        largest_error(
            lambda f: apply_network(model, nodes, f) - operator(f, zeta), SHAPE, RADIUS, random
        ),
        realisation_bound(model, operator, zeta, nodes, RADIUS),
        summary_error(model, operator.ranks, nodes, f),
    )


def stability(seed: int) -> dict[str, Any]:
    """Lemma 2: how much a displaced chart changes T, over the bound, for random draws."""
    rows = []
    groups = list(combinations(DISPLACEMENTS, DELTAS))
    with progress_bar("Lemma 2", len(groups)) as bar:
        for index, (kind, delta) in enumerate(groups):
            random = seeded(seed, index)
            ratios = np.array([stability_ratios(kind, delta, random) for _ in range(NUM_DRAWS)])
            num_averages, worst, typical = ratios.T
            rows.append(
                {
                    "displacement": kind,
                    "delta": delta,
                    "draws": NUM_DRAWS,
                    "violations": int((worst > 1 + ROUNDING).sum()),
                    "worst_f": np.quantile(worst, QUANTILES).tolist(),
                    "worst_with_averages": float(worst[num_averages > 0].max()),
                    "random_f": np.quantile(typical, QUANTILES).tolist(),
                }
            )
            bar(index + 1, kind)
    sharp = [{"delta": delta, "ratio": sharp_ratio(delta)} for delta in DELTAS]
    return {"rows": rows, "sharp": sharp}


def stability_ratios(kind: str, delta: float, random: Generator) -> tuple[int, float, float]:
    """R_ξ + R_η and ‖T_ζ̂ f − T_ζ f‖ / (C_chart δ ‖f‖) of one draw, for the worst and a random f."""
    num_rows, num_columns = torch.randint(0, 4, (2,), generator=random).tolist()
    operator = ChartedAxialOperator.draw(num_rows, num_columns, random)
    nodes = bend(*SMALL_SHAPE)
    chart = random_chart(nodes.flatten(0, 1), random)
    zeta = chart_points(chart, nodes)
    if kind == "chart weights":
        # Unit noise moves nodes by about 1; the bound takes the distance that comes out.
        moved = chart_points(perturbed(chart, delta, random), nodes)
    else:
        count = SMALL_SHAPE if kind == "each node" else (1, 1)
        angle = 2 * pi * torch.rand(*count, generator=random, dtype=torch.float64)
        moved = zeta + delta * torch.stack((angle.cos(), angle.sin()), dim=-1)
        moved = moved.clamp(-1, 1)  # K is convex: no node moves further than δ
    change = operator.matrix(moved) - operator.matrix(zeta)
    bound = operator.chart_constant * chart_distance(moved, zeta)
    f = torch.randn(len(change), generator=random, dtype=torch.float64)
    worst = float(torch.linalg.matrix_norm(change, 2) / bound)
    typical = float((change @ f).norm() / f.norm() / bound)
    return num_rows + num_columns, worst, typical


def sharp_ratio(delta: float) -> float:
    """The same ratio where it is largest: all coefficients ξ, all nodes from ξ = 1 − δ to 1."""
    operator = sharp_operator(SHARP_RANK, SHARP_RANK)
    moved = torch.ones(*SMALL_SHAPE, 2, dtype=torch.float64)
    zeta = moved - torch.tensor([delta, 0], dtype=torch.float64)
    change = operator.matrix(moved) - operator.matrix(zeta)
    bound = operator.chart_constant * chart_distance(moved, zeta)
    return float(torch.linalg.matrix_norm(change, 2) / bound)


def theorem(seed: int) -> dict[str, Any]:
    """Theorem 1: networks built for displaced charts against T_ζ + R, and the three terms."""
    random = seeded(seed)
    samples, nodes = fitting_points(), bend(*SHAPE)
    operator = ChartedAxialOperator.draw(THEOREM_RANK, THEOREM_RANK, random)
    chart = random_chart(samples, random)
    zeta = chart_points(chart, nodes)
    remainder = random_remainder(zeta[..., 0].numel(), random)
    rows, effect = [], 0.0
    ideal = realise(operator, chart, THEOREM_WIDTH, SHAPE, samples, seeded(seed, 1))
    f = on_sphere(torch.randn(4, *SHAPE, generator=random, dtype=torch.float64), RADIUS)
    answers = apply_network(ideal, nodes, f)
    with progress_bar("Theorem 1", len(NOISES)) as bar:
        for index, noise in enumerate(NOISES):
            other = perturbed(chart, noise, seeded(seed, 2))
            model = realise(operator, other, THEOREM_WIDTH, SHAPE, samples, seeded(seed, 1))
            moved = chart_points(other, nodes)
            delta = chart_distance(moved, zeta)
            network_bound = realisation_bound(model, operator, moved, nodes, RADIUS)
            for size in REMAINDERS:
                matrix = operator.matrix(zeta) + size * remainder
                terms = [size * RADIUS, operator.chart_constant * RADIUS * delta, network_bound]
                measured = _distance(model, nodes, matrix, seeded(seed, 3))
                rows.append(
                    {"delta": delta, "remainder": size, "measured": measured, "terms": terms}
                )
            ideal.chart.load_state_dict(other.state_dict())
            effect = max(effect, float((apply_network(ideal, nodes, f) - answers).abs().max()))
            bar(index + 1)
    return {"chart_constant": operator.chart_constant, "rows": rows, "chart_effect": effect}


def _distance(
    model: Cato, nodes: Float[Tensor, "H W 2"], matrix: Float[Tensor, "N N"], random: Generator
) -> float:
    """sup ‖N(f) − G f‖, from below, for G given as a matrix."""

    def error(f: Tensor) -> Tensor:
        return apply_network(model, nodes, f) - (f.flatten(1) @ matrix.T).unflatten(1, SHAPE)

    return largest_error(error, SHAPE, RADIUS, random, num_steps=12)
