"""Bodies from outside: what is well-formed arrives unchanged, all else is refused with a reason."""

import io
import json
import tracemalloc
import zipfile
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from fastapi import HTTPException
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cato.data.training_range import Verdict
from cato.errors import InputError
from cato.serve.batching import PredictResult
from cato.serve.bodies import Body, decode_json, decode_npz, encode_json, encode_npz, format_for

LIMIT = 2**20
arrays = hnp.arrays(
    st.sampled_from([np.float32, np.float64, np.int64, ">f4"]),
    hnp.array_shapes(max_dims=4, max_side=4),
    elements=st.integers(-100, 100),
)


def npz(save=np.savez, **fields):
    stream = io.BytesIO()
    save(stream, **fields)
    return stream.getvalue()


def zipped(data, name="inputs.npy", packing=zipfile.ZIP_DEFLATED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", packing) as archive:
        archive.writestr(name, data)
    return stream.getvalue()


def npy(array):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array)
    return stream.getvalue()


@given(arrays, st.sampled_from([np.savez, np.savez_compressed]), st.booleans())
def test_npz_arrives_unchanged(array, save, fortran):
    stored = np.asfortranarray(array) if fortran else array
    arrived = decode_npz(npz(save, inputs=stored, coords=array), LIMIT)
    for name in ("inputs", "coords"):
        np.testing.assert_array_equal(arrived.arrays[name], array)


@given(arrays)
def test_json_arrives_unchanged_nested_and_flat(array):
    nested = decode_json(json.dumps({"inputs": array.tolist(), "coords": None}).encode(), LIMIT)
    flat = {"shape": array.shape, "values": array.ravel().tolist()}
    flat = decode_json(json.dumps({"inputs": flat}).encode(), LIMIT)
    assert (nested.is_flat, flat.is_flat) == (False, True)
    for body in (nested, flat):
        assert list(body.arrays) == ["inputs"]
        np.testing.assert_array_equal(body.arrays["inputs"], array)


@given(
    hnp.arrays(np.float32, (2, 3, 1), elements=st.floats(-(2.0**99), 2.0**99, width=32)),
    st.booleans(),
)
def test_answers_can_be_read_back_exactly(request_to_grid, outputs, is_flat):
    result = PredictResult(outputs, 0.25, 7)
    fields = json.loads(encode_json(request_to_grid, result, Body({}, is_flat)))
    values = fields["outputs"]
    if is_flat:
        values = np.reshape(values["values"], values["shape"])
    np.testing.assert_array_equal(np.array(values, np.float32), outputs)
    with np.load(io.BytesIO(encode_npz(request_to_grid, result, Body({})))) as archive:
        np.testing.assert_array_equal(archive["outputs"], outputs)
        assert (archive["model"], archive["seconds"], archive["batch"]) == ("grid", 0.25, 7)
        assert archive["names"].tolist() == fields["names"] == ["u"]
        assert archive["verdicts"].tolist() == fields["verdicts"] == ["inside", "outside"]
        assert archive["reasons"].tolist() == fields["reasons"] == ["", "too large"]


@pytest.fixture(scope="module")
def request_to_grid():
    from types import SimpleNamespace

    verdicts = [Verdict("inside"), Verdict("outside", "too large")]
    model = SimpleNamespace(
        name="grid",
        version="1",
        problem=SimpleNamespace(outputs=("u",), shape=(3,)),
        band=None,
        verdicts=lambda inputs, coords: verdicts,
    )
    return SimpleNamespace(model=model, inputs=None, coords=None)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[1, 2]", "must be an object"),
        (b'{"input": [1]}', "unknown field 'input'; known fields are inputs, coords"),
        (b'{"inputs": 3}', "nested list or an object"),
        (b'{"inputs": [[1, 2], [3]]}', "same length"),
        (b'{"inputs": [[1, 2], 3]}', "same length"),
        (b'{"inputs": [[1, 2], ["3", 4]]}', r"inputs\[1\]\[0\] is a string"),
        (b'{"inputs": [1, null]}', r"inputs\[1\] is null"),
        (b'{"inputs": [true, false]}', r"inputs\[0\] is a boolean"),
        (b'{"inputs": [{}]}', r"inputs\[0\] is an object"),
        (b'{"inputs": [1' + 30 * b"0" + b"]}", r"inputs\[0\] is the number 1000"),
        (b'{"inputs": {"shape": [2]}}', "'shape' and 'values'"),
        (b'{"inputs": {"shape": [2, 2], "values": [1, 2]}}', "flat list of 4 numbers"),
        (b'{"inputs": {"shape": [2], "values": [[1, 2]]}}', "flat list of 2 numbers"),
        (b'{"inputs": {"shape": [-2], "values": [1]}}', "list of at most 8 sizes"),
        (b'{"inputs": {"shape": [true], "values": [1]}}', "list of at most 8 sizes"),
        (b'{"inputs": {"shape": [0' + 4 * b", 2000000000" + b'], "values": []}}', "cannot have"),
        (b'{"inputs": {"shape": [1], "values": 1}}', "values must be a flat list"),
        (b'{"inputs": ' + 80 * b"[" + 80 * b"]" + b"}", "at most 8 levels"),
    ],
)
def test_json_that_is_no_array(body, message):
    with pytest.raises(InputError, match=message):
        decode_json(body, LIMIT)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b'{"inputs": [1,]}',
        b'{"inputs": [1], "inputs": [2]}',
        10**5 * b"[",
        b"9" * 5000,
    ],
)
def test_bytes_that_are_no_json(body):
    with pytest.raises(HTTPException) as refused:
        decode_json(body, LIMIT)
    assert refused.value.status_code == 400


@contextmanager
def memory_below(limit):
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < limit


def test_a_long_string_is_not_multiplied():
    body = b'{"inputs": [' + 1000 * b"1," + b'"' + 10**5 * b"x" + b'"]}'
    with memory_below(2**20), pytest.raises(InputError, match=r"inputs\[1000\] is a string"):
        decode_json(body, LIMIT)


def test_a_zip_bomb_is_not_unpacked():
    bomb = npz(np.savez_compressed, inputs=np.zeros(2**25, np.float32))
    assert len(bomb) < LIMIT
    with (
        memory_below(LIMIT),
        pytest.raises(HTTPException, match="unpacks to 134217856 bytes") as refused,
    ):
        decode_npz(bomb, LIMIT)
    assert refused.value.status_code == 413


def test_a_bomb_that_lies_about_its_size_is_cut_off():
    bomb = bytearray(zipped(npy(np.zeros(2**24, np.float32))))
    for signature, offset in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        at = bomb.index(signature) + offset
        bomb[at : at + 4] = (1000).to_bytes(4, "little")
    with memory_below(LIMIT), pytest.raises(HTTPException) as refused:
        decode_npz(bytes(bomb), LIMIT)
    assert refused.value.status_code == 400


def test_a_header_that_claims_a_huge_array_allocates_nothing():
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": "<f4", "fortran_order": False, "shape": (10**7, 10**7)}
    )
    with pytest.raises(InputError, match="claims shape"):
        decode_npz(zipped(stream.getvalue()), LIMIT)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (zipped(npy(np.ones(2)), packing=zipfile.ZIP_BZIP2), "numpy.savez"),
        (zipped(npy(np.ones(2)), "../inputs.npy"), "unknown field"),
        (npz(inputs=np.ones(2), targets=np.ones(2)), "unknown field 'targets'"),
        (npz(inputs=np.array(["a"])), "real numbers; it contains <U1"),
        (npz(inputs=np.array([1j])), "real numbers"),
        (npz(inputs=np.array([True])), "real numbers"),
        (npz(inputs=np.array([{}], object)), "real numbers"),
        (zipped(b"no array"), "not an array"),
        (zipped(npy(np.ones(9))[:-8]), "claims shape"),
    ],
)
def test_npz_that_is_refused(body, message):
    with pytest.raises(InputError, match=message):
        decode_npz(body, LIMIT)


def read_or_refused(decode, content):
    """The body, or None where it is the sender's fault; anything else is raised, and a bug."""
    with suppress(InputError):
        try:
            return decode(content, LIMIT)
        except HTTPException as refused:
            if not 400 <= refused.status_code < 500:
                raise
    return None


VALID = npz(inputs=np.arange(6.0).reshape(1, 2, 3), coords=np.ones((2, 3, 2), np.float32))


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), min_size=1, max_size=6
    ),
    st.integers(0, len(VALID)),
)
def test_damaged_npz_is_the_senders_fault(changes, length):
    damaged = bytearray(VALID)
    for position, byte in changes:
        damaged[position] = byte
    body = read_or_refused(decode_npz, bytes(damaged[: length or None]))
    assert body is None or set(body.arrays) <= {"inputs", "coords"}


@settings(max_examples=50)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["inputs", "coords", "shape", "values"]) | st.text(), inner
            )
        ),
    )
)
def test_any_json_is_read_or_refused(value):
    for content in (value, {"inputs": value}, {"inputs": {"shape": value, "values": value}}):
        read_or_refused(decode_json, json.dumps(content).encode())


def test_content_types():
    assert format_for("application/json; charset=utf-8").media_type == "application/json"
    assert format_for("Application/Octet-Stream").media_type == "application/x-npz"
    for other in ("", "text/plain", "multipart/form-data"):
        with pytest.raises(HTTPException, match="must be one of application/json") as refused:
            format_for(other)
        assert refused.value.status_code == 415
