"""Files that survive a kill at any moment, files that notice damage, and locks.

A file is written under a temporary name and renamed. Its process holds a lock on it until then, so
that the next command can tell the temporary files of killed processes from those in use.

A sealed file ends with a SHA-256 of its content, its name and its owner, the run that it belongs
to: damage, a truncated file and the file of another run are noticed when it is read.
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from io import BufferedReader
from math import isfinite
from pathlib import Path
from typing import Any

from cato.errors import InputError

BLANK = 64 * "0"  # Stands for the checksum of a safetensors file while it is computed.
DAMAGED = (KeyError, TypeError, ValueError, AttributeError, RecursionError)
"""What reading a damaged file may raise."""
MAX_TEXT = 2**26  # Bytes of a JSON file or log; larger ones are refused before they are read.
_TEMPORARY = re.compile(r"\..+\.cato-[0-9a-f]{8}\.tmp")
_SEAL = re.compile(rb'(?s)(.*),\s*"checksum": "([0-9a-f]{64})"\s*\}\s*')


@contextmanager
def atomic_write(path: Path, must_be_new: bool = False) -> Iterator[Path]:
    """Yield a temporary path in the same folder that becomes `path` if the block succeeds.

    The data are on disk (fsync) before the rename. A full disk or a read-only folder raises an
    `InputError` and leaves the old file untouched; so does an old file that `must_be_new`.
    """
    with _temporary(Path(path)) as (temporary, handle):
        yield temporary
        if not temporary.stat().st_size:
            raise OSError(errno.EIO, "nothing was written")
        os.fsync(handle)
        if must_be_new:
            _rename_to_new(temporary, Path(path))
        else:
            temporary.replace(path)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` if the block succeeds."""
    with _temporary(Path(path), is_folder=True) as (temporary, _):
        yield temporary
        temporary.replace(path)


@contextmanager
def _temporary(path: Path, is_folder: bool = False) -> Iterator[tuple[Path, int]]:
    """A locked temporary file or folder next to `path`, and its descriptor."""
    temporary, handle = None, -1
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers_once(path.parent.absolute())
        temporary, handle = _create_locked(path, is_folder)
        yield temporary, handle
        with _descriptor(path.parent) as folder:
            os.fsync(folder)  # makes the rename durable
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror or error}. Nothing was overwritten; "
            f"free some space or choose another folder"
        ) from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                shutil.rmtree(temporary) if is_folder else temporary.unlink()
            os.close(handle)


def _create_locked(path: Path, is_folder: bool) -> tuple[Path, int]:
    while True:
        temporary = path.with_name(f".{path.name}.cato-{uuid.uuid4().hex[:8]}.tmp")
        if is_folder:
            temporary.mkdir()
        flags = os.O_RDONLY if is_folder else os.O_RDWR | os.O_CREAT | os.O_EXCL
        try:
            handle = os.open(temporary, flags, 0o666)
        except FileNotFoundError:
            continue  # another process took the new folder for a leftover
        with suppress(OSError):  # some network disks have no locks; leftovers stay there
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:  # else another process took it for a leftover
            return temporary, handle
        os.close(handle)


def rename_durably(source: Path, target: Path) -> None:
    """Rename a file in its folder; content and name are on disk (fsync) when it returns."""
    with _descriptor(source) as handle, _descriptor(target.parent) as folder:
        os.fsync(handle)
        source.replace(target)
        os.fsync(folder)


def _rename_to_new(temporary: Path, path: Path) -> None:
    """Rename a file; raise if the new name exists, also if it appears at the same moment."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # a disk without hard links
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        temporary.replace(path)


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files and folders of killed processes; those in use are locked."""
    for path in folder.glob(".*.tmp"):
        if not _TEMPORARY.fullmatch(path.name):
            continue
        with suppress(OSError), _descriptor(path) as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path) if path.is_dir() else path.unlink()


# Once per process and folder: a folder may hold thousands of files, each written on its own.
_remove_leftovers_once = cache(remove_leftovers)


@contextmanager
def _descriptor(path: Path) -> Iterator[int]:
    """An open file or folder; does not wait for the other end of a FIFO."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except ValueError as error:  # a zero byte in the path
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    try:
        yield handle
    finally:
        os.close(handle)


@contextmanager
def open_regular(path: Path, max_bytes: int | None = None) -> Iterator[BufferedReader]:
    """A file to read; raises an `OSError` for folders, FIFOs, devices and files of more bytes."""
    with _descriptor(path) as handle:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if max_bytes is not None and about.st_size > max_bytes:
            reason = f"{about.st_size} bytes, expected at most {max_bytes}"
            raise OSError(errno.EFBIG, reason, str(path))
        with open(handle, "rb", closefd=False) as file:
            yield file


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
        temporary.write_text(_json(values), "utf-8")


def read_json(path: Path, what: str) -> Any:
    """Read a JSON file; `what` names it in the error message."""
    return _parse(Path(path), _read_text(Path(path), what), what)


def write_sealed(
    path: Path, values: Mapping[str, Any], owner: str, must_be_new: bool = False
) -> None:
    """Write a JSON object with a checksum of itself, atomically; see the module's docstring."""
    with atomic_write(path, must_be_new) as temporary:
        temporary.write_bytes(sealed(_json(values).encode(), path.name, owner, "\n  "))


def read_sealed(path: Path, what: str, owner: str | None) -> dict[str, Any]:
    """Read a file of `write_sealed` and verify it.

    Args:
        path: The file.
        what: Names it in error messages.
        owner: The owner that it was written for. Without one (""), a file that has no checksum is
            accepted: version 0.1 wrote none. None takes the owner from the "id" of the file.
    """
    content = _read_text(path, what)
    values = _parse(path, content, what)
    if not isinstance(values, dict):
        raise InputError(f"{what}: {path} is not a JSON object")
    if owner is None:
        owner = str(values.get("id", ""))
    require_seal(path, content, owner, what)
    values.pop("checksum", None)
    return values


def sealed(content: bytes, name: str, owner: str, space: str = " ") -> bytes:
    """A JSON object, or lines of them, with a checksum as the last entry of the last object."""
    body = content.rstrip().removesuffix(b"}").rstrip()
    checksum, line_break = _checksum(body, name, owner), space.rstrip(" ")
    return body + f',{space}"checksum": "{checksum}"{line_break}}}\n'.encode()


def require_seal(path: Path, content: bytes, owner: str, what: str) -> bytes:
    """The content without its checksum; raises if it is not what was written for this owner."""
    found = _SEAL.fullmatch(content)
    if found is None:
        if owner:
            raise InputError(f"{what}: {path} has lost its checksum; restore it from a copy")
        return content
    if found[2].decode() != _checksum(found[1], path.name, owner):
        raise InputError(
            f"{what}: {path} is damaged, was edited or belongs to another run (its checksum "
            f"differs); restore it from a copy"
        )
    return found[1] + b"}"


def seal_tensors(content: bytes, name: str, owner: str) -> bytes:
    """A safetensors file whose metadata has `BLANK` as its checksum, with the checksum instead."""
    return content.replace(BLANK.encode(), _checksum(content, name, owner).encode(), 1)


def read_sealed_tensors(path: Path, owner: str, max_bytes: int) -> tuple[bytes, dict[str, str]]:
    """Content and metadata of a safetensors file of `seal_tensors`.

    Raises an `OSError`, or one of `DAMAGED` if it is not what was written for this owner. Without
    an owner (""), a file that has no checksum is accepted.
    """
    with open_regular(path, max_bytes) as file:
        content = file.read()
    about = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    recorded = about.get("checksum", "")
    blank = content.replace(recorded.encode(), BLANK.encode(), 1) if recorded else content
    if (recorded or owner) and recorded != _checksum(blank, path.name, owner):
        raise ValueError("its checksum differs, or it belongs to another run")
    return content, about


def _checksum(body: bytes, name: str, owner: str) -> str:
    return hashlib.sha256(f"{owner}/{name}\n".encode() + body).hexdigest()


def _json(values: Any) -> str:
    return to_json(values, indent=2, ensure_ascii=False) + "\n"


def _read_text(path: Path, what: str) -> bytes:
    try:
        with open_regular(path, MAX_TEXT) as file:
            return file.read()
    except FileNotFoundError:
        raise InputError(f"{what}: {path} does not exist") from None
    except OSError as error:
        raise InputError(f"{what}: {path} cannot be read ({error.strerror or error})") from None


def _parse(path: Path, content: bytes, what: str) -> Any:
    try:
        return json.loads(content.decode(), object_pairs_hook=without_repeats)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what}: {path} cannot be read ({error})") from None


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The `object_pairs_hook` of JSON in which no name may occur twice: neither value is right."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a name occurs twice")
    return values


def digest(path: Path, max_bytes: int | None = None) -> str:
    """SHA-256 of a file, in hexadecimal; raises an `OSError` for larger ones."""
    with open_regular(path, max_bytes) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stamp(paths: Iterable[Path]) -> tuple[object, ...]:
    """Name, inode, size and times of change of each file: cheap to compare within a process.

    That of the inode too: nobody can set it back.
    """
    stats = [(str(path), path.stat()) for path in paths]
    return tuple((n, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for n, s in stats)


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
        pid = ""
        with suppress(OSError, ValueError):  # its owner may remove it just now
            pid = path.read_text().strip()
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
