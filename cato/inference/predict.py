"""Predict for a file of inputs and write the result in the same format.

Runs on user data read the fields they were trained on. Runs on benchmarks read the arrays `inputs`
and `coords`, or from VTK and NetCDF files the channels by name.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cato.benchmarks import fields_of, headline_of
from cato.data.rollout import fewer_steps
from cato.data.training_range import TrainingRange, Verdict, judge, load_range
from cato.errors import InputError
from cato.inference.conformal import Band, num_nodes_needed
from cato.inference.evaluate import band_of, samples_at_once, sizes_of
from cato.physics.metrics import relative_l2, relative_l2_per_frame
from cato.problem import Problem
from cato.progress import note, progress_bar
from cato.runs.folder import Run
from cato.runs.load import load_surrogate
from cato.sandbox import parse
from cato.surrogate import NotFinite, Surrogate
from cato.user_data.arrays import ARRAYS, read_npz
from cato.user_data.naming import Name, Naming, ReadRequest
from cato.user_data.parts import is_entry
from cato.user_data.read import files_of, num_bytes_of, read_samples
from cato.user_data.readers import suffix_of
from cato.user_data.samples import UserSample, UserSamples
from cato.user_data.streamed import HDF5, StreamedSamples, appended
from cato.user_data.write import (
    as_dataset,
    default_target,
    require_writable,
    write_predictions,
)

INSIDE = "inside_training_range"
CODES = {"inside": 1, "outside": 0, "unknown": -1}
"""Verdicts as numbers in files."""


def predict_file(
    run: Run, source: Path, target: Path | None = None, steps: int | None = None
) -> dict[str, Any]:
    """Solve for the samples of a file or folder and write the solutions in the same format.

    In the documented layout the new file gets `outputs`, `bands` if the run has a band, and if the
    source has `targets` the relative `errors` of the samples. Named fields NAME become
    NAME_predicted, NAME_band and, with targets, NAME_error at every node. `inside_training_range`
    is 1 or 0 for every sample (−1 if it is not known); the band of a sample outside is NaN.

    The best weights of the run are used. The target is next to the source by default. `steps` is
    the number of frames of a rollout; by default those of the targets or controls of the file, or
    as many as in training. Frames after those of the training have no band.
    """
    source = Path(source)
    is_streamed = _is_streamed(run, source)
    if target is None:
        target = default_target(source)
        target = target.with_suffix(HDF5[0]) if is_streamed else target
    target = Path(target)
    if steps is not None and steps != run.problem.num_steps:
        run.problem.with_steps(steps)  # raises if it is not a rollout
    if is_streamed:
        _require_hdf5(target)
    elif source.exists():
        require_writable(source, target, steps or run.problem.num_steps)
    surrogate = load_surrogate(run)
    naming = _naming(run, source)
    band = band_of(run, surrogate.step)
    known = load_range(run.source, run.problem, run.id)
    outcomes: list[Outcome] = []
    seconds = 0.0
    if not is_streamed:
        samples = _samples(run, surrogate, source, naming)
        samples, problem = _over_steps(run.problem, samples, steps)
        predictions, seconds = _predicted(surrogate, problem, samples, band, known)
        write_predictions(target, naming, samples, _written(run.problem, naming, predictions))
        outcomes = [Outcome.of(prediction) for prediction in predictions]
    else:
        request, advice = _request(run, surrogate, naming), "predict again when it is complete"
        streamed = StreamedSamples(source, request, advice, run.problem)
        with appended(target, len(streamed)) as append:
            for window in streamed.windows():
                samples, problem = _over_steps(run.problem, window, steps)
                predictions, some = _predicted(surrogate, problem, samples, band, known)
                fields = _written(run.problem, naming, predictions)
                append(as_dataset(naming, samples, fields, range(len(samples))))
                outcomes += [Outcome.of(prediction) for prediction in predictions]
                seconds += some
    _note_outside(outcomes)
    return {
        "path": str(target),
        "num_samples": len(outcomes),
        **_of_frames(run.problem, outcomes),
        "seconds_per_sample": seconds / len(outcomes),
        "training_range": _range_figures(outcomes),
        **_figures(run.problem, outcomes),
    }


def _over_steps(
    problem: Problem, samples: UserSamples, steps: int | None
) -> tuple[UserSamples, Problem]:
    """The samples with inputs and targets for a number of frames, and the problem with as many."""
    if problem.time != "rollout":
        return samples, problem
    num_controls, first = len(problem.controls), samples.samples[0]
    given = None
    if num_controls:
        others = problem.static + problem.num_past
        num_frames, rest = divmod(len(samples.inputs) - others, num_controls)
        given = num_frames + 1 - problem.history
        if rest or given < 1:
            return samples, problem  # which do not fit
    if steps is None:
        num_known = None if first.targets is None else len(first.targets)
        steps = num_known or given or problem.num_steps
    if given is not None and given < steps:
        raise InputError(
            f"{samples.path} has the controls of {given} frames after the given ones "
            f"({', '.join(problem.controls)}), and {steps} are to be predicted; add them, or use "
            f"--steps {given}"
        )
    problem = problem if steps == problem.num_steps else problem.with_steps(steps)

    def cut(sample: UserSample) -> UserSample:
        inputs = fewer_steps(problem, torch.from_numpy(sample.inputs)).numpy()
        targets = None if sample.targets is None else sample.targets[:steps]
        return replace(sample, inputs=inputs, targets=targets)

    names = problem.inputs if num_controls else samples.inputs
    has_later_truth = first.targets is not None and len(first.targets) > steps
    if len(names) == len(samples.inputs) and not has_later_truth:
        return samples, problem
    return replace(samples, samples=[cut(s) for s in samples.samples], inputs=names), problem


def _predicted(
    surrogate: Surrogate,
    problem: Problem,
    samples: UserSamples,
    band: Band | None,
    known: TrainingRange | None,
) -> "tuple[list[SamplePrediction], float]":
    """The predictions for samples that fit the problem, and the seconds for all of them."""
    _require_fit(problem, samples)
    predictions, seconds = predict_samples(surrogate, problem, samples, band, known)
    return predictions, seconds * len(predictions)


def _is_streamed(run: Run, source: Path) -> bool:
    """Whether a file is too large for the memory. Folders are read whole."""
    if not source.exists() or not is_entry(source):
        return False
    return bool(size := num_bytes_of(source)) and run.config.data.is_streamed(size)


def _require_hdf5(target: Path) -> None:
    if target.exists():
        raise InputError(f"{target} exists and is not overwritten; choose another name")
    if target.suffix.lower() not in HDF5:
        raise InputError(
            f"{target} should end in {' or '.join(HDF5)}: predictions for a file that is "
            f"streamed are written as HDF5"
        )


@dataclass(frozen=True)
class Outcome:
    """The figures of a prediction, which are kept when its arrays are written."""

    origin: str
    verdict: Verdict
    relative_l2: float | None  # None without the truth.
    fields: dict[str, float]  # Errors of the fields; empty without the truth.
    width: np.ndarray | None  # Mean half-width of the band for each output.
    covered: np.ndarray | None
    frames: np.ndarray  # Error of each frame whose truth is known; empty if steady.

    @classmethod
    def of(cls, prediction: "SamplePrediction") -> "Outcome":
        """Of a prediction."""
        error, width = prediction.relative_l2(), prediction.half_width
        fields = fields_of(prediction.problem) if error is not None else {}
        return cls(
            prediction.sample.origin,
            prediction.verdict,
            error,
            {name: prediction.relative_l2(channels) or 0.0 for name, channels in fields.items()},
            None if width is None else np.nanmean(width.reshape(-1, width.shape[-1]), axis=0),
            prediction.is_covered(),
            prediction.frame_errors(),
        )


@dataclass(frozen=True, eq=False)
class SamplePrediction:
    """The prediction for one sample: arrays (*mesh, C_out), or (T, *mesh, C_out)."""

    problem: Problem
    sample: UserSample
    values: np.ndarray
    verdict: Verdict
    half_width: np.ndarray | None
    """Of the conformal band, if the run has one for this mesh and the sample is not outside."""

    @property
    def _known(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Predicted and true values of the frames whose truth is in the file."""
        truth = self.sample.targets
        if truth is None or np.isnan(truth).all():
            return None
        return (self.values if self.problem.time == "steady" else self.values[: len(truth)]), truth

    @property
    def error(self) -> np.ndarray | None:
        """Prediction minus truth, if the file has targets; NaN in frames without."""
        if self._known is None:
            return None
        found, truth = self._known
        error = np.full_like(self.values, np.nan)
        error[: len(truth)] = found - truth
        return error

    def relative_l2(self, channels: Sequence[int] | slice = slice(None)) -> float | None:
        """Relative L2 error over nodes, frames and some outputs; infinite if the truth is zero."""
        if self._known is None:
            return None
        found, true = (torch.from_numpy(a[None, ..., channels]) for a in self._known)
        offsets, units = (
            np.array(numbers)[channels].tolist() if numbers else ()
            for numbers in sizes_of(self.problem)
        )
        return relative_l2(found, true, None, offsets, units).item()

    def frame_errors(self) -> np.ndarray:
        """Relative L2 error of each frame whose truth is known; empty if steady."""
        if self._known is None or self.problem.time == "steady":
            return np.zeros(0)
        found, true = (torch.from_numpy(a.reshape(1, len(a), -1, a.shape[-1])) for a in self._known)
        return relative_l2_per_frame(found, true, None, *sizes_of(self.problem))[0].numpy()

    def is_covered(self) -> np.ndarray | None:
        """For each output, whether the promised share of nodes lies inside the band."""
        if self._known is None or self.half_width is None:
            return None
        found, truth = self._known
        width = self.half_width[: len(truth)] if self.problem.time != "steady" else self.half_width
        known = ~(np.isnan(width) | np.isnan(truth) | np.isnan(found))
        inside = ((np.abs(found - truth) <= width) & known).reshape(-1, truth.shape[-1]).sum(0)
        counts = known.reshape(-1, truth.shape[-1]).sum(0).tolist()
        return inside >= np.array([num_nodes_needed(count) for count in counts])


def predict_samples(
    surrogate: Surrogate,
    problem: Problem,
    samples: UserSamples,
    band: Band | None,
    known: TrainingRange | None,
) -> tuple[list[SamplePrediction], float]:
    """The predictions for all samples, batched by mesh, and the seconds per sample.

    `problem` is that of the surrogate, possibly with another number of steps.
    """
    first = samples.samples[:1]
    _solve(surrogate, problem, first, _arrays(problem, first))  # compiles and allocates
    is_shorter = problem.num_steps < surrogate.problem.num_steps
    if is_shorter:  # the range is that of the controls of all frames, the band one of all frames
        band, known = None, None if problem.controls else known
    predictions: list[SamplePrediction] = []
    seconds = 0.0
    with progress_bar("predicting", len(samples)) as bar:
        while len(predictions) < len(samples):
            group = _batch(samples.samples[len(predictions) :])
            arrays = _arrays(problem, group)
            began = time.perf_counter()
            solutions = _solve(surrogate, problem, group, arrays)
            seconds += time.perf_counter() - began
            verdicts = judge(known, surrogate.problem, *_in_training(surrogate.problem, arrays))
            for sample, solution, verdict in zip(group, solutions, verdicts, strict=True):
                values = _on_mesh(problem, sample, solution)
                width = None
                if band is not None and verdict.has_band:
                    width = band.on_mesh(surrogate.problem, sample.mesh)
                    if width is not None and problem.time != "steady":  # NaN in later frames
                        later = problem.num_steps - len(width)
                        pad = [(0, later), *(width.ndim - 1) * [(0, 0)]]
                        width = np.pad(width, pad, constant_values=np.nan)
                    if width is not None and problem.mask == "all":
                        width = np.where(np.isnan(values), np.nan, width)
                predictions.append(SamplePrediction(problem, sample, values, verdict, width))
            bar(len(predictions))
    return predictions, seconds / len(samples)


def _in_training(
    problem: Problem, arrays: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and coordinates without controls after the frames of the training."""
    inputs, coords = arrays
    if not problem.controls:
        return arrays
    return fewer_steps(problem, torch.from_numpy(inputs)).numpy(), coords


def _solve(
    surrogate: Surrogate,
    problem: Problem,
    group: list[UserSample],
    arrays: tuple[np.ndarray, np.ndarray],
) -> np.ndarray:
    steps = problem.num_steps if problem.time == "rollout" else None
    try:
        return surrogate.predict(*arrays, steps=steps)
    except NotFinite as error:
        origin = group[error.sample].origin
        raise InputError(f"{origin}: the prediction is not finite: {error.reason}") from None


def _batch(samples: list[UserSample]) -> list[UserSample]:
    """The first samples with the same mesh, limited to what fits into memory."""
    first = samples[0]
    num_nodes = first.coords.size // first.coords.shape[-1]
    same = [sample.mesh == first.mesh for sample in samples[: samples_at_once(num_nodes)]]
    return samples[: same.index(False) if False in same else len(same)]


def _arrays(problem: Problem, group: list[UserSample]) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and coordinates for `Surrogate.predict`; the points of a cloud are one axis."""
    inputs = np.stack([sample.inputs for sample in group])
    coords = np.stack([sample.coords for sample in group])
    if problem.geometry != "cloud":
        return inputs, coords
    shape = (len(group), coords[0].size // problem.dimension)
    return inputs.reshape(*shape, problem.num_inputs), coords.reshape(*shape, problem.dimension)


def _on_mesh(problem: Problem, sample: UserSample, values: np.ndarray) -> np.ndarray:
    """Values (…, N, C) of a solution, reshaped to the mesh of its sample."""
    frames = values.shape[:1] if problem.time != "steady" else ()
    return values.reshape(*frames, *sample.mesh, problem.num_outputs)


def _naming(run: Run, source: Path) -> Naming:
    """The fields of the run; of a benchmark those of the layout, or its channels by name."""
    if run.config.data.file is not None:
        names, controls = run.config.data.naming, run.problem.controls
        # The file may have more frames of them than of the targets.
        in_time = [
            replace(name, frames=(None, None))
            if name.is_whole and _channels(name.field, controls)
            else name
            for name in names.inputs
        ]
        return replace(names, inputs=tuple(in_time))
    if suffix_of(files_of(source)[0]) in ARRAYS:
        return Naming()
    problem = run.problem
    return Naming((), tuple(map(Name, problem.inputs)), tuple(map(Name, problem.outputs)))


def _samples(run: Run, surrogate: Surrogate, source: Path, naming: Naming) -> UserSamples:
    if run.config.data.file is None and source.suffix.lower() == ".npz":
        return _benchmark_samples(surrogate, source)
    return read_samples(source, _request(run, surrogate, naming), run.problem)


def _request(run: Run, surrogate: Surrogate, naming: Naming) -> ReadRequest:
    problem, coords = run.problem, surrogate.coords
    nodes = None if coords is None else coords.cpu().numpy().reshape(*problem.shape, -1)
    # The points of a cloud may still lie on mesh axes in the file.
    num_axes = None if problem.geometry == "cloud" else len(problem.shape)
    return ReadRequest(naming, truth=False, num_axes=num_axes, coords=nodes)


def _benchmark_samples(surrogate: Surrogate, source: Path) -> UserSamples:
    """The arrays `inputs`, `coords` and `targets` in the layout of `Surrogate.predict`."""
    names, problem = ("inputs", "coords", "targets"), surrogate.problem
    ((listed, arrays),) = parse(read_npz, [source], names, imports=())
    given = (arrays.get("inputs"), arrays.get("coords"))
    try:
        inputs, coords = (array.cpu().numpy() for array in surrogate.checked(*given))
    except InputError as error:
        found = ", ".join(sorted(listed)) or "nothing"
        raise InputError(f"{source} with arrays {found}: {error}") from None
    targets = arrays.get("targets")
    if targets is not None and targets.shape[:1] != inputs.shape[:1]:
        raise InputError(f"{source}: targets are {targets.shape}, but inputs {inputs.shape}")
    nodes = list(coords) * (len(inputs) // len(coords))  # one array if samples share a mesh
    samples = [
        UserSample(
            f"{source}, sample {i}",
            nodes[i],
            inputs[i],
            None if targets is None else targets[i].astype(np.float64),
        )
        for i in range(len(inputs))
    ]
    return UserSamples(
        source, samples, problem.inputs, problem.outputs, problem.time, problem.num_steps
    )


def _require_fit(problem: Problem, samples: UserSamples) -> None:
    """Raise if the samples are of another problem."""
    if len(samples.inputs) != problem.num_inputs:
        raise InputError(
            f"{samples.path}: the model takes {problem.num_inputs} inputs "
            f"({', '.join(problem.inputs)}), the file has {len(samples.inputs)} "
            f"({', '.join(samples.inputs)})"
        )
    in_time = problem.time != "steady"
    for sample in samples.samples:
        dimension, is_mesh = sample.coords.shape[-1], problem.geometry != "cloud"
        if dimension != problem.dimension or (is_mesh and len(sample.mesh) != dimension):
            raise InputError(
                f"{sample.origin}: the model works on a {problem.geometry} with "
                f"{problem.dimension} coordinates; got {dimension} on nodes {sample.mesh}"
            )
        arrays = {"coordinates": sample.coords, "inputs": sample.inputs, "targets": sample.targets}
        for what, array in arrays.items():
            if array is None or np.isfinite(array).all():
                continue
            if what == "targets" and not np.isinf(array).any():
                continue  # not known everywhere
            raise InputError(
                f"{sample.origin}: the {what} have NaN or infinite values"
                + "; the model was trained without a mask" * (what == "inputs" and not problem.mask)
            )
        expected = (*sample.mesh, problem.num_outputs)
        if in_time:
            num_frames = problem.num_steps
            if problem.time == "rollout" and sample.targets is not None:
                num_frames = min(num_frames, len(sample.targets))  # the truth may end before
            expected = (num_frames, *expected)
        if sample.targets is not None and sample.targets.shape != expected:
            raise InputError(
                f"{sample.origin}: targets are {sample.targets.shape}, the outputs {expected}"
            )


def _written(
    problem: Problem, naming: Naming, predictions: list[SamplePrediction]
) -> dict[str, list[np.ndarray]]:
    """Arrays of the new file by name."""
    values = [p.values for p in predictions]
    has_band = any(p.half_width is not None for p in predictions)
    widths = [
        np.full_like(p.values, np.nan) if p.half_width is None else p.half_width
        for p in predictions
    ]
    errors = [p.error for p in predictions if p.error is not None]
    has_truth = len(errors) == len(predictions)
    written: dict[str, list[np.ndarray]] = {}
    if any(p.verdict.kind != "unknown" for p in predictions):
        written[INSIDE] = [np.asarray(CODES[p.verdict.kind], np.int8) for p in predictions]
    if naming.is_layout:
        relative = [np.asarray(p.relative_l2(), np.float32) for p in predictions]
        bands = {"bands": widths} if has_band else {}
        errors_of = {"errors": relative} if has_truth else {}
        return {"outputs": values} | bands | errors_of | written
    for name in naming.targets:
        field, channels = name.field, _channels(name.field, problem.outputs)
        written[f"{field}_predicted"] = [array[..., channels] for array in values]
        if has_band:
            written[f"{field}_band"] = [array[..., channels] for array in widths]
        if has_truth:
            written[f"{field}_error"] = [array[..., channels] for array in errors]
    return written


def _channels(field: str, outputs: tuple[str, ...]) -> list[int]:
    """Indices of the outputs that are a field or its components."""
    return [
        index
        for index, output in enumerate(outputs)
        if output == field
        or (output.startswith(f"{field}_") and output[len(field) + 1 :].isdecimal())
    ]


def _note_outside(outcomes: list[Outcome]) -> None:
    """Note samples outside the training range, with the reason for the first."""
    outside = [o for o in outcomes if o.verdict.kind == "outside"]
    if outside:
        note(
            f"{len(outside)} of {len(outcomes)} samples are outside the training range and have "
            f"no band; {outside[0].origin}: {outside[0].verdict.reason}"
        )


def _range_figures(outcomes: list[Outcome]) -> dict[str, Any]:
    """How many samples have which verdict, and the reasons for those outside."""
    kinds = [o.verdict.kind for o in outcomes]
    counts = {kind: kinds.count(kind) for kind in CODES if kind in kinds}
    reasons = {o.origin: o.verdict.reason for o in outcomes if o.verdict.kind == "outside"}
    return counts | ({"reasons": reasons} if reasons else {})


def _of_frames(problem: Problem, outcomes: list[Outcome]) -> dict[str, Any]:
    """Mean error of each frame of a problem in time, over the samples whose truth is known."""
    errors = [o.frames for o in outcomes if len(o.frames)]
    if problem.time == "steady" or not errors:
        return {}
    num_frames = max(map(len, errors))
    pad = [np.pad(e, (0, num_frames - len(e)), constant_values=np.nan) for e in errors]
    means = np.nanmean(pad, axis=0).tolist()
    return {"frame_errors": means, "trained_frames": problem.num_steps}


def _figures(problem: Problem, outcomes: list[Outcome]) -> dict[str, Any]:
    """Errors if the truth is known, width and coverage of the band if there is one."""
    figures: dict[str, Any] = {}
    relative = {o.origin: o.relative_l2 for o in outcomes if o.relative_l2 is not None}
    if relative:
        fields = {
            name: float(np.mean([o.fields[name] for o in outcomes if o.fields]))
            for name in fields_of(problem)
        }
        worst = max(relative, key=lambda origin: relative[origin])
        figures |= {
            "headline": next(iter(headline_of(problem)), None),
            "fields": {
                name: {"relative_l2": error if isfinite(error) else None}
                for name, error in fields.items()
            },
            "relative_l2": float(np.mean(list(relative.values()))),
            "worst": relative[worst],
            "worst_sample": worst,
            "offsets": problem.offset_by_output,
        }
    widths = [o.width for o in outcomes if o.width is not None]
    if widths:
        means = np.mean(widths, axis=0)
        figures["mean_half_width"] = dict(zip(problem.outputs, means.tolist(), strict=True))
    covered = [o.covered for o in outcomes if o.covered is not None]
    if covered:
        shares = np.mean(covered, axis=0).tolist()
        figures["covered_samples"] = dict(zip(problem.outputs, shares, strict=True))
    return figures
