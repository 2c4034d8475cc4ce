"""Messages of JSON facts and arrays as safetensors bytes: for the explorer page and solver jobs."""

import json
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from cato.errors import InputError


class Message(NamedTuple):
    """Decoded message."""

    facts: dict[str, Any]
    arrays: dict[str, np.ndarray]


def pack(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """Encode facts (JSON-ready, stored in the metadata) and arrays."""
    metadata = {name: json.dumps(value) for name, value in facts.items()}
    # safetensors writes the memory as it is, even of transposed arrays.
    return save({name: np.asarray(array, order="C") for name, array in arrays.items()}, metadata)


def unpack(data: bytes) -> Message:
    """Inverse of `pack`; the bytes need not be trusted."""
    try:
        arrays = load(data)
        length = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + length]).get("__metadata__", {})
        return Message({name: json.loads(value) for name, value in metadata.items()}, arrays)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"the body is not in safetensors format ({reason})") from None
