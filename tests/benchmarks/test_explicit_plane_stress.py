"""The compiled loops against closed forms: the yield surface, the patch test, an exact wave."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from cato.benchmarks.plasticity import solver as plasticity
from cato.benchmarks.plasticity.explicit_plane_stress import (
    REACHED_END,
    advance,
    return_map,
    stable_step,
    update_forces,
    update_stress,
)
from cato.benchmarks.plasticity.solver import (
    METAL,
    Elements,
    Material,
    Nodes,
    Stepping,
    make_block,
    make_die,
)

E, NU, YIELD, RHO = METAL
STIFFNESS = E / (1 - NU**2) * np.array([[1, NU, 0], [NU, 1, 0], [0, 0, (1 - NU) / 2]])
ELASTIC = Material(yield_stress=1e9)
compiling = settings(deadline=None)  # the first example compiles


def tensor(centre, deviator):
    """(xx, yy, xy) of a Mohr circle."""
    return np.array([centre + deviator.real, centre - deviator.real, deviator.imag])


def strained(stress, strain, spin=0.0, steps=1):
    """Stress, thickness strain and plastic strain after equal increments (xx, yy, xy)."""
    xx, yy, xy = np.asarray(strain) / steps
    centre, deviator = stress
    thickness = plastic = work = 0.0
    for _ in range(steps):
        centre, deviator, thick, plast, w = update_stress(
            METAL, centre, deviator, (xx + yy) / 2, complex((xx - yy) / 2, xy), np.exp(1j * spin)
        )
        thickness, plastic, work = thickness + thick, plastic + plast, work + w
    return (centre, deviator), thickness, plastic, work


def mises(centre, deviator):
    return np.sqrt(centre**2 + 3 * abs(deviator) ** 2)


class TestMaterial:
    @compiling
    @given(strain=st.tuples(*[st.floats(-1e-4, 1e-4)] * 3))
    def test_elastic_step_is_hookes_law(self, strain):
        (centre, deviator), thickness, plastic, work = strained((0.0, 0j), strain)
        xx, yy, xy = strain
        expected = STIFFNESS @ [xx, yy, 2 * xy]
        assume(mises(centre, deviator) < YIELD)
        np.testing.assert_allclose(tensor(centre, deviator), expected, rtol=1e-12, atol=1e-12)
        assert plastic == 0
        assert thickness == pytest.approx(-NU / E * (expected[0] + expected[1]), abs=1e-16)
        assert work == pytest.approx(expected @ [xx, yy, 2 * xy] / 2, abs=1e-16)

    @pytest.mark.parametrize(
        ("stress", "flow", "equivalent", "thickness"),
        [
            ((YIELD, 0, 0), (1, -1 / 2, 0), 1, -1 / 2),
            ((0, -YIELD, 0), (1 / 2, -1, 0), 1, 1 / 2),
            ((YIELD, YIELD, 0), (1, 1, 0), 2, -2),
            ((0, 0, YIELD / np.sqrt(3)), (0, 0, 1), 2 / np.sqrt(3), 0),
        ],
        ids=["tension", "compression", "biaxial", "shear"],
    )
    def test_flow_at_yield(self, stress, flow, equivalent, thickness):
        """Strain along the normal leaves a stress on the surface where it is, exactly."""
        xx, yy, xy = stress
        state = ((xx + yy) / 2, complex((xx - yy) / 2, xy))
        amount = 0.02
        new, thick, plastic, work = strained(state, amount * np.array(flow), steps=3)
        np.testing.assert_allclose(tensor(*new), stress, rtol=1e-11, atol=1e-9)
        assert plastic == pytest.approx(amount * equivalent, rel=1e-10)
        assert thick == pytest.approx(amount * thickness, rel=1e-10, abs=1e-14)
        assert work == pytest.approx(YIELD * plastic, rel=1e-10)

    def test_uniaxial_strain_tends_to_the_normal_of_the_yield_ellipse(self):
        """Straining along x only, flow ends where the normal has no y-part: 2 σy = σx."""
        stress, *_ = strained((0.0, 0j), (0.05, 0, 0), steps=500)
        expected = np.array([2, 1, 0]) * YIELD / np.sqrt(3)
        np.testing.assert_allclose(tensor(*stress), expected, rtol=1e-6, atol=1e-9)

    @compiling
    @given(trial=st.tuples(*[st.floats(-700, 700)] * 3))
    def test_return_map_solves_backward_euler(self, trial):
        """(C⁻¹ + γ P) σ = C⁻¹ σ_trial on the surface, found by bisection in matrix form."""
        trial = np.array(trial)
        centre, deviator = (trial[0] + trial[1]) / 2, complex((trial[0] - trial[1]) / 2, trial[2])
        assume(mises(centre, deviator) > YIELD)
        compliance = np.linalg.inv(STIFFNESS)
        projection = np.array([[2, -1, 0], [-1, 2, 0], [0, 0, 6]]) / 3

        def stress(gamma):
            return np.linalg.solve(compliance + gamma * projection, compliance @ trial)

        def excess(gamma):
            sigma = stress(gamma)
            return np.sqrt(1.5 * sigma @ projection @ sigma) - YIELD

        gamma = brentq(excess, 0, 1, xtol=1e-18, rtol=1e-14)
        new_centre, new_deviator, new_gamma = return_map(METAL, centre, deviator)
        assert mises(new_centre, new_deviator) == pytest.approx(YIELD, rel=1e-12)
        assert new_gamma == pytest.approx(gamma, rel=1e-8, abs=1e-15)
        np.testing.assert_allclose(tensor(new_centre, new_deviator), stress(gamma), atol=1e-7)

    @compiling
    @given(
        path=st.lists(st.tuples(*[st.floats(-3e-3, 3e-3)] * 4), min_size=1, max_size=8),
    )
    def test_any_path_stays_within_the_surface_and_dissipates(self, path):
        state = (0.0, 0j)
        for xx, yy, xy, spin in path:
            state, _, plastic, _ = strained(state, (xx, yy, xy), spin)
            assert mises(*state) <= YIELD * (1 + 1e-12)
            assert plastic >= 0
            if plastic > 0:
                assert mises(*state) == pytest.approx(YIELD, rel=1e-12)


def patch():
    """2 × 2 distorted elements, unit thickness, at rest."""
    position = np.array(
        [
            [0 + 0j, 1.1 + 0.1j, 2 + 0j],
            [-0.1 + 0.9j, 0.8 + 1.2j, 2.1 + 1.1j],
            [0.1 + 2j, 1.2 + 1.9j, 1.9 + 2.2j],
        ]
    )
    zero = np.zeros((2, 2))
    nodes = Nodes(position, 0 * position, 0 * position, np.ones((3, 3)))
    return nodes, Elements(
        zero.copy(), zero + 0j, zero + 1, zero.copy(), zero + 0j, zero.copy(), zero.copy()
    )


def move(nodes, elements, target, material=METAL):
    """One step to these positions, so slow that no viscous force remains."""
    dt = 1e9
    nodes.velocity[:] = (target - nodes.position) / dt
    nodes.position[:] = target
    update_forces(material, nodes, elements, dt)


class TestElement:
    @compiling
    @given(gradient=st.tuples(*[st.floats(-1e-4, 1e-4)] * 4))
    def test_patch(self, gradient):
        """A linear displacement gives one stress, and no force on the inner node."""
        nodes, elements = patch()
        xx, xy, yx, yy = gradient
        x, y = nodes.position.real, nodes.position.imag
        move(nodes, elements, nodes.position + xx * x + xy * y + 1j * (yx * x + yy * y), ELASTIC)
        expected = STIFFNESS @ [xx, yy, xy + yx]
        scale = 1e-3 * E * np.abs(gradient).max()  # the step is not infinitesimal
        for j in range(2):
            for i in range(2):
                stress = tensor(elements.centre[j, i], elements.deviator[j, i])
                np.testing.assert_allclose(stress, expected, atol=scale + 1e-9)
        np.testing.assert_allclose(elements.centre, elements.centre[0, 0], atol=1e-9)
        np.testing.assert_allclose(elements.deviator, elements.deviator[0, 0], atol=1e-9)
        assert np.abs(elements.hourglass).max() < 1e-9
        assert abs(nodes.force[1, 1]) < 1e-9
        assert abs(nodes.force.sum()) < 1e-9
        torque = (nodes.position.conj() * nodes.force).imag.sum()
        assert abs(torque) < 1e-8

    def test_linear_displacement_gives_the_forces_of_its_stress(self):
        """On a rectangle the force on a corner is half of each adjacent side's traction."""
        nodes, elements = patch()
        nodes.position[:] = 2.0 * np.arange(3) + 1j * np.arange(3)[:, None]
        move(nodes, elements, nodes.position + 1e-4 * nodes.position.real, ELASTIC)
        sx, sy, _ = tensor(elements.centre[1, 1], elements.deviator[1, 1])
        # A free body pulled to the stress pulls back: towards the centre
        assert nodes.force[2, 2] == pytest.approx(-(sx * 1 + 1j * sy * 2) / 2, rel=1e-3)

    def test_rotation_turns_stress_and_strains_nothing(self):
        nodes, elements = patch()
        board = (-1.0) ** np.add.outer(np.arange(3), np.arange(3))
        linear = nodes.position * (1 + 2e-4) + 1e-4 * nodes.position.imag
        move(nodes, elements, linear + 2e-6 * board)
        move(nodes, elements, nodes.position)  # standing still, so that forces are of this shape
        centre, deviator = elements.centre.copy(), elements.deviator.copy()
        forces, plastic = nodes.force.copy(), elements.plastic_strain.copy()
        assert np.abs(deviator).max() > 1
        assert np.abs(elements.hourglass).min() > 0.01
        for angle in (0.3, -1.0, 0.5):
            move(nodes, elements, nodes.position * np.exp(1j * angle))
        turned = np.exp(-0.2j)
        np.testing.assert_allclose(elements.centre, centre, rtol=1e-10)
        np.testing.assert_allclose(elements.deviator, deviator * turned**2, rtol=1e-10)
        np.testing.assert_allclose(elements.plastic_strain, plastic)
        np.testing.assert_allclose(nodes.force, forces * turned, rtol=1e-9, atol=1e-9)

    def test_hourglass_pattern_is_resisted(self):
        """The checkerboard, which a one-point stress cannot see, meets an opposite force."""
        nodes, elements = patch()
        board = (-1.0) ** np.add.outer(np.arange(3), np.arange(3))
        nodes.position[:] = np.arange(3) + 1j * np.arange(3)[:, None]
        move(nodes, elements, nodes.position + 1e-6 * board)
        assert np.abs(elements.centre).max() < 1e-9
        assert ((nodes.force.real * board) < 0).all()

    def test_step_bound_is_sharp_for_the_square(self):
        """2/ω_max of a free square is h √(ρ(1−ν)/E), reached by equal stretching in x and y."""
        nodes, elements = make_block((11, 4), METAL)
        assert (50 / 10, 15 / 3) == (5.0, 5.0)
        exact = 5.0 * np.sqrt(RHO * (1 - NU) / E)
        damped = exact * (np.sqrt(1 + 0.06**2) - 0.06)
        assert stable_step(METAL, nodes, elements) == pytest.approx(damped, rel=1e-12)

    def test_inverted_element_has_no_stable_step(self):
        nodes, elements = make_block((11, 4), METAL)
        nodes.position[3] -= 6j
        assert stable_step(METAL, nodes, elements) == 0


class TestWave:
    """A flat die hits an elastic block: d'Alembert's solution holds until the first reflection."""

    time, speed = 2e-3, plasticity.DIE_SPEED
    sound = np.sqrt(E / (RHO * (1 - NU**2)))

    def run(self, time, force=0.0, die_height=0.0):
        nodes, elements = make_block((61, 61), ELASTIC)
        nodes.force[:] = force * nodes.mass
        start, die = nodes.position.copy(), make_die(np.full(8, die_height))
        stepping = Stepping(safety=0.9, min_dt=0.0, max_strain=1.0)
        status, _, _, work = advance(ELASTIC, nodes, elements, die, 0.0, time, 0.0, stepping)
        assert status == REACHED_END
        kinetic = 0.5 * (nodes.mass * np.abs(nodes.velocity) ** 2).sum()
        return nodes.position - start, elements, kinetic, work

    def test_displacement_and_stress(self):
        """u_y = −v (t − depth/c) and, behind the front, σ_yy = −ρ c v."""
        moved, elements, _, _ = self.run(self.time)
        assert 0.6 < self.sound * self.time / plasticity.HEIGHT < 0.8
        middle, depth = 30, np.linspace(plasticity.HEIGHT, 0, 61)
        exact = -self.speed * np.maximum(self.time - depth / self.sound, 0)
        error = np.linalg.norm(moved[:, middle].imag - exact)
        assert error < 0.01 * np.linalg.norm(exact)
        stress = (elements.centre - elements.deviator.real)[-20:, middle]
        np.testing.assert_allclose(stress, -RHO * self.sound * self.speed, rtol=0.01)

    def test_work_of_the_die(self):
        """It works at ρ c v² per width, less near the free sides, half of it becoming motion."""
        _, _, kinetic, work = self.run(self.time)
        steady = RHO * self.sound * self.speed**2 * self.time * plasticity.LENGTH
        assert 0.95 * steady < work < steady
        assert kinetic == pytest.approx(work / 2, rel=0.03)

    def test_work_of_the_impact(self):
        """In the first step the die only sets the top row in motion."""
        moved, _, kinetic, work = self.run(1e-5)
        assert np.count_nonzero(moved) == 61
        assert work == pytest.approx(kinetic, rel=1e-12)

    def test_fall_from_rest(self):
        """Velocities live between the steps, so the first kick is half a kick: u = a t²/2."""
        moved, *_ = self.run(1e-5, force=-7j, die_height=1.0)
        np.testing.assert_allclose(moved[1:].imag, -7 * 1e-5**2 / 2, rtol=1e-3)
