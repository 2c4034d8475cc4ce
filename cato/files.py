"""Files that survive a kill at any moment, and locks: one process at a time."""

import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import isfinite
from pathlib import Path
from typing import Any

from cato.errors import InputError


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder that becomes `path` if the block succeeds.

    The data are on disk (fsync) before the rename. A full disk or a read-only folder raises an
    `InputError` and leaves the old file untouched.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # makes the rename durable
        finally:
            os.close(folder)
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror or error}. Nothing was overwritten; "
            f"free some space or choose another folder"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def to_json(values: Any, **options: Any) -> str:
    """Values as JSON, which has no NaN and no infinity: a figure that is not finite is null.

    `options` are those of `json.dumps`.
    """
    return json.dumps(_only_finite(values), allow_nan=False, **options)


def _only_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _only_finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_only_finite(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def write_json(path: Path, values: Any) -> None:
    """Write `values` as readable JSON, atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(to_json(values, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path, what: str) -> Any:
    """Read a JSON file; `what` names it in the error message."""
    try:
        return json.loads(Path(path).read_text())
    except FileNotFoundError:
        raise InputError(f"{what}: {path} does not exist") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{what}: {path} cannot be read ({error})") from None


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with Path(path).open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


@contextmanager
def locked(path: Path, busy: str) -> Iterator[None]:
    """Hold the lock file at `path`, created and removed here, while the block runs.

    The kernel releases the lock when its process ends, however it ends: the file that a killed
    process leaves behind does no harm. `busy` is the message of the `InputError` if another process
    holds it, with its number, which the file contains, for "{pid}".
    """
    from filelock import FileLock, Timeout  # imports asyncio, which most commands do without

    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not 0 seconds: if the owner removes the file between open and lock, filelock must retry.
        lock.acquire(timeout=0.2)
        path.write_text(f"{os.getpid()}\n")
    except Timeout:
        pid = path.read_text().strip() if path.exists() else ""
        raise InputError(busy.replace("{pid}", pid or "unknown")) from None
    except OSError as error:
        lock.release()
        raise InputError(
            f"cannot write into {path.parent}: {error.strerror}; choose another folder"
        ) from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is held, so that it is not another process's
        lock.release()
