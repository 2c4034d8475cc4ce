"""Foreign files are parsed in a child process, which may crash, hang or run out of memory.

    results = parse(function, files, *arguments)      [function(file, *arguments) for file in files]

The child gets memory and time in proportion to the size of the files. Whatever happens in it is an
`InputError` of one line that names the file. The function, which must be importable, returns plain
values: numbers, text, None, lists, tuples, dicts, and arrays of numbers or text. Arrays come back
in one block of shared memory, without pickle and without a copy.

The child is started with the first call and kept for the next ones; after a minute without one it
ends. This protects from damaged files. It does not confine a parser that an attacker has taken
over: see docs/decisions/0012-parsers-in-a-child-process.md.
"""

import atexit
import faulthandler
import mmap
import os
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np

from cato.errors import InputError
from cato.memory import address_space_used, available_memory, readable_size
from cato.processes import Worker, WorkerDied, slowness

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

SECONDS = 15.0  # Time limit of the smallest files on an idle machine,
BYTES_PER_SECOND = 1e6  # plus that of reading at the speed of a slow network disk.
MEMORY = 2**30  # Bytes of memory for the smallest files,
MAX_EXPANSION = 1032  # plus what deflate can unpack from the size of the file,
SHARE = 0.9  # but not more than this part of what is available.
IDLE_SECONDS = 60.0
KINDS = "biufU"  # Kinds of array that the child may return: never Python objects.
ALIGNMENT = 64
_FILE_INDEX = struct.Struct("q")  # Start of the shared block: the file that is being parsed.

_worker = Worker(IDLE_SECONDS)
_one_call = threading.Lock()
atexit.register(lambda: _worker.kill())


def prepare(*imports: str) -> None:
    """Start the child and let it import modules, without waiting for it."""
    _worker.submit(_import, imports)


def parse(
    function: Callable[..., Any],
    files: Sequence[Path],
    *arguments: Any,
    imports: Sequence[str],
    parts: Sequence[Path] = (),
    size: int | None = None,
) -> list[Any]:
    """The results of `function(file, *arguments)` for all files, computed in the child.

    Args:
        function: Importable; returns plain values and arrays.
        files: Their sizes set the limits of time and memory; a folder counts with all its files.
        arguments: Are pickled.
        imports: Slow modules that the function needs; their import does not count as its time.
        parts: Further files that the function reads.
        size: Bytes of all files, if they have been looked at already.
    """
    size = num_bytes_of(files, parts) if size is None else size
    seconds = slowness() * (SECONDS + size / BYTES_PER_SECOND)
    num_bytes = int(min(MEMORY + MAX_EXPANSION * size, SHARE * available_memory()))
    with _one_call, _shared_block() as (block, address):
        try:
            _started(tuple(imports))
            limits = (num_bytes, seconds)
            where = (os.getcwd(), address)
            results = _worker.run(
                _parse, where, limits, function, files, arguments, timeout=seconds
            )
            return _loaded(results, mmap.mmap(block.fileno(), 0, access=mmap.ACCESS_COPY))
        except (TimeoutError, WorkerDied) as error:
            block.seek(0)
            (index,) = _FILE_INDEX.unpack(block.read(_FILE_INDEX.size) or bytes(_FILE_INDEX.size))
            limit = f"after {seconds:.0f} seconds"
            if isinstance(error, WorkerDied):
                limit = f"because its parser crashed, or needed over {readable_size(num_bytes)}"
            raise InputError(
                f"{files[index]} cannot be read: given up {limit}; the file is probably damaged, "
                f"write it again"
            ) from None


def num_bytes_of(files: Sequence[Path], parts: Sequence[Path] = ()) -> int:
    """Bytes of files and of all files in folders; raises if one is not a regular file."""
    inner = [part for file in files if file.is_dir() for part in file.rglob("*") if part.is_file()]
    regular = [*(file for file in files if not file.is_dir()), *inner, *parts]
    for file in regular:
        require_regular(file)
    return sum(file.stat().st_size for file in regular)


def _started(imports: tuple[str, ...]) -> None:
    try:
        _worker.run(_import, imports)
    except WorkerDied:  # while it was idle: start another
        _worker.run(_import, imports)


def require_regular(file: Path) -> None:
    """Raise unless a path is a regular file: reading a pipe or a device could block forever."""
    if not file.exists():
        raise InputError(f"{file} does not exist")
    if not file.is_file():
        raise InputError(f"{file} is not a regular file; give a file")


@contextmanager
def _shared_block() -> Iterator[tuple[IO[bytes], str]]:
    """A file in memory, or a temporary one, and the address at which the child can open it."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("cato"), "w+b") as block:
            yield block, f"/proc/{os.getpid()}/fd/{block.fileno()}"
        return
    descriptor, path = tempfile.mkstemp(prefix="cato-")
    with os.fdopen(descriptor, "w+b") as block:
        try:
            yield block, path
        finally:
            Path(path).unlink(missing_ok=True)


@dataclass(frozen=True)
class _Stored:
    """An array in the shared block."""

    offset: int
    shape: tuple[int, ...]
    dtype: str


def _loaded(value: Any, block: mmap.mmap) -> Any:
    """The value with its arrays, which are views of the block."""
    if isinstance(value, _Stored):
        dtype, count = np.dtype(value.dtype), int(np.prod(value.shape, dtype=np.int64))
        if not count * dtype.itemsize:
            return np.zeros(value.shape, dtype)
        return np.frombuffer(block, dtype, count, value.offset).reshape(value.shape)
    if isinstance(value, dict):
        return {key: _loaded(part, block) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_loaded(part, block) for part in value)
    return value


def _renew() -> None:
    """A forked process has no child yet."""
    global _worker, _one_call
    _worker, _one_call = Worker(IDLE_SECONDS), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


# In the child.


def require_room(num_bytes: int, what: str) -> None:
    """Raise if an array that `what` declares cannot fit, before it is allocated."""
    if num_bytes > (available := available_memory()):
        raise InputError(
            f"{what} declares {readable_size(num_bytes)} of values, but only "
            f"{readable_size(available)} of memory may be used for a file of this size; it is "
            f"probably damaged, otherwise split it"
        )


def _import(modules: Sequence[str]) -> None:
    for module in modules:
        with suppress(ImportError):  # an optional dependency, which the reader asks for by name
            import_module(module)


def _parse(
    where: tuple[str, str],
    limits: tuple[int, float],
    function: Callable[..., Any],
    files: Sequence[Path],
    arguments: tuple[Any, ...],
) -> list[Any]:
    """Results for all files, with the arrays in the shared block.

    Args:
        where: The working folder, and the address of the block.
        limits: Bytes of memory, and seconds.
        function: Of each file and the arguments.
        files: Paths that may be relative to the working folder.
        arguments: As given to `parse`.
    """
    (folder, address), (num_bytes, seconds) = where, limits
    os.chdir(folder)
    results = []
    with open(address, "r+b") as block, _silenced(), _limited(num_bytes, seconds):
        if not address.startswith("/proc/"):
            os.unlink(address)  # so that nothing is left of it if both processes are killed
        for index, file in enumerate(files):
            block.seek(0)
            block.write(_FILE_INDEX.pack(index))
            block.flush()
            try:
                results.append(_stored(function(file, *arguments), block))
            except InputError:
                raise
            except MemoryError:
                size = readable_size(num_bytes)
                raise InputError(
                    f"{file} cannot be read in {size} of memory: it declares or unpacks to more; "
                    f"if that is right, free memory or split the file"
                ) from None
            except Exception as error:  # parsers of foreign bytes raise nearly anything
                reason = " ".join(str(error).split()) or type(error).__name__
                raise InputError(f"{file} cannot be read: {reason}") from None
    return results


def _stored(value: Any, block: IO[bytes]) -> Any:
    """The value with its arrays moved to the end of the block."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in KINDS:
            raise InputError(f"an array should be numbers or text, but is {value.dtype}")
        offset = -(-block.seek(0, os.SEEK_END) // ALIGNMENT) * ALIGNMENT
        block.seek(offset)
        if value.size and value.dtype.itemsize:
            block.write(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
        return _Stored(offset, value.shape, value.dtype.str)
    if isinstance(value, dict):
        return {key: _stored(part, block) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_stored(part, block) for part in value)
    assert value is None or isinstance(value, str | int | float), type(value)
    return value


@contextmanager
def _limited(num_bytes: int, seconds: float) -> Iterator[None]:
    """Limits of address space and of time; the latter also if the parent has died."""
    # A thread without the interpreter's lock, which a hanging parser may hold.
    with open(os.devnull, "w") as nowhere:
        faulthandler.dump_traceback_later(seconds + 1, exit=True, file=nowhere)
        before = None
        if resource is not None:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            before, hard = resource.getrlimit(resource.RLIMIT_AS)
            bounds = [n for n in (before, hard) if n != resource.RLIM_INFINITY]
            with suppress(ValueError, OSError):  # macOS refuses it
                limit = min([*bounds, address_space_used() + num_bytes])
                resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            if before is not None:
                with suppress(ValueError, OSError):
                    resource.setrlimit(resource.RLIMIT_AS, (before, hard))


@contextmanager
def _silenced() -> Iterator[None]:
    """Drop what native parsers and the C library write to standard error: ours is one line."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
