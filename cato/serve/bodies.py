"""Bodies of predictions: bytes to arrays that fit a model, results to bytes.

The content type of the request chooses the format; the response has the same format.

JSON: {"inputs": …, "coords": …}, each a nested list, samples first and channels last, or a flat
list with its shape, {"shape": [1, 29, 29, 1], "values": […]}; the response uses the same form.

.npz: the arrays `inputs` and `coords`. safetensors: the array `values` of the explorer.

Uploads are not trusted: sizes are compared with the bytes that are there before anything is
decompressed or allocated, and nothing is unpickled.
"""

import io
import json
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any, Literal

import numpy as np
from fastapi import HTTPException
from safetensors import SafetensorError
from safetensors.numpy import load

from cato.data.arrays import require_uniform
from cato.data.formats import npy_header
from cato.errors import InputError
from cato.files import without_repeats
from cato.problem import MIN_NODES
from cato.serve.batching import PredictRequest, PredictResult
from cato.serve.models import ServedModel
from cato.serve.settings import ServeSettings

FIELDS = ("inputs", "coords")
MAX_AXES = 8
MAX_SIZE = 2**31  # Of one axis; NumPy cannot take every size, not even of an empty array.
MAX_HEADER_BYTES = 2**16  # Of a safetensors body.
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Python decompresses these incrementally; bzip2 and lzma could use any amount of memory."""


@dataclass(frozen=True)
class Body:
    """Arrays of a request, not yet validated against a problem."""

    arrays: dict[str, np.ndarray]
    is_flat: bool = False  # the arrays were sent as flat lists


@dataclass(frozen=True)
class Format:
    """A format for requests and responses."""

    media_type: str
    decode: Callable[[bytes, int], Body]  # of the bytes, and the limit of uncompressed bytes
    encode: Callable[[PredictRequest, PredictResult, Body], bytes]
    bytes_per_value: int  # in a response, at most


def format_for(content_type: str) -> Format:
    """The format for a content type."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type not in FORMATS:
        raise HTTPException(
            415, f"the content type must be one of {', '.join(FORMATS)}; got {media_type!r}"
        )
    return FORMATS[media_type]


def decode_json(content: bytes, max_bytes: int) -> Body:
    """Arrays of a JSON object of at most `max_bytes`."""
    if len(content) > max_bytes:
        raise HTTPException(
            413,
            f"a JSON body is limited to {max_bytes} bytes, this one has {len(content)}; send .npz "
            f"(application/x-npz), or fewer samples",
        )
    try:
        # NaN and Infinity are not JSON but accepted here, so that validation can name their index.
        fields = json.loads(content, object_pairs_hook=without_repeats)
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
    """An array from a nested list, or from a flat list with its shape."""
    if isinstance(value, list):
        return _numbers(value, name)
    if not isinstance(value, dict) or set(value) != {"shape", "values"}:
        raise InputError(
            f"{name} must be a nested list or an object of 'shape' and 'values', not {_kind(value)}"
        )
    shape, values = value["shape"], value["values"]
    if not _is_shape(shape):
        raise InputError(f"{name}.shape must be a list of at most {MAX_AXES} sizes")
    if not isinstance(values, list) or list in map(type, values) or len(values) != prod(shape):
        raise InputError(
            f"{name}.values must be a flat list of {prod(shape)} numbers for shape {shape}"
        )
    return _reshape(_numbers(values, f"{name}.values"), shape, name)


def _is_shape(value: Any) -> bool:
    """Whether a value is a list of sizes that an array can have; it may still be too large."""
    return (
        isinstance(value, (list, tuple))
        and len(value) <= MAX_AXES
        and all(type(size) is int and 0 <= size < MAX_SIZE for size in value)
    )


def _reshape(
    array: np.ndarray, shape: Sequence[int], name: str, order: Literal["C", "F"] = "C"
) -> np.ndarray:
    try:
        return array.reshape(shape, order=order)
    except ValueError:  # empty, but the other sizes overflow
        raise InputError(f"{name} cannot have shape {list(shape)}") from None


def _numbers(values: list[Any], name: str) -> np.ndarray:
    """An array from nested lists, one level at a time."""
    shape = [len(values)]
    while list in (kinds := set(map(type, values))):
        lengths = set(map(len, values)) if kinds == {list} else set()
        if len(lengths) != 1 or len(shape) == MAX_AXES:
            raise InputError(
                f"{name}: all lists on one level must have the same length, with at most "
                f"{MAX_AXES} levels"
            )
        shape += lengths
        values = list(chain.from_iterable(values))
    # Checked before NumPy sees it: one long string would make every element as long.
    array = np.asarray(values) if kinds <= {int, float} else None
    if array is not None and array.dtype.kind in "fiu":  # large integers become objects
        return array.reshape(shape)
    for index, value in zip(np.ndindex(*shape), values, strict=True):
        if type(value) is not float and (type(value) is not int or abs(value) >= 2**63):
            place = "".join(f"[{i}]" for i in index)
            break
    raise InputError(f"{name} must contain numbers only; {name}{place} is {_kind(value)}")


def _kind(value: Any) -> str:
    """The JSON type of a value, for a message."""
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    if value is None:
        return "null"
    return kinds.get(type(value), f"the number {str(value)[:30]}")


def decode_npz(content: bytes, max_bytes: int) -> Body:
    """Arrays of an .npz file with at most `max_bytes` uncompressed bytes."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            if len(members) < len(archive.infolist()):
                raise InputError("the .npz file contains an array twice")
            _check_members(members, max_bytes)
            # Without a size, zipfile unpacks everything before it compares with the claimed size.
            raw = {name: archive.open(m).read(m.file_size) for name, m in members.items()}
    except (HTTPException, InputError):
        raise
    except Exception as error:  # zipfile raises almost anything for broken archives
        raise HTTPException(400, f"the body is not an .npz file: {error}") from None
    return Body({name: _npy_array(data, name) for name, data in raw.items()})


def _check_members(members: dict[str, zipfile.ZipInfo], max_bytes: int) -> None:
    """Check the sizes that an archive claims, before anything is decompressed."""
    _require_known(members)
    size = sum(member.file_size for member in members.values())
    if size > max_bytes:
        raise HTTPException(413, f"the body unpacks to {size} bytes, the limit is {max_bytes}")
    for member in members.values():
        if member.compress_type not in _COMPRESSIONS or member.flag_bits & 1:
            raise InputError(
                f"{member.filename}: write it with numpy.savez or numpy.savez_compressed"
            )


def _npy_array(data: bytes, name: str) -> np.ndarray:
    """An array; unlike `numpy.load`, without a copy and without trusting the header."""
    stream = io.BytesIO(data)
    try:
        shape, fortran_order, dtype = npy_header(stream)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]  # it may repeat the header
        raise InputError(f"{name} is not an array written by numpy.savez ({reason})") from None
    if dtype.kind not in "fiu":
        raise InputError(f"{name} must contain real numbers; it contains {dtype}")
    size = len(data) - stream.tell()
    if not _is_shape(shape) or prod(shape) * dtype.itemsize != size:
        raise InputError(f"{name} claims shape {str(shape)[:80]} of {dtype}, but has {size} bytes")
    array = np.frombuffer(data, dtype, offset=stream.tell())
    return _reshape(array, shape, name, "F" if fortran_order else "C")


def decode_safetensors(content: bytes) -> np.ndarray:
    """The array `values`, the only one of a safetensors file."""
    if int.from_bytes(content[:8], "little") > MAX_HEADER_BYTES:  # parsed in the event loop
        raise _not_safetensors("its header is too long")
    try:
        arrays = load(content)
    except (SafetensorError, KeyError, ValueError, OverflowError) as error:
        raise _not_safetensors(str(error)) from None
    if list(arrays) != ["values"] or arrays["values"].dtype.kind not in "fiu":
        raise _not_safetensors("it must contain real numbers 'values' only")
    return arrays["values"]


def _not_safetensors(reason: str) -> InputError:
    return InputError(f"the body must be an array 'values' in safetensors format: {reason}")


def _require_known(names: Iterable[str]) -> None:
    for name in names:
        if name not in FIELDS:
            raise InputError(f"unknown field {name[:80]!r}; known fields are {', '.join(FIELDS)}")


def encode_json(request: PredictRequest, result: PredictResult, body: Body) -> bytes:
    """The response as JSON, flat if the request was."""

    def to_list(array: np.ndarray) -> Any:
        if not body.is_flat:
            return array.tolist()
        return {"shape": list(array.shape), "values": array.ravel().tolist()}

    fields = _fields(request, result)
    return json.dumps(fields, default=to_list, allow_nan=False, separators=(",", ":")).encode()


def encode_npz(request: PredictRequest, result: PredictResult, body: Body) -> bytes:
    """The response as an .npz file; no array needs pickle."""
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **_fields(request, result))
    return stream.getvalue()


def _fields(request: PredictRequest, result: PredictResult) -> dict[str, Any]:
    """The response, with verdicts, and the conformal band if it holds for all samples."""
    model = request.model
    verdicts = model.verdicts(request.inputs, request.coords)
    fields = {
        "model": model.name,
        "version": model.version,
        "names": list(model.problem.outputs),
        "seconds": result.seconds,
        "batch": result.batch,
        "outputs": result.outputs,
        "verdicts": [verdict.kind for verdict in verdicts],
        "reasons": [verdict.reason for verdict in verdicts],
    }
    if model.band is not None and all(verdict.has_band for verdict in verdicts):
        mesh = result.outputs.shape[-1 - len(model.problem.shape) : -1]
        bands = model.band.on_mesh(model.problem, mesh)
        fields |= {} if bands is None else {"bands": bands}
    return fields


def validate(
    arrays: dict[str, np.ndarray], model: ServedModel, settings: ServeSettings
) -> PredictRequest:
    """The arrays as float32 with samples first; raises with the reason if they do not fit."""
    problem = model.problem
    given = arrays.get("inputs"), arrays.get("coords")
    sizes = next((array.shape[:-1] for array in given if array is not None), ())
    num_axes = len(problem.shape)
    num_samples, num_nodes = prod(sizes[:-num_axes]), prod(sizes[-num_axes:])
    if num_samples > settings.max_samples:
        raise HTTPException(
            413, f"{num_samples} samples in one request, the limit is {settings.max_samples}"
        )
    if num_nodes > max(settings.max_nodes, problem.num_nodes):
        raise HTTPException(413, f"{num_nodes} nodes per sample, the limit is {settings.max_nodes}")
    inputs, coords = (array.cpu().numpy() for array in model.surrogate.checked(*given))
    minimum = 1 if problem.geometry == "cloud" else MIN_NODES
    if min(inputs.shape[1:-1]) < minimum:
        raise InputError(
            f"every mesh axis needs at least {minimum} nodes; got {list(inputs.shape[1:-1])}"
        )
    if "coords" not in arrays:
        return PredictRequest(model, inputs, None)
    if problem.geometry == "grid":
        require_uniform(coords, "coords")
    return PredictRequest(model, inputs, np.broadcast_to(coords, (len(inputs), *coords.shape[1:])))


def check_response_size(request: PredictRequest, form: Format, settings: ServeSettings) -> None:
    """Refuse a request before it is solved if its response would be too large."""
    problem, (num_samples, *mesh) = request.model.problem, request.inputs.shape[:-1]
    frames = 1 if problem.time == "steady" else problem.num_steps
    num_values = num_samples * frames * prod(mesh) * problem.num_outputs
    if (size := num_values * form.bytes_per_value) > settings.max_response_bytes:
        raise HTTPException(
            413,
            f"the response would have about {size} bytes, the limit is "
            f"{settings.max_response_bytes}; send fewer samples, or .npz instead of JSON",
        )


_JSON = Format("application/json", decode_json, encode_json, 24)
_NPZ = Format("application/x-npz", decode_npz, encode_npz, 4)
FORMATS = {"application/json": _JSON, "application/x-npz": _NPZ, "application/octet-stream": _NPZ}
