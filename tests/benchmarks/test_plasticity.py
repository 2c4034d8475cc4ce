"""The plasticity solver: conservation, contact, symmetry and convergence of whole simulations.

The coarse block (21 × 7) takes 0.1 s.
"""

import numpy as np
import pytest
from scipy.interpolate import PchipInterpolator

from cato.benchmarks.contract import Rejected
from cato.benchmarks.plasticity import solver as plasticity
from cato.benchmarks.plasticity.benchmark import Plasticity
from cato.benchmarks.plasticity.explicit_plane_stress import advance
from cato.benchmarks.plasticity.solver import (
    METAL,
    Material,
    Stepping,
    make_block,
    make_die,
    solve,
)
from cato.errors import InputError

ELASTIC = Material(yield_stress=1e9)
COARSE = (21, 7)


def draw_die(seed):
    return Plasticity().draw(np.random.default_rng(seed), None)


def relative(a, b):
    """Difference of two displacement fields, relative to the second."""
    return np.linalg.norm((a - b)[..., 2:]) / np.linalg.norm(b[..., 2:])


@pytest.fixture(scope="module")
def knots():
    return draw_die(3)


@pytest.fixture(scope="module")
def coarse(knots):
    return solve(knots, COARSE)


class TestSolution:
    def test_layout(self, knots, coarse):
        assert coarse.fields.shape == (20, *COARSE, 4)
        np.testing.assert_allclose(coarse.times, np.linspace(0.05, 1, 20))
        x, y = np.meshgrid(np.linspace(0, 50, 21), np.linspace(0, 15, 7), indexing="ij")
        reference = coarse.fields[..., :2] - coarse.fields[..., 2:]
        np.testing.assert_allclose(reference[-1], np.stack([x, y], -1), atol=1e-12)
        assert not coarse.fields[:, :, 0, 2:].any(), "the bottom is clamped"
        assert np.isfinite(coarse.fields).all()

    def test_die_is_the_monotone_cubic_through_its_knots(self, knots):
        height = solve(knots, (71, 4), num_frames=1).die_height
        np.testing.assert_allclose(height[::10], knots, atol=1e-12)
        inner = slice(10, -10)  # the end pieces differ by their flat ends
        plain = PchipInterpolator(np.linspace(0, 50, 8), knots)(np.linspace(0, 50, 71))
        np.testing.assert_allclose(height[inner], plain[inner], atol=1e-12)

    def test_energy_balance(self, coarse):
        assert coarse.energy.external > 1000
        assert coarse.energy.error < 5e-4
        assert 0 < coarse.energy.artificial < 0.05 * coarse.energy.external

    def test_energy_balance_of_an_elastic_block(self, knots):
        energy = solve(np.maximum(knots, 2.5), COARSE, material=ELASTIC).energy
        assert energy.internal > 10 * energy.kinetic > 0
        assert energy.error < 5e-3

    def test_internal_work_is_plastic_dissipation(self, knots):
        """At these strains σ_Y ε_p V is all but the elastic σ_Y²/2E, one part in a thousand."""
        nodes, elements = make_block(COARSE, METAL)
        advance(METAL, nodes, elements, make_die(knots), 0.0, 1.0, 0.0, Stepping(0.9, 0.0, 3.0))
        cell = 50 * 15 / elements.work.size
        dissipated = METAL.yield_stress * elements.plastic_strain.sum() * cell
        assert elements.work.sum() == pytest.approx(dissipated, rel=0.01)

    def test_nothing_enters_the_die_and_the_top_follows_it(self, knots, coarse):
        assert coarse.max_penetration < 1e-6
        x, y = coarse.fields[-1, :, -1, 0], coarse.fields[-1, :, -1, 1]
        surface = 15 + plasticity.die_curve(knots)(np.clip(x, 0, 50)) - 3
        assert (y <= surface + 1e-6).all()
        pressed = coarse.die_height < 1.0  # the die has gone 2 mm past these columns
        assert pressed.sum() >= 3
        np.testing.assert_allclose(y[pressed], surface[pressed], atol=1e-3)

    def test_nothing_moves_before_contact(self, knots):
        still = solve(np.full(8, 1.0), COARSE, num_frames=4)
        assert not still.fields[0, ..., 2:].any()
        assert still.fields[1, ..., 2:].any()

    def test_elements_stay_convex(self):
        """A flat die folds the corners at the clamped bottom, unless hourglass springs stiffen."""
        z = solve(np.zeros(8), (31, 10), num_frames=1).fields[0] @ [1, 1j, 0, 0]
        corners = [z[:-1, :-1], z[1:, :-1], z[1:, 1:], z[:-1, 1:]]
        for k in range(4):
            ahead, back = corners[(k + 1) % 4] - corners[k], corners[k - 1] - corners[k]
            assert ((ahead.conj() * back).imag > 0).all()

    def test_mirrored_die_gives_mirrored_motion(self, knots, coarse):
        mirrored = solve(knots[::-1].copy(), COARSE).fields[:, ::-1]
        expected = coarse.fields * [-1, 1, -1, 1] + [50, 0, 0, 0]
        np.testing.assert_allclose(mirrored, expected, atol=1e-9)

    def test_independent_of_the_time_step(self, knots, coarse):
        assert relative(coarse.fields, solve(knots, COARSE, safety=0.3).fields) < 5e-4

    def test_independent_of_the_number_of_frames(self, knots, coarse):
        """Frames end steps early and change the step; the motion must not notice."""
        few = solve(knots, COARSE, num_frames=4)
        assert relative(few.fields, coarse.fields[4::5]) < 5e-4

    def test_same_arguments_give_the_same_bits(self, knots, coarse):
        before = knots.copy()
        again = solve(knots, COARSE)
        assert np.array_equal(again.fields, coarse.fields)
        assert again.energy == coarse.energy
        assert np.array_equal(knots, before)

    def test_converges_under_refinement(self, knots):
        """First order, as contact and yield fronts allow: differences halve."""
        fields = [solve(knots, (10 * n + 1, 3 * n + 1)).fields for n in (1, 2, 4)]
        first = relative(fields[0], fields[1][:, ::2, ::2])
        second = relative(fields[1], fields[2][:, ::2, ::2])
        assert second < 0.65 * first < 0.65 * 0.15

    @pytest.mark.slow
    def test_converges_under_refinement_at_benchmark_size(self, knots):
        fields = [solve(knots, (10 * n + 1, 3 * n + 1)).fields for n in (5, 10, 20)]
        first = relative(fields[0], fields[1][:, ::2, ::2])
        second = relative(fields[1], fields[2][:, ::2, ::2])
        assert second < 0.75 * first
        assert second < 0.02

    @pytest.mark.slow
    def test_random_dies_are_accepted_at_benchmark_size(self):
        for seed in range(6):
            solution = solve(draw_die(seed))
            assert solution.energy.error < 1e-3
            assert solution.max_penetration < 1e-6


class TestArguments:
    def test_draw(self):
        knots = np.stack([draw_die(seed) for seed in range(500)])
        assert knots.shape == (500, 8)
        assert 0 <= knots.min() < 0.05
        assert 2.95 < knots.max() <= 3
        np.testing.assert_allclose(knots.mean(0), 1.5, atol=0.15)

    def test_extreme_strain_is_rejected(self, knots, monkeypatch):
        monkeypatch.setattr(plasticity, "MAX_PLASTIC_STRAIN", 0.1)
        with pytest.raises(Rejected, match="extreme strain"):
            solve(knots, COARSE)

    def test_collapse_is_rejected(self, knots, monkeypatch):
        monkeypatch.setattr(plasticity, "MAX_SLOWDOWN", 1.05)
        with pytest.raises(Rejected, match="collapsed"):
            solve(knots, COARSE)

    @pytest.mark.parametrize(
        "arguments",
        [
            {"knots": np.array([0.0, -1.0])},
            {"knots": np.array([0.0, np.nan])},
            {"knots": np.array([1.0])},
            {"shape": (1, 31)},
            {"num_frames": 0},
            {"safety": 1.0},
        ],
    )
    def test_impossible_arguments(self, arguments):
        with pytest.raises(InputError):
            solve(**{"knots": np.zeros(8), "shape": COARSE, **arguments})
