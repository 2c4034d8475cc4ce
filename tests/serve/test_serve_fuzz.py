"""A small part of the campaign tools/hostile/http_fuzz.py, and shapes that no array can have."""

import json
from collections import Counter

import numpy as np
import pytest
from explored import build_explored
from raw import running_server

from cato.errors import InputError
from cato.serve.bodies import decode_safetensors
from cato.serve.settings import ServeSettings
from tools.hostile.http_fuzz import Fuzzer, send

NUM_REQUESTS = 150


def test_no_request_produces_a_500():
    models = {name: build_explored(name) for name in ("airfoil", "elasticity", "plasticity")}
    fuzzer, statuses = Fuzzer(models, seed=0), Counter()
    # Predictions may take long where other tests run too.
    settings = ServeSettings(header_seconds=0.3, body_seconds=0.3, idle_seconds=0.3, time_limit=600)
    with running_server(models, settings) as (port, _):
        for _ in range(NUM_REQUESTS):
            request = fuzzer.request()
            status, _ = send(port, request)
            assert status < 500, request[:500]
            statuses[status] += 1
    assert statuses[200]
    assert statuses[422]
    assert statuses[400]


@pytest.mark.parametrize(
    "shape", [[10**20], [0, 10**20], [0, 2**64 - 1], [0, 2**63], [1e20], [True], 9 * [1], "7", None]
)
def test_a_shape_that_no_array_can_have(shape):
    header = json.dumps({"values": {"dtype": "F64", "shape": shape, "data_offsets": [0, 0]}})
    body = len(header).to_bytes(8, "little") + header.encode()
    with pytest.raises(InputError, match="safetensors format"):
        decode_safetensors(body)


def test_an_empty_array_is_read():
    header = json.dumps({"values": {"dtype": "F32", "shape": [0, 3], "data_offsets": [0, 0]}})
    body = len(header).to_bytes(8, "little") + header.encode()
    np.testing.assert_array_equal(decode_safetensors(body), np.zeros((0, 3), np.float32))
