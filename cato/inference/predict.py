"""Predicting for a file of inputs, written back in its format.

Runs on own data read the fields they were trained on. Runs on benchmarks take arrays `inputs` and
`coords`, or in VTK and NetCDF files the channels by their names.
"""

from pathlib import Path
from typing import Any

import numpy as np

from cato.errors import InputError
from cato.inference.answers import Answer, answer
from cato.inference.evaluate import load_run_band
from cato.problem import Problem
from cato.runs.folder import Run
from cato.runs.load import load_surrogate
from cato.surrogate import Surrogate
from cato.user_data.arrays import ARRAYS, open_npz
from cato.user_data.naming import Name, Naming, ReadRequest
from cato.user_data.read import files_of, read_samples
from cato.user_data.samples import UserSample, UserSamples
from cato.user_data.write import default_target, require_writable, write_predictions


def predict_file(run: Run, source: Path, target: Path | None = None) -> dict[str, Any]:
    """Solve for the samples of a file or folder and write the solutions in the same format.

    By the documented layout the new file gets `outputs`, `bands` where the run has a band, and with
    `targets` the relative `errors` of the samples. Named fields NAME become NAME_predicted,
    NAME_band and, with truth, NAME_error at every node.

    Args:
        run: Whose best weights to use.
        source: Holds the fields that the run was trained on; targets where they are known.
        target: New file or folder; beside the source by default.
    """
    source = Path(source)
    target = default_target(source) if target is None else Path(target)
    if source.exists():
        require_writable(source, target, run.problem.num_steps)
    surrogate = load_surrogate(run)
    naming = _naming(run, source)
    samples = _samples(run, surrogate, source, naming)
    _require_fit(run.problem, samples)
    answers, seconds = answer(surrogate, samples, load_run_band(run))
    write_predictions(target, naming, samples, _written(run.problem, naming, answers))
    return {
        "path": str(target),
        "num_samples": len(answers),
        "seconds_per_sample": seconds,
        **_figures(run.problem, answers),
    }


def _naming(run: Run, source: Path) -> Naming:
    """The run's fields; a benchmark's are by the layout, or by the names of its channels."""
    if run.config.data.file is not None:
        return run.config.data.naming
    if files_of(source)[0].suffix.lower() in ARRAYS:
        return Naming()
    problem = run.problem
    return Naming((), tuple(map(Name, problem.inputs)), tuple(map(Name, problem.outputs)))


def _samples(run: Run, surrogate: Surrogate, source: Path, naming: Naming) -> UserSamples:
    if run.config.data.file is None and source.suffix.lower() == ".npz":
        return _benchmark_samples(surrogate, source)
    problem, coords = run.problem, surrogate.coords
    nodes = None if coords is None else coords.cpu().numpy().reshape(*problem.shape, -1)
    # A mesh says how many axes there are; a cloud may lie on one.
    num_axes = None if problem.geometry == "cloud" else len(problem.shape)
    return read_samples(source, ReadRequest(naming, truth=False, num_axes=num_axes, coords=nodes))


def _benchmark_samples(surrogate: Surrogate, source: Path) -> UserSamples:
    """The arrays `inputs`, `coords` and `targets` as `Surrogate.predict` has them."""
    file, problem = open_npz(source), surrogate.problem
    arrays = {
        name: file.read(name) for name in ("inputs", "coords", "targets") if name in file.shapes
    }
    if "inputs" not in arrays:
        if problem.num_inputs or "coords" not in arrays:
            found = ", ".join(sorted(file.shapes)) or "nothing"
            needed = "inputs" if problem.num_inputs else "coords"
            raise InputError(f"{source} has no array {needed!r}, only {found}")
        nodes = arrays["coords"]  # the mesh is all the input
        num_samples = len(nodes) if nodes.ndim == len(problem.shape) + 2 else 1
        mesh = nodes.shape[-1 - len(problem.shape) : -1]
        arrays["inputs"] = np.zeros((num_samples, *mesh, 0), np.float32)
    try:
        surrogate.checked(arrays["inputs"], arrays.get("coords"))
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    inputs, targets = arrays["inputs"].astype(np.float32), arrays.get("targets")
    if targets is not None and targets.shape[:1] != inputs.shape[:1]:
        raise InputError(f"{source}: targets are {targets.shape}, but inputs {inputs.shape}")
    if "coords" in arrays:
        coords = arrays["coords"].astype(np.float32)
    else:
        assert surrogate.coords is not None
        coords = surrogate.coords.cpu().numpy().reshape(*problem.shape, problem.dimension)
    if coords.ndim == inputs.ndim and len(coords) == 1:
        coords = coords[0]  # of all samples
    is_own = coords.ndim == inputs.ndim
    samples = [
        UserSample(
            f"{source}, sample {i}",
            coords[i] if is_own else coords,
            inputs[i],
            None if targets is None else targets[i].astype(np.float32),
        )
        for i in range(len(inputs))
    ]
    return UserSamples(
        source, samples, problem.inputs, problem.outputs, problem.time, problem.num_steps
    )


def _require_fit(problem: Problem, samples: UserSamples) -> None:
    """Refuse samples of another problem."""
    if len(samples.inputs) != problem.num_inputs:
        raise InputError(
            f"{samples.path}: the model takes {problem.num_inputs} inputs "
            f"({', '.join(problem.inputs)}), the file has {len(samples.inputs)} "
            f"({', '.join(samples.inputs)})"
        )
    frames = () if problem.time == "steady" else (problem.num_steps,)
    for sample in samples.samples:
        dimension, is_mesh = sample.coords.shape[-1], problem.geometry != "cloud"
        if dimension != problem.dimension or (is_mesh and len(sample.mesh) != dimension):
            raise InputError(
                f"{sample.origin}: the model works on a {problem.geometry} with "
                f"{problem.dimension} coordinates; here are {dimension} on nodes {sample.mesh}"
            )
        for what, array in (("coordinates", sample.coords), ("inputs", sample.inputs)):
            if not np.isfinite(array).all():
                raise InputError(f"{sample.origin}: the {what} have NaN or infinite values")
        expected = (*frames, *sample.mesh, problem.num_outputs)
        if sample.targets is not None and sample.targets.shape != expected:
            raise InputError(
                f"{sample.origin}: targets are {sample.targets.shape}, the outputs {expected}"
            )


def _written(
    problem: Problem, naming: Naming, answers: list[Answer]
) -> dict[str, list[np.ndarray]]:
    """What goes into the file, by name."""
    values = [a.values for a in answers]
    widths = [a.half_width for a in answers if a.half_width is not None]
    errors = [a.error for a in answers if a.error is not None]
    has_band, has_truth = len(widths) == len(answers), len(errors) == len(answers)
    if naming.is_layout:
        relative = [np.asarray(a.relative_l2, np.float32) for a in answers]
        bands = {"bands": widths} if has_band else {}
        return {"outputs": values} | bands | ({"errors": relative} if has_truth else {})
    written = {}
    for name in naming.targets:
        field, channels = name.field, _channels(name.field, problem.outputs)
        written[f"{field}_predicted"] = [array[..., channels] for array in values]
        if has_band:
            written[f"{field}_band"] = [array[..., channels] for array in widths]
        if has_truth:
            written[f"{field}_error"] = [array[..., channels] for array in errors]
    return written


def _channels(field: str, outputs: tuple[str, ...]) -> list[int]:
    """The outputs that are a field or its components."""
    return [
        index
        for index, output in enumerate(outputs)
        if output == field
        or (output.startswith(f"{field}_") and output[len(field) + 1 :].isdecimal())
    ]


def _figures(problem: Problem, answers: list[Answer]) -> dict[str, Any]:
    """Errors where truth is known, the band where there is one."""
    figures: dict[str, Any] = {}
    relative = {a.sample.origin: a.relative_l2 for a in answers if a.relative_l2 is not None}
    if relative:
        worst = max(relative, key=lambda origin: relative[origin])
        mean = float(np.mean(list(relative.values())))
        figures |= {"relative_l2": mean, "worst": relative[worst], "worst_sample": worst}
    widths = [a.half_width for a in answers if a.half_width is not None]
    if len(widths) == len(answers):
        means = np.mean([w.reshape(-1, w.shape[-1]).mean(0) for w in widths], axis=0)
        figures["mean_half_width"] = dict(zip(problem.outputs, means.tolist(), strict=True))
    covered = [c for c in (a.is_covered() for a in answers) if c is not None]
    if covered:
        shares = np.mean(covered, axis=0).tolist()
        figures["covered_samples"] = dict(zip(problem.outputs, shares, strict=True))
    return figures
