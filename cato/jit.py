"""Compiling loops with Numba: at the first call, and kept on disk wherever that is possible."""

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """A compiled function; division by zero gives infinities as in NumPy.

    Numba keeps the code next to the function's file, else in the user's cache folder, or where
    NUMBA_CACHE_DIR says. Where none can be written, every process compiles for itself.
    """
    try:
        return njit(cache=True, error_model="numpy", **options)(function)
    except RuntimeError:  # no folder for the cache
        return njit(error_model="numpy", **options)(function)
