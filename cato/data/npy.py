"""What an array in NumPy's format says of itself, before its numbers are read."""

from io import BufferedIOBase
from typing import IO

import numpy as np
from numpy.lib import format as npy


def npy_header(stream: IO[bytes] | BufferedIOBase) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether the first axis runs fastest, and type; the stream is then at the numbers.

    Raises nearly anything where the bytes are no such header, which is Python's syntax.
    """
    read_header = {
        (1, 0): npy.read_array_header_1_0,
        (2, 0): npy.read_array_header_2_0,
    }[npy.read_magic(stream)]
    return read_header(stream)
