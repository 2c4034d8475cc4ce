"""Compile loops with Numba at the first call, cached on disk if possible."""

from collections.abc import Callable
from functools import cache
from typing import Any

_callbacks: list[Callable[[], None]] = []


def when_compiling(callback: Callable[[], None]) -> None:
    """Call `callback` whenever Numba starts to compile a function that is not cached."""
    _callbacks.append(callback)


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """A compiled function; division by zero gives infinities as in NumPy.

    Numba caches the code next to the function's file, else in the user's cache folder, or in
    NUMBA_CACHE_DIR. If none can be written, every process compiles again.
    """
    from numba import njit  # takes half a second, which solvers without loops avoid

    _watch()
    try:
        return njit(cache=True, error_model="numpy", **options)(function)
    except RuntimeError:  # no folder for the cache
        return njit(error_model="numpy", **options)(function)


@cache
def _watch() -> None:
    """Pass Numba's own events on, from the first call."""
    from numba.core import event

    class Compilation(event.Listener):
        def on_start(self, event: Any) -> None:
            for callback in _callbacks:
                callback()

        def on_end(self, event: Any) -> None:
            pass

    event.register("numba:compile", Compilation())
