"""One array of a published file.

Not in `published.py`, which imports PyTorch: the child process of `cato.sandbox` has no use for it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from cato.benchmarks.contract import Layout
from cato.data.formats import Reversed, open_variable
from cato.errors import InputError


def read_array(path: Path, layout: Layout) -> tuple[int, dict[str, np.ndarray]]:
    """The number of samples in the file, and those of each split as float32, samples first."""
    axis, parts = layout.shape.index(None), {}
    with _opened(path, layout) as array:
        count = array.shape[axis] if len(array.shape) == len(layout.shape) else 0
        expected = tuple(count if size is None else size for size in layout.shape)
        if array.dtype.kind not in "fiu" or array.shape != expected or count < layout.at_least:
            raise InputError(f"holds {array.dtype} of shape {array.shape}")
        for split, samples in layout.samples.items():
            index = list(layout.pick) + [slice(None)] * (len(layout.shape) - len(layout.pick))
            index[axis] = samples
            with np.errstate(over="ignore"):  # too large for float32 is infinite, and named as such
                # A copy, since a view would keep the whole variable in memory.
                part = np.array(array[tuple(index)], np.float32)
            parts[split] = np.moveaxis(part, axis, 0)
    return count, parts


@contextmanager
def _opened(path: Path, layout: Layout) -> Iterator[np.ndarray | Reversed]:
    """Open for reading; any error becomes one line that says what was expected."""
    try:
        if layout.name:
            with open_variable(path, layout.name, np.float32) as array:
                yield array
        else:
            yield np.lib.format.open_memmap(path, mode="r")  # refuses pickled objects
    except MemoryError:
        raise
    except InputError as error:
        raise InputError(f"{path} should hold {layout.expected}, but {error}") from None
    except Exception as error:  # parsers of foreign bytes raise nearly anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{path} should hold {layout.expected}, but cannot be read ({reason}): "
            f"truncated, damaged or of another format; fetch it again"
        ) from None
