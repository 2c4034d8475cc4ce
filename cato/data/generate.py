"""Generating a benchmark's data file: in parallel, resumable, the same for any number of workers.

Workers solve samples, in processes of this machine or on a cluster, and send them as NumPy
archives. This process writes each to its place in the future file (`UnfinishedStore`), which gets
its name when it is complete. After a kill or Ctrl-C the same call resumes.
"""

import functools
import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from loky import cpu_count

from cato.benchmarks.contract import SPLITS
from cato.data.sampling import AcceptedSample, generate_sample
from cato.data.spec import DEFAULT_ROOT, DataSpec
from cato.data.store import UnfinishedStore, read_header
from cato.errors import InputError
from cato.files import locked
from cato.kernels.jit import when_compiling
from cato.memory import readable_size, require_memory
from cato.processes import WorkerDied, Workers, workers_from
from cato.progress import note, progress_bar

WORKERS_PER_CORE = 16  # Maximum: each takes a tenth of a gigabyte and more.


def generate(
    benchmark: str,
    scale: str,
    *,
    seed: int = 0,
    count: int | None = None,
    resolution: int | None = None,
    splits: Sequence[str] = SPLITS,
    root: Path = DEFAULT_ROOT,
    workers: int | Workers | None = None,
) -> Path:
    """Generate the data of a benchmark unless the file exists.

    Args:
        benchmark: Name of a benchmark, such as "darcy".
        scale: "paper", "small" or "smoke".
        seed: Seed of the samples.
        count: Number of training samples, default from the scale.
        resolution: Nodes per side, default from the scale.
        splits: Which splits to generate.
        root: Folder of the file.
        workers: Number of worker processes, default one per core, or a `cato.cluster.Cluster`. The
            data do not depend on it.

    Returns:
        The path of the complete file.
    """
    spec = DataSpec(benchmark, scale, seed, count, resolution, tuple(splits))
    return generate_file(spec, root, workers)


def generate_file(
    spec: DataSpec, root: Path = DEFAULT_ROOT, workers: int | Workers | None = None
) -> Path:
    """`generate` for a specification."""
    workers = _checked(workers)
    target = Path(root) / spec.file_name
    store = UnfinishedStore(target, spec)
    if not is_complete(target, spec):
        busy = (
            f"another process (number {{pid}}) is generating {target}; "
            f"wait for it or choose another --out"
        )
        with locked(target.with_name(f".{target.name}.lock"), busy):
            if not is_complete(target, spec):  # another process may have finished it just now
                _require_room(spec, target.parent, store)
                _solve_missing(store, spec, target, workers)
                if target.exists():
                    raise InputError(f"{target} appeared while it was being generated; move it")
                store.finish()
    store.remove()
    return target


def _checked(workers: int | Workers | None) -> Workers:
    if isinstance(workers, int):
        if workers < 1:
            raise InputError(f"the number of workers must be 1 or more; got {workers}")
        if workers > (most := WORKERS_PER_CORE * cpu_count()):
            raise InputError(f"the number of workers must be at most {most} here; got {workers}")
    return workers_from(workers)


def _require_room(spec: DataSpec, folder: Path, store: UnfinishedStore) -> None:
    """Raise if memory cannot hold one sample, or the disk not all that are missing."""
    total, free = spec.num_bytes, shutil.disk_usage(folder).free + store.disk_bytes
    remedy, of_sample = "choose a smaller --resolution", total / sum(spec.counts.values())
    require_memory(2 * of_sample, f"one sample of {spec.file_name}", remedy)  # solved in float64
    if total > free:
        raise InputError(
            f"{spec.file_name} needs {readable_size(total)}, but {folder} has only "
            f"{readable_size(free)} free; choose a smaller --count, --resolution or another --out"
        )


def covering(spec: DataSpec, root: Path) -> DataSpec:
    """The spec of the whole scale if its file exists and contains all samples of `spec`."""
    whole = replace(spec, count=None)
    enough = whole.counts.get("train", 0) >= spec.counts.get("train", 0)
    return whole if enough and is_complete(Path(root) / whole.file_name, whole) else spec


def is_complete(target: Path, spec: DataSpec) -> bool:
    """Whether the file exists; raises if it exists and holds other data."""
    if not target.exists():
        return False
    remedy = f"{spec.remedy(target.parent)}, or choose another --out"
    identity = read_header(target, remedy)["identity"]
    differing = [key for key, value in spec.identity.items() if identity.get(key) != value]
    if differing:
        theirs = ", ".join(f"{key} {identity.get(key)}" for key in differing)
        ours = ", ".join(f"{key} {spec.identity[key]}" for key in differing)
        raise InputError(f"{target} holds other data ({theirs}) than requested ({ours}); {remedy}")
    return True


def _solve_missing(store: UnfinishedStore, spec: DataSpec, target: Path, workers: Workers) -> None:
    """Solve every sample that is not there yet."""
    finished = store.finished()
    missing = [task for task in spec.tasks if task not in finished]
    done, total = len(finished), len(spec.tasks)
    if done and missing:
        note(f"resuming: {done} of {total} samples are already there")
    tasks = [(asdict(spec), *task) for task in missing]
    try:
        with (
            progress_bar(f"generating {target.stem}", total) as bar,
            closing(workers.map_unordered(solve_sample, tasks)) as solved,
        ):
            bar(done)
            for (_, split, index), content in solved:
                store.write(split, index, AcceptedSample.from_bytes(content))
                done += 1
                bar(done)
    except KeyboardInterrupt:
        note(
            f"stopped: {done} of {total} samples are kept in {store.path}; the same command resumes"
        )
        raise
    except WorkerDied as error:
        raise InputError(
            f"{error}, probably out of memory; {done} of {total} samples are kept. Run the same "
            f"command with fewer workers (--workers)"
        ) from error


def solve_sample(spec: dict[str, Any], split: str, index: int) -> bytes:
    """What a worker does; JSON-ready arguments, the archive of a sample."""
    _announce_compilation()
    return generate_sample(DataSpec(**spec), split, index).to_bytes()


@functools.cache
def _announce_compilation() -> None:
    """A worker has no progress bar to write to, but shares standard error."""
    when_compiling(functools.cache(lambda: note("compiling the solver (only the first time)")))
