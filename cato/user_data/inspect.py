"""Checking samples for what would spoil a training.

Training refuses values that are infinite, coordinates that are NaN, and targets or frames that are
zero everywhere. Nodes without values (NaN), folded cells, duplicates and constant channels are only
reported.
"""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import numpy as np

from cato.data.conditioning import recommend
from cato.errors import InputError
from cato.problem import Problem
from cato.user_data.periodic import closing_axes, num_folded_cells
from cato.user_data.precision import ROUNDING, Spread, offsets_of
from cato.user_data.samples import UserSamples, dataset_of, recognise


@dataclass(frozen=True)
class Finding:
    """A sentence about some samples, and whether it stops a training."""

    what: str
    samples: tuple[int, ...] = ()
    stops: bool = False


@dataclass(frozen=True)
class Inspection:
    """The detected layout of a path, and problems with its samples."""

    problem: Problem
    num_samples: int
    shared_mesh: bool
    splits: dict[str, int]
    ranges: dict[str, tuple[float, float]]  # Of the finite values of each coordinate and channel.
    findings: list[Finding]
    conditioning: dict[str, Any]
    """What the network sees by default; empty if a finding stops a training."""
    why: dict[str, str]  # A sentence on each setting of the conditioning.
    folds: int = 0  # Of cross-validation; 0 for none.

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        shown = ("name", "geometry", "shape", "dimension", "periodic", "inputs", "outputs", "time")
        values = {name: getattr(self.problem, name) for name in shown}
        values["num_frames"] = self.problem.num_steps
        return values | {name: v for name, v in asdict(self).items() if name != "problem"}


def inspect_samples(
    samples: UserSamples,
    splits: dict[str, list[int]],
    notes: Sequence[str] = (),
    folds: int = 0,
) -> Inspection:
    """Check all samples; `notes` are guesses that led to them."""
    problem, found = recognise(samples), _named_spreads(samples)
    ranges = {n: (s.low, s.high) for n, s in found.items() if s.low <= s.high}
    findings = [
        *(Finding(sentence) for sentence in (*notes, *samples.notes)),
        *_stopping(samples),
        *_masked(samples),
        *_unlike(problem),
        *_folded(samples, problem),
        *(
            Finding(
                f"the last line of axis {axis} has nodes and values of the first: if the mesh is "
                f"periodic there, train with --data.periodic {axis}"
            )
            for axis in closing_axes(samples)
        ),
        *_duplicates(samples, splits),
        *(
            Finding(f"{name} is constant, {low:g} everywhere: a model learns nothing from it")
            for name, (low, high) in ranges.items()
            if low == high
        ),
        *_precision(found),
    ]
    counts = {name: len(indices) for name, indices in splits.items()}
    shared = samples.has_shared_coords
    conditioning: dict[str, Any] = {}
    why: dict[str, str] = {}
    if not any(finding.stops for finding in findings):
        train = dataset_of(samples, problem, splits["train"])
        recommended, why = recommend(train)
        conditioning = asdict(recommended)
    return Inspection(
        problem, len(samples), shared, counts, ranges, findings, conditioning, why, folds
    )


def assumed(samples: UserSamples) -> list[str]:
    """What a training assumes about nodes without values and magnitudes."""
    found = [*_masked(samples), *_unlike(recognise(samples))]
    return [finding.what for finding in found]


def require_usable(samples: UserSamples) -> None:
    """Raise if a training cannot use the samples, naming the first bad one."""
    for finding in _stopping(samples):
        origin = samples.samples[finding.samples[0]].origin
        more = len(finding.samples) - 1
        others = f" (and in {more} more samples)" if more else ""
        raise InputError(
            f"{origin}: {finding.what}{others}; fix or remove them. "
            f"`cato inspect {samples.path}` lists all"
        )


def _stopping(samples: UserSamples) -> list[Finding]:
    """What stops a training, with the indices of all its samples."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    spreads = _named_spreads(samples)
    incomplete = {name for name, spread in spreads.items() if not spread.is_complete}
    for index, sample in enumerate(samples.samples if incomplete else []):
        for name, values in samples.channels(sample):
            if name not in incomplete:
                continue
            if np.isinf(values).any():
                found[f"{name} has infinite values"].append(index)
            elif name.startswith("coordinate") and np.isnan(values).any():
                found[
                    f"{name} is NaN at some nodes; give every node a position, and NaN or a mask "
                    f"to the fields"
                ].append(index)
            elif np.isnan(values).all():
                found[f"{name} is NaN at all nodes"].append(index)
    for name, spread in spreads.items():
        if not spread.is_usable:
            what = f"{name} reaches {spread.largest:.2g}, which squares of float64 cannot carry"
            found[f"{what}: use another unit"] = list(range(len(samples)))
    offsets = np.array(offsets_of(samples.spreads["outputs"]) or 0.0)
    undefined = "zero everywhere, so that a relative error is undefined"
    if offsets.any():
        undefined = f"the mean {offsets.tolist()} everywhere, so that a relative error is undefined"
    advice = "to leave out a start from rest, use --targets u[1:]"
    for index, sample in enumerate(samples.samples):
        if sample.targets is None:
            continue
        unknown = np.isnan(sample.targets)
        varies = (sample.targets != offsets) | (unknown & ~unknown.all())
        if not (varies & ~unknown).any():
            found[f"the targets are {undefined}"].append(index)
        elif samples.time != "steady":  # in time each frame has a relative error
            for frame in np.flatnonzero([not frame.any() for frame in varies]):
                found[f"frame {frame} of the targets is {undefined} ({advice})"].append(index)
    return [Finding(what, tuple(indices), stops=True) for what, indices in found.items()]


def _masked(samples: UserSamples) -> list[Finding]:
    """How much has no values."""
    found = []
    if samples.mask:
        shares = [1 - float(sample.inputs[..., 0].mean()) for sample in samples.samples]
        where = tuple(index for index, share in enumerate(shares) if share)
        what = "no inputs" if samples.mask == "inputs" else "no values"
        extent = f"{min(shares):.1%} to {max(shares):.1%}" if np.ptp(shares) else f"{shares[0]:.1%}"
        found.append(
            Finding(
                f"{extent} of the nodes of a sample have {what}: a mask is the first input, and "
                f"the inputs there are the mean of the others",
                where if len(where) < len(samples) else (),
            )
        )
    truths = [sample.targets for sample in samples.samples if sample.targets is not None]
    gaps = np.array([np.isnan(truth).mean() for truth in truths])
    if gaps.any():
        where = tuple(np.flatnonzero(gaps).tolist())
        found.append(
            Finding(
                f"{gaps.mean():.1%} of the target values are NaN and count in no loss, error or "
                f"band",
                where if len(where) < len(samples) else (),
            )
        )
    return found


def _unlike(problem: Problem) -> list[Finding]:
    if not problem.units:
        return []
    sizes = ", ".join(f"{n} {u:.2g}" for n, u in (problem.unit_by_output or {}).items())
    return [
        Finding(
            f"targets of unlike magnitudes ({sizes}): the loss and the error over all count each "
            f"alike (--loss.field-weights raw trains on physical values)"
        )
    ]


def _folded(samples: UserSamples, problem: Problem) -> list[Finding]:
    if problem.geometry == "cloud":
        return []
    counts = [num_folded_cells(sample.coords) for sample in samples.on_distinct_meshes]
    folded = tuple(index for index, count in enumerate(counts) if count)
    if not folded:
        return []
    where = "the mesh" if samples.has_shared_coords else f"{len(folded)} meshes"
    what = f"{where} with folded or collapsed cells ({max(counts)} in the worst)"
    return [Finding(f"{what}: the loss will have no gradient terms", folded)]


def _duplicates(samples: UserSamples, splits: dict[str, list[int]]) -> list[Finding]:
    """Samples with the same nodes and inputs."""
    split_of = {index: name for name, indices in splits.items() for index in indices}
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for index, sample in enumerate(samples.samples):
        nodes = b"" if samples.has_shared_coords else sample.coords.tobytes()
        key = hashlib.sha256(nodes + sample.inputs.tobytes()).hexdigest()
        groups[key].append(index)
    same = [group for group in groups.values() if len(group) > 1]
    across = [group for group in same if len({split_of.get(index) for index in group}) > 1]
    sentences = {
        f"{sum(map(len, same))} samples have the inputs and nodes of another": same,
        "duplicates are in different splits: the test error will look better than it is": across,
    }
    return [Finding(what, tuple(chain(*found))) for what, found in sentences.items() if found]


def _named_spreads(samples: UserSamples) -> dict[str, Spread]:
    """Statistics of each coordinate and channel by name."""
    names = [name for name, _ in samples.channels(samples.samples[0])]
    return dict(zip(names, chain(*samples.spreads.values()), strict=True))


def _precision(found: dict[str, Spread]) -> list[Finding]:
    """What float32 cannot carry, and what that means."""
    sentences = []
    for name, spread in found.items():
        varies = f"{name} varies by {spread.deviation:.2g} around {spread.mean:.10g}"
        if spread.rounded_share > ROUNDING:
            sentences.append(
                f"{varies}, and the rounding of the file's numbers is {spread.rounded_share:.0%} "
                f"of that; write the variation itself, or more digits"
            )
        if spread.is_offset:
            errors = ", and errors are relative to the variation" * name.startswith("target")
            sentences.append(f"{varies}, which float32 cannot carry: it stays in float64{errors}")
        elif spread.is_usable and not spread.is_in_range:
            sentences.append(
                f"{name} reaches {spread.largest:.2g}, which squares of float32 cannot carry: it "
                f"stays in float64"
            )
    return [Finding(sentence) for sentence in sentences]
