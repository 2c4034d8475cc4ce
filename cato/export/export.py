"""Export: trace, write, check, and keep the file only if it agrees with PyTorch.

A file for any mesh size is tried first. If the model's graph depends on the size, or the file is
wrong on other meshes, the mesh of the training data is fixed and the metadata say why.
"""

import timeit
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from cato import __version__
from cato.data.generate import covering
from cato.errors import InputError
from cato.export.formats import FORMATS, Format, Metadata, Program
from cato.export.graph import (
    Arrays,
    NotExportable,
    Portable,
    computes,
    layout,
    mesh_axes,
    random_arrays,
    reason,
    trace,
)
from cato.files import atomic_write
from cato.inference.evaluate import ALL_ERRORS, read_evaluation
from cato.physics.metrics import relative_l2
from cato.problem import Problem
from cato.progress import Bar, note, progress_bar
from cato.runs.folder import Run
from cato.runs.load import data_spec, is_generated, load_splits, load_surrogate
from cato.runs.settings import RunConfig
from cato.surrogate import Surrogate

FORMAT = 1  # Version of the metadata.
TOLERANCE = 1e-4  # Maximum relative L2 difference of a sample from PyTorch.
_REAL_SAMPLES = 3  # Number of held-out samples used in the check.
_TIMED_CALLS = 5


def export_run(run: Run, format_name: str = "onnx", target: Path | None = None) -> dict[str, Any]:
    """Export the best weights of a run; returns path, dynamic axes, agreement and speed.

    The format is onnx or pt2; the new file is model.onnx or model.pt2 in the run folder by default.
    """
    target = Path(target or run.folder / f"model.{format_name}")
    _check_target(target, format_name)
    config, record, surrogate = run.config, run.record, load_surrogate(run)
    origin = {
        "name": run.folder.resolve().name,
        "created": record.get("created"),
        "cato": record.get("cato"),
        "benchmark": config.benchmark,
        "scale": config.scale,
        "seed": config.train.seed,
        "validation_relative_l2": min(
            (line["validation"] for line in run.log() if "validation" in line), default=None
        ),
    }
    if (figures := read_evaluation(run, surrogate.step)) is not None:
        origin["test_error"] = {key: figures.get(key) for key in ALL_ERRORS}
    details = {"model": config.model_name, "run": origin}
    return export_surrogate(surrogate, target, format_name, details, _real_arrays(config))


def export_surrogate(
    surrogate: Surrogate,
    target: Path,
    format_name: str = "onnx",
    details: Metadata | None = None,
    real: Sequence[Arrays] = (),
) -> dict[str, Any]:
    """Export any surrogate; see `export_run`.

    `details` are more JSON-ready metadata, such as `model`, the name of the model. `real` are real
    samples for the check, in the layout of `cato.export.graph`.
    """
    kind = _check_target(target, format_name)
    metadata = _metadata(surrogate, {"model": type(surrogate.model).__name__} | (details or {}))
    portable, why_fixed = Portable(surrogate), None
    with progress_bar(f"export {target.name}", 3) as bar:
        while True:
            try:
                return _attempt(portable, kind, target, metadata, real, bar, why_fixed)
            except NotExportable as error:
                if why_fixed is not None:
                    raise InputError(
                        f"{metadata['model']} cannot be exported to {format_name}: {error}"
                    ) from error
                why_fixed = str(error)
                note(f"the mesh size is fixed at {surrogate.problem.shape}: {error}")


def _attempt(
    portable: Portable,
    kind: Format,
    target: Path,
    metadata: Metadata,
    real: Sequence[Arrays],
    bar: Bar,
    why_fixed: str | None,
) -> dict[str, Any]:
    """One export, for any mesh size unless `why_fixed` gives a reason against it."""
    surrogate, problem = portable.surrogate, portable.problem
    dynamic_mesh = why_fixed is None
    sizes = {
        "dynamic": ["batch", *(mesh_axes(problem) if dynamic_mesh else ())],
        "why_fixed": why_fixed,
    }
    bar(0, "tracing")
    program = trace(portable, dynamic_mesh)
    with atomic_write(target) as temporary:
        bar(1, "writing")
        kind.write(program, temporary, metadata | sizes)
        bar(2, "checking")
        loaded = kind.load(temporary)
        differences = {
            case: largest_difference(portable, loaded, case, arrays)
            for case, arrays in cases(surrogate, real, dynamic_mesh)
        }
        size = temporary.stat().st_size
    bar(3, "done")
    sample = random_arrays(surrogate, problem.shape, 1)
    return {
        "path": str(target),
        "megabytes": size / 1e6,
        "computes": metadata["computes"],
        **sizes,
        "largest_difference": max(differences.values()),
        "checked_on": list(differences),
        "milliseconds_pytorch": milliseconds(partial(portable, **sample)),
        f"milliseconds_{kind.runtime}": milliseconds(partial(loaded, sample)),
        "threads": torch.get_num_threads(),
    }


def cases(
    surrogate: Surrogate, real: Sequence[Arrays], dynamic_mesh: bool
) -> Iterator[tuple[str, Arrays]]:
    """Random inputs in two batch sizes, real samples and, if allowed, other meshes."""
    shape = surrogate.problem.shape
    for batch in (1, 3):
        yield f"random, batch {batch}", random_arrays(surrogate, shape, batch)
    if surrogate.problem.geometry == "cloud":  # equidistant neighbours must be ordered alike
        yield "regular points", random_arrays(surrogate, shape, 1, regular=True)
    for number, arrays in enumerate(real):
        if dynamic_mesh or arrays["coords"].shape[1:-1] == shape:
            yield f"real, sample {number}", arrays
    if dynamic_mesh:
        # Odd and even, larger and smaller, another aspect ratio: what a trace may have fixed.
        for other in (
            tuple(n + 1 for n in shape),
            (2 * shape[0], *shape[1:]),
            tuple(max(3, 3 * n // 4) for n in shape),
        ):
            name = f"random, mesh {' × '.join(map(str, other))}"
            yield name, random_arrays(surrogate, other, 2)


@torch.no_grad()
def largest_difference(portable: Portable, program: Program, case: str, arrays: Arrays) -> float:
    """Largest relative L2 difference of a sample; raises if it exceeds `TOLERANCE`."""
    expected = portable(**arrays)
    try:
        found = program(arrays)
    except Exception as error:
        raise NotExportable(f"{case}: the file cannot be run ({reason(error)})") from error
    if found.shape != expected.shape:
        raise NotExportable(
            f"{case}: the file gives {tuple(found.shape)}, PyTorch {tuple(expected.shape)}"
        )
    pair = (found.flatten(1, -2), expected.flatten(1, -2))
    difference = relative_l2(*pair, offsets=portable.problem.offsets).max().item()
    if not difference <= TOLERANCE:  # NaN too
        raise NotExportable(
            f"{case}: the file differs from PyTorch by {difference:.1e}, "
            f"the tolerance is {TOLERANCE:.0e}"
        )
    return difference


@torch.no_grad()
def milliseconds(program: Callable[[], Tensor]) -> float:
    """Median run time of a call."""
    program()  # the first call compiles and allocates
    return 1000 * median(timeit.repeat(program, number=1, repeat=_TIMED_CALLS))


def _check_target(target: Path, format_name: str) -> Format:
    """The format; raises for errors that can be found before the work starts."""
    if format_name not in FORMATS:
        raise InputError(f"unknown format {format_name!r}; choose one of {', '.join(FORMATS)}")
    FORMATS[format_name].require()
    if target.exists():
        raise InputError(f"{target} exists and is not overwritten; choose another --out")
    if not target.parent.is_dir():
        raise InputError(f"the folder {target.parent} does not exist; create it or choose another")
    if target.suffix != f".{format_name}":
        raise InputError(f"the file name must end in .{format_name}; got {target.name}")
    return FORMATS[format_name]


def _metadata(surrogate: Surrogate, details: Metadata) -> Metadata:
    problem = surrogate.problem
    return {
        "format": FORMAT,
        "cato": __version__,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "computes": computes(problem),
        "layout": layout(problem),
        "problem": problem.to_dict(),
        "precision": f"{_types(problem)}; normalisation is included, values are physical",
        **details,
    }


def _types(problem: Problem) -> str:
    if not problem.float64:
        return "float32"
    return f"float64 for {', '.join(problem.float64)}, otherwise float32"


def _real_arrays(config: RunConfig) -> list[Arrays]:
    """Held-out samples of a run, each a batch of one without padding; data are not generated."""
    root = Path(config.data.root)
    try:
        if is_generated(config):
            path = root / covering(data_spec(config), root).file_name
            if not path.exists():
                raise InputError(f"no data in {root}")
        splits = load_splits(config)
        data = splits.validation if len(splits.validation) else splits.train
    except InputError as error:
        note(f"the file is checked on random inputs only: {error}")
        return []
    samples = []
    for number in range(min(len(data), _REAL_SAMPLES)):
        sample = data.batch([number])
        nodes = slice(None) if sample.mask is None else sample.mask[0]
        shape = data.problem.shape if sample.mask is None else (int(sample.mask.sum()),)
        arrays = {"coords": sample.coords[:, nodes].unflatten(1, shape)}
        if data.problem.num_inputs:
            arrays["inputs"] = sample.inputs[:, nodes].unflatten(1, shape)
        if data.problem.has_time:
            arrays["time"] = torch.tensor([0.5])
        samples.append(arrays)
    return samples
