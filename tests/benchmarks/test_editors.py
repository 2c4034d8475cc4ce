"""The editable values of each benchmark, and the arrays that a model gets for them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cato.benchmarks import BENCHMARKS, editor_for
from cato.benchmarks.elasticity.benchmark import NUM_HANDLES
from cato.benchmarks.plasticity.benchmark import BlockMesh
from cato.errors import InputError


def smoke(name):
    benchmark = BENCHMARKS[name]
    return benchmark.editor(benchmark, benchmark.parameters("smoke"))


def within(editor):
    """Values that the page allows."""
    ranges = [st.floats(control.low, control.high) for control in editor.controls()]
    return st.tuples(*ranges).map(np.array)


@given(data=st.data())
def test_what_is_painted_is_what_the_model_sees(data):
    editor = smoke("darcy")
    num_nodes = editor.parameters.num_solver_nodes
    seed = data.draw(st.integers(0, 2**32))
    medium = np.random.default_rng(seed).integers(0, 2, (num_nodes, num_nodes), np.uint8)
    inputs, _ = editor.model_inputs(editor.check(medium))
    stride = editor.parameters.stride
    for (i, j), a in np.ndenumerate(inputs[..., 0]):
        assert a == (12 if medium[stride * i, stride * j] else 3)


@given(data=st.data())
@settings(max_examples=25)
def test_every_foil_closes_and_its_points_lead_it(data):
    editor = smoke("airfoil")
    values = data.draw(within(editor))
    inner = editor.model_inputs(values).coords[:, 0]
    num_wake = 5 * (len(inner) - 1) // 22
    np.testing.assert_array_equal(inner[num_wake], inner[-1 - num_wake])
    np.testing.assert_array_equal(inner[: num_wake + 1], inner[::-1][: num_wake + 1])
    # All points up by h: so is the foil, but for the corner of the box that stays.
    lifted = (
        editor.model_inputs(np.full(7, 0.02)).coords[:, 0]
        - editor.model_inputs(np.zeros(7)).coords[:, 0]
    )
    assert 0.5 * 0.02 < lifted[num_wake:-num_wake, 1].mean() < 0.02


@given(data=st.data())
@settings(max_examples=25)
def test_the_pipe_goes_through_its_points_with_their_slopes(data):
    editor = smoke("pipe")
    values = data.draw(within(editor))
    coords = editor.model_inputs(values).coords.astype(float)
    np.testing.assert_allclose(coords[:, -1, 1] - coords[:, 0, 1], 1.0, atol=1e-6)
    middle = coords[:, coords.shape[1] // 2]
    for control, value in zip(editor.controls(), values, strict=True):
        if not control.label.startswith("Height"):
            continue
        x, y = control.anchor
        node = int(np.argmin(np.abs(middle[:, 0] - x)))
        assert middle[node, 0] == pytest.approx(x, abs=1e-6)
        assert middle[node, 1] == pytest.approx(y + value * control.along[1], abs=1e-6)


def test_points_that_turn_the_pipe_sit_on_its_tangent():
    editor = smoke("pipe")
    controls = editor.controls()
    slopes = [control for control in controls if control.label.startswith("Slope")]
    assert len(slopes) == 5
    for control in slopes:
        knot = controls[control.follows].anchor[0] if control.follows is not None else 0.0
        assert control.along == pytest.approx((0.0, control.anchor[0] - knot))


@given(values=st.tuples(*8 * [st.floats(0, 3)]))
def test_the_die_goes_through_its_points(values):
    benchmark = BENCHMARKS["plasticity"]
    editor = benchmark.editor(benchmark, BlockMesh(columns=15, rows=4))
    heights = editor.model_inputs(np.array(values)).inputs
    np.testing.assert_allclose(heights[::2, 0, 0], values, atol=1e-6)
    assert (heights == heights[:, :1]).all()


@given(data=st.data())
@settings(max_examples=25)
def test_the_void_stays_inside_and_so_do_the_points(data):
    editor = smoke("elasticity")
    points = editor.model_inputs(data.draw(within(editor))).coords.astype(float)
    assert (np.abs(points - 0.5) <= 0.5 + 1e-6).all()
    assert np.hypot(*(points - 0.5).T).min() >= 0.2 - 1e-6


def test_triangles_of_the_cell_leave_the_void_out():
    editor = smoke("elasticity")
    points = editor.model_inputs(np.zeros(10)).coords.astype(float)
    a, b, c = (points[corner] for corner in editor.triangles().T)
    (ux, uy), (vx, vy) = (b - a).T, (c - a).T
    area = np.abs(ux * vy - uy * vx).sum() / 2
    assert area == pytest.approx(1 - np.pi * 0.3**2, rel=2e-3)  # chords instead of the circle
    assert set(editor.triangles().ravel()) == set(range(len(points)))


def test_a_point_of_the_void_moves_alone_by_the_rule_of_the_page():
    """The page adds 2δ/(P − 1)·(cos kθ, sin kθ): δ at its point, −δ/(P − 1) at the others."""
    num_points, delta = NUM_HANDLES, 0.7
    angles = 2 * np.pi * np.arange(num_points) / num_points
    waves = np.arange(1, 6)[:, None]
    for moved in range(num_points):
        part = 2 * delta / (num_points - 1)
        cosines, sines = part * np.cos(waves * angles[moved]), part * np.sin(waves * angles[moved])
        change = (cosines * np.cos(waves * angles) + sines * np.sin(waves * angles)).sum(axis=0)
        expected = np.full(num_points, -delta / (num_points - 1))
        expected[moved] = delta
        np.testing.assert_allclose(change, expected, atol=1e-12)


def test_vortices_are_as_strong_and_as_large_as_asked():
    editor = smoke("navier_stokes")
    plain = editor.decode(np.array([1.0, 1.0, 3.0]))
    np.testing.assert_array_equal(editor.decode(np.array([2.0, 1.0, 3.0])), 2 * plain)

    def variance_and_wavenumber(size):
        fields = [editor.decode(np.array([1.0, size, seed])) for seed in range(40)]
        power = np.mean([np.abs(np.fft.fft2(field)) ** 2 for field in fields], axis=0)
        k = np.fft.fftfreq(len(plain), 1 / len(plain))
        return power.sum(), (power * np.hypot(k[:, None], k)).sum() / power.sum()

    finer, same, coarser = (variance_and_wavenumber(size) for size in (0.5, 1.0, 2.0))
    assert finer[1] > 1.15 * same[1] > 1.15 * 1.15 * coarser[1]
    assert 0.3 < coarser[0] / same[0] < 3  # the longest waves do not fit the torus any more
    assert 0.6 < finer[0] / same[0] < 1.7


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("darcy", np.zeros((3, 3)), r"shape \[29, 29\]; got \[3, 3\]"),
        ("darcy", np.full((29, 29), 2), "1 .permeable. or 0"),
        ("airfoil", np.zeros(6), "7 values"),
        ("airfoil", np.full(7, 0.06), "from -0.05 to 0.05; got 0.06"),
        ("pipe", np.full(9, np.nan), "got nan"),
        ("plasticity", np.full(8, -0.1), "from 0 to 3"),
        ("navier_stokes", np.array([1.0, 1.0, np.inf]), "Seed"),
    ],
)
def test_other_values_are_refused(name, values, words):
    with pytest.raises(InputError, match=words):
        smoke(name).check(values)


def test_models_at_other_resolutions_have_editors_and_own_data_have_none():
    problem = BENCHMARKS["darcy"].problem("small", 43)
    assert editor_for(problem, "small").parameters.resolution == 43
    assert editor_for(replace(problem, name="groundwater")) is None
    assert editor_for(replace(problem, inputs=("a", "b"))) is None
