"""Memory that this process may still take, so that impossible requests are refused beforehand."""

import os
import sys
from pathlib import Path

from cato.errors import InputError

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


def require_memory(num_bytes: float, what: str, remedy: str) -> None:
    """Raise if there is not that much memory; `what` starts and `remedy` ends the message."""
    available = available_memory()
    if num_bytes > available:
        raise InputError(
            f"{what} needs {readable_size(num_bytes)} of memory, but only "
            f"{readable_size(available)} are available; {remedy}"
        )


def available_memory() -> int:
    """Bytes that can still be allocated: of the machine, its container, and the address space."""
    return max(0, min(_machine(), _container(), _address_space()))


def total_memory() -> int:
    """Bytes of memory of the machine or container; the same for all processes on it."""
    return min(_total_of_machine(), _limit_of_container())


def address_space_used() -> int:
    """Bytes of address space of this process; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_memory() -> int:
    """Largest resident memory of this process so far in bytes; 0 where the system does not say."""
    if resource is None:
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def readable_size(num_bytes: float) -> str:
    """Such as 3.2 GB."""
    for unit in ("bytes", "kB", "MB", "GB", "TB", "PB"):
        if num_bytes < 1000 or unit == "PB":
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    raise AssertionError


NO_LIMIT = 2**62


def _machine() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        sizes = {name: text.split()[0] for name, _, text in (s.partition(":") for s in lines)}
        return 1024 * int(sizes["MemAvailable"])
    except (OSError, LookupError, ValueError):  # the system does not say how much is free
        return _total_of_machine()


def _total_of_machine() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return NO_LIMIT


def _limit_of_container() -> int:
    try:
        return int(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):  # none, or "max"
        return NO_LIMIT


def _container() -> int:
    """What the control group of a container leaves; pages of files can be reclaimed."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit, used = ((folder / f"memory.{n}").read_text() for n in ("max", "current"))
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return int(limit) - int(used) + int(stat["inactive_file"])
    except (OSError, LookupError, ValueError):  # none, or its limit is "max"
        return NO_LIMIT


def _address_space() -> int:
    if resource is None:
        return NO_LIMIT
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return NO_LIMIT if limit == resource.RLIM_INFINITY else limit - address_space_used()
