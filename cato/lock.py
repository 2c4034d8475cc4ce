"""One process at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from cato.errors import InputError


@contextmanager
def locked(path: Path, busy: str) -> Iterator[None]:
    """Hold the lock file at `path`, created and removed here, while the block runs.

    The kernel releases the lock when its process ends, however it ends: the file that a killed
    process leaves behind does no harm. `busy` is the message of the `InputError` if another process
    holds it, with its number, which the file contains, for "{pid}".
    """
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
