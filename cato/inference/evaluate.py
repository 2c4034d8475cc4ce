"""Error and speed of a surrogate on held-out samples."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cato.benchmarks import headline_of
from cato.data.dataset import Dataset, Splits, load_spec
from cato.data.sampling import generate_sample
from cato.data.spec import DataSpec
from cato.errors import InputError
from cato.files import write_json
from cato.inference.conformal import (
    Band,
    calibrate_quantile,
    fit_scale,
    load_band,
    num_samples_needed,
    save_band,
    scores,
)
from cato.physics.metrics import (
    mean_error_of_fields,
    relative_l2,
    relative_l2_per_frame,
    summarise,
)
from cato.progress import note
from cato.runs.folder import Run
from cato.runs.load import data_spec, load_run_splits, load_surrogate, require_same_data
from cato.surrogate import Surrogate

SAMPLES_AT_ONCE = 16
NODES_AT_ONCE = 2**19  # Bounds the memory of large meshes.
SCALE_SAMPLES = 64  # Training samples whose errors give the local scale of the band.
SOLVER_SAMPLES = 5  # Samples on which the solver is timed.


def samples_at_once(num_nodes: int) -> int:
    """Samples per batch for a given number of nodes."""
    return max(1, min(SAMPLES_AT_ONCE, NODES_AT_ONCE // num_nodes))


@torch.no_grad()
def solve_all(surrogate: Surrogate, data: Dataset) -> Tensor:
    """The surrogate's solutions for all samples, on the CPU."""
    device = surrogate.device
    was_training = surrogate.training
    surrogate.eval()
    solutions = []
    step = samples_at_once(data.problem.num_nodes)
    for first in range(0, len(data), step):
        batch = data.batch(slice(first, first + step))
        mask = None if batch.mask is None else batch.mask.to(device)
        solution = surrogate.solve(
            batch.coords.to(device), batch.inputs.to(device), shape=data.problem.shape, mask=mask
        )
        solutions.append(solution.float().cpu())
    surrogate.train(was_training)
    return torch.cat(solutions)


def mean_error(surrogate: Surrogate, data: Dataset) -> float:
    """Mean relative L2 error over the samples; 0 for none."""
    if not len(data):
        return 0.0
    return relative_l2(solve_all(surrogate, data), data.targets, data.mask).mean().item()


@dataclass(frozen=True)
class Evaluation:
    """Errors on a set of samples."""

    solutions: Tensor
    errors: Tensor  # Relative L2 error of each sample.
    frame_errors: Tensor | None  # Mean error of each frame, for problems in time.
    mean_predictor: float | None
    """Error of always predicting the mean of the training targets, as a baseline."""
    fields: dict[str, dict[str, float | None]]
    """Error and error of the training mean of each field: outputs, and the headline's."""
    headline: str | None  # The field that matters most; None stands for all outputs jointly.
    seconds_per_sample: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready figures."""
        summary = summarise(self.errors)
        return {
            "relative_l2": summary.mean,
            "median": summary.median,
            "p90": summary.p90,
            "worst": summary.worst,
            "worst_sample": summary.worst_index,
            "num_samples": len(self.errors),
            "seconds_per_sample": self.seconds_per_sample,
            "mean_predictor": self.mean_predictor,
            "headline": self.headline,
            "fields": self.fields,
            "frame_errors": None if self.frame_errors is None else self.frame_errors.tolist(),
        }


def evaluate(surrogate: Surrogate, data: Dataset, mean_target: Tensor | None) -> Evaluation:
    """Errors and time on held-out samples.

    `mean_target` is that of the training samples; None if `data` is on another mesh.
    """
    if not len(data):
        raise InputError("there are no samples to evaluate on")
    solve_all(surrogate, data.subset(slice(0, 1)))  # the first call compiles and allocates
    began = time.perf_counter()
    solutions = solve_all(surrogate, data)
    seconds = (time.perf_counter() - began) / len(data)
    problem, in_time = data.problem, data.problem.time != "steady"
    means = None if mean_target is None else mean_target.expand_as(data.targets)
    headline = headline_of(problem)
    outputs = {name: (name,) for name in problem.outputs}
    fields = {
        name: [problem.outputs.index(output) for output in joined]
        for name, joined in (outputs | headline).items()
    }
    found = mean_error_of_fields(solutions, data.targets, fields, data.mask)
    found_means = (
        {} if means is None else mean_error_of_fields(means, data.targets, fields, data.mask)
    )
    return Evaluation(
        solutions,
        relative_l2(solutions, data.targets, data.mask),
        relative_l2_per_frame(solutions, data.targets, data.mask).mean(0) if in_time else None,
        None if means is None else relative_l2(means, data.targets, data.mask).mean().item(),
        {
            name: {"relative_l2": error, "mean_predictor": found_means.get(name)}
            for name, error in found.items()
        },
        next(iter(headline), None),
        seconds,
    )


class EvaluatedRun(NamedTuple):
    """Figures of a run, the file they are in, and what they were computed from."""

    figures: dict[str, Any]
    path: Path
    evaluation: Evaluation
    surrogate: Surrogate
    data: Dataset


def evaluate_run(run: Run, split: str = "test", resolution: int | None = None) -> EvaluatedRun:
    """Evaluate the best weights of a run, time the solver for comparison, and write the figures.

    On the mesh of the training the band is calibrated, if it is not yet, and its coverage measured.
    User data have no solver to time. `resolution` is the nodes per side, if it differs from the
    training's.
    """
    if split not in ("test", "validation"):
        raise InputError(f"the split must be test or validation; got {split!r}")
    config = run.config
    surrogate = load_surrogate(run)
    splits, spec = _splits_of(run, split, resolution)
    data = splits.datasets[split]
    evaluation = evaluate(surrogate, data, train_mean(splits) if resolution is None else None)
    band = calibrate(run, surrogate, splits) if resolution is None else None
    promise = None
    if band is not None and split == "test":
        errors = evaluation.solutions - data.targets
        promise = band.figures(errors, data.mask, run.problem.outputs)
    figures = {
        "benchmark": config.benchmark,
        "scale": config.scale,
        "data": config.data.file or ("published files" if config.data.original else "generated"),
        "model": config.model_name,
        "split": split,
        "shape": list(splits.problem.shape),
        **evaluation.to_dict(),
        "solver_seconds_per_sample": None if spec is None else solver_seconds(spec, split),
        "band": promise,
        "threads": torch.get_num_threads(),
    }
    suffix = ("" if split == "test" else f"-{split}") + (f"-r{resolution}" if resolution else "")
    path = run.folder / f"evaluation{suffix}.json"
    write_json(path, figures)
    return EvaluatedRun(figures, path, evaluation, surrogate, data)


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
    return load_spec(spec, Path(config.data.root)), spec


def train_mean(splits: Splits) -> Tensor | None:
    """Mean training target; None for clouds of different sizes, whose points do not match."""
    return splits.train.targets.mean(0) if splits.train.mask is None else None


def calibrate(run: Run, surrogate: Surrogate, splits: Splits) -> Band | None:
    """The band of a run, saved in its folder; None with too few validation samples."""
    band = load_band(run.source, surrogate.step)
    if band is not None:
        return band
    validation, some = splits.validation, splits.train.subset(slice(SCALE_SAMPLES))
    if len(validation) < num_samples_needed():
        note(
            f"no band around predictions: it needs {num_samples_needed()} validation samples, "
            f"there are {len(validation)}"
        )
        return None
    is_cloud = run.problem.geometry == "cloud"
    scale = fit_scale(solve_all(surrogate, some) - some.targets, some.mask, is_cloud)
    errors = solve_all(surrogate, validation) - validation.targets
    quantile = calibrate_quantile(scores(errors, scale, validation.mask))
    assert quantile is not None
    assert surrogate.step is not None
    band = Band(quantile, scale, len(validation), surrogate.step)
    save_band(run.folder, band)
    return band


def solver_seconds(spec: DataSpec, split: str) -> float:
    """Median time of the numerical solver for one sample, on one core."""
    seconds = []
    for index in range(min(SOLVER_SAMPLES, spec.counts[split])):
        began = time.perf_counter()
        generate_sample(spec, split, index)
        seconds.append(time.perf_counter() - began)
    return median(seconds)
