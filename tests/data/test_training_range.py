"""The range of the training inputs: few false alarms on its own kind, and power against others."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from scipy.stats import binom

from cato.benchmarks import BENCHMARKS
from cato.benchmarks.contract import Bound
from cato.data.dataset import Dataset, InMemory
from cato.data.training_range import (
    FALSE_ALARMS,
    FILE,
    FORM,
    MIN_SAMPLES,
    UNKNOWN,
    Patterns,
    fit_range,
    judge,
    load_range,
    save_range,
)
from cato.errors import InputError
from cato.problem import Problem

SIZE = 17
COUNTS = {"train": 300, "validation": 100, "test": 200}
GRID = Problem("field", "grid", (SIZE, SIZE), ("a",), ("u",))
MESH = Problem("shape", "mesh", (SIZE, SIZE), (), ("u",))
TORUS = Problem(
    *("vortex", "grid", (SIZE, SIZE), ("w1", "w2", "w3"), ("w",)),
    periodic=(True, True),
    time="rollout",
    num_steps=1,
)
CLOUD = Problem("cloud", "cloud", (60,), ("a",), ("u",))
LINE = np.arange(SIZE) / (SIZE - 1)
NODES = np.stack(np.meshgrid(LINE, LINE, indexing="ij"), -1)


def waves(rng, count, top=3, num=1, nodes=NODES):
    """Random smooth fields (S, *mesh, num): cosines of up to `top` half-waves per axis."""
    k = np.arange(1, top + 1)
    modes = rng.standard_normal((count, num, top, top)) / np.hypot(k[:, None], k)
    x, y = (np.cos(np.pi * nodes[..., d, None] * k) for d in range(2))
    return np.einsum("scij,...i,...j->s...c", modes, x, y)


def samples(problem, count, rng):
    """Inputs and coordinates of random samples, as they come from files."""
    empty = np.zeros((count, SIZE, SIZE, 0))
    if problem is GRID:
        return 2 + waves(rng, count), NODES
    if problem is MESH:
        return empty, NODES + 0.02 * waves(rng, count, num=2)
    if problem is TORUS:  # each frame follows from the one before
        first = np.stack([np.roll(w, rng.integers(SIZE), 0) for w in waves(rng, count)])
        return np.concatenate([np.roll(first, 2 * t, 1) for t in range(3)], -1), NODES
    coords = rng.random((count, 60, 2))
    return np.sin(3 * coords.sum(-1, keepdims=True)) + rng.random((count, 1, 1)), coords


def dataset(problem, inputs, coords):
    frames = () if problem.time == "steady" else (1,)
    targets = np.ones((len(inputs), *frames, *problem.shape, 1))
    return Dataset.from_arrays(problem, coords, inputs, targets)


@pytest.fixture(scope="module")
def fitted():
    """By problem, the range, and inputs and coordinates of test samples."""
    found = {}
    for problem in (GRID, MESH, TORUS, CLOUD):
        rng = np.random.default_rng(0)
        arrays = {name: samples(problem, count, rng) for name, count in COUNTS.items()}
        sets = {name: dataset(problem, *arrays[name]) for name in ("train", "validation")}
        test = [np.asarray(array, np.float32) for array in arrays["test"]]
        found[problem.name] = (problem, fit_range(**sets), *test)
    return found


each_problem = pytest.mark.parametrize("name", ["field", "shape", "vortex", "cloud"])


def kinds(known, problem, inputs, coords):
    return np.array([verdict.kind for verdict in judge(known, problem, inputs, coords)])


@each_problem
def test_false_alarms_are_as_rare_as_promised(fitted, name):
    problem, known, inputs, coords = fitted[name]
    assert known.num_samples == COUNTS["train"] + COUNTS["validation"]
    assert known.nominal == pytest.approx(FALSE_ALARMS, abs=0.003)
    # The rate of this very threshold varies about the nominal one too: twice it is common.
    allowed = binom(COUNTS["test"], 2 * FALSE_ALARMS).ppf(0.999)
    alarms = kinds(known, problem, inputs, coords) == "outside"
    assert alarms.sum() <= allowed
    strict = replace(known, threshold=-1.0)
    assert (kinds(strict, problem, inputs, coords) == "outside").all()


def test_a_range_that_is_too_narrow_would_be_found(fitted):
    problem, known, inputs, coords = fitted["field"]
    narrow = replace(known, threshold=0.7 * known.threshold)
    alarms = kinds(narrow, problem, inputs, coords) == "outside"
    assert alarms.sum() > binom(COUNTS["test"], 2 * FALSE_ALARMS).ppf(0.999)


STRIPES = np.where(np.arange(SIZE) < SIZE - 1, (-1.0) ** np.arange(SIZE), 0.0)[:, None, None]
CHANGES = {
    "twice as large": ("field", lambda a, x: (2 * a, x), "a: "),
    "another sign": ("field", lambda a, x: (-a, x), "a: "),
    "rougher": ("field", lambda a, x: (a + STRIPES, x), "a: remainder"),
    "smoother": ("field", lambda a, x: (a.mean((1, 2), keepdims=True) + 0 * a, x), "a: "),
    "on a turned grid": ("field", lambda a, x: (a, x[..., ::-1]), "mesh along x1"),
    "on a shifted grid": ("field", lambda a, x: (a, x + 0.001), "displacement of the mesh"),
    "at another resolution": ("field", lambda a, x: (a[:, ::2, ::2], x[::2, ::2]), "9 × 9 nodes"),
    "three times as deformed": ("shape", lambda a, x: (a, NODES + 3 * (x - NODES)), "mesh along"),
    "turned": ("shape", lambda a, x: (a, np.stack([-x[..., 1], x[..., 0]], -1)), "mesh along"),
    "folded": ("shape", lambda a, x: (a, _folded(x)), "mesh"),
    "a frame repeated": ("vortex", lambda a, x: (a[..., [0, 0, 0]], x), "w3: remainder"),
    "an offset": ("vortex", lambda a, x: (a + 5, x), "w1: "),
    "in half of the domain": ("cloud", lambda a, x: (a, 0.5 * x), "points, x"),
    "half of the points": ("cloud", lambda a, x: (a[:, ::2], x[:, ::2]), "nearest point"),
    "other values": ("cloud", lambda a, x: (3 * a, x), "a: "),
    "noisy": ("cloud", lambda a, x: (a + (-1.0) ** np.arange(60)[:, None], x), "a: "),
}


def _folded(nodes):
    turned = nodes.copy()
    turned[:, [7, 8]] = nodes[:, [8, 7]]
    return turned


@pytest.mark.parametrize("change", CHANGES)
def test_other_inputs_are_found_and_named(fitted, change):
    name, applied, words = CHANGES[change]
    problem, known, inputs, coords = fitted[name]
    verdicts = judge(known, problem, *applied(inputs, coords))
    outside = [verdict for verdict in verdicts if verdict.kind == "outside"]
    assert len(outside) >= 0.9 * len(verdicts)
    assert any(words in verdict.reason for verdict in outside), outside[0].reason
    assert not any(verdict.has_band for verdict in outside)


def test_a_mild_deformation_is_found_by_the_nodes_where_statistics_do_not_show_it(fitted):
    """Half as much again: no mean, smallest or largest displacement need be unusual."""
    problem, known, inputs, coords = fitted["shape"]
    mild = NODES + 1.5 * (coords - NODES)
    statistics = known.low.size - known.patterns.mean.shape[0] - 2
    by_statistics = replace(
        known,
        low=np.append(known.low[:statistics], np.full(len(known.low) - statistics, -1e9)),
        high=np.append(known.high[:statistics], np.full(len(known.low) - statistics, 1e9)),
    )
    found, blunt = (
        (kinds(which, problem, inputs, mild) == "outside").mean()
        for which in (known, by_statistics)
    )
    assert found > 0.6
    assert found > 1.2 * blunt


def test_distance_is_that_of_mahalanobis_in_the_space_of_the_training_samples():
    """Vectors that a few directions span: nothing remains, and T is the whitened norm."""
    rng = np.random.default_rng(0)
    directions, deviation = np.linalg.qr(rng.standard_normal((40, 3)))[0].T, [5.0, 2.0, 0.5]
    drawn = rng.standard_normal((100, 3))
    vectors = (deviation * drawn @ directions)[:, None]
    patterns = Patterns.fit(vectors, np.full((1, 1), 1e-9))
    _, remainder, distance = patterns.measures(vectors).T
    assert len(patterns.deviation) == 3
    assert remainder.max() < 1e-5
    centred = drawn - drawn.mean(0)
    precision = np.linalg.inv(np.cov(drawn.T, bias=True))
    expected = np.einsum("si,ij,sj->s", centred, precision, centred) / 3
    np.testing.assert_allclose(distance**2, expected, rtol=1e-4)


def test_what_does_not_matter_does_not_matter(fitted):
    problem, known, inputs, coords = fitted["cloud"]
    order = np.random.default_rng(3).permutation(60)
    moved = judge(known, problem, inputs[:, order], coords[:, order])
    for before, after in zip(judge(known, problem, inputs, coords), moved, strict=True):
        assert after.score == pytest.approx(before.score, abs=1e-5)
    problem, known, inputs, coords = fitted["field"]
    rounded = judge(known, problem, inputs, coords * (1 + 1e-7))
    before = judge(known, problem, inputs, coords)
    assert [v.kind for v in rounded] == [v.kind for v in before]


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_units_do_not_matter(size):
    rng = np.random.default_rng(0)
    inputs, coords = samples(GRID, 60, rng)
    plain, scaled = (
        fit_range(dataset(GRID, factor * inputs, coords), None) for factor in (1.0, size)
    )
    assert scaled.threshold == pytest.approx(plain.threshold, rel=1e-3)
    stretched = np.repeat([1.0, 1.3], 10)[:, None, None, None]
    new = (stretched * samples(GRID, 20, rng)[0]).astype(np.float32)
    ours = judge(plain, GRID, new, coords)
    theirs = judge(scaled, GRID, (new.astype(float) * size).astype(np.float32), coords)
    assert [v.kind for v in ours] == [v.kind for v in theirs]
    assert {v.kind for v in ours} == {"inside", "outside"}


def test_the_words_are_the_numbers(fitted):
    problem, known, inputs, coords = fitted["field"]
    one = inputs[:1] + 20
    (verdict,) = judge(known, problem, one, coords)
    name, _, words = verdict.reason.partition(" = ")
    assert name in ("a: mean", "a: smallest value", "a: largest value")
    value, low, high = map(float, re.findall(r"-?[\d.]+", words))
    of = {"mean": one.mean(), "smallest value": one.min(), "largest value": one.max()}
    assert value == pytest.approx(of[name.removeprefix("a: ")], rel=1e-3)
    assert low < high < value
    assert verdict.score > known.threshold


def test_a_training_mesh_that_never_changed_may_be_rounded_but_not_moved():
    rng = np.random.default_rng(0)
    inputs, coords = samples(GRID, 40, rng)
    known = fit_range(dataset(GRID, inputs, coords), None)
    saved = np.round(coords, 6).astype(np.float32)
    typical = inputs[:1].astype(np.float32)
    assert judge(known, GRID, typical, saved)[0].kind == "inside"
    assert judge(known, GRID, typical, coords + 1e-4)[0].kind == "outside"


def test_constant_and_empty_inputs_give_a_range():
    coords = np.broadcast_to(NODES, (20, SIZE, SIZE, 2))
    zero = np.zeros((20, SIZE, SIZE, 1))
    known = fit_range(dataset(GRID, zero, coords), None)
    assert judge(known, GRID, zero[:1], NODES)[0].kind == "inside"
    assert judge(known, GRID, zero[:1] + 1, NODES)[0].kind == "outside"


def test_one_wild_training_sample_does_not_widen_the_range():
    rng = np.random.default_rng(0)
    inputs, coords = samples(GRID, 400, rng)
    inputs[0] *= 1e6
    known = fit_range(dataset(GRID, inputs, coords), None)
    wrong = 3 * samples(GRID, 50, rng)[0]
    assert (kinds(known, GRID, wrong, coords) == "outside").mean() > 0.9


def test_padding_of_clouds_does_not_count():
    rng = np.random.default_rng(0)
    inputs, coords = samples(CLOUD, 40, rng)
    plain = fit_range(dataset(CLOUD, inputs, coords), None)
    padded = replace(CLOUD, shape=(70,))
    more = [np.concatenate([a, np.full((40, 10, a.shape[-1]), 9.0)], 1) for a in (inputs, coords)]
    mask = np.arange(70) < np.full((40, 1), 60)
    data = Dataset.from_arrays(padded, more[1], more[0], np.ones((40, 70, 1)), mask=mask)
    masked = fit_range(data, None)
    np.testing.assert_allclose(masked.low, plain.low, rtol=1e-9)
    np.testing.assert_allclose(masked.high, plain.high, rtol=1e-9)


def test_tiny_clouds_and_lines_have_a_range():
    line = Problem("line", "grid", (5,), ("a",), ("u",), dimension=1)
    rng = np.random.default_rng(0)
    x = np.linspace(0, 1, 5)[:, None]
    known = fit_range(dataset(line, rng.random((30, 5, 1)), x), None)
    assert judge(known, line, np.full((1, 5, 1), 7.0), x)[0].kind == "outside"
    few = Problem("few", "cloud", (2,), ("a",), ("u",), dimension=3)
    known = fit_range(dataset(few, rng.random((30, 2, 1)), rng.random((30, 2, 3))), None)
    assert len(judge(known, few, rng.random((4, 2, 1)), rng.random((4, 2, 3)))) == 4


def test_too_few_samples_have_none_and_nothing_is_claimed():
    rng = np.random.default_rng(0)
    inputs, coords = samples(GRID, MIN_SAMPLES - 1, rng)
    assert fit_range(dataset(GRID, inputs, coords), None) is None
    assert judge(None, GRID, inputs, coords) == [UNKNOWN] * len(inputs)
    assert UNKNOWN.has_band


# Physical bounds.


def test_a_negative_permeability_is_impossible_even_if_the_range_is_unknown():
    problem = BENCHMARKS["darcy"].problem("smoke")
    medium = np.full((3, 15, 15, 1), 3.0)
    medium[1, 4, 4] = 0.0
    medium[2, 4, 4] = -2.0
    coords = BENCHMARKS["darcy"].coords(BENCHMARKS["darcy"].parameters("smoke"))
    fine, zero, negative = judge(None, problem, medium, coords)
    assert fine == UNKNOWN
    assert (zero.kind, negative.kind) == ("outside", "outside")
    assert negative.reason == (
        "permeability a: -2 is physically impossible, it must be more than 0"
    )


def test_points_outside_the_cell_are_impossible():
    problem = BENCHMARKS["elasticity"].problem("smoke")
    coords = np.random.default_rng(0).random((2, 972, 2))
    coords[0, 5, 1] = 1 + 1e-7  # rounding
    coords[1, 5, 1] = 1.1
    fine, wrong = judge(None, problem, np.zeros((2, 972, 0)), coords)
    assert fine == UNKNOWN
    assert wrong.reason == "x2: 1.1 is physically impossible, it must be from 0 to 1"


def test_bounds_are_of_channels_that_exist():
    for benchmark in BENCHMARKS.values():
        problem = benchmark.problem("smoke")
        names = {*problem.inputs, *(f"x{d + 1}" for d in range(problem.dimension))}
        assert set(benchmark.bounds) <= names
    assert str(Bound(high=2.0)) == "at most 2"
    assert str(Bound(low=2.0)) == "at least 2"


# The file.


@each_problem
def test_a_range_from_a_file_gives_the_same_verdicts(fitted, name, tmp_path):
    problem, known, inputs, coords = fitted[name]
    save_range(tmp_path, known, "")
    again = load_range(tmp_path, problem, "")
    assert judge(again, problem, inputs, coords) == judge(known, problem, inputs, coords)
    assert load_range(tmp_path / "elsewhere", problem, "") is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda path, arrays: path.write_bytes(path.read_bytes()[:-9]),
        lambda path, arrays: path.write_bytes(b""),
        lambda path, arrays: _save(path, arrays, threshold=""),
        lambda path, arrays: _save(path, arrays, threshold="nan"),
        lambda path, arrays: _save(path, arrays, num_samples="x"),
        lambda path, arrays: _save(path, arrays | {"low": arrays["low"][:-1]}),
        lambda path, arrays: _save(path, arrays | {"high": arrays["low"]}),
        lambda path, arrays: _save(path, arrays | {MEAN: np.nan * arrays[MEAN]}),
        lambda path, arrays: _save(path, {name: arrays[name] for name in arrays if name != MEAN}),
        lambda path, arrays: _save(path, arrays | {"reference": arrays["reference"][1:]}),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(fitted, damage, tmp_path):
    problem, known, _, _ = fitted["field"]
    save_range(tmp_path, known, "")
    damage(tmp_path / FILE, load_file(tmp_path / FILE))
    with pytest.raises(InputError, match="damaged") as error:
        load_range(tmp_path, problem, "")
    assert "\n" not in str(error.value)


MEAN = "patterns.mean"


def _save(path, arrays, **about):
    about = {"form": FORM, "threshold": "0.1", "num_samples": "3"} | about
    save_file(arrays, path, about)


def test_a_file_of_an_earlier_form_is_no_range_of_this_version(fitted, tmp_path):
    problem, known, _, _ = fitted["field"]
    save_range(tmp_path, known, "")
    _save(tmp_path / FILE, load_file(tmp_path / FILE), form="1")
    assert load_range(tmp_path, problem, "") is None
    assert "this version; `cato evaluate` computes it" in UNKNOWN.reason


def test_scores_of_a_dataset_are_those_of_its_samples(fitted):
    problem, known, inputs, coords = fitted["shape"]
    data = InMemory(
        problem,
        torch.from_numpy(coords).flatten(1, 2),
        torch.from_numpy(inputs).flatten(1, 2),
        torch.ones(len(inputs), SIZE**2, 1),
    )
    verdicts = judge(known, problem, inputs, coords)
    np.testing.assert_allclose(known.scores(data), [v.score for v in verdicts], rtol=1e-9)
