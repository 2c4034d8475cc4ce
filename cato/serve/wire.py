"""Arrays and a few facts as bytes: between the page and the service, and to solver processes.

Little-endian: four bytes with the length of a JSON object, the object, then the bytes of every
array that its "arrays" lists by name, dtype and shape. The object and each array are padded to a
multiple of eight bytes, so that JavaScript can lay typed arrays over them without a copy.
"""

import json
from math import prod
from typing import Any, NamedTuple

import numpy as np

from cato.errors import InputError

DTYPES = {"uint8": "u1", "uint32": "<u4", "float32": "<f4", "float64": "<f8"}
_ALIGN = 8


class Message(NamedTuple):
    """What was packed."""

    facts: dict[str, Any]
    arrays: dict[str, np.ndarray]


def pack(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """Bytes of facts (JSON-ready) and arrays."""
    listed = [
        {"name": name, "dtype": str(array.dtype), "shape": list(array.shape)}
        for name, array in arrays.items()
    ]
    head = json.dumps({**facts, "arrays": listed}, allow_nan=False).encode()
    head += b" " * (-(4 + len(head)) % _ALIGN)
    parts = [len(head).to_bytes(4, "little"), head]
    for array in arrays.values():
        data = np.ascontiguousarray(array, DTYPES[str(array.dtype)]).tobytes()
        parts += [data, b"\0" * (-len(data) % _ALIGN)]
    return b"".join(parts)


def unpack(data: bytes) -> Message:
    """Inverse of `pack`; the bytes may come from anybody."""
    length = int.from_bytes(data[:4], "little")
    try:
        facts = json.loads(data[4 : 4 + length])
        listed = facts.pop("arrays")
        arrays, start = {}, 4 + length
        for entry in listed:
            shape = entry["shape"]
            if not all(type(size) is int and size >= 0 for size in shape):
                raise ValueError(f"{shape} is no shape")
            dtype = np.dtype(DTYPES[entry["dtype"]])
            array = np.frombuffer(data, dtype, prod(shape), start)
            arrays[str(entry["name"])] = array.reshape(shape)
            start += array.nbytes + -array.nbytes % _ALIGN
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"the body is not a packed message ({type(error).__name__})") from None
    return Message(facts, arrays)
