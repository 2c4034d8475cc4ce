"""The pictures: what is in them, on which scales, and that every kind of problem has one."""

from functools import cache

import numpy as np
import pytest
import torch
from matplotlib.collections import PathCollection, QuadMesh

from cato.benchmarks import BENCHMARKS, view_of
from cato.benchmarks.view import Window, is_deformed
from cato.data.dataset import Dataset
from cato.data.normalise import Normaliser
from cato.data.sampling import generate_sample
from cato.data.spec import DataSpec
from cato.inference.evaluate import solve_all
from cato.models.contract import Operator, Prediction
from cato.problem import Problem
from cato.surrogate import Surrogate
from cato.viz.fields import evenly_spread, output_names, window_of
from cato.viz.figures import AT_REST, Deformation, case_of, die_contour, sample_figure
from cato.viz.report import frame_error_curve

NUM_SAMPLES = 2


class Wave(Operator):
    """Something smooth of every node, and twice as large in every channel."""

    def operate(self, nodes):
        coords, features, time, *_ = nodes
        wave = torch.sin(3 * coords.sum(-1, keepdim=True))
        if features.shape[-1]:
            wave = wave + features.mean(-1, keepdim=True)
        if time is not None:
            wave = wave + time[:, None, None]
        values = wave * 2.0 ** torch.arange(self.problem.num_outputs)
        flux = values[..., None].expand(*values.shape, coords.shape[-1])
        return Prediction(values, flux if self.config == "flux" else None)


def surrogate_of(problem, config=None):
    return Surrogate(Wave(config, problem), Normaliser(problem))


@cache
def benchmark_data(name):
    """Some solved samples at the smoke scale."""
    spec = DataSpec(name, "smoke")
    samples = [generate_sample(spec, "test", index).sample for index in range(NUM_SAMPLES)]
    coords = spec.definition.coords(spec.parameters)
    if coords is None:
        coords = np.stack([sample.coords for sample in samples])
    arrays = (np.stack([getattr(s, what) for s in samples]) for what in ("inputs", "targets"))
    return Dataset.from_arrays(spec.problem, coords, *arrays)


def own_data(geometry, shape, dimension, mask=None, **kwargs):
    """A user's data set, at random."""
    channels = {"inputs": ("a", "b"), "outputs": ("u", "v")} | kwargs
    problem = Problem("own", geometry, shape, dimension=dimension, **channels)
    rng = np.random.default_rng(0)
    axes = [np.linspace(0, 1, n) for n in shape]
    coords = np.stack(np.meshgrid(*axes, indexing="ij"), -1)
    if geometry == "cloud":
        coords = rng.uniform(size=(*shape, dimension))
    in_time = () if problem.time == "steady" else (problem.num_steps,)
    inputs = rng.normal(size=(NUM_SAMPLES, *shape, problem.num_inputs))
    targets = rng.normal(size=(NUM_SAMPLES, *in_time, *shape, problem.num_outputs))
    return Dataset.from_arrays(problem, coords, inputs, targets, mask=mask)


def drawn(figure):
    """The panels with something in them, without the colour bars."""
    return [axes for axes in figure.axes if axes.has_data() and axes.get_label() != "<colorbar>"]


def titles(figure):
    return [axes.get_title() for axes in drawn(figure) if axes.get_title()]


def panel(figure, title):
    (found,) = [axes for axes in drawn(figure) if axes.get_title() == title]
    return found


def coloured(axes):
    """The one field in a panel."""
    (field,) = [c for c in axes.collections if isinstance(c, QuadMesh | PathCollection)]
    return field


def limits(axes):
    return coloured(axes).get_clim()


def bars(figure):
    return [axes for axes in figure.axes if axes.get_label() == "<colorbar>"]


# -- the six benchmarks -------------------------------------------------------------------------

STEADY = {
    "darcy": ["input a", "u, truth", "u, prediction", "error"],
    "airfoil": ["input: mesh", "Mach number, truth", "Mach number, prediction", "error"],
    "pipe": ["input: mesh", "$u_x$, truth", "$u_x$, prediction", "error"],
    "elasticity": ["input: points", "stress, truth", "stress, prediction", "error"],
}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_has_a_picture_in_a_page_width(name):
    data = benchmark_data(name)
    figure = sample_figure(surrogate_of(data.problem), data, 1)
    assert figure.get_size_inches()[0] <= 12
    figure.canvas.draw()
    box = figure.get_tightbbox()
    assert box.x0 > -0.05
    assert box.x1 < figure.get_size_inches()[0] + 0.05


@pytest.mark.parametrize("name", STEADY)
@pytest.mark.parametrize("config", ["flux", None])
def test_panels_of_steady_samples(name, config):
    data = benchmark_data(name)
    slope = f"|∇ {output_names(data.problem)[0]}|"
    expected = list(STEADY[name])
    if data.problem.geometry != "cloud":
        answer, apart = f"{slope}, prediction", "error"
        if config:
            answer, apart = "|q|, flux head", f"|q| − {slope}"
        expected += [f"{slope}, truth", answer, apart]
    assert titles(sample_figure(surrogate_of(data.problem, config), data, 0)) == expected


@pytest.mark.parametrize("name", STEADY)
def test_truth_and_prediction_share_their_scale_and_the_error_is_symmetric(name):
    data = benchmark_data(name)
    figure = sample_figure(surrogate_of(data.problem), data, 0)
    output = output_names(data.problem)[0]
    truth = panel(figure, f"{output}, truth")
    assert limits(truth) == limits(panel(figure, f"{output}, prediction"))
    values, coords = data.targets[0, :, 0].numpy(), data.batch([0]).coords[0].numpy()
    shown = window_of(data.problem, coords).contains(coords)
    assert limits(truth) == pytest.approx((values[shown].min(), values[shown].max()))
    errors = [coloured(axes) for axes in drawn(figure) if axes.get_title() == "error"]
    assert all(low == -high < 0 for low, high in (error.get_clim() for error in errors))
    prediction = coloured(panel(figure, f"{output}, prediction")).get_array()
    np.testing.assert_allclose(
        np.ravel(errors[0].get_array()), np.ravel(prediction) - values, rtol=1e-4, atol=1e-5
    )


def test_the_airfoil_window_holds_the_foil_and_little_of_the_domain():
    data = benchmark_data("airfoil")
    window = window_of(data.problem, data.coords[0].numpy())
    for coords in data.coords.numpy():
        wall = coords.reshape(*data.problem.shape, 2)[:, 0]
        foil = wall[wall[:, 0] <= 1.0]
        assert len(foil) > 20
        assert window.contains(foil).all()
        whole = Window.around(coords)
        assert (np.array(window.size) < 0.1 * np.array(whole.size)).all()
    figure = sample_figure(surrogate_of(data.problem), data, 0)
    assert all(axes.get_xlim() == (window.left, window.right) for axes in drawn(figure))
    assert all(axes.get_ylim() == (window.bottom, window.top) for axes in drawn(figure))
    assert all(axes.get_aspect() == 1 for axes in drawn(figure))


def test_elasticity_is_drawn_as_points_at_their_places():
    data = benchmark_data("elasticity")
    figure = sample_figure(surrogate_of(data.problem), data, 1)
    points = coloured(panel(figure, "stress, truth"))
    np.testing.assert_array_equal(points.get_offsets(), data.coords[1].numpy())
    np.testing.assert_array_equal(points.get_array(), data.targets[1, :, 0].numpy())


def test_a_long_pipe_is_stretched_to_its_panel():
    data = benchmark_data("pipe")
    figure = sample_figure(surrogate_of(data.problem), data, 0)
    assert {axes.get_aspect() for axes in drawn(figure)} == {"auto"}


def test_rollouts_are_strips_of_frames():
    data = benchmark_data("navier_stokes")
    surrogate = surrogate_of(data.problem)
    figure = sample_figure(surrogate, data, 0)
    panels = drawn(figure)
    past, times = (1, 3, 5, 8, 10), (11, 13, 15, 18, 20)
    assert titles(figure) == [f"input w(t={t})" for t in past] + [
        f"vorticity, t = {t}" for t in times
    ]
    assert [axes.get_ylabel() for axes in panels[::5]] == ["input", "truth", "prediction", "error"]
    assert len({limits(axes) for axes in panels[:15]}) == 1  # input, truth, prediction
    assert len({limits(axes) for axes in panels[15:]}) == 1
    assert limits(panels[15])[0] == -limits(panels[15])[1]
    solution = solve_all(surrogate, data.subset([0]))[0][:, :, 0].numpy()
    for axes, step in zip(panels[10:15], (0, 2, 4, 7, 9), strict=True):
        np.testing.assert_array_equal(np.ravel(coloured(axes).get_array()), solution[step])


def test_the_deformed_mesh_is_where_the_prediction_says():
    data = benchmark_data("plasticity")
    surrogate = surrogate_of(data.problem)
    figure = sample_figure(surrogate, data, 0)
    panels = drawn(figure)
    assert titles(figure) == ["input: die and mesh at rest", "truth", "prediction", "error"]
    assert len(panels) == 1 + 4 * 3
    assert [axes.get_ylabel() for axes in panels[1::3]] == [
        "t = 0.05 ms", "t = 0.35 ms", "t = 0.7 ms", "t = 1 ms",
    ]  # fmt: skip
    shape = (*data.problem.shape, 2)
    solution, truth = solve_all(surrogate, data.subset([0]))[0].numpy(), data.targets[0].numpy()
    for row, step in enumerate((0, 6, 13, 19)):
        left, middle, right = (coloured(axes) for axes in panels[1 + 3 * row : 4 + 3 * row])
        predicted, true = solution[step, :, :2], truth[step, :, :2]
        np.testing.assert_array_equal(middle.get_coordinates(), predicted.reshape(shape))
        np.testing.assert_array_equal(left.get_coordinates(), true.reshape(shape))
        np.testing.assert_allclose(
            np.ravel(left.get_array()), np.linalg.norm(truth[step, :, 2:], axis=-1), rtol=1e-5
        )
        np.testing.assert_allclose(
            np.ravel(right.get_array()), np.linalg.norm(predicted - true, axis=-1), rtol=1e-5
        )
        assert left.get_clim() == middle.get_clim()
        assert right.get_clim()[0] == 0
    assert [bar.get_ylabel() for bar in bars(figure)] == [
        "displacement (mm)",
        "distance of nodes (mm)",
    ]


def test_the_die_touches_the_block_and_does_not_cut_it():
    data = benchmark_data("plasticity")
    case = case_of(data, 0, surrogate_of(data.problem))
    deformation = Deformation(case, case.truth)
    np.testing.assert_allclose(
        deformation.rest.reshape(-1, 2), 50 * case.coords, rtol=1e-5, atol=1e-4
    )
    x, start = die_contour(case, AT_REST)
    assert (start >= 15 - 1e-4).all()
    for step in (9, 19):
        top = deformation.positions[step, :, -1]
        inside = (x[0] <= top[:, 0]) & (top[:, 0] <= x[-1])
        gap = np.interp(top[inside, 0], *die_contour(case, step)) - top[inside, 1]
        # The contour is known at the columns only, 2.5 mm apart at this scale.
        assert gap.min() > -0.3
        assert np.abs(gap).min() < 0.05


def test_the_views_agree_with_the_benchmarks():
    from cato.benchmarks.navier_stokes.benchmark import NUM_PAST
    from cato.benchmarks.plasticity.benchmark import DIE_SPEED, DURATION, NUM_FRAMES

    assert BENCHMARKS["navier_stokes"].view.first_time == NUM_PAST + 1
    plasticity = BENCHMARKS["plasticity"].view
    assert plasticity.die_travel == DIE_SPEED * DURATION
    assert plasticity.time(NUM_FRAMES - 1) == pytest.approx(DURATION)
    assert plasticity.time(0) == pytest.approx(DURATION / NUM_FRAMES)


# -- own data -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("geometry", "shape", "dimension"),
    [
        ("grid", (9,), 1),
        ("mesh", (5, 4), 2),
        ("grid", (5, 4, 3), 3),
        ("cloud", (11,), 1),
        ("cloud", (11,), 2),
        ("cloud", (11,), 3),
    ],
)
@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"inputs": ()},
        {"time": "rollout", "num_steps": 3},
        {"time": "conditioned", "num_steps": 7},
        {"time": "conditioned", "num_steps": 1, "inputs": ()},
    ],
)
def test_every_kind_of_problem_is_drawn(geometry, shape, dimension, kind):
    data = own_data(geometry, shape, dimension, **kind)
    figure = sample_figure(surrogate_of(data.problem), data, 0, "one")
    num_inputs = data.problem.num_inputs
    if "time" in kind:
        expected = num_inputs + 2 * 3 * min(5, data.problem.num_steps)
    else:
        expected = max(1, num_inputs) + 3 * (2 + (geometry != "cloud"))
    assert len(drawn(figure)) == expected
    assert figure.get_suptitle() == "one"
    assert bool(bars(figure)) == (dimension > 1)


def test_curves_of_truth_and_prediction_have_one_axis():
    data = own_data("grid", (9,), 1)
    figure = sample_figure(surrogate_of(data.problem), data, 0)
    pair = panel(figure, "v, truth"), panel(figure, "v, prediction")
    assert pair[0].get_ylim() == pair[1].get_ylim()
    low, high = pair[0].get_ylim()
    for axes in pair:
        values = axes.lines[0].get_ydata()
        assert low <= values.min() <= values.max() <= high


def test_padding_of_clouds_is_not_drawn():
    mask = np.ones((NUM_SAMPLES, 11), bool)
    mask[0, 7:] = False
    data = own_data("cloud", (11,), 2, mask=mask)
    figure = sample_figure(surrogate_of(data.problem), data, 0)
    assert {len(coloured(axes).get_offsets()) for axes in drawn(figure)} == {7}


def test_positions_and_displacements_of_any_name_are_a_deformed_mesh():
    outputs = ("T", "dx", "dy", "x", "y")
    data = own_data("mesh", (5, 4), 2, outputs=outputs, inputs=())
    assert is_deformed(data.problem)
    figure = sample_figure(surrogate_of(data.problem), data, 0)
    assert len(drawn(figure)) == 1 + 3
    nodes = coloured(panel(figure, "truth")).get_coordinates().reshape(-1, 2)
    np.testing.assert_array_equal(nodes, data.targets[0, :, 3:].numpy())
    assert not is_deformed(own_data("cloud", (9,), 2, outputs=outputs).problem)


def test_frames_without_a_known_time_are_numbered_from_one():
    problem = own_data("grid", (5, 4), 2, time="rollout", num_steps=3).problem
    assert [view_of(problem).time_title(step) for step in range(3)] == [
        "frame 1",
        "frame 2",
        "frame 3",
    ]


def test_frame_error_curve():
    problem = BENCHMARKS["navier_stokes"].problem("smoke")
    errors = np.linspace(0.1, 0.5, problem.num_steps)
    (axes,) = frame_error_curve(problem, errors).axes
    np.testing.assert_allclose(axes.lines[0].get_xdata(), np.arange(11, 21))
    np.testing.assert_allclose(axes.lines[0].get_ydata(), 100 * errors)


def test_frame_error_curve_of_frames_without_a_finite_error():
    problem = BENCHMARKS["navier_stokes"].problem("smoke")
    errors = np.linspace(0.1, 0.5, problem.num_steps)
    errors[:2] = np.inf, np.nan
    (axes,) = frame_error_curve(problem, errors).axes
    assert axes.get_ylim() == pytest.approx((0, 54))
    frame_error_curve(problem, np.full(problem.num_steps, np.inf))


@pytest.mark.parametrize(("count", "most"), [(0, 4), (1, 4), (3, 5), (5, 5), (20, 4), (51, 41)])
def test_chosen_numbers_are_spread_over_all(count, most):
    numbers = evenly_spread(count, most)
    assert len(numbers) == len(set(numbers)) == min(count, most)
    if count:
        assert (numbers[0], numbers[-1]) == (0, count - 1)
        assert max(np.diff(numbers), default=0) - min(np.diff(numbers), default=0) <= 1
