"""Generating one sample reproducibly: split and index determine all its random numbers."""

import hashlib
import io
import json
from typing import NamedTuple

import numpy as np

from cato.benchmarks.contract import Rejected, Sample
from cato.data.arrays import sample_shapes
from cato.data.spec import DataSpec

MAX_ATTEMPTS = 20  # Rejections in a row after which the solver counts as broken.


class AcceptedSample(NamedTuple):
    """A sample and the number of attempts it took."""

    sample: Sample
    attempts: int
    seconds: float | None = None
    """Time of the solver for the job that a model does; None if the sample was read."""

    def arrays(self) -> dict[str, np.ndarray]:
        """As it is stored: rows of the arrays of its split, without the names of diagnostics."""
        sample = self.sample
        row = {
            "inputs": sample.inputs,
            "targets": sample.targets,
            "attempts": np.array(self.attempts, np.int32),
            "diagnostics": np.array(list(sample.diagnostics.values()), np.float64),
        }
        return row if sample.coords is None else row | {"coords": sample.coords}

    def to_bytes(self) -> bytes:
        """As a NumPy archive, which a worker sends."""
        archive, names = io.BytesIO(), np.array(list(self.sample.diagnostics), np.str_)
        np.savez(archive, allow_pickle=False, names=names, **self.arrays())
        return archive.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> "AcceptedSample":
        """The sample of an archive."""
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            names, values = arrays["names"].tolist(), arrays["diagnostics"].tolist()
            diagnostics = dict(zip(names, values, strict=True))
            sample = Sample(arrays["inputs"], arrays["targets"], arrays.get("coords"), diagnostics)
            return cls(sample, int(arrays["attempts"]))


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
            drawn = spec.definition.draw(rng, spec.parameters)
            sample, seconds = spec.definition.timed_solve(drawn, spec.parameters)
            _check(sample, spec)
        except Rejected as rejected:
            reasons.append(str(rejected))
            continue
        return AcceptedSample(sample, attempt + 1, seconds)
    raise RuntimeError(
        f"{spec.benchmark}: {split} sample {index} was rejected {MAX_ATTEMPTS} times in a row, "
        f"last because: {reasons[-1]}"
    )


def _check(sample: Sample, spec: DataSpec) -> None:
    """Check what every benchmark promises about its samples; reject one that is not finite."""
    shared = spec.definition.coords(spec.parameters) is not None
    assert shared == (sample.coords is None), "coordinates must be shared or per sample, not both"
    for name, shape in sample_shapes(spec.problem).items():
        array = getattr(sample, name)
        if array is None:
            continue
        assert array.shape == shape, (name, array.shape, shape)
        assert array.dtype == np.float32, (name, array.dtype)
        if not np.isfinite(array).all():
            raise Rejected("the solution is not finite")
