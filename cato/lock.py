"""One process at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from cato.errors import InputError


@contextmanager
def locked(path: Path, busy: str) -> Iterator[None]:
    """Hold the lock file at `path` while the block runs.

    The kernel drops the lock when its process ends, however it ends: the file that a killed process
    leaves behind does no harm.

    Args:
        path: The lock file, made and removed here. It holds the owner's process number.
        busy: Message of the `InputError` if another process holds it; "{pid}" is filled in.
    """
    handle = _acquire(path, busy)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while still held, so that it is surely ours
        handle.close()


def _acquire(path: Path, busy: str) -> IO[str]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            handle = path.open("a+")
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                handle.seek(0)
                pid = handle.read().strip() or "unknown"
                handle.close()
                raise InputError(busy.replace("{pid}", pid)) from None
            if _is_at(handle, path):
                handle.truncate(0)
                print(os.getpid(), file=handle, flush=True)
                return handle
            handle.close()  # its owner has just removed it: the next one is a new file
    except OSError as error:
        raise InputError(
            f"cannot write into {path.parent}: {error.strerror}; choose another folder"
        ) from error


def _is_at(handle: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle.fileno()), path.stat())
    except FileNotFoundError:
        return False
