"""Error and speed of a surrogate on held-out samples.

The error of every field is measured, next to that of always predicting the training mean. A
benchmark may name a headline, the field that matters most; `errors_by_field` puts it first.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, nan
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cato.benchmarks import fields_of, headline_of
from cato.data.dataset import Batch, Dataset, Splits, load_spec
from cato.data.sampling import generate_sample
from cato.data.spec import DataSpec
from cato.data.streamed import Streamed
from cato.data.training_range import (
    MIN_SAMPLES,
    TrainingRange,
    fit_range,
    load_range,
    save_range,
)
from cato.errors import InputError
from cato.inference.conformal import (
    Band,
    Coverage,
    calibrate_quantile,
    fit_scale,
    load_band,
    num_samples_needed,
    save_band,
    scores,
)
from cato.physics.metrics import (
    relative_l2,
    relative_l2_per_field,
    relative_l2_per_frame,
    summarise,
)
from cato.problem import Problem
from cato.progress import note
from cato.runs.checkpoint import last_state
from cato.runs.folder import RECORD, Run, fold_folder, open_fold
from cato.runs.load import data_spec, load_run_splits, load_surrogate, require_same_data
from cato.surrogate import NotFinite, Surrogate

SAMPLES_AT_ONCE = 16
NODES_AT_ONCE = 2**19  # Bounds the memory of large meshes.
SCALE_SAMPLES = 64  # Training samples whose errors give the local scale of the band, for one.
RANGE_BYTES = 2**28  # Of streamed samples that the training range is fitted to.
SOLVER_SAMPLES = 5  # Samples on which the solver is timed.
ALL_OUTPUTS = "all outputs"  # Name of the error over all outputs jointly.
LEARNT = 0.95
"""A model with a larger share of the training mean's error has learnt next to nothing."""
NOT_LEARNT = "no better than the training mean"
ERRORS = ("relative_l2", "median", "p90", "worst", "mean_predictor")
"""Figures of a field, and of all outputs jointly."""
ALL_ERRORS = ("headline", "fields", *ERRORS)
"""Figures of an evaluation that describe a model to others, see `errors_by_field`."""


def samples_at_once(num_nodes: int) -> int:
    """Samples per batch for a given number of nodes."""
    return max(1, min(SAMPLES_AT_ONCE, NODES_AT_ONCE // num_nodes))


class Solved(NamedTuple):
    """A batch of samples with the surrogate's solutions, on the CPU."""

    batch: Batch
    solutions: Tensor
    seconds: float
    first: int  # Number of the first sample.


def solved(surrogate: Surrogate, data: Dataset) -> Iterator[Solved]:
    """All samples, solved batch by batch."""
    device, first = surrogate.device, 0
    was_training = surrogate.training
    surrogate.eval()
    try:
        for batch in data.batches(samples_at_once(data.problem.num_nodes)):
            mask = None if batch.mask is None else batch.mask.to(device)
            began = time.perf_counter()
            with torch.no_grad():
                solution = surrogate.solve(
                    batch.coords.to(device),
                    batch.inputs.to(device),
                    shape=data.problem.shape,
                    mask=mask,
                    steps=data.problem.num_steps if data.problem.time == "rollout" else None,
                )
            solution = solution.to("cpu", batch.targets.dtype)
            yield Solved(batch, solution, time.perf_counter() - began, first)
            first += len(solution)
    finally:
        surrogate.train(was_training)


def solve_all(surrogate: Surrogate, data: Dataset) -> Tensor:
    """The surrogate's solutions for all samples, on the CPU."""
    return torch.cat([part.solutions for part in solved(surrogate, data)])


def mean_error(surrogate: Surrogate, data: Dataset) -> float:
    """Mean relative L2 error over the samples; 0 for none."""
    errors = [
        relative_l2(solutions, batch.targets, batch.mask, *sizes_of(data.problem))
        for batch, solutions, *_ in solved(surrogate, data)
    ]
    return torch.cat(errors).mean().item() if errors else 0.0


def sizes_of(problem: Problem) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Offsets and units of the outputs, which errors are measured from and in."""
    return problem.offsets, problem.units


def require_finite(surrogate: Surrogate, part: Solved, split: str) -> None:
    """Raise if a value of solutions is not finite, naming the sample and the cause."""
    batch = part.batch
    try:
        surrogate.require_finite(part.solutions, batch.coords, batch.inputs, batch.mask)
    except NotFinite as error:
        sample = NotFinite(part.first + error.sample, error.reason)
        raise InputError(f"{split} split: {sample}") from None


@dataclass(frozen=True)
class Evaluation:
    """Errors on a set of samples."""

    errors: Tensor  # Relative L2 error of each sample.
    frame_errors: Tensor | None  # Mean error of each frame, for problems in time.
    mean_predictor: float | None
    """Error of always predicting the mean of the training targets, as a baseline."""
    field_errors: dict[str, Tensor]  # Errors of each sample by field, see `fields_of`.
    field_means: dict[str, float]  # Error of the training mean by field; empty if unknown.
    headline: str | None  # The field that matters most; None stands for all outputs jointly.
    seconds_per_sample: float

    @property
    def headline_errors(self) -> Tensor:
        """Error of each sample in the field that matters most."""
        return self.errors if self.headline is None else self.field_errors[self.headline]

    @property
    def remark(self) -> str:
        """What a picture of the model must say, if it is no better than the training mean."""
        return "" if has_learnt(headline_figures(self.to_dict())) else f" ({NOT_LEARNT})"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready figures."""
        return {
            "headline": self.headline,
            "fields": {name: self._field(name) for name in self.field_errors},
            **_summary(self.errors),
            "worst_sample": summarise(self.errors).worst_index,
            "num_samples": len(self.errors),
            "seconds_per_sample": self.seconds_per_sample,
            "mean_predictor": self.mean_predictor,
            "frame_errors": None if self.frame_errors is None else self.frame_errors.tolist(),
        }

    @classmethod
    def joined(cls, parts: "Sequence[Evaluation]", order: Tensor) -> "Evaluation":
        """The errors of several sets of samples, in this order of all samples."""
        first, counts = parts[0], [len(part.errors) for part in parts]

        def mean(values: Sequence[float | None]) -> float | None:
            if any(value is None for value in values):
                return None
            pairs = zip(values, counts, strict=True)
            return sum(value * count for value, count in pairs if value is not None) / sum(counts)

        if len(parts) == 1:
            return first
        frames = None
        if first.frame_errors is not None:
            weighted = [
                part.frame_errors * count
                for part, count in zip(parts, counts, strict=True)
                if part.frame_errors is not None
            ]
            frames = torch.stack(weighted).sum(0) / sum(counts)
        return cls(
            torch.cat([part.errors for part in parts])[order],
            frames,
            mean([part.mean_predictor for part in parts]),
            {
                name: torch.cat([part.field_errors[name] for part in parts])[order]
                for name in first.field_errors
            },
            {
                name: mean([part.field_means[name] for part in parts]) or 0.0
                for name in first.field_means
            },
            first.headline,
            mean([part.seconds_per_sample for part in parts]) or 0.0,
        )

    def _field(self, name: str) -> dict[str, float | None]:
        """Figures of one field; None where one is not known or not finite."""
        mean = {"mean_predictor": self.field_means.get(name, nan)}
        found = _summary(self.field_errors[name]) | mean
        return {key: value if isfinite(value) else None for key, value in found.items()}


def _summary(errors: Tensor) -> dict[str, float]:
    found = summarise(errors)
    return {
        "relative_l2": found.mean,
        "median": found.median,
        "p90": found.p90,
        "worst": found.worst,
    }


def errors_by_field(figures: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Figures with `relative_l2` and `mean_predictor` by field, in the order to show them.

    The headline comes first, then all outputs jointly, then single outputs. Evaluations of version
    0.1 have the error of all outputs only.
    """
    fields = figures.get("fields") or {}
    if len(fields) == 1:  # of one output, which is all there is
        return dict(fields)
    headline = figures.get("headline")
    first = {} if headline is None else {headline: fields[headline]}
    return first | {ALL_OUTPUTS: figures} | fields


def has_learnt(figures: Mapping[str, Any]) -> bool:
    """Whether a model is clearly better than the training mean, or the mean's error is unknown.

    `figures` are those of one field. A picture or table of a model that is not says so.
    """
    error, mean = figures["relative_l2"], figures.get("mean_predictor")
    return mean is None or (error is not None and error < LEARNT * mean)


def headline_figures(figures: Mapping[str, Any]) -> Mapping[str, Any]:
    """Figures of the error to show first."""
    return next(iter(errors_by_field(figures).values()))


def evaluate(
    surrogate: Surrogate,
    data: Dataset,
    mean_target: Tensor | None,
    observe: Callable[[Solved], None] = lambda part: None,
) -> Evaluation:
    """Errors and time on held-out samples; errors that are not finite are part of the result.

    `mean_target` is that of the training samples; None if `data` is on another mesh. `observe` sees
    every batch, so that other figures of the solutions need not solve again.
    """
    if not len(data):
        raise InputError("there are no samples to evaluate on")
    solve_all(surrogate, data.subset(slice(0, 1)))  # the first call compiles and allocates
    problem = data.problem
    fields, sizes, in_time = fields_of(problem), sizes_of(problem), problem.time != "steady"
    found: defaultdict[str, list[Tensor]] = defaultdict(list)
    seconds = 0.0
    for part in solved(surrogate, data):
        observe(part)
        (_, _, targets, mask), solutions = part.batch, part.solutions
        seconds += part.seconds
        found["errors"].append(relative_l2(solutions, targets, mask, *sizes))
        if in_time:
            found["frames"].append(relative_l2_per_frame(solutions, targets, mask, *sizes))
        of_fields = relative_l2_per_field(solutions, targets, fields, mask, *sizes)
        for name, errors in of_fields.items():
            found[f"field {name}"].append(errors)
        if mean_target is not None:
            means = mean_target.expand_as(targets)
            found["mean"].append(relative_l2(means, targets, mask, *sizes))
            of_means = relative_l2_per_field(means, targets, fields, mask, *sizes)
            for name, errors in of_means.items():
                found[f"mean {name}"].append(errors)
    joined = {name: torch.cat(parts) for name, parts in found.items()}
    has_mean = mean_target is not None
    return Evaluation(
        joined["errors"],
        joined["frames"].nanmean(0) if in_time else None,
        joined["mean"].mean().item() if has_mean else None,
        {name: joined[f"field {name}"] for name in fields},
        {name: joined[f"mean {name}"].mean().item() for name in fields} if has_mean else {},
        next(iter(headline_of(problem)), None),
        seconds / len(data),
    )


class HeldOut(NamedTuple):
    """Samples that a model has not seen, and the model."""

    surrogate: Surrogate
    train: Dataset  # What the model was trained on.
    data: Dataset
    mean_target: Tensor | None  # Of the training samples.
    indices: np.ndarray  # Numbers of the samples among all that are evaluated.
    forecast: Dataset | None = None  # The samples over more frames than in training.


class EvaluatedRun(NamedTuple):
    """Figures of a run, the file they are in, and what they were computed from."""

    figures: dict[str, Any]
    path: Path
    evaluation: Evaluation
    surrogate: Surrogate
    parts: list[HeldOut]  # One for each fold of cross-validation.

    @property
    def data(self) -> Dataset:
        """The samples, or with cross-validation those of the first fold."""
        return self.parts[0].data

    def find(self, sample: int) -> tuple[Surrogate, Dataset, int]:
        """The model that solved a sample of the evaluation, its data, and the number there."""
        part = next(part for part in self.parts if sample in part.indices)
        return part.surrogate, part.data, int(np.searchsorted(part.indices, sample))


def evaluate_run(run: Run, split: str = "test", resolution: int | None = None) -> EvaluatedRun:
    """Evaluate the best weights of a run, time the solver for comparison, and write the figures.

    On the mesh of the training the band is calibrated and the training range fitted, if they are
    not yet, and their rates measured on the test split: coverage and false alarms.
    A cross-validated run is measured by the models of its folds. User data have no solver to time.
    `resolution` is the nodes per side, if it differs from the
    training's.
    """
    if split not in ("test", "validation"):
        raise InputError(f"the split must be test or validation; got {split!r}")
    config = run.config
    surrogate = load_surrogate(run)
    splits, spec = _splits_of(run, split, resolution)
    is_own_mesh = resolution is None
    band = calibrate(run, surrogate, splits) if is_own_mesh else None
    known = training_range(run, splits) if is_own_mesh else None
    if splits.num_folds:
        if split != "test":
            raise InputError(f"{run.folder} is cross-validated and has no {split} split")
        parts = fold_models(run, splits)
        measured_on = f"{splits.num_folds}-fold cross-validation"
    else:
        data, mean = splits.datasets[split], train_mean(splits) if is_own_mesh else None
        longer = splits.datasets.get("forecast") if split == "test" else None
        train = splits.train if is_own_mesh else data
        parts = [HeldOut(surrogate, train, data, mean, np.arange(len(data)), longer)]
        measured_on = split
    has_test = split == "test" and not splits.num_folds
    coverage = Coverage(band) if band is not None and has_test else None

    def observe(part: Solved) -> None:
        if coverage is not None:
            coverage.add(part.solutions - part.batch.targets, part.batch.mask)

    evaluation = _evaluate_parts(parts, measured_on, observe)
    alarms = None
    if known is not None and has_test:
        is_outside = known.scores(parts[0].data) > known.threshold
        alarms = {
            "nominal_false_alarms": known.nominal,
            "false_alarms": float(is_outside.mean()),
            "num_samples": known.num_samples,
        }
    promise = None if coverage is None else coverage.figures(run.problem.outputs)
    if band is not None and splits.num_folds:
        promise = band.figures(run.problem.outputs)
    figures = {
        "benchmark": config.benchmark,
        "scale": config.scale,
        "data": config.data.file or ("published files" if config.data.original else "generated"),
        "model": config.model_name,
        "split": measured_on,
        "folds": splits.num_folds,
        "step": surrogate.step,
        "shape": list(splits.problem.shape),
        "offsets": splits.problem.offset_by_output,
        "units": splits.problem.unit_by_output,
        **evaluation.to_dict(),
        "training_error": _training_error(parts) if is_own_mesh else None,
        "forecast": _forecast(parts),
        "solver_seconds_per_sample": None if spec is None else solver_seconds(spec, split),
        "band": promise,
        "training_range": alarms,
        "threads": torch.get_num_threads(),
    }
    suffix = ("" if split == "test" else f"-{split}") + (f"-r{resolution}" if resolution else "")
    path = run.folder / f"evaluation{suffix}.json"
    run.write_figures(path, figures)
    return EvaluatedRun(figures, path, evaluation, surrogate, parts)


def fold_models(run: Run, splits: Splits) -> list[HeldOut]:
    """The models of cross-validation with the samples that they have not seen."""
    parts = []
    for fold in range(splits.num_folds):
        folder, data = fold_folder(run.folder, fold), splits.fold(fold)
        has_run = (folder / RECORD).exists()
        state = last_state(open_fold(run, fold).checkpoints) if has_run else {}
        if not state or state["step"] < state["num_steps"]:
            raise InputError(
                f"fold {fold} of {run.folder} is not trained to the end; continue with "
                f"`cato train --resume {run.folder}`"
            )
        surrogate = load_surrogate(open_fold(run, fold))
        mean, indices = train_mean(data), splits.held_out(fold)
        longer = data.datasets.get("forecast")
        parts.append(HeldOut(surrogate, data.train, data.test, mean, indices, longer))
    return parts


def _forecast(parts: list[HeldOut]) -> dict[str, Any] | None:
    """Errors of each frame over more frames than in training; None without later frames."""
    errors = [
        relative_l2_per_frame(one.solutions, one.batch.targets, one.batch.mask, *sizes)
        for part in parts
        if part.forecast is not None
        for sizes in [sizes_of(part.forecast.problem)]
        for one in solved(part.surrogate, part.forecast)
    ]
    if not errors:
        return None
    of_all = torch.cat(errors)
    trained = parts[0].data.problem.num_steps
    return {"trained_frames": trained, "frame_errors": of_all.nanmean(0).tolist()}


def _evaluate_parts(
    parts: list[HeldOut], what: str, observe: Callable[[Solved], None]
) -> Evaluation:
    """The errors of all parts, in the order of the samples."""
    found = []
    for part in parts:

        def observed(solved: Solved, part: HeldOut = part) -> None:
            require_finite(part.surrogate, solved, what)
            observe(solved)

        found.append(evaluate(part.surrogate, part.data, part.mean_target, observed))
    order = torch.from_numpy(np.concatenate([part.indices for part in parts]).argsort())
    return Evaluation.joined(found, order)


def _training_error(parts: list[HeldOut]) -> float | None:
    """Error on some of the training samples of the models; None if it is not finite."""
    some = [(part.surrogate, part.train.subset(slice(SCALE_SAMPLES))) for part in parts]
    error = float(np.mean([mean_error(*one) for one in some]))
    return error if isfinite(error) else None


def read_evaluation(run: Run, step: int | None) -> dict[str, Any] | None:
    """Figures of a run on its test split; None without any for the weights of that step."""
    path = run.source / "evaluation.json"
    if not os.path.lexists(path):
        return None
    figures = run.read_figures(path)
    return figures if figures.get("step", step) == step else None  # version 0.1 records no step


def band_of(run: Run, step: int | None) -> Band | None:
    """The band of a run for the weights of a step; None if it has none, an error if it is lost."""
    band = load_band(run, step)
    if band is None and ((read_evaluation(run, step) or {}).get("band")) is not None:
        raise InputError(
            f"{run.source} has lost the band of its evaluation; run `cato evaluate {run.folder}`"
        )
    return band


def _splits_of(run: Run, split: str, resolution: int | None) -> tuple[Splits, DataSpec | None]:
    """The data of the run, or one split of the same samples at another resolution.

    Also their specification, to time the solver; None for user data.
    """
    config = run.config
    if resolution is None:
        spec = None if config.data.file is not None else data_spec(config)
        return load_run_splits(run), spec
    if config.data.original is not None or config.data.file is not None:
        what = "published files" if config.data.file is None else "user data"
        raise InputError(
            f"{run.folder} was trained on {what}, which have one resolution; leave out --resolution"
        )
    require_same_data(run)
    spec = replace(data_spec(config), count=None, resolution=resolution, splits=(split,))
    streamed = config.data.is_streamed(spec.num_bytes)
    return load_spec(spec, Path(config.data.root), streamed=streamed), spec


def train_mean(splits: Splits) -> Tensor | None:
    """Mean training target; None for clouds of different sizes, whose points do not match."""
    return None if splits.train.is_padded else splits.train.mean_target()


def calibrate(run: Run, surrogate: Surrogate, splits: Splits) -> Band | None:
    """The band of a run, saved in its folder; None with too few samples to calibrate it on."""
    band = load_band(run, surrogate.step)
    if band is not None:
        return band
    count = len(splits.train if splits.num_folds else splits.validation)
    if count < num_samples_needed():
        note(
            f"no band around predictions: it needs {num_samples_needed()} validation samples, "
            f"there are {count}"
        )
        return None
    is_cloud = run.problem.geometry == "cloud"
    if splits.num_folds:
        calibration, scale = _cross_validated(fold_models(run, splits), is_cloud)
    else:
        some = splits.train.subset(slice(SCALE_SAMPLES))
        scale = fit_scale(_errors(surrogate, some, "train"), is_cloud)
        calibration = [
            scores(of, scale, mask)
            for of, mask in _errors(surrogate, splits.validation, "validation")
        ]
    quantile = calibrate_quantile(torch.cat(calibration))
    assert quantile is not None
    assert surrogate.step is not None
    band = Band(quantile, scale, count, surrogate.step)
    save_band(run, band)
    return band


def _errors(
    surrogate: Surrogate, data: Dataset, what: str
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Errors and masks of all samples, in batches."""
    for part in solved(surrogate, data):
        require_finite(surrogate, part, what)
        yield part.solutions - part.batch.targets, part.batch.mask


def _cross_validated(parts: list[HeldOut], is_cloud: bool) -> tuple[list[Tensor], Tensor]:
    """Scores of all samples, and the scale of the band, see `cato.inference.conformal`.

    The scale of a sample comes from the errors of the samples in other folds.
    """

    def errors(chosen: Sequence[HeldOut]) -> Iterator[tuple[Tensor, Tensor | None]]:
        for part in chosen:
            yield from _errors(part.surrogate, part.data, "cross-validation")

    found = []
    for number, part in enumerate(parts):
        scale = fit_scale(errors([*parts[:number], *parts[number + 1 :]]), is_cloud)
        found += [scores(of, scale, mask) for of, mask in errors([part])]
    return found, fit_scale(errors(parts), is_cloud)


def training_range(run: Run, splits: Splits) -> TrainingRange | None:
    """The range of the training inputs of a run, saved in its folder; None for too few samples."""
    known = load_range(run.source, run.problem, run.id)
    if known is None:
        known = fit_range(_bounded(splits.train), _bounded(splits.validation))
        if known is None:
            note(
                f"no training range: it needs {MIN_SAMPLES} training samples of values that can be "
                f"squared in float64"
            )
        else:
            save_range(run.folder, known, run.id)
    return known


def _bounded(data: Dataset) -> Dataset:
    """Data in memory; of streamed data evenly spaced samples that fit."""
    if not isinstance(data, Streamed):
        return data
    count = min(len(data), max(MIN_SAMPLES, RANGE_BYTES // data.sample_bytes))
    return data.subset(torch.linspace(0, len(data) - 1, count).long()).in_memory()


def solver_seconds(spec: DataSpec, split: str) -> float:
    """Median time of the numerical solver for one sample, on one core.

    That of the job that a model does: from its inputs to the targets, without drawing the inputs.
    """
    indices = range(min(SOLVER_SAMPLES, spec.counts[split]))
    timed = [generate_sample(spec, split, index).seconds for index in indices]
    return median(seconds for seconds in timed if seconds is not None)
