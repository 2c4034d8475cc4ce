"""The service as its clients see it, in process."""

import asyncio
import io
import re

import httpx
import numpy as np
import pytest
from clients import concurrently, endless_body
from fastapi import APIRouter
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from cato.errors import InputError
from cato.serve.app import create_app
from cato.serve.settings import ServeSettings

PREDICT = "/models/grid/predict"


@pytest.fixture
def client_of(models):
    """A client of the service with some limits changed."""
    clients = []

    def build(**limits):
        app = create_app(models, ServeSettings(**limits))
        client = TestClient(app, raise_server_exceptions=False, base_url="http://localhost")
        clients.append(client.__enter__())
        return client

    yield build
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def client(client_of):
    return client_of()


def inputs_of(seed, shape=(1, 6, 5, 1)):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def packed(**arrays):
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return {"content": stream.getvalue(), "headers": {"content-type": "application/x-npz"}}


def unpacked(answer):
    with np.load(io.BytesIO(answer.content)) as archive:
        return {name: archive[name] for name in archive.files}


def test_models_are_listed_and_described(client, models):
    listed = client.get("/models").json()["models"]
    assert [model["name"] for model in listed] == list(models)
    grid = client.get("/models/grid").json()
    assert grid["inputs_shape"] == ["samples", 6, 5, 1]
    assert grid["needs_coords"] is False
    assert grid["parameters"] == sum(p.numel() for p in models["grid"].surrogate.parameters())
    rollout = client.get("/models/rollout").json()
    assert rollout["outputs_shape"] == ["samples", 3, 6, 5, 1]
    assert client.get("/models/mesh").json()["needs_coords"] is True
    assert grid["version"] != rollout["version"]


@pytest.mark.parametrize("name", ["grid", "rollout"])
def test_all_formats_give_what_the_model_gives(client, models, name):
    inputs = inputs_of(3, (2, 6, 5, 1))
    expected = models[name].surrogate.predict(inputs)
    address = f"/models/{name}/predict"
    nested = client.post(address, json={"inputs": inputs.tolist()}).json()
    flat = {"shape": inputs.shape, "values": inputs.ravel().tolist()}
    flat = client.post(address, json={"inputs": flat}).json()
    binary = unpacked(client.post(address, **packed(inputs=inputs)))
    outputs = [
        np.array(nested["outputs"]),
        np.reshape(flat["outputs"]["values"], flat["outputs"]["shape"]),
        binary["outputs"],
    ]
    for values in outputs:
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)
    assert nested["model"] == binary["model"] == name
    assert nested["names"] == ["u"]


def test_coordinates_given_shared_by_sample_and_left_out(client, models):
    inputs = inputs_of(0, (2, 6, 5, 1))
    mesh = models["grid"].surrogate.coords.numpy().reshape(6, 5, 2)
    answers = [
        unpacked(client.post(PREDICT, **packed(inputs=inputs, **coords)))["outputs"]
        for coords in ({}, {"coords": mesh}, {"coords": np.stack([mesh, mesh])})
    ]
    for answer in answers[1:]:
        np.testing.assert_allclose(answer, answers[0], rtol=1e-4, atol=1e-5)


def test_a_model_whose_input_is_the_mesh(client, models):
    coords = np.random.default_rng(0).random((2, 6, 5, 2), np.float32)
    expected = models["mesh"].surrogate.predict(np.zeros((2, 6, 5, 0), np.float32), coords)
    answer = unpacked(client.post("/models/mesh/predict", **packed(coords=coords)))
    np.testing.assert_allclose(answer["outputs"], expected, rtol=1e-4, atol=1e-5)
    assert answer["names"].tolist() == ["p", "q"]


def with_value(value):
    inputs = inputs_of(0)
    inputs[0, 2, 4, 0] = value
    return inputs


MESH = np.stack(np.meshgrid(np.linspace(0, 1, 6), np.linspace(0, 1, 5), indexing="ij"), -1)


@pytest.mark.parametrize(
    ("name", "arrays", "status", "reason"),
    [
        ("grid", {}, 422, "inputs are missing; their channels are a"),
        ("mesh", {}, 422, "coords are missing"),
        ("grid", {"inputs": with_value(np.nan)}, 422, r"sample 0 .* channel 'a' at \[2, 4\]"),
        ("grid", {"inputs": with_value(-np.inf)}, 422, "NaN or infinite"),
        ("grid", {"inputs": with_value(0).astype(float) + 1e39}, 422, "infinite as float32"),
        ("grid", {"inputs": inputs_of(0, (6, 5, 1))}, 422, r"\[samples, 6, 5, 1\].*got \[6, 5, 1"),
        ("grid", {"inputs": inputs_of(0, (1, 6, 5, 2))}, 422, r"got \[1, 6, 5, 2\]"),
        ("grid", {"inputs": inputs_of(0, (0, 6, 5, 1))}, 422, "no sample"),
        ("grid", {"inputs": inputs_of(0, (1, 6, 2, 1)), "coords": MESH[:, :2]}, 422, "at least 3"),
        ("grid", {"inputs": inputs_of(0, (1, 7, 5, 1))}, 422, r"coords are required.*\(7, 5\)"),
        ("grid", {"inputs": inputs_of(0), "coords": MESH[:5]}, 422, r"coords must have.*\[5, 5, 2"),
        ("grid", {"inputs": inputs_of(0), "coords": MESH**2}, 422, "equal steps"),
        ("grid", {"inputs": inputs_of(0), "coords": MESH * np.nan}, 422, "coords: .*'x1'"),
        ("cloud", {"inputs": inputs_of(0, (1, 12, 1))}, 422, "nodes that differ by sample"),
        ("grid", {"inputs": inputs_of(0, (9, 6, 5, 1))}, 413, "9 samples .* the limit is 8"),
        ("grid", {"inputs": inputs_of(0, (1, 11, 11, 1))}, 413, "121 nodes .* the limit is 100"),
        ("none", {"inputs": inputs_of(0)}, 404, "no model 'none'.*grid, other, mesh"),
    ],
)
def test_refusals_give_the_reason(client_of, name, arrays, status, reason):
    client = client_of(max_samples=8, max_nodes=100)
    answer = client.post(f"/models/{name}/predict", **packed(**arrays))
    assert answer.status_code == status, answer.text
    assert re.search(reason, answer.json()["detail"]), answer.text


def test_json_with_nan_names_the_place(client):
    content = '{"inputs": [[[[NaN],[0],[0],[0],[0]]' + ",[[0],[0],[0],[0],[0]]" * 5 + "]]}"
    answer = client.post(PREDICT, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert "channel 'a' at [0, 0]" in answer.json()["detail"]


def test_other_refusals(client_of):
    client = client_of(max_body_bytes=1000)
    text = {"content-type": "text/plain"}
    assert client.post(PREDICT, content=b"1", headers=text).status_code == 415
    assert client.post(PREDICT, content=b"1").status_code == 415
    assert client.get(PREDICT).status_code == 405
    assert client.get("/nowhere").status_code == 404
    json_type = {"content-type": "application/json"}
    assert client.post(PREDICT, content=b"{", headers=json_type).status_code == 400
    too_large = client.post(PREDICT, content=b" " * 1001, headers=json_type)
    unannounced = client.post(PREDICT, content=iter([b" " * 600] * 2), headers=json_type)
    for answer in (too_large, unannounced):
        assert answer.status_code == 413
        assert "1000 bytes" in answer.json()["detail"]


def test_every_client_gets_its_own_answer(models):
    """Different models, shapes, sizes and formats at once, each input recognisable by its seed."""
    app = create_app(models, ServeSettings(max_requests=200, max_batch=8))
    names = ("grid", "other", "rollout")

    async def one(client, seed):
        name, size = names[seed % 3], 1 + seed % 4
        inputs = inputs_of(seed, (size, 6, 5, 1))
        address = f"/models/{name}/predict"
        if seed % 2:
            answer = await client.post(address, json={"inputs": inputs.tolist()})
            outputs, batch = np.array(answer.json()["outputs"]), answer.json()["batch"]
        else:
            fields = unpacked(await client.post(address, **packed(inputs=inputs)))
            outputs, batch = fields["outputs"], int(fields["batch"])
        return name, inputs, outputs, batch, size

    async def work(client):
        return await asyncio.gather(*(one(client, seed) for seed in range(90)))

    answers = concurrently(app, work)
    for name, inputs, outputs, _, _ in answers:
        expected = models[name].surrogate.predict(inputs)
        np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)
    assert any(batch > size for *_, batch, size in answers), "nothing was batched"


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


def test_overload_is_refused_and_passes(models, gate):
    app = create_app(models, ServeSettings(max_requests=3))

    async def work(client):
        ask = {"json": {"inputs": inputs_of(1).tolist()}}
        first = [asyncio.create_task(client.post(PREDICT, **ask)) for _ in range(3)]
        service = app.state.service
        await until(lambda: gate.entered.is_set() and service.slots.held == 3)
        refused = [await client.post(PREDICT, **ask) for _ in range(4)]
        health = await client.get("/health")  # answers while the model is busy
        gate.open.set()
        answered = [(await answer).status_code for answer in first]
        return refused, health, answered, await client.post(PREDICT, **ask)

    refused, health, answered, after = concurrently(app, work)
    for answer in refused:
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
    assert health.json()["ready"]
    assert answered == [200, 200, 200]
    assert after.status_code == 200


def test_time_is_limited_and_the_work_dropped(models, gate):
    app = create_app(models, ServeSettings(time_limit=0.3, max_batch=1))

    async def work(client):
        ask = {"json": {"inputs": inputs_of(1).tolist()}}
        late = await asyncio.gather(*(client.post(PREDICT, **ask) for _ in range(3)))
        waiting = app.state.service.batcher.num_waiting
        gate.open.set()
        return late, waiting, await client.post(PREDICT, **ask)

    late, waiting, after = concurrently(app, work)
    assert [answer.status_code for answer in late] == [504] * 3
    assert waiting == 0
    assert after.status_code == 200
    assert len(gate.sizes) == 2, "of three late requests only the first was ever begun"


def test_a_body_that_never_ends_is_given_up(models):
    app = create_app(models, ServeSettings(body_seconds=0.2))

    async def work(client):
        headers = {"content-type": "application/json"}
        return await client.post(PREDICT, content=endless_body(), headers=headers)

    assert concurrently(app, work).status_code == 408


def test_the_work_of_a_client_that_has_gone_is_dropped(models, gate):
    app = create_app(models, ServeSettings(max_batch=1))

    def scope_of(length):
        headers = [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"content-length", length),
        ]
        return {
            "type": "http",
            "method": "POST",
            "path": PREDICT,
            "raw_path": PREDICT.encode(),
            "query_string": b"",
            "headers": headers,
        }

    async def visit(content, leave):
        """A client that sends its question and leaves when told."""
        messages = [{"type": "http.request", "body": content, "more_body": False}]
        sent = []

        async def receive():
            if messages:
                return messages.pop()
            await leave.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        await app(scope_of(str(len(content)).encode()), receive, send)
        return sent[0]["status"]

    async def work(client):
        content = httpx.Request("POST", "http://x", json={"inputs": inputs_of(1).tolist()}).content
        leave, stay = asyncio.Event(), asyncio.Event()
        staying = asyncio.create_task(visit(content, stay))
        await until(gate.entered.is_set)
        leaving = asyncio.create_task(visit(content, leave))
        batcher = app.state.service.batcher
        await until(lambda: batcher.num_waiting == 1)
        leave.set()
        gone = await leaving
        waiting = batcher.num_waiting
        gate.open.set()
        return gone, waiting, await staying

    assert concurrently(app, work) == (499, 0, 200)
    assert gate.sizes == [1]


def test_a_bug_is_a_500_that_is_logged_and_the_service_goes_on(client, models, caplog):
    surrogate = models["grid"].surrogate
    predict = surrogate.predict

    def fail(*args):
        raise RuntimeError("secret")

    surrogate.predict = fail
    answer = client.post(PREDICT, **packed(inputs=inputs_of(0)))
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "secret" in caplog.text
    surrogate.predict = predict
    assert client.post(PREDICT, **packed(inputs=inputs_of(0))).status_code == 200


def test_metrics_count_what_happened(client):
    for seed in range(3):
        client.post(PREDICT, **packed(inputs=inputs_of(seed)))
    client.post("/models/x/predict", json={})
    client.get("/a%22b%0A")
    families = text_string_to_metric_families(client.get("/metrics").text)
    samples = [sample for family in families for sample in family.samples]

    def value(name, **labels):
        (found,) = [x.value for x in samples if x.name == name and x.labels == labels]
        return found

    predict = {"route": "/models/{name}/predict"}
    assert value("cato_requests_total", method="POST", status="200", **predict) == 3
    assert value("cato_requests_total", method="POST", status="404", **predict) == 1
    assert value("cato_requests_total", method="GET", status="404", route="none") == 1
    assert value("cato_batch_samples_sum") == 3
    assert value("cato_queue_length") == value("cato_requests_under_way") == 0
    assert value("cato_request_seconds_count", **predict) == 4
    counts = [
        sample.value
        for sample in samples
        if sample.name == "cato_request_seconds_bucket" and predict.items() <= sample.labels.items()
    ]
    assert counts == sorted(counts)
    assert counts[-1] == 4


def test_every_application_has_its_own_metrics(client_of):
    first, second = client_of(), client_of()
    first.get("/models")
    assert 'route="/models"' in first.get("/metrics").text
    assert 'route="/models"' not in second.get("/metrics").text


def test_pages_need_no_network(client):
    page = client.get("/")
    assert page.status_code == 200
    assert not re.findall(r"(?:src|href)\s*=\s*[\"'](?:https?:)?//", page.text)
    assert "/models/{name}/predict" in client.get("/openapi.json").json()["paths"]


def test_not_ready_when_models_do_not_run(client):
    client.app.state.service.batcher.close()
    answer = client.get("/health")
    assert (answer.status_code, answer.json()["ready"]) == (503, False)


def test_more_routers_get_the_same_manners(models):
    """What the explorer page builds on."""
    router = APIRouter()

    @router.post("/explorer/draw")
    async def draw(seed: int):
        raise InputError(f"no sample {seed}")

    app = create_app(models, ServeSettings(max_body_bytes=10))
    app.include_router(router)
    with TestClient(app, base_url="http://localhost") as client:
        refused = client.post("/explorer/draw?seed=3")
        assert (refused.status_code, refused.json()) == (422, {"detail": "no sample 3"})
        wrong = client.post("/explorer/draw?seed=x").json()["detail"]
        assert wrong.startswith("query.seed: ")
        assert 'route="/explorer/draw",status="422"} 2.0' in client.get("/metrics").text


def test_large_json_and_large_responses_are_refused(client_of):
    client = client_of(max_json_bytes=2000, max_response_bytes=500)
    inputs = inputs_of(0, (8, 6, 5, 1))
    refused = client.post(PREDICT, json={"inputs": inputs.tolist()})
    assert (refused.status_code, "send .npz" in refused.json()["detail"]) == (413, True)
    refused = client.post(PREDICT, **packed(inputs=inputs))  # 8 × 30 values of 4 bytes
    assert (refused.status_code, "about 960 bytes" in refused.json()["detail"]) == (413, True)
    assert client.post(PREDICT, **packed(inputs=inputs[:4])).status_code == 200
