"""Export: trace, write, check, and keep the file only if it agrees with PyTorch.

A file for any mesh size is tried first. If the model's graph depends on the size, or the file is
wrong on other meshes, the mesh of the training data is fixed and the metadata say why.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

from cato import __version__
from cato.data.dataset import Dataset
from cato.data.generate import covering
from cato.errors import InputError
from cato.export.check import cases, largest_difference, milliseconds
from cato.export.formats import Format, Metadata, Program, get_format
from cato.export.portable import Arrays, Portable, computes, layout, mesh_axes
from cato.export.trace import NotExportable, Traced, random_arrays
from cato.files import atomic_write
from cato.progress import Bar, note, progress_bar
from cato.runs.folder import Run
from cato.runs.load import data_spec, load_splits, load_surrogate
from cato.runs.settings import RunConfig
from cato.surrogate import Surrogate

FORMAT = 1
"""Version of the metadata."""
_REAL_SAMPLES = 3
"""Number of held-out samples used in the check."""


def export_run(run: Run, format_name: str = "onnx", target: Path | None = None) -> dict[str, Any]:
    """Export the best weights of a run; returns path, dynamic axes, agreement and speed.

    Args:
        run: The run.
        format_name: onnx or pt2.
        target: New file; model.onnx or model.pt2 in the run folder by default.
    """
    target = Path(target or run.folder / f"model.{format_name}")
    _check_target(target, format_name)
    surrogate = load_surrogate(run)
    details = {"model": run.config.model_name, "run": _training(run)}
    return export_surrogate(surrogate, target, format_name, details, _real_arrays(run))


def export_surrogate(
    surrogate: Surrogate,
    target: Path,
    format_name: str = "onnx",
    details: Metadata | None = None,
    real: Sequence[Arrays] = (),
) -> dict[str, Any]:
    """Export any surrogate; see `export_run`.

    Args:
        surrogate: Model and normaliser.
        target: New file.
        format_name: onnx or pt2.
        details: More JSON-ready metadata, such as `model`, the name of the model.
        real: Real samples for the check, in the layout of `cato.export.portable`.
    """
    return export_traced(Traced(surrogate), target, format_name, details, real)


def export_traced(
    traced: Traced,
    target: Path,
    format_name: str,
    details: Metadata | None = None,
    real: Sequence[Arrays] = (),
) -> dict[str, Any]:
    """Export graphs that other formats may share; see `export_surrogate`."""
    target = Path(target)
    _check_target(target, format_name)
    kind = get_format(format_name)
    surrogate = traced.portable.surrogate
    metadata = _metadata(surrogate, {"model": type(surrogate.model).__name__} | (details or {}))
    with progress_bar(f"export {target.name}", 3) as bar:
        try:
            figures = _attempt(traced, kind, target, metadata, real, None, bar)
        except NotExportable as error:
            note(f"the mesh size is fixed at {surrogate.problem.shape}: {error}")
            try:
                figures = _attempt(traced, kind, target, metadata, real, str(error), bar)
            except NotExportable as final:
                raise InputError(
                    f"{metadata['model']} cannot be exported to {format_name}: {final}"
                ) from final
    return figures


def _attempt(
    traced: Traced,
    kind: Format,
    target: Path,
    metadata: Metadata,
    real: Sequence[Arrays],
    why_fixed: str | None,
    bar: Bar,
) -> dict[str, Any]:
    """One export, for any mesh size unless `why_fixed` gives a reason against it."""
    portable, problem = traced.portable, traced.portable.problem
    dynamic_mesh = why_fixed is None
    dynamic = ["batch", *(mesh_axes(problem) if dynamic_mesh else ())]
    bar(0, "tracing")
    program = traced.graph(dynamic_mesh)
    with atomic_write(target) as temporary:
        bar(1, "writing")
        kind.write(program, temporary, metadata | {"dynamic": dynamic, "why_fixed": why_fixed})
        bar(2, "checking")
        loaded = kind.load(temporary)
        differences = {
            case.name: largest_difference(portable, loaded, case)
            for case in cases(portable.surrogate, real, dynamic_mesh)
        }
        size = temporary.stat().st_size
    bar(3, "done")
    return {
        "path": str(target),
        "megabytes": size / 1e6,
        "computes": metadata["computes"],
        "dynamic": dynamic,
        "why_fixed": why_fixed,
        "largest_difference": max(differences.values()),
        "checked_on": list(differences),
        **_speed(portable, loaded, kind),
    }


def _speed(portable: Portable, loaded: Program, kind: Format) -> dict[str, Any]:
    """Run time of one sample in PyTorch and in the file's runtime."""
    arrays = random_arrays(portable.surrogate, portable.problem.shape, 1)
    return {
        "milliseconds_pytorch": milliseconds(partial(portable, **arrays)),
        f"milliseconds_{kind.runtime}": milliseconds(partial(loaded, arrays)),
        "threads": torch.get_num_threads(),
    }


def _check_target(target: Path, format_name: str) -> None:
    """Errors that can be found before the work starts."""
    get_format(format_name).require()
    if target.exists():
        raise InputError(f"{target} exists and is not overwritten; choose another --out")
    if not target.parent.is_dir():
        raise InputError(f"the folder {target.parent} does not exist; create it or choose another")
    if target.suffix != f".{format_name}":
        raise InputError(f"the file name must end in .{format_name}; got {target.name}")


def _metadata(surrogate: Surrogate, details: Metadata) -> Metadata:
    problem = surrogate.problem
    return {
        "format": FORMAT,
        "cato": __version__,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "computes": computes(problem),
        "layout": layout(problem),
        "problem": problem.to_dict(),
        "precision": "float32; normalisation is included, values are physical",
        **details,
    }


def _training(run: Run) -> Metadata:
    """Origin of the weights."""
    errors = [line["validation"] for line in run.log()]
    return {
        "name": run.folder.resolve().name,
        "created": run.record.get("created"),
        "cato": run.record.get("cato"),
        "benchmark": run.config.benchmark,
        "scale": run.config.scale,
        "seed": run.config.train.seed,
        "validation_relative_l2": min(errors, default=None),
    }


def _real_arrays(run: Run) -> list[Arrays]:
    """Held-out samples of the run's data, if they exist; they are not generated for this."""
    data = _validation(run.config)
    if data is None:
        return []
    return [_sample_arrays(data, number) for number in range(min(len(data), _REAL_SAMPLES))]


def _sample_arrays(data: Dataset, number: int) -> Arrays:
    """A sample as a batch of one, without padding."""
    sample = data.batch([number])
    nodes = slice(None) if sample.mask is None else sample.mask[0]
    shape = data.problem.shape if sample.mask is None else (int(sample.mask.sum()),)
    arrays = {"coords": sample.coords[:, nodes].unflatten(1, shape)}
    if data.problem.num_inputs:
        arrays["inputs"] = sample.inputs[:, nodes].unflatten(1, shape)
    if data.problem.has_time:
        arrays["time"] = torch.tensor([0.5])
    return arrays


def _validation(config: RunConfig) -> Dataset | None:
    """The validation split, or None with a note."""
    data, root = config.data, Path(config.data.root)
    is_generated = data.file is None and data.original is None
    try:
        if is_generated and not (root / covering(data_spec(config), root).file_name).exists():
            note(f"no data in {root}: the file is checked on random inputs only")
            return None
        return load_splits(config).validation
    except InputError as error:
        note(f"the file is checked on random inputs only: {error}")
        return None
