"""The range of the training inputs: is a new input like those that a model was trained on?

A sample is described by numbers that do not depend on a model. Its fields are, on a grid or mesh,
its inputs and the displacement of the nodes from the mean training mesh; on a cloud, its inputs,
the coordinates and the distance to the nearest point. Described are

- of every field, its mean, smallest and largest value (statistics), and
- a vector v: the fields at the nodes, or at every second, third, … of large meshes; on a cloud,
  where points do not correspond, the cosine moments of the points and of the inputs at them.

Training vectors have ranges, entry by entry, and principal components. These give the measures

- excess: how far the entries of v leave their ranges,
- remainder Q: what the components do not explain, the RMS over each field, and
- distance T: the RMS of the components, each in units of its deviation.

T and Q are those of statistical process control (Jackson and Mudholkar, 1979); measures of training
samples are cross-fitted. The central 99 % of the training samples have a statistic or measure t in
[a, b]. The score of a sample is the largest of

    |2 t − a − b| / (b − a),

which is 1 at the ends: a sample that is too typical is unusual as well. It is outside if its score
exceeds a threshold, the ⌈(n + 1)(1 − α)⌉-th smallest of the n scores of training and validation
samples. If a new sample is exchangeable with these, it is outside with probability α; the rate on
the test split is measured and reported. A low score proves nothing: an input can differ in ways
that these numbers do not show. How they were chosen is in docs/log.md.
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import ceil, prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

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

FALSE_ALARMS = 0.02  # α.
CENTRAL = 0.99  # Share of the training samples between a and b.
NUM_FOLDS = 5
MIN_SAMPLES = 2 * NUM_FOLDS  # Training samples without which there is no range.
MAX_SAMPLES = 1000  # Training samples that the range is fitted on.
MAX_ENTRIES = 4096  # Of a vector.
NUM_MOMENTS = 6  # Cosines along each axis of a cloud.
EXPLAINED = 0.9999  # Share of the variance that the principal components explain, unless there are
MAX_COMPONENTS = 50  # more than this, or
SAMPLES_PER_COMPONENT = 5  # fewer samples per component.
LEAST_WIDTH = 0.1  # Of the range of an entry, in units of the widest range in its field.
WILD = 10.0  # Excess of samples that are mistakes: they do not become a component.
ROUNDING = 1e-5  # Differences in units of the size of a field that do not count.
LEAST_RANGE = 0.01  # Of a statistic, in units of the size of the field,
LEAST_EXCESS = 0.01  # of the excess and of the distance.
MAX_POINTS = 2**14  # Points of a cloud whose moments and neighbours are computed.
NODES_AT_ONCE = 2**20
FILE = "range.safetensors"
FORM = "2"  # Of the file. Version 0.1 and earlier development versions wrote others.
MAX_OTHER_BYTES = 2**24  # Of the file, besides the mesh.

STATISTICS = ("mean", "smallest value", "largest value")
NEAREST = "distance to the nearest point"


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


UNKNOWN = Verdict(
    "unknown", "the run has no training range of this version; `cato evaluate` computes it"
)


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


class Described(NamedTuple):
    """Samples as numbers: E statistics, and G groups of M entries."""

    statistics: Float64[np.ndarray, "S E"]
    vectors: Float64[np.ndarray, "S G M"]

    def of(self, chosen: np.ndarray) -> "Described":
        """Some of the samples."""
        return Described(self.statistics[chosen], self.vectors[chosen])


@dataclass(frozen=True, eq=False)
class Patterns:
    """What training vectors v have in common.

    Attributes:
        low: Lower ends (G, M) of the ranges of all entries.
        high: Upper ends (G, M).
        rounding: Differences (G, 1) that do not count.
        mean: Training mean (G, M).
        unit: Deviation (G, 1) of the entries of each group.
        components: Principal components (K, G M), orthonormal, of (v − mean) / unit.
        deviation: Their deviations (K,) over the training samples.
    """

    low: np.ndarray
    high: np.ndarray
    rounding: np.ndarray
    mean: np.ndarray
    unit: np.ndarray
    components: np.ndarray
    deviation: np.ndarray

    @classmethod
    def fit(cls, vectors: Float64[np.ndarray, "S G M"], rounding: np.ndarray) -> "Patterns":
        """The patterns of training vectors."""
        low, high = _central(vectors)
        largest = _excess(vectors, low, high, rounding).max((1, 2))
        usual = vectors[largest <= max(WILD, np.quantile(largest, 0.9))]
        mean = usual.mean(0)
        unit = np.maximum(np.sqrt(usual.var(0).mean(1, keepdims=True)), rounding)
        z = ((usual - mean) / unit).reshape(len(usual), -1)
        squares, left = np.linalg.eigh(z @ z.T)  # small: few samples, many entries
        squares, left = np.maximum(squares[::-1], 0.0), left[:, ::-1]
        needed = int((np.cumsum(squares) < EXPLAINED * squares.sum()).sum()) + 1
        most = min(MAX_COMPONENTS, len(z) // SAMPLES_PER_COMPONENT, int((squares > 0).sum()))
        sizes = np.sqrt(squares[: min(needed, most)])
        components = (left[:, : len(sizes)] / sizes).T @ z
        # As it is saved, so that a range from a file gives the same scores.
        components = components.astype(np.float32)
        return cls(low, high, rounding, mean, unit, components, sizes / np.sqrt(len(z)))

    def excess(self, vectors: Float64[np.ndarray, "S G M"]) -> np.ndarray:
        """How far each entry is outside its range, in units of that range."""
        return _excess(vectors, self.low, self.high, self.rounding)

    def measures(self, vectors: Float64[np.ndarray, "S G M"]) -> np.ndarray:
        """The largest excess, the remainder Q of every group, the distance T: (S, 1 + G + 1)."""
        z = (vectors - self.mean) / self.unit
        along = z.reshape(len(z), -1) @ self.components.T
        rest = z - (along @ self.components).reshape(z.shape)
        squares = np.square(along / self.deviation).sum(1) / max(1, len(self.deviation))
        return np.column_stack(
            [
                self.excess(vectors).max((1, 2)),
                np.sqrt(np.square(rest).mean(2)),
                np.sqrt(squares),
            ]
        )


def _excess(
    vectors: np.ndarray, low: np.ndarray, high: np.ndarray, rounding: np.ndarray
) -> np.ndarray:
    """How far (S, G, M) entries are outside ranges (G, M), in units of these."""
    width = high - low
    width = np.maximum(width, np.maximum(LEAST_WIDTH * width.max(1, keepdims=True), rounding))
    beyond = np.maximum(low - vectors, vectors - high) - rounding
    return np.maximum(beyond, 0.0) / width


def _central(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the central 99 % of samples."""
    tail = (1 - CENTRAL) / 2
    low, high = np.quantile(values, (tail, 1 - tail), axis=0)
    return low, high


@dataclass(frozen=True, eq=False)
class TrainingRange:
    """The ranges of all statistics and measures, and the threshold of the score.

    Attributes:
        problem: The problem of the training samples.
        reference: The mean training mesh (*shape, D); for clouds the corners (2, D) of the extent.
        patterns: What the training vectors have in common.
        low: Lower ends a (J,) of statistics and measures.
        high: Upper ends b (J,), at least rounding above the lower ones.
        threshold: Largest score of a sample that is inside.
        num_samples: Number n of scores behind the threshold.
    """

    problem: Problem
    reference: np.ndarray
    patterns: Patterns
    low: np.ndarray
    high: np.ndarray
    threshold: float
    num_samples: int

    @property
    def nominal(self) -> float:
        """Expected share of samples like the training's that are called outside."""
        return 1 - _rank(self.num_samples) / (self.num_samples + 1)

    @cached_property
    def names(self) -> list[str]:
        """What a (J,) vector of statistics and measures has, in words."""
        groups = [f"{name}: remainder" for name in _group_names(self.problem)]
        statistics = [f"{name}: {what}" for name in _names(self.problem) for what in STATISTICS]
        return [*statistics, "largest excess", *groups, "distance from the training mean"]

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
            values = self._values(described)
            scores = _scores(values, self.low, self.high)
            for sample in zip(scores, values, *described, strict=True):
                found.append(self._verdict(*sample))
        return found

    def scores(self, data: Dataset) -> np.ndarray:
        """The score of every sample of a dataset on the training mesh."""
        described = _describe_all(self.problem, self.reference, data, np.arange(len(data)))
        return _scores(self._values(described), self.low, self.high).max(1)

    def _values(self, described: Described) -> Float64[np.ndarray, "S J"]:
        """Statistics and measures of samples."""
        measures = self.patterns.measures(described.vectors)
        return np.concatenate([described.statistics, measures], axis=1)

    def _verdict(
        self, scores: np.ndarray, values: np.ndarray, statistics: np.ndarray, vector: np.ndarray
    ) -> Verdict:
        score = float(scores.max())
        if score <= self.threshold:
            return Verdict("inside", score=score)
        # What says most comes first: statistics, then one node, then remainders and distance.
        first, last = len(statistics), len(statistics) + 1
        if scores[:first].max() > self.threshold:
            worst = int(scores[:first].argmax())
        elif scores[first] > self.threshold:
            return Verdict("outside", self._entry_reason(vector), score)
        else:
            worst = last + int(scores[last:].argmax())
        ends = f"training range {self.low[worst]:.4g} to {self.high[worst]:.4g}"
        return Verdict("outside", f"{self.names[worst]} = {values[worst]:.4g}, {ends}", score)

    def _entry_reason(self, vector: Float64[np.ndarray, "G M"]) -> str:
        """The entry of a vector that is furthest outside its range, in words."""
        patterns, problem = self.patterns, self.problem
        worst = np.unravel_index(patterns.excess(vector[None]).argmax(), vector.shape)
        value, low, high = (x[worst] for x in (vector, patterns.low, patterns.high))
        if problem.geometry == "cloud":
            moment = np.unravel_index(int(worst[1]), (NUM_MOMENTS,) * problem.dimension)
            place = f": cosine moment {', '.join(map(str, moment))}"
        else:
            node = self.reference[_kept(problem)].reshape(-1, problem.dimension)[worst[1]]
            place = f" at ({', '.join(f'{x:.3g}' for x in node)})"
        name = f"{_group_names(problem)[worst[0]]}{place}"
        return f"{name} = {value:.4g}, training range there {low:.4g} to {high:.4g}"


def fit_range(train: Dataset, validation: Dataset | None) -> TrainingRange | None:
    """The range of training samples; None for too few, or values too large to describe."""
    if len(train) < MIN_SAMPLES:
        return None
    problem, reference = train.problem, _reference(train)
    some = np.arange(0, len(train), ceil(len(train) / MAX_SAMPLES))
    described = _describe_all(problem, reference, train, some)
    with np.errstate(over="ignore", invalid="ignore"):
        if not all(np.isfinite(np.square(numbers)).all() for numbers in described):
            return None
    rounding = _rounding(problem, reference, described.statistics)
    of_groups = rounding
    if problem.geometry == "cloud":  # the moments of the points have no unit
        of_groups = np.append(ROUNDING, rounding[: problem.num_inputs])
    of_groups = of_groups[:, None]
    patterns = Patterns.fit(described.vectors, of_groups)
    fold = np.arange(len(some)) % NUM_FOLDS
    measures = np.empty((len(some), len(of_groups) + 2))
    for left_out in range(NUM_FOLDS):
        others = Patterns.fit(described.vectors[fold != left_out], of_groups)
        measures[fold == left_out] = others.measures(described.vectors[fold == left_out])
    values = np.concatenate([described.statistics, measures], axis=1)
    of_measures = [LEAST_EXCESS, *(of_groups / patterns.unit)[:, 0], LEAST_EXCESS]
    of_statistics = np.repeat(LEAST_RANGE / ROUNDING * rounding, len(STATISTICS))
    least = np.append(of_statistics, of_measures)
    low, high = _central(values)
    middle, half = (low + high) / 2, np.maximum(high - low, least) / 2
    low, high = middle - half, middle + half
    found = TrainingRange(problem, reference, patterns, low, high, np.inf, 0)
    scores = _scores(values, low, high).max(1)
    if validation is not None and len(validation):
        scores = np.append(scores, found.scores(validation))
    threshold = max(1.0, float(np.sort(scores)[_rank(len(scores)) - 1]))
    return replace(found, threshold=threshold, num_samples=len(scores))


def _scores(values: Float64[np.ndarray, "S J"], low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Scores (S, J) by each statistic and measure: 0 in the middle, 1 at either end."""
    return np.abs(2 * values - low - high) / (high - low)


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


# The numbers that describe a sample.


def _describe_all(
    problem: Problem, reference: np.ndarray, data: Dataset, chosen: np.ndarray
) -> Described:
    """Chosen samples of a dataset."""
    found = []
    step = max(1, NODES_AT_ONCE // problem.num_nodes)
    for first in range(0, len(chosen), step):
        batch = data.batch(chosen[first : first + step].tolist())
        coords, inputs = batch.coords.numpy(), batch.inputs.numpy()
        if batch.mask is not None:
            for x, a, kept in zip(coords, inputs, batch.mask.numpy(), strict=True):
                found.append(_describe(problem, reference, a[kept][None], x[kept][None]))
            continue
        mesh = (len(inputs), *problem.shape)
        inputs, coords = inputs.reshape(*mesh, problem.num_inputs), coords.reshape(*mesh, -1)
        found.append(_describe(problem, reference, inputs, coords))
    return Described(*(np.concatenate(numbers) for numbers in zip(*found, strict=True)))


def _describe(
    problem: Problem, reference: np.ndarray, inputs: np.ndarray, coords: np.ndarray
) -> Described:
    """Samples (S, *mesh, C_in), (S, *mesh, D)."""
    inputs, coords = inputs.astype(np.float64), coords.astype(np.float64)
    if problem.geometry == "cloud":
        pairs = [_describe_cloud(reference, *pair) for pair in zip(inputs, coords, strict=True)]
        return Described(*(np.stack(numbers) for numbers in zip(*pairs, strict=True)))
    fields = np.moveaxis(np.concatenate([inputs, coords - reference], axis=-1), -1, 1)
    vectors = fields[:, :, *_kept(problem)].reshape(*fields.shape[:2], -1)
    return Described(_statistics(fields.reshape(*fields.shape[:2], -1)), vectors)


def _describe_cloud(reference: np.ndarray, inputs: np.ndarray, coords: np.ndarray) -> Described:
    """One cloud of (N, D) points with (N, C_in) inputs, without the axis of samples."""
    every = ceil(len(coords) / MAX_POINTS)
    some, values = coords[::every], inputs[::every]
    low, high = reference
    angle = np.pi * (some - low) / np.where(high > low, high - low, 1.0)
    cosines = np.ones((len(some), 1))
    for axis in range(coords.shape[1]):
        factor = np.cos(angle[:, axis, None] * np.arange(NUM_MOMENTS))
        cosines = (cosines[:, :, None] * factor[:, None]).reshape(len(some), -1)
    weights = np.concatenate([np.ones((len(some), 1)), values], axis=1)
    # The nearest point is the point itself; a cloud may be a single point.
    nearest = cKDTree(coords).query(some, [min(2, len(coords))])[0]
    statistics = [_statistics(a.T[None])[0] for a in (inputs, coords, nearest)]
    return Described(np.concatenate(statistics), weights.T @ cosines / len(some))


def _statistics(fields: Float64[np.ndarray, "S C N"]) -> Float64[np.ndarray, "S E"]:
    """`STATISTICS` of every field, field by field."""
    found = np.stack([fields.mean(-1), fields.min(-1), fields.max(-1)], axis=-1)
    return found.reshape(len(fields), -1)


def _kept(problem: Problem) -> tuple[slice, ...]:
    """The nodes whose values are entries of a vector, along each mesh axis."""
    every, num_fields = 1, problem.num_inputs + problem.dimension
    while num_fields * prod(ceil(n / every) for n in problem.shape) > MAX_ENTRIES:
        every += 1
    return (slice(None, None, every),) * len(problem.shape)


def _rounding(
    problem: Problem, reference: np.ndarray, statistics: Float64[np.ndarray, "S E"]
) -> Float64[np.ndarray, " C"]:
    """The differences of each field that do not count."""
    _, smallest, largest = np.moveaxis(statistics.reshape(len(statistics), -1, 3), -1, 0)
    low, high = _central(smallest)[0], _central(largest)[1]
    # Of float32, a little more than its last digit.
    size = np.maximum(high - low, 0.1 * np.maximum(np.abs(low), np.abs(high)))
    extent = np.ptp(reference.reshape(-1, problem.dimension), axis=0)
    size[problem.num_inputs :][: problem.dimension] = extent
    return ROUNDING * np.where(size > 0, size, 1.0)


def _names(problem: Problem) -> list[str]:
    """The fields in words."""
    words, coords = view_of(problem).names, channel_names(problem)["coords"]
    inputs = [words.get(name, name) for name in problem.inputs]
    if problem.geometry == "cloud":
        return [*inputs, *(f"points, {name}" for name in coords), NEAREST]
    return [*inputs, *(f"displacement of the mesh along {name}" for name in coords)]


def _group_names(problem: Problem) -> list[str]:
    """The groups of a vector in words."""
    if problem.geometry == "cloud":
        return ["points", *_names(problem)[: problem.num_inputs]]
    return _names(problem)


def _by(sizes: tuple[int, ...]) -> str:
    return " × ".join(map(str, sizes))


# The file in a run folder.

OF_PATTERNS = tuple(field.name for field in fields(Patterns))
ARRAYS = ("reference", "low", "high")


def save_range(folder: Path, known: TrainingRange, owner: str) -> None:
    """Save a range in the folder of a run, whose id is its owner, see `cato.files`."""
    about = {
        "form": FORM,
        "threshold": repr(known.threshold),
        "num_samples": str(known.num_samples),
        "checksum": BLANK,
    }
    arrays = {name: getattr(known, name) for name in ARRAYS}
    arrays |= {f"patterns.{name}": getattr(known.patterns, name) for name in OF_PATTERNS}
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    with atomic_write(folder / FILE) as temporary:
        temporary.write_bytes(seal_tensors(save(arrays, about), FILE, owner))


def load_range(folder: Path, problem: Problem, owner: str) -> TrainingRange | None:
    """The range in a run folder; None if there is none, or one of an earlier form."""
    path = folder / FILE
    max_bytes = MAX_OTHER_BYTES + 8 * problem.num_nodes * problem.dimension
    try:
        content, about = read_sealed_tensors(path, owner, max_bytes)
        if about.get("form") != FORM:
            return None
        arrays = load(content)
        known = TrainingRange(
            problem,
            patterns=Patterns(*(arrays[f"patterns.{name}"] for name in OF_PATTERNS)),
            **{name: arrays[name] for name in ARRAYS},
            threshold=float(about["threshold"]),
            num_samples=int(about["num_samples"]),
        )
        _check(known, arrays)
    except FileNotFoundError:
        return None
    except (OSError, SafetensorError, *DAMAGED) as error:
        raise InputError(f"{path} is damaged ({error}); delete it and evaluate again") from None
    return known


def _check(known: TrainingRange, arrays: dict[str, np.ndarray]) -> None:
    """Raise a `ValueError` if the arrays of a range do not fit its problem or each other."""
    problem, patterns = known.problem, known.patterns
    is_cloud = problem.geometry == "cloud"
    mesh = (2, problem.dimension) if is_cloud else (*problem.shape, problem.dimension)
    kept = [ceil(n / _kept(problem)[0].step) for n in problem.shape]
    groups = len(_group_names(problem))
    entries = NUM_MOMENTS**problem.dimension if is_cloud else prod(kept)
    count = len(patterns.deviation)
    expected: dict[str, tuple[int, ...]] = {
        "reference": mesh,
        "low": (len(known.names),),
        "high": (len(known.names),),
    }
    shapes: dict[str, tuple[int, ...]]
    shapes = dict.fromkeys(("low", "high", "mean"), (groups, entries))
    shapes |= dict.fromkeys(("rounding", "unit"), (groups, 1))
    shapes |= {"components": (count, groups * entries), "deviation": (count,)}
    expected |= {f"patterns.{name}": shape for name, shape in shapes.items()}
    for name, shape in expected.items():
        if arrays[name].shape != shape:
            raise ValueError(f"{name} of shape {arrays[name].shape} instead of {shape}")
        if not np.isfinite(arrays[name]).all():
            raise ValueError(f"{name} has values that are not finite")
    positive = (known.high - known.low, patterns.rounding, patterns.unit, patterns.deviation)
    if not all((array > 0).all() for array in positive):
        raise ValueError("a width that is not positive")
    if not known.threshold > 0 or known.num_samples < 1:
        raise ValueError("a threshold that is not positive")
