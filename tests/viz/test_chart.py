"""The chart of a model: its picture is what the model sees, and what is said of it is so."""

import numpy as np
import pytest

from cato.data.dataset import Dataset
from cato.data.normalise import Normaliser
from cato.inference.evaluate import solve_all
from cato.models.registry import build_model, model_class
from cato.problem import Problem
from cato.surrogate import Surrogate
from cato.viz.figures import chart_figure, describe_chart

GEOMETRIES = {"cato": "mesh", "cato_pc": "cloud"}


def with_chart(name, kind):
    """CATO with a chart, and data with a network's scale far from theirs; clouds are padded."""
    rng = np.random.default_rng(0)
    is_cloud = GEOMETRIES[name] == "cloud"
    shape = (30,) if is_cloud else (6, 5)
    problem = Problem(
        "own", GEOMETRIES[name], shape, ("a",), ("u",), normalise=("coords", "outputs")
    )
    grid = np.stack(np.meshgrid(np.arange(6.0), np.arange(5.0), indexing="ij"), -1)
    coords = 30 + 7 * np.stack([grid, grid + 0.1]).reshape(2, *shape, 2)
    mask = None
    if is_cloud:
        mask = np.ones((2, 30), bool)
        mask[0, 20:], coords[0, 20:] = False, 1e4
    inputs, targets = rng.normal(size=(2, 2, *shape, 1))
    data = Dataset.from_arrays(problem, coords, inputs, targets, mask=mask)
    config = model_class(name).config_class(width=8, depth=1, heads=2, chart=kind)
    return Surrogate(build_model(name, config, problem), Normaliser.fit(data)), data


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("kind", ["learned", "normalised", "raw"])
def test_the_picture_is_the_chart_that_the_model_computes_with(name, kind):
    surrogate, data = with_chart(name, kind)
    seen = []
    surrogate.model.chart.register_forward_hook(lambda _, __, zeta: seen.append(zeta[0].numpy()))
    solve_all(surrogate, data.subset([0]))
    left, right = chart_figure(surrogate, data).axes
    assert right.get_title() == f"{kind} chart"
    if name == "cato_pc":
        drawn, places = (axes.collections[0].get_offsets() for axes in (right, left))
        np.testing.assert_allclose(drawn, seen[0][:20], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(places, data.coords[0, :20])
    else:
        lines = right.collections[0].get_segments()
        np.testing.assert_allclose(lines, seen[0].reshape(6, 5, 2), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_a_model_without_a_chart_has_no_picture_of_one(name):
    surrogate, data = with_chart(name, "none")
    assert chart_figure(surrogate, data) is None
    assert surrogate.charted(data.coords) is None


@pytest.mark.parametrize("kind", ["learned", "normalised", "raw"])
def test_the_words_about_a_chart_name_its_kind_and_its_use(kind):
    mesh, cloud = (describe_chart(with_chart(name, kind)[0]) for name in GEOMETRIES)
    assert f"Attention measures distance in the {kind} chart" in mesh
    assert f"the {kind} chart" in cloud
    assert "ttention" not in cloud  # which is by slices
