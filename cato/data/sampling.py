"""Generating one sample reproducibly: split and index determine all its random numbers."""

import hashlib
import json
from typing import NamedTuple

import numpy as np

from cato.benchmarks.contract import Rejected, Sample
from cato.data.arrays import sample_shapes
from cato.data.spec import DataSpec

MAX_ATTEMPTS = 20
"""Rejections in a row after which the solver counts as broken."""


class AcceptedSample(NamedTuple):
    """A sample and the number of attempts it took."""

    sample: Sample
    attempts: int


def sample_rng(
    seed: int, benchmark: str, split: str, index: int, attempt: int
) -> np.random.Generator:
    """The random numbers of one attempt at one sample.

    They do not depend on the scale or on the number of samples or workers: sample k of the test
    split is the same problem at every resolution and for any number of training samples.
    """
    name = json.dumps([seed, benchmark, split, index, attempt])
    entropy = int.from_bytes(hashlib.sha256(name.encode()).digest(), "little")
    return np.random.default_rng(np.random.SeedSequence(entropy))


def generate_sample(spec: DataSpec, split: str, index: int) -> AcceptedSample:
    """Draw parameters and solve, until a sample is accepted."""
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
        return AcceptedSample(sample, attempt + 1)
    raise RuntimeError(
        f"{spec.benchmark}: {split} sample {index} was rejected {MAX_ATTEMPTS} times in a row, "
        f"last because: {reasons[-1]}"
    )


def _require_finite(sample: Sample) -> None:
    for array in (sample.inputs, sample.targets, sample.coords):
        if array is not None and not np.isfinite(array).all():
            raise Rejected("the solution is not finite")


def _check_layout(sample: Sample, spec: DataSpec) -> None:
    """Check what every benchmark promises about its samples."""
    shapes = sample_shapes(spec.problem)
    for name, array in (("inputs", sample.inputs), ("targets", sample.targets)):
        assert array.shape == shapes[name], (name, array.shape, shapes[name])
        assert array.dtype == np.float32, (name, array.dtype)
    shared = spec.definition.coords(spec.parameters) is not None
    assert shared == (sample.coords is None), "coordinates must be shared or per sample, not both"
    if sample.coords is not None:
        assert sample.coords.shape == shapes["coords"], (sample.coords.shape, shapes["coords"])
        assert sample.coords.dtype == np.float32, sample.coords.dtype
