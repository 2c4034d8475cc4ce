"""Generating a benchmark's data file: in parallel, resumable, the same for any number of workers.

Every finished sample is a file of its own beside the target until all are there; then they become
one HDF5 file and are removed. After a kill or Ctrl-C the same call goes on where it stopped.
"""

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from cato.benchmarks import SPLITS
from cato.data.sample_cache import Parts
from cato.data.spec import DEFAULT_ROOT, DataSpec
from cato.data.store import read_header, write_store
from cato.data.worker import solve_in_parallel
from cato.errors import InputError
from cato.lock import locked
from cato.progress import note, progress_bar


def generate(
    benchmark: str,
    scale: str,
    *,
    seed: int = 0,
    count: int | None = None,
    resolution: int | None = None,
    splits: Sequence[str] = SPLITS,
    root: Path = DEFAULT_ROOT,
    workers: int | None = None,
) -> Path:
    """Generate the data of a benchmark, unless the file is already there.

    Args:
        benchmark: Such as "darcy".
        scale: "paper", "small" or "smoke".
        seed: Of the samples.
        count: Number of training samples; validation and test stay as they are.
        resolution: Nodes per side, where it differs from the scale's.
        splits: Which splits to generate.
        root: The folder of the file.
        workers: Number of parallel processes; all cores by default. No sample depends on it.

    Returns:
        The path of the complete file.
    """
    spec = DataSpec(benchmark, scale, seed, count, resolution, tuple(splits))
    return generate_file(spec, root, workers)


def generate_file(spec: DataSpec, root: Path = DEFAULT_ROOT, workers: int | None = None) -> Path:
    """`generate` for a specification."""
    if workers is not None and workers < 1:
        raise InputError(f"the number of workers must be 1 or more; got {workers}")
    target = Path(root) / spec.file_name
    parts = Parts(target, spec)
    if not is_complete(target, spec):
        busy = (
            f"another process (number {{pid}}) is generating {target}; "
            f"wait for it or choose another --out"
        )
        with locked(target.with_name(f".{target.name}.lock"), busy):
            if not is_complete(target, spec):  # it may have been finished before the lock was ours
                _remove_leftovers(target)
                _solve_missing(parts, target, workers or num_cores())
                _assemble(parts, target)
    parts.remove()
    return target


def covering(spec: DataSpec, root: Path) -> DataSpec:
    """The whole scale, if its file is there and has all the samples of `spec`; else `spec`."""
    whole = replace(spec, count=None)
    enough = whole.counts.get("train", 0) >= spec.counts.get("train", 0)
    return whole if enough and is_complete(Path(root) / whole.file_name, whole) else spec


def is_complete(target: Path, spec: DataSpec) -> bool:
    """Whether the file exists; if it does and is not what `spec` says, it is refused."""
    if not target.exists():
        return False
    remedy = f"{spec.remedy(target.parent)}, or choose another --out"
    identity = read_header(target, remedy).identity
    differing = [key for key, value in spec.identity.items() if identity.get(key) != value]
    if differing:
        theirs = ", ".join(f"{key} {identity.get(key)}" for key in differing)
        ours = ", ".join(f"{key} {spec.identity[key]}" for key in differing)
        raise InputError(f"{target} holds other data ({theirs}) than asked for ({ours}); {remedy}")
    return True


def num_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _solve_missing(parts: Parts, target: Path, num_workers: int) -> None:
    """Make every part that is not there yet or not intact."""
    spec = parts.spec
    parts.start()
    missing = [task for task in spec.tasks if not parts.is_intact(*task)]
    total = len(spec.tasks)
    done = total - len(missing)
    if done and missing:
        note(f"{done} of {total} samples are already there: continuing")
    try:
        with (
            progress_bar(f"generating {target.stem}", total) as bar,
            closing(
                solve_in_parallel(
                    spec,
                    target,
                    missing,
                    num_workers,
                    tell_compiling=lambda: bar(done, "compiling the solver, this once"),
                )
            ) as finished,
        ):
            bar(done)
            for _ in finished:
                done += 1
                bar(done)
    except KeyboardInterrupt:
        note(
            f"stopped: {done} of {total} samples are kept in {parts.folder}; "
            f"the same command continues"
        )
        raise


def _assemble(parts: Parts, target: Path) -> None:
    spec = parts.spec
    if target.exists():
        raise InputError(f"{target} has appeared while it was being generated; move it away")
    write_store(target, spec, (parts.read(*task) for task in spec.tasks))


def _remove_leftovers(target: Path) -> None:
    """Remove half-assembled files of killed processes; the lock makes sure they are dead."""
    for leftover in target.parent.glob(f".{target.name}.*.tmp"):
        leftover.unlink(missing_ok=True)
