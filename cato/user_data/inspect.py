"""Looking through samples for what would spoil a training.

Values that are not finite and targets or frames that are zero everywhere are refused by a training;
folded cells, duplicates and constant channels are only told.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from cato.errors import InputError
from cato.problem import Problem
from cato.user_data.periodic import closing_axes, num_folded_cells
from cato.user_data.samples import UserSample, UserSamples, recognise


@dataclass(frozen=True)
class Finding:
    """Something about some samples.

    Attributes:
        what: A sentence.
        samples: Their numbers, all of them.
        stops: Whether a training refuses them.
    """

    what: str
    samples: tuple[int, ...] = ()
    stops: bool = False


@dataclass(frozen=True)
class Inspection:
    """What was understood of a path."""

    problem: Problem
    num_samples: int
    has_shared_coords: bool
    splits: dict[str, int]
    ranges: dict[str, tuple[float, float]]
    """Smallest and largest finite value of each coordinate and channel."""
    findings: list[Finding] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        problem = self.problem
        return {
            "name": problem.name,
            "geometry": problem.geometry,
            "shape": list(problem.shape),
            "dimension": problem.dimension,
            "periodic": list(problem.periodic),
            "inputs": list(problem.inputs),
            "outputs": list(problem.outputs),
            "time": problem.time,
            "num_frames": problem.num_steps,
            "num_samples": self.num_samples,
            "shared_mesh": self.has_shared_coords,
            "splits": self.splits,
            "ranges": {name: list(ends) for name, ends in self.ranges.items()},
            "findings": [
                {"what": f.what, "samples": list(f.samples), "stops": f.stops}
                for f in self.findings
            ],
        }


def inspect_samples(samples: UserSamples, splits: dict[str, list[int]]) -> Inspection:
    """Look through all samples."""
    problem = recognise(samples)
    findings = [
        *_not_finite(samples),
        *_zero(samples),
        *_folded(samples, problem),
        *_closing(samples),
        *_duplicates(samples, splits),
    ]
    ranges = _ranges(samples)
    findings += [
        Finding(f"{name} is constant, {low:g} everywhere: it tells a model nothing")
        for name, (low, high) in ranges.items()
        if low == high
    ]
    counts = {name: len(indices) for name, indices in splits.items()}
    shared = samples.has_shared_coords
    return Inspection(problem, len(samples), shared, counts, ranges, findings)


def require_usable(samples: UserSamples) -> None:
    """Refuse what no training can use, with the first sample at fault."""
    for finding in (*_not_finite(samples), *_zero(samples)):
        origin = samples.samples[finding.samples[0]].origin
        more = len(finding.samples) - 1
        others = f" (and in {more} more samples)" if more else ""
        raise InputError(
            f"{origin}: {finding.what}{others}; mend or remove them. "
            f"`cato inspect {samples.path}` lists all"
        )


def _channels(samples: UserSamples, sample: UserSample) -> Iterator[tuple[str, np.ndarray]]:
    """Coordinates, inputs and targets of a sample by name."""
    for axis in range(sample.coords.shape[-1]):
        yield f"coordinate {axis + 1}", sample.coords[..., axis]
    for channel, name in enumerate(samples.inputs):
        yield f"input {name}", sample.inputs[..., channel]
    if sample.targets is not None:
        for channel, name in enumerate(samples.outputs):
            yield f"target {name}", sample.targets[..., channel]


def _not_finite(samples: UserSamples) -> list[Finding]:
    found: dict[str, list[int]] = {}
    for index, sample in enumerate(samples.samples):
        arrays = (sample.coords, sample.inputs, sample.targets)
        if all(a is None or np.isfinite(a).all() for a in arrays):
            continue
        for name, values in _channels(samples, sample):
            if not np.isfinite(values).all():
                found.setdefault(name, []).append(index)
    return [
        Finding(f"{name} has values that are NaN or infinite as float32", tuple(indices), True)
        for name, indices in found.items()
    ]


def _zero(samples: UserSamples) -> list[Finding]:
    """Targets that are zero everywhere; in time each frame has a relative error of its own."""
    undefined = "zero everywhere, so that a relative error is undefined"
    found: dict[str, list[int]] = {}
    for index, sample in enumerate(samples.samples):
        if sample.targets is None:
            continue
        if not sample.targets.any():
            found.setdefault(f"the targets are {undefined}", []).append(index)
        elif samples.time != "steady":
            for number in np.flatnonzero([not frame.any() for frame in sample.targets]):
                what = f"frame {number} of the targets is {undefined}"
                advice = "a start from rest is left out by --targets u[1:]"
                found.setdefault(f"{what} ({advice})", []).append(index)
    return [Finding(what, tuple(indices), True) for what, indices in found.items()]


def _folded(samples: UserSamples, problem: Problem) -> list[Finding]:
    if problem.geometry == "cloud":
        return []
    shared = samples.has_shared_coords
    counts = {
        index: num_folded_cells(sample.coords)
        for index, sample in enumerate(samples.samples[:1] if shared else samples.samples)
    }
    folded = {index: count for index, count in counts.items() if count}
    if not folded:
        return []
    where = "the mesh" if shared else f"{len(folded)} meshes"
    what = f"{where} with folded or collapsed cells ({max(folded.values())} in the worst)"
    return [Finding(f"{what}: no gradient terms in the loss", tuple(folded))]


def _closing(samples: UserSamples) -> list[Finding]:
    return [
        Finding(
            f"the last line of axis {axis} has nodes and values of the first: if the mesh closes "
            f"on itself there, train with --data.periodic {axis}"
        )
        for axis in closing_axes(samples)
    ]


def _duplicates(samples: UserSamples, splits: dict[str, list[int]]) -> list[Finding]:
    """Samples with the same nodes and inputs."""
    split_of = {index: name for name, indices in splits.items() for index in indices}
    groups: dict[str, list[int]] = {}
    shared = samples.has_shared_coords
    for index, sample in enumerate(samples.samples):
        arrays = [sample.inputs] if shared else [sample.coords, sample.inputs]
        key = hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest()
        groups.setdefault(key, []).append(index)
    same = [group for group in groups.values() if len(group) > 1]
    across = [g for g in same if any(split_of.get(a) != split_of.get(b) for a, b in pairwise(g))]
    findings = []
    if same:
        what = f"{sum(map(len, same))} samples have the inputs and nodes of another"
        findings.append(Finding(what, tuple(i for group in same for i in group)))
    if across:
        what = "duplicates stand in different splits: the test error will look better than it is"
        findings.append(Finding(what, tuple(i for group in across for i in group)))
    return findings


def _ranges(samples: UserSamples) -> dict[str, tuple[float, float]]:
    ranges: dict[str, tuple[float, float]] = {}
    for sample in samples.samples:
        for name, values in _channels(samples, sample):
            finite = values[np.isfinite(values)]
            if finite.size:
                low, high = ranges.get(name, (np.inf, -np.inf))
                ranges[name] = (min(low, float(finite.min())), max(high, float(finite.max())))
    return ranges
