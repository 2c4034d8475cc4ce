from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from cato import benchmarks
from cato.benchmarks import get_benchmark
from cato.benchmarks.contract import SPLITS, Benchmark, Rejected, Sample, Scale
from cato.data.sampling import MAX_ATTEMPTS, generate_sample, sample_rng
from cato.data.spec import DataSpec
from cato.errors import InputError
from cato.problem import Problem


def test_darcy_sizes_are_the_papers() -> None:
    darcy = get_benchmark("darcy")
    assert darcy.problem("paper").shape == (85, 85)
    assert darcy.parameters("paper").num_solver_nodes == 421
    assert darcy.parameters("small").num_solver_nodes == 141
    assert darcy.parameters("smoke").num_solver_nodes == 29
    assert DataSpec("darcy", "paper").counts == {"train": 900, "validation": 100, "test": 200}


def test_resolution_keeps_the_stride() -> None:
    darcy = get_benchmark("darcy")
    assert darcy.parameters("small", 85).num_solver_nodes == 421
    assert darcy.problem("small", 85).shape == (85, 85)


def test_one_seed_is_one_medium_at_every_scale_and_resolution() -> None:
    coarse, fine = (
        generate_sample(DataSpec("darcy", "smoke", resolution=r), "test", 3).sample
        for r in (15, 29)
    )
    assert np.array_equal(coarse.inputs, fine.inputs[::2, ::2])
    difference = np.linalg.norm(coarse.targets - fine.targets[::2, ::2])
    assert 0 < difference < 0.05 * np.linalg.norm(coarse.targets)
    small = generate_sample(DataSpec("darcy", "small"), "test", 3).sample
    assert np.array_equal(small.inputs[::2, ::2], coarse.inputs)


def test_darcy_coordinates_are_x_along_the_first_axis() -> None:
    darcy = get_benchmark("darcy")
    coords = darcy.coords(darcy.parameters("smoke"))
    assert coords is not None
    np.testing.assert_allclose(coords[3, 5], [3 / 14, 5 / 14], rtol=1e-6)


def test_every_word_of_the_seed_matters() -> None:
    base = (0, "darcy", "train", 1, 0)
    others = [
        (1, "darcy", "train", 1, 0),
        (0, "pipe", "train", 1, 0),
        (0, "darcy", "test", 1, 0),
        (0, "darcy", "train", 2, 0),
        (0, "darcy", "train", 1, 1),
        (0, "darcy", "train", 11, 0),
    ]
    first = sample_rng(*base).standard_normal(4)
    assert np.array_equal(first, sample_rng(*base).standard_normal(4))
    for other in others:
        assert not np.array_equal(first, sample_rng(*other).standard_normal(4))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"benchmark": "darci"}, "no benchmark 'darci'"),
        ({"scale": "large"}, "no scale 'large'"),
        ({"seed": -1}, "seed"),
        ({"count": 0}, "training samples"),
        ({"resolution": 2}, "at least 3 nodes"),
        ({"splits": ("train", "dev")}, "splits"),
        ({"splits": ()}, "splits"),
    ],
)
def test_impossible_specifications_are_refused(change: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(DataSpec("darcy", "smoke"), **change)


def test_file_names_and_commands_say_what_is_special() -> None:
    assert DataSpec("darcy", "small").file_name == "darcy-small-seed0.h5"
    spec = DataSpec("darcy", "small", 3, count=50, resolution=85, splits=("test",))
    assert spec.file_name == "darcy-small-seed3-n50-r85-test.h5"
    assert spec.command(Path("data")) == (
        "cato generate darcy --scale small --seed 3 --count 50 --resolution 85 --splits test"
    )
    assert DataSpec("darcy", "small").command(Path("x")).endswith("--scale small --out x")
    keys = {DataSpec("darcy", "small", seed).key for seed in range(5)} | {spec.key}
    assert len(keys) == 6


def test_splits_keep_their_order() -> None:
    assert DataSpec("darcy", "smoke", splits=("test", "train")).splits == ("train", "test")
    assert DataSpec("darcy", "smoke").splits == SPLITS


@dataclass(frozen=True)
class Mood:
    patience: float


class Moody(Benchmark[Mood]):
    """Rejects by its random numbers; has one mesh only."""

    name = "moody"
    title = "Moody"
    description = "A test."
    scales: ClassVar = {"smoke": Scale(Mood(0.5), 4, 1, 1), "never": Scale(Mood(0.0), 4, 1, 1)}

    def problem_for(self, parameters: Mood) -> Problem:
        return Problem("moody", "cloud", (3,), (), ("u",))

    def draw(self, rng: np.random.Generator, parameters: Mood) -> np.ndarray:
        return rng.uniform(size=1)

    def solve(self, drawn: np.ndarray, parameters: Mood) -> Sample:
        (value,) = drawn
        if value > parameters.patience:
            raise Rejected("not in the mood")
        targets = np.full((3, 1), np.nan if value < 0.1 else value, np.float32)
        return Sample(np.zeros((3, 0), np.float32), targets, np.zeros((3, 2), np.float32))


@pytest.fixture
def moody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(benchmarks.BENCHMARKS, "moody", Moody())


@pytest.mark.usefixtures("moody")
def test_rejected_and_infinite_samples_are_redrawn_with_the_next_attempt() -> None:
    spec = DataSpec("moody", "smoke")
    attempts = []
    for index in range(40):
        drawn = generate_sample(spec, "train", index)
        values = [sample_rng(0, "moody", "train", index, k).uniform() for k in range(MAX_ATTEMPTS)]
        expected = next(k for k, value in enumerate(values) if 0.1 <= value <= 0.5)
        assert drawn.attempts == expected + 1
        assert drawn.sample.targets[0, 0] == np.float32(values[expected])
        attempts.append(drawn.attempts)
    assert max(attempts) > 3


@pytest.mark.usefixtures("moody")
def test_a_solver_that_always_fails_is_a_bug() -> None:
    with pytest.raises(RuntimeError, match=r"rejected 20 times.*not in the mood"):
        generate_sample(DataSpec("moody", "never"), "train", 0)


@pytest.mark.usefixtures("moody")
def test_resolution_of_a_fixed_mesh_is_refused() -> None:
    with pytest.raises(InputError, match="one mesh only"):
        DataSpec("moody", "smoke", resolution=5)
