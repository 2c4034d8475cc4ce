"""The range of the training inputs: is a new input like those that a model was trained on?

A sample is described by features of its inputs and mesh; none depends on a model. On a grid or mesh
every input channel, and every coordinate as displacement from the mean training mesh, has mean,
spread, smallest and largest value, and the RMS difference of nodes at two distances along each mesh
axis, which measures roughness; so has the change of the newest frame of a rollout. A mesh has the
share of its cells that are folded. A cloud has
the number, extent and spacing of its points and the shares of them in coarse boxes; its inputs have
values and differences of neighbours.

The range of feature j is [a_j, b_j], the central 99 % of the training samples. The score of a
sample is how far its features leave their ranges, in units of these,

    s = max_j max(a_j − f_j, f_j − b_j, 0) / (b_j − a_j).

The last feature is the Mahalanobis distance of the others from their training mean, so that inputs
whose features are usual one by one but not together are found too. A sample is outside if s exceeds
a threshold: the ⌈(n + 1)(1 − α)⌉-th smallest of n scores, those of the validation samples and, by
cross-fitting, those of the training samples. If a new sample is exchangeable with these, it is
called outside with probability α; the rate on the test split is measured and reported. A low score
proves nothing: the features describe an input, they do not determine it.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float64
from safetensors import SafetensorError
from safetensors.numpy import load, save
from scipy.spatial import cKDTree

from cato.benchmarks import bounds_of, view_of
from cato.data.arrays import channel_names
from cato.data.dataset import Dataset
from cato.errors import InputError
from cato.files import BLANK, DAMAGED, atomic_write, read_sealed_tensors, seal_tensors
from cato.problem import Problem

FALSE_ALARMS = 0.01  # α.
CENTRAL = 0.99  # Share of the training samples inside the range of a feature.
NUM_FOLDS = 5
MIN_SAMPLES = 2 * NUM_FOLDS  # Training samples without which there is no range.
LEAST_THRESHOLD = 0.05  # A sample that is closer to the range than this is inside.
ROUNDING = 1e-4  # Smallest width of a range, in units of the size of its field.
SHARE_WIDTH = 0.05  # Smallest width of the range of a share of points.
FAR = 8  # The larger distance between nodes is this fraction of a mesh axis.
NEIGHBOURS = (1, 8)  # Neighbours of a point at which spacing and differences are measured.
MAX_POINTS = 2**14  # Points of a cloud whose neighbours are searched.
NUM_BOXES = 4  # Boxes along each axis of the extent of the training clouds.
NODES_AT_ONCE = 2**20
FILE = "range.safetensors"
MAX_OTHER_BYTES = 2**24  # Of the file, besides the mesh.

Features = Float64[np.ndarray, "S J"]


@dataclass(frozen=True)
class Verdict:
    """Whether a sample is inside the training range, and if not, why."""

    kind: Literal["inside", "outside", "unknown"]
    reason: str = ""
    score: float | None = None  # None if there is none, such as on another mesh.

    @property
    def has_band(self) -> bool:
        """Whether a conformal band may be shown with the prediction."""
        return self.kind != "outside"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"verdict": self.kind, "reason": self.reason, "score": self.score}


UNKNOWN = Verdict("unknown", "the run has no training range; `cato evaluate` computes it")


def judge(
    known: "TrainingRange | None", problem: Problem, inputs: np.ndarray, coords: np.ndarray
) -> list[Verdict]:
    """The verdict on each sample: physical bounds of the problem, then the training range.

    Args:
        known: The training range; None if there is none.
        problem: The problem that the model was trained on.
        inputs: (S, *mesh, C_in).
        coords: (S, *mesh, D) or, for all samples, (*mesh, D) or (1, *mesh, D).
    """
    coords = np.broadcast_to(coords, (*inputs.shape[:-1], problem.dimension))
    found = [UNKNOWN] * len(inputs) if known is None else known.verdicts(inputs, coords)
    return [
        Verdict("outside", broken) if (broken := broken_bound(problem, *arrays)) else verdict
        for verdict, *arrays in zip(found, inputs, coords, strict=True)
    ]


def broken_bound(problem: Problem, inputs: np.ndarray, coords: np.ndarray) -> str:
    """The physical bound of the problem that a sample violates, in words; empty if none."""
    names = (*problem.inputs, *channel_names(problem)["coords"])
    for name, bound in bounds_of(problem).items():
        if name not in names:
            continue
        channel = names.index(name)
        is_input = channel < problem.num_inputs
        values = inputs[..., channel] if is_input else coords[..., channel - problem.num_inputs]
        words = view_of(problem).names.get(name, name)
        for value in (values.min(), values.max()):
            if not bound.contains(float(value)):
                return f"{words}: {value:.4g} is physically impossible, it must be {bound}"
    return ""


@dataclass(frozen=True, eq=False)
class TrainingRange:
    """The ranges of all features and the threshold of the score.

    Attributes:
        problem: The problem of the training samples.
        reference: The mean training mesh (*shape, D); for clouds the corners (2, D) of the extent.
        centre: Mean (J,) of the features over the training samples.
        unit: Their deviation (J,).
        precision: Inverse (J, J) of their shrunk correlation matrix.
        low: Lower ends a (J + 1,) of the ranges, the last that of the Mahalanobis distance.
        high: Upper ends b (J + 1,).
        width: Widths b − a (J + 1,), but not less than rounding.
        threshold: Largest score of a sample that is inside.
        num_samples: Number n of scores behind the threshold.
    """

    problem: Problem
    reference: np.ndarray
    centre: np.ndarray
    unit: np.ndarray
    precision: np.ndarray
    low: np.ndarray
    high: np.ndarray
    width: np.ndarray
    threshold: float
    num_samples: int

    @property
    def nominal(self) -> float:
        """Expected share of samples like the training's that are called outside."""
        return 1 - _rank(self.num_samples) / (self.num_samples + 1)

    @cached_property
    def names(self) -> list[str]:
        """The features in words."""
        return [*_names(self.problem, self.reference), "combination of all features"]

    def verdicts(self, inputs: np.ndarray, coords: np.ndarray) -> list[Verdict]:
        """Whether samples (S, *mesh, C_in), (S, *mesh, D) are inside."""
        problem, mesh = self.problem, inputs.shape[1:-1]
        if problem.geometry != "cloud" and mesh != problem.shape:
            words = f"mesh: {_by(mesh)} nodes, training mesh {_by(problem.shape)}"
            return [Verdict("outside", words)] * len(inputs)
        found = []
        for first in range(0, len(inputs), step := max(1, NODES_AT_ONCE // prod(mesh))):
            part = slice(first, first + step)
            described = _describe(problem, self.reference, inputs[part], coords[part])
            found += [self._verdict(features) for features in self._completed(described)]
        return found

    def _verdict(self, features: np.ndarray) -> Verdict:
        excess = self._excess(features)
        score = float(excess.max())
        if score <= self.threshold:
            return Verdict("inside", score=score)
        # The distance is the least telling feature: named only if no other is outside.
        worst = int(excess[:-1].argmax())
        worst = worst if excess[worst] > self.threshold else len(excess) - 1
        ends = f"training range {self.low[worst]:.4g} to {self.high[worst]:.4g}"
        return Verdict("outside", f"{self.names[worst]} = {features[worst]:.4g}, {ends}", score)

    def _excess(self, features: np.ndarray) -> np.ndarray:
        """How far features are outside their ranges, in units of these; 0 inside."""
        beyond = np.maximum(self.low - features, features - self.high)
        return np.maximum(beyond, 0.0) / self.width

    def _completed(self, described: Features) -> Float64[np.ndarray, "S J+1"]:
        """Features with their Mahalanobis distance as the last one."""
        z = (described - self.centre) / self.unit
        distance = np.sqrt(np.maximum(np.einsum("sj,jk,sk->s", z, self.precision, z), 0.0))
        return np.concatenate([described, distance[:, None]], axis=1)

    def scores(self, data: Dataset) -> np.ndarray:
        """The score of every sample of a dataset on the training mesh."""
        features = self._completed(_describe_all(self.problem, self.reference, data))
        return self._excess(features).max(axis=1)


def fit_range(train: Dataset, validation: Dataset | None) -> TrainingRange | None:
    """The range of training samples; None for too few, or values too large to describe."""
    if len(train) < MIN_SAMPLES:
        return None
    problem = train.problem
    reference = _reference(train)
    described = _describe_all(problem, reference, train)
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(described.std(0)).all():
            return None
    least = _least_widths(problem, reference, described)
    folds = np.arange(len(train)) % NUM_FOLDS
    # Distances of samples from a mean and correlation that they are not part of.
    distance = np.empty(len(train))
    for fold in range(NUM_FOLDS):
        others = _fit(problem, reference, described[folds != fold], None, least)
        distance[folds == fold] = others._completed(described[folds == fold])[:, -1]
    scores = []
    for fold in range(NUM_FOLDS):
        is_other = folds != fold
        part = _fit(problem, reference, described[is_other], distance[is_other], least)
        scores.append(part._excess(part._completed(described[~is_other])).max(axis=1))
    found = _fit(problem, reference, described, distance, least)
    if validation is not None and len(validation):
        scores.append(found.scores(validation))
    ordered = np.sort(np.concatenate(scores))
    threshold = max(LEAST_THRESHOLD, float(ordered[_rank(len(ordered)) - 1]))
    return replace(found, threshold=threshold, num_samples=len(ordered))


def _fit(
    problem: Problem,
    reference: np.ndarray,
    described: Features,
    distance: np.ndarray | None,
    least: np.ndarray,
) -> TrainingRange:
    """Ranges of features (S, J) and of their distances, if these are known; no threshold yet."""
    centre, unit = described.mean(0), np.maximum(described.std(0), least)
    z = (described - centre) / unit
    num_samples, num_features = described.shape
    shrinkage = num_features / (num_features + num_samples)
    correlation = (1 - shrinkage) * z.T @ z / num_samples + shrinkage * np.eye(num_features)
    tail = (1 - CENTRAL) / 2
    low, high = np.quantile(described, (tail, 1 - tail), axis=0)
    furthest = 0.0 if distance is None else float(np.quantile(distance, CENTRAL))
    low, high = np.append(low, 0.0), np.append(high, furthest)
    width = np.maximum(high - low, np.append(least, 1.0))
    precision = np.linalg.inv(correlation)
    return TrainingRange(problem, reference, centre, unit, precision, low, high, width, np.inf, 0)


def _rank(count: int) -> int:
    """Rank ⌈(n + 1)(1 − α)⌉ of the threshold among n scores, or the last."""
    return min(count, ceil(round((count + 1) * (1 - FALSE_ALARMS), 9)))


def _reference(train: Dataset) -> np.ndarray:
    coords = train.coords.double().numpy()
    if train.problem.geometry == "cloud":
        nodes = coords if train.mask is None else coords[train.mask.numpy()]
        nodes = nodes.reshape(-1, nodes.shape[-1])
        return np.stack([nodes.min(0), nodes.max(0)])
    mean = coords if coords.ndim == 2 else coords.mean(0)
    # As it is saved, so that a range from a file gives the same scores.
    return mean.astype(np.float32).reshape(*train.problem.shape, -1)


# Features.


def _describe_all(problem: Problem, reference: np.ndarray, data: Dataset) -> Features:
    """The features of all samples of a dataset."""
    found = []
    for first in range(0, len(data), step := max(1, NODES_AT_ONCE // problem.num_nodes)):
        batch = data.batch(slice(first, first + step))
        coords, inputs = batch.coords.numpy(), batch.inputs.numpy()
        if batch.mask is not None:
            for x, a, kept in zip(coords, inputs, batch.mask.numpy(), strict=True):
                found.append(_describe(problem, reference, a[kept][None], x[kept][None]))
            continue
        mesh = (len(inputs), *problem.shape, -1)
        inputs = inputs.reshape(*mesh[:-1], problem.num_inputs)
        found.append(_describe(problem, reference, inputs, coords.reshape(mesh)))
    return np.concatenate(found)


def _describe(
    problem: Problem, reference: np.ndarray, inputs: np.ndarray, coords: np.ndarray
) -> Features:
    """The features of samples on a mesh, in the order of `_names`."""
    inputs, coords = inputs.astype(np.float64), coords.astype(np.float64)
    if problem.geometry == "cloud":
        pairs = zip(inputs, coords, strict=True)
        return np.stack([_of_cloud(reference, values, nodes) for values, nodes in pairs])
    fields = np.concatenate([_with_change(problem, inputs), coords - reference], axis=-1)
    features = _of_fields(fields, problem.periodic)
    if problem.geometry == "grid":
        return features
    return np.concatenate([features, _folded_share(coords)[:, None]], axis=1)


def _with_change(problem: Problem, inputs: np.ndarray) -> np.ndarray:
    """Inputs, and for a rollout the difference of the two newest frames."""
    if not _has_change(problem):
        return inputs
    size = problem.num_outputs
    return np.concatenate([inputs, inputs[..., -size:] - inputs[..., -2 * size : -size]], axis=-1)


def _has_change(problem: Problem) -> bool:
    return problem.time == "rollout" and problem.num_inputs >= 2 * problem.num_outputs


def _of_fields(fields: np.ndarray, periodic: tuple[bool, ...]) -> Features:
    """The features of every channel of (S, *shape, C) fields, channel by channel."""
    axes = tuple(range(1, fields.ndim - 1))
    found = [fields.mean(axes), fields.std(axes), fields.min(axes), fields.max(axes)]
    for axis, wraps in zip(axes, periodic, strict=True):
        for distance in _distances(num_nodes := fields.shape[axis]):
            change = np.roll(fields, -distance, axis) - fields
            if not wraps:
                change = np.take(change, range(num_nodes - distance), axis)
            found.append(np.sqrt(np.square(change).mean(axes)))
    return np.stack(found, axis=-1).reshape(len(fields), -1)


def _distances(num_nodes: int) -> tuple[int, int]:
    """The distances along an axis at which nodes are compared."""
    return 1, max(2, num_nodes // FAR)


def _folded_share(coords: np.ndarray) -> np.ndarray:
    """Share of the cells of meshes (S, *shape, D) that are turned over, by their first corners."""
    num_axes = coords.shape[-1]
    inner = tuple(slice(None, -1) for _ in range(num_axes))
    edges = [
        np.diff(coords, axis=axis + 1)[
            (slice(None), *inner[:axis], slice(None), *inner[axis + 1 :])
        ]
        for axis in range(num_axes)
    ]
    volume = np.linalg.det(np.stack(edges, axis=-1)).reshape(len(coords), -1)
    positive = (volume > 0).mean(1)
    return np.minimum(positive, (volume < 0).mean(1))


def _of_cloud(reference: np.ndarray, inputs: np.ndarray, coords: np.ndarray) -> np.ndarray:
    """The features of one cloud of (N, D) points with (N, C) inputs."""
    low, high = reference
    extent = np.where(high > low, high - low, 1.0)
    box = np.clip((NUM_BOXES * (coords - low) / extent).astype(int), 0, NUM_BOXES - 1)
    flat = np.ravel_multi_index(tuple(box.T), (NUM_BOXES,) * len(extent))
    shares = np.bincount(flat, minlength=NUM_BOXES ** len(extent)) / len(coords)
    some = np.arange(0, len(coords), ceil(len(coords) / MAX_POINTS))
    # The nearest point is the point itself; a cloud may have fewer points than neighbours asked.
    ranks = [min(k, len(coords) - 1) + 1 for k in NEIGHBOURS]
    away, near = (a.reshape(len(some), -1) for a in cKDTree(coords).query(coords[some], ranks))
    change = np.square(inputs[near] - inputs[some][:, None]).mean(0)
    everything = [
        *([len(coords)], coords.mean(0), coords.std(0), coords.min(0), coords.max(0), shares),
        *(away.mean(0), away.std(0), away.max(0)),
        *(inputs.mean(0), inputs.std(0), inputs.min(0), inputs.max(0), np.sqrt(change).ravel()),
    ]
    return np.concatenate(everything)


# Names and smallest widths, in the order of the features.

STATISTICS = ("mean", "spread", "smallest value", "largest value")


def _names(problem: Problem, reference: np.ndarray) -> list[str]:
    words, coords = view_of(problem).names, channel_names(problem)["coords"]
    inputs = [words.get(name, name) for name in problem.inputs]
    if problem.geometry == "cloud":
        return _cloud_names(reference, inputs, coords)
    changes = [
        f"change over {distance} node{'s' if distance > 1 else ''} along axis {axis + 1}"
        for axis, num_nodes in enumerate(problem.shape)
        for distance in _distances(num_nodes)
    ]
    newest = problem.outputs if _has_change(problem) else ()
    inputs += [f"newest change of {words.get(name, name)}" for name in newest]
    fields = [*inputs, *(f"displacement of the mesh along {name}" for name in coords)]
    names = [f"{field}: {what}" for field in fields for what in (*STATISTICS, *changes)]
    return names + ["mesh: share of folded cells"] * (problem.geometry == "mesh")


def _cloud_names(reference: np.ndarray, inputs: list[str], coords: tuple[str, ...]) -> list[str]:
    edges = np.linspace(reference[0], reference[1], NUM_BOXES + 1)
    boxes = [
        ", ".join(
            f"{name} {edges[k, d]:.3g} to {edges[k + 1, d]:.3g}"
            for d, (name, k) in enumerate(zip(coords, box, strict=True))
        )
        for box in np.ndindex(*(NUM_BOXES,) * len(coords))
    ]
    of_spacing = [f"{what} distance to neighbour" for what in ("mean", "spread of the", "largest")]
    return [
        "points: number",
        *(f"points: {what} of {name}" for what in STATISTICS for name in coords),
        *(f"points: share with {box}" for box in boxes),
        *(f"points: {what} {k}" for what in of_spacing for k in NEIGHBOURS),
        *(f"{name}: {what}" for what in STATISTICS for name in inputs),
        *(f"{name}: change to neighbour {k}" for k in NEIGHBOURS for name in inputs),
    ]


def _least_widths(problem: Problem, reference: np.ndarray, described: Features) -> np.ndarray:
    """The smallest width of the range of every feature: differences below it are rounding."""
    largest = np.quantile(np.abs(described), (1 + CENTRAL) / 2, axis=0)
    largest = np.where(largest > 0, largest, 1.0)
    extent = np.ptp(reference.reshape(-1, problem.dimension), axis=0)
    extent = np.where(extent > 0, extent, 1.0)
    num_inputs, num_coords = problem.num_inputs, problem.dimension
    if problem.geometry == "cloud":
        num_stats, num_changes = len(STATISTICS), len(NEIGHBOURS)
        of_inputs = largest[len(largest) - num_inputs * (num_stats + num_changes) :]
        sizes = of_inputs[: num_stats * num_inputs].reshape(num_stats, num_inputs).max(0)
        return np.concatenate(
            [
                described[:, 0].mean(keepdims=True),
                ROUNDING * np.tile(extent, num_stats),
                np.full(NUM_BOXES**num_coords, SHARE_WIDTH),
                np.full(3 * num_changes, ROUNDING * extent.max()),
                ROUNDING * np.tile(sizes, num_stats + num_changes),
            ]
        )
    per_field = len(STATISTICS) + 2 * len(problem.shape)
    num_inputs += problem.num_outputs * _has_change(problem)
    sizes = largest[: per_field * num_inputs].reshape(num_inputs, per_field).max(1)
    sizes = np.repeat(np.concatenate([sizes, extent]), per_field)
    return np.append(ROUNDING * sizes, [SHARE_WIDTH] * (problem.geometry == "mesh"))


def _by(sizes: tuple[int, ...]) -> str:
    return " × ".join(map(str, sizes))


# The file in a run folder.

ARRAYS = ("reference", "centre", "unit", "precision", "low", "high", "width")


def save_range(folder: Path, known: TrainingRange, owner: str) -> None:
    """Save a range in the folder of a run, whose id is its owner, see `cato.files`."""
    about = {
        "threshold": repr(known.threshold),
        "num_samples": str(known.num_samples),
        "checksum": BLANK,
    }
    arrays = {name: np.ascontiguousarray(getattr(known, name)) for name in ARRAYS}
    with atomic_write(folder / FILE) as temporary:
        temporary.write_bytes(seal_tensors(save(arrays, about), FILE, owner))


def load_range(folder: Path, problem: Problem, owner: str) -> TrainingRange | None:
    """The range in a run folder; None if there is none."""
    path = folder / FILE
    max_bytes = MAX_OTHER_BYTES + 8 * problem.num_nodes * problem.dimension
    try:
        content, about = read_sealed_tensors(path, owner, max_bytes)
        arrays = load(content)
        threshold, num_samples = float(about["threshold"]), int(about["num_samples"])
        known = TrainingRange(
            problem,
            **{name: arrays[name] for name in ARRAYS},
            threshold=threshold,
            num_samples=num_samples,
        )
        _check(known)
    except FileNotFoundError:
        return None
    except (OSError, SafetensorError, *DAMAGED) as error:
        raise InputError(f"{path} is damaged ({error}); delete it and evaluate again") from None
    return known


def _check(known: TrainingRange) -> None:
    """Raise a `ValueError` if the arrays of a range do not fit its problem or each other."""
    problem = known.problem
    is_cloud = problem.geometry == "cloud"
    mesh = (2, problem.dimension) if is_cloud else (*problem.shape, problem.dimension)
    if known.reference.shape != mesh:
        raise ValueError(f"mesh {known.reference.shape} instead of {mesh}")
    num = len(known.names) - 1
    for name, size in (("centre", num), ("unit", num), ("low", num + 1), ("high", num + 1)):
        if getattr(known, name).shape != (size,):
            raise ValueError(f"{name} of shape {getattr(known, name).shape} instead of ({size},)")
    if known.width.shape != (num + 1,) or known.precision.shape != (num, num):
        raise ValueError("widths of another shape")
    if not all(np.isfinite(getattr(known, name)).all() for name in ARRAYS):
        raise ValueError("values that are not finite")
    if not (known.width > 0).all() or not known.threshold > 0 or known.num_samples < 1:
        raise ValueError("a width or threshold that is not positive")
