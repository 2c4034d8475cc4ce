"""Bodies of predictions: bytes into checked arrays, and the answer into bytes.

Two formats, chosen by the content type of the request; the answer has the format of the question.

JSON: {"inputs": …, "coords": …}, each a nested list, samples first and channels last, or flat with
its shape, {"shape": [1, 29, 29, 1], "values": […]}. Answers are flat where the question was.

.npz: the arrays `inputs` and `coords`. What comes from outside is not trusted: sizes are checked
against the headers before anything is unpacked or allocated, and nothing is unpickled.
"""

import io
import json
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any, Literal

import numpy as np
from fastapi import HTTPException

from cato.data.npy import npy_header
from cato.errors import InputError
from cato.serve.batching import Answer
from cato.serve.models import ServedModel

FIELDS = ("inputs", "coords")
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Those that Python unpacks no further than asked; bzip2 and lzma could burst."""


@dataclass(frozen=True)
class Body:
    """The arrays of a request, not yet checked against a problem."""

    arrays: dict[str, np.ndarray]
    is_flat: bool = False
    """Whether the arrays came as flat lists."""


@dataclass(frozen=True)
class Format:
    """A way to write questions and answers."""

    media_type: str
    decode: Callable[[bytes, int], Body]
    """From the bytes and the number of bytes they may unpack to."""
    encode: Callable[[ServedModel, Answer, Body], bytes]


def format_of(content_type: str) -> Format:
    """The format that a content type names."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type not in FORMATS:
        raise HTTPException(
            415, f"the content type must be one of {', '.join(FORMATS)}; got {media_type!r}"
        )
    return FORMATS[media_type]


def decode_json(body: bytes, max_bytes: int) -> Body:
    """The arrays of a JSON object; `max_bytes` is held already, JSON is not packed."""
    try:
        # NaN and Infinity, though no JSON, are let in here, to be refused by name and index.
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InputError(f"the body must be an object with 'inputs', not {_kind(fields)}")
    _require_known(fields)
    given = {name: value for name, value in fields.items() if value is not None}
    return Body(
        {name: _json_array(value, name) for name, value in given.items()},
        is_flat=any(isinstance(value, dict) for value in given.values()),
    )


def _json_array(value: Any, name: str) -> np.ndarray:
    """An array from a nested list, or from a flat one with its shape."""
    if isinstance(value, list):
        return _numbers(value, name)
    if not isinstance(value, dict) or set(value) != {"shape", "values"}:
        raise InputError(
            f"{name} must be a nested list or an object of 'shape' and 'values', not {_kind(value)}"
        )
    shape, values = value["shape"], value["values"]
    if (
        not isinstance(shape, list)
        or len(shape) > 8
        or not all(type(nodes) is int and 0 <= nodes < 2**31 for nodes in shape)
    ):
        raise InputError(f"{name}.shape must be a list of at most 8 sizes")
    if not isinstance(values, list):
        raise InputError(f"{name}.values must be a list of numbers, not {_kind(values)}")
    numbers = _numbers(values, f"{name}.values")
    if numbers.shape != (prod(shape),):
        raise InputError(
            f"{name}.values must be a flat list of {prod(shape)} numbers to have shape {shape}; "
            f"got {' × '.join(map(str, numbers.shape))}"
        )
    return _shaped(numbers, shape, name)


def _shaped(
    array: np.ndarray, shape: Sequence[int], name: str, order: Literal["C", "F"] = "C"
) -> np.ndarray:
    try:
        return array.reshape(shape, order=order)
    except ValueError:  # nothing at all, in a shape whose other sizes are too much for numpy
        raise InputError(f"{name} cannot have shape {list(shape)}") from None


def _numbers(values: list[Any], name: str) -> np.ndarray:
    try:
        # Not for numpy what is no number: one long string would make all numbers as long.
        other = "" if _are_numbers(values) else _first_other(values, name)
        array = None if other else np.asarray(values)
    except (ValueError, OverflowError, RecursionError):
        raise InputError(
            f"{name}: all lists on one level must have the same length, and at most 64 levels"
        ) from None
    if array is None or array.dtype.kind not in "fiu":  # a large integer is an object
        raise InputError(f"{name} must hold numbers only{other or _first_other(values, name)}")
    return array


def _are_numbers(values: list[Any]) -> bool:
    """Whether lists on one level hold lists or numbers alone; quick, a level at a time."""
    while (kinds := set(map(type, values))) == {list}:
        values = list(chain.from_iterable(values))
    return kinds <= {int, float}


def _first_other(values: list[Any], path: str) -> str:
    """Where in a nested list something is no number, for a message."""
    for index, value in enumerate(values):
        if isinstance(value, list):
            if found := _first_other(value, f"{path}[{index}]"):
                return found
        elif type(value) not in (int, float) or (type(value) is int and abs(value) >= 2**63):
            return f"; {path}[{index}] is {_kind(value)}"
    return ""


def _kind(value: Any) -> str:
    """What a JSON value is, for a message."""
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    if value is None:
        return "null"
    return kinds.get(type(value), f"the number {str(value)[:30]}")


def decode_npz(body: bytes, max_bytes: int) -> Body:
    """The arrays of an .npz file that unpacks to at most `max_bytes`."""
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            members = archive.infolist()
            _require_members(members, max_bytes)
            raw = {_stem(member): _unpacked(archive, member) for member in members}
    except (HTTPException, InputError):
        raise
    except Exception as error:  # on broken archives zipfile raises nearly anything
        raise HTTPException(400, f"the body is not an .npz file: {error}") from None
    return Body({name: _npy_array(data, name) for name, data in raw.items()})


def _stem(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(".npy")


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    # With the number of bytes: without it, zipfile unpacks all there is before it looks at the
    # size that the archive claims.
    with archive.open(member) as stream:
        return stream.read(member.file_size)


def _require_members(members: list[zipfile.ZipInfo], max_bytes: int) -> None:
    """Check what an archive claims to hold, before any of it is unpacked."""
    names = [_stem(member) for member in members]
    _require_known(dict.fromkeys(names))
    if len(set(names)) < len(names):
        raise InputError("the .npz file holds an array twice")
    unpacked = sum(member.file_size for member in members)
    if unpacked > max_bytes:
        raise HTTPException(
            413, f"the body unpacks to {unpacked} bytes, the limit is {max_bytes}; send less"
        )
    for member in members:
        if member.compress_type not in _PACKINGS or member.flag_bits & 1:
            raise InputError(f"{member.filename}: write it with numpy.savez, stored or deflated")


def _npy_array(data: bytes, name: str) -> np.ndarray:
    """An array without the copies and the trust of `numpy.load`."""
    stream = io.BytesIO(data)
    try:
        shape, fortran_order, dtype = npy_header(stream)
    except Exception as error:
        raise InputError(f"{name} is not an array as numpy.savez writes it ({error})") from None
    if dtype.kind not in "fiu":
        raise InputError(f"{name} must hold real numbers; it holds {dtype}")
    size = len(data) - stream.tell()
    if len(shape) > 8 or min(shape, default=0) < 0 or prod(shape) * dtype.itemsize != size:
        raise InputError(f"{name} claims shape {shape[:9]} of {dtype}, but has {size} bytes")
    array = np.frombuffer(data, dtype, offset=stream.tell())
    return _shaped(array, shape, name, "F" if fortran_order else "C")


def _require_known(names: dict[str, Any]) -> None:
    unknown = [name for name in names if name not in FIELDS]
    if unknown:
        raise InputError(f"unknown field {unknown[0][:80]!r}; known are {', '.join(FIELDS)}")


def encode_json(model: ServedModel, answer: Answer, body: Body) -> bytes:
    """The answer as JSON, flat where the question was."""
    arrays = {
        name: {"shape": list(array.shape), "values": array.ravel().tolist()}
        if body.is_flat
        else array.tolist()
        for name, array in _arrays(model, answer).items()
    }
    fields = {**_facts(model, answer), **arrays}
    return json.dumps(fields, allow_nan=False, separators=(",", ":")).encode()


def encode_npz(model: ServedModel, answer: Answer, body: Body) -> bytes:
    """The answer as an .npz file; every array can be read without pickle."""
    stream = io.BytesIO()
    facts = {name: np.array(value) for name, value in _facts(model, answer).items()}
    np.savez(stream, allow_pickle=False, **_arrays(model, answer), **facts)
    return stream.getvalue()


def _arrays(model: ServedModel, answer: Answer) -> dict[str, np.ndarray]:
    """The outputs and, where there is one, the band around those of every sample."""
    arrays = {"outputs": answer.outputs}
    if model.band is not None:
        mesh = answer.outputs.shape[-1 - len(model.problem.shape) : -1]
        bands = model.band.on_mesh(model.problem, mesh)
        arrays |= {} if bands is None else {"bands": bands}
    return arrays


def _facts(model: ServedModel, answer: Answer) -> dict[str, Any]:
    """What an answer holds beside the arrays."""
    return {
        "model": model.name,
        "version": model.version,
        "names": list(model.problem.outputs),
        "seconds": answer.seconds,
        "batch": answer.batch,
    }


_JSON = Format("application/json", decode_json, encode_json)
_NPZ = Format("application/x-npz", decode_npz, encode_npz)
FORMATS = {
    "application/json": _JSON,
    "application/x-npz": _NPZ,
    "application/octet-stream": _NPZ,
}
