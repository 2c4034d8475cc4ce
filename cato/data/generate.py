"""Generating a benchmark's data file: in parallel, resumable, the same for any number of workers.

Every finished sample is cached in a file of its own next to the target. Once all are there, they
are written to one HDF5 file and the cache is removed. After a kill or Ctrl-C the same call resumes.

A file of the cache is a SHA-256 followed by a NumPy archive. The checksum also covers the settings,
split and index: a file that is truncated, renamed or from another generation is not intact.
"""

import functools
import hashlib
import io
import shutil
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
from loky import cpu_count

from cato.benchmarks.contract import SPLITS, Sample
from cato.data.sampling import AcceptedSample, generate_sample
from cato.data.spec import DEFAULT_ROOT, DataSpec
from cato.data.store import read_header, write_store
from cato.errors import InputError
from cato.files import atomic_write, locked, write_json
from cato.kernels.jit import when_compiling
from cato.memory import readable_size, require_memory
from cato.processes import WorkerDied, map_unordered
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
    workers: int | None = None,
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
        workers: Number of worker processes, default one per core. The data do not depend on it.

    Returns:
        The path of the complete file.
    """
    spec = DataSpec(benchmark, scale, seed, count, resolution, tuple(splits))
    return generate_file(spec, root, workers)


def generate_file(spec: DataSpec, root: Path = DEFAULT_ROOT, workers: int | None = None) -> Path:
    """`generate` for a specification."""
    if workers is not None and workers < 1:
        raise InputError(f"the number of workers must be 1 or more; got {workers}")
    if workers is not None and workers > (most := WORKERS_PER_CORE * cpu_count()):
        raise InputError(f"the number of workers must be at most {most} here; got {workers}")
    target = Path(root) / spec.file_name
    cache = SampleCache(target, spec)
    if not is_complete(target, spec):
        busy = (
            f"another process (number {{pid}}) is generating {target}; "
            f"wait for it or choose another --out"
        )
        with locked(target.with_name(f".{target.name}.lock"), busy):
            if not is_complete(target, spec):  # another process may have finished it just now
                _require_room(spec, target.parent)
                _solve_missing(cache, target, workers or cpu_count())
                if target.exists():
                    raise InputError(f"{target} appeared while it was being generated; move it")
                write_store(target, spec, (cache.read(*task) for task in spec.tasks))
    cache.remove()
    return target


def _require_room(spec: DataSpec, folder: Path) -> None:
    """Raise if memory cannot hold one sample, or the disk not all of them."""
    total, free = spec.num_bytes, shutil.disk_usage(folder).free
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


_DIGEST_SIZE = hashlib.sha256().digest_size


class SampleCache:
    """A folder of finished samples next to the file `target` they will be written to."""

    def __init__(self, target: Path, spec: DataSpec) -> None:
        self.spec = spec
        self.folder = target.with_name(f"{target.stem}-{spec.key}.parts")

    def start(self) -> None:
        """Create the folder, with a manifest for people who wonder what it is."""
        write_json(self.folder / "manifest.json", self.spec.identity)

    def write(self, split: str, index: int, accepted: AcceptedSample) -> None:
        archive, names = io.BytesIO(), np.array(list(accepted.sample.diagnostics), np.str_)
        np.savez(archive, allow_pickle=False, names=names, **accepted.arrays())
        payload = archive.getvalue()
        with atomic_write(self.path(split, index)) as temporary:
            temporary.write_bytes(self._digest(split, index, payload) + payload)

    def read(self, split: str, index: int) -> AcceptedSample:
        payload = self._payload(split, index)
        if payload is None:
            raise InputError(f"{self.path(split, index)} was damaged; run the same command again")
        with np.load(io.BytesIO(payload), allow_pickle=False) as arrays:
            names, values = arrays["names"].tolist(), arrays["diagnostics"].tolist()
            diagnostics = dict(zip(names, values, strict=True))
            sample = Sample(arrays["inputs"], arrays["targets"], arrays.get("coords"), diagnostics)
            return AcceptedSample(sample, int(arrays["attempts"]))

    def is_intact(self, split: str, index: int) -> bool:
        return self._payload(split, index) is not None

    def remove(self) -> None:
        """Remove the folder; another process may be doing the same."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, split: str, index: int) -> Path:
        return self.folder / f"{split}-{index:05d}.part"

    def _payload(self, split: str, index: int) -> bytes | None:
        """The archive; None if it is missing, unreadable or its checksum differs."""
        try:
            content = self.path(split, index).read_bytes()
        except OSError:
            return None
        digest, payload = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
        return payload if digest == self._digest(split, index, payload) else None

    def _digest(self, split: str, index: int, payload: bytes) -> bytes:
        # "v2", because caches of version 0.1 have other arrays.
        return hashlib.sha256(f"v2 {self.spec.key} {split} {index}\n".encode() + payload).digest()


def solve_in_parallel(
    cache: SampleCache, tasks: Sequence[tuple[str, int]], num_workers: int
) -> Generator[None, None, None]:
    """Solve the samples (split, index) in worker processes; yield after each one is cached."""
    arguments = [(cache, *task) for task in tasks]
    try:
        with closing(map_unordered(_solve, arguments, num_workers)) as solved:
            for _ in solved:
                yield
    except WorkerDied as error:
        raise InputError(
            "a worker process was killed, probably out of memory; the finished samples are kept. "
            "Run the same command with fewer --workers"
        ) from error


def _solve(cache: SampleCache, split: str, index: int) -> None:
    """What a worker does. It has no progress bar to write to, but shares standard error."""
    _announce_compilation()
    cache.write(split, index, generate_sample(cache.spec, split, index))


@functools.cache
def _announce_compilation() -> None:
    when_compiling(functools.cache(lambda: note("compiling the solver (only the first time)")))


def _solve_missing(cache: SampleCache, target: Path, num_workers: int) -> None:
    """Solve every sample that is not cached yet or whose file is damaged."""
    spec = cache.spec
    cache.start()
    missing = [task for task in spec.tasks if not cache.is_intact(*task)]
    total = len(spec.tasks)
    done = total - len(missing)
    if done and missing:
        note(f"resuming: {done} of {total} samples are already there")
    try:
        with (
            progress_bar(f"generating {target.stem}", total) as bar,
            closing(solve_in_parallel(cache, missing, num_workers)) as solved,
        ):
            bar(done)
            for _ in solved:
                done += 1
                bar(done)
    except KeyboardInterrupt:
        kept = sum(cache.is_intact(*task) for task in spec.tasks)  # the workers have ended
        note(
            f"stopped: {kept} of {total} samples are kept in {cache.folder}; "
            f"the same command resumes"
        )
        raise
