"""Drawing one sample, reproducibly: which sample it is decides all its random numbers."""

import hashlib
import json
from typing import NamedTuple

import numpy as np

from cato.benchmarks import Sample
from cato.benchmarks.rejected import Rejected
from cato.data.arrays import sample_shapes
from cato.data.spec import DataSpec

MAX_ATTEMPTS = 20
"""A solver that fails so often in a row is broken, not unlucky."""


class Drawn(NamedTuple):
    """An accepted sample and how many draws it took."""

    sample: Sample
    attempts: int


def sample_rng(
    seed: int, benchmark: str, split: str, index: int, attempt: int
) -> np.random.Generator:
    """The random numbers of one attempt at one sample.

    Neither the scale nor the number of samples or workers enters: sample k of the test split is the
    same problem at every resolution and beside any number of training samples.
    """
    name = json.dumps([seed, benchmark, split, index, attempt])
    entropy = int.from_bytes(hashlib.sha256(name.encode()).digest(), "little")
    return np.random.default_rng(np.random.SeedSequence(entropy))


def draw(spec: DataSpec, split: str, index: int) -> Drawn:
    """Draw and solve until a sample is accepted."""
    reasons = []
    for attempt in range(MAX_ATTEMPTS):
        rng = sample_rng(spec.seed, spec.benchmark, split, index, attempt)
        try:
            sample = spec.definition.sample(rng, spec.parameters)
            _require_finite(sample)
        except Rejected as rejected:
            reasons.append(str(rejected))
            continue
        _check_layout(sample, spec)
        return Drawn(sample, attempt + 1)
    raise RuntimeError(
        f"{spec.benchmark}: {split} sample {index} was rejected {MAX_ATTEMPTS} times in a row, "
        f"last because: {reasons[-1]}"
    )


def _require_finite(sample: Sample) -> None:
    for array in (sample.inputs, sample.targets, sample.coords):
        if array is not None and not np.isfinite(array).all():
            raise Rejected("the solution is not finite")


def _check_layout(sample: Sample, spec: DataSpec) -> None:
    """The solver's side of the contract."""
    shapes = sample_shapes(spec.problem)
    for name, array in (("inputs", sample.inputs), ("targets", sample.targets)):
        assert array.shape == shapes[name], (name, array.shape, shapes[name])
        assert array.dtype == np.float32, (name, array.dtype)
    shared = spec.definition.coords(spec.parameters) is not None
    assert shared == (sample.coords is None), "coordinates must be shared or per sample, not both"
    if sample.coords is not None:
        assert sample.coords.shape == shapes["coords"], (sample.coords.shape, shapes["coords"])
        assert sample.coords.dtype == np.float32, sample.coords.dtype
