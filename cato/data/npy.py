"""The header of an array in NumPy's format."""

from io import BufferedIOBase
from typing import IO

import numpy as np
from numpy.lib import format as npy


def npy_header(stream: IO[bytes] | BufferedIOBase) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether the order is Fortran's, and type; leaves the stream at the values.

    Bytes that are not such a header raise nearly any exception.
    """
    read_header = {
        (1, 0): npy.read_array_header_1_0,
        (2, 0): npy.read_array_header_2_0,
    }[npy.read_magic(stream)]
    return read_header(stream)
