"""Clients that stall, lie, flood and pry: a real server, raw sockets."""

import asyncio
import io
import json
import os
import re
import threading
import time
import urllib.request
from contextlib import suppress

import numpy as np
import pytest
from clients import concurrently
from conftest import build_served
from fastapi import Request, Response
from fastapi.testclient import TestClient
from raw import Raw, running_server

from cato.cli import main
from cato.errors import InputError
from cato.serve import server
from cato.serve.app import PUBLIC, create_app
from cato.serve.clients import client_of, client_of_scope
from cato.serve.middleware import SECURITY_HEADERS
from cato.serve.settings import ServeSettings

PREDICT = "/models/grid/predict"
JSON = {"Content_Type": "application/json"}
TOKEN = "correct-horse-battery"
LIMITS = ServeSettings(
    header_seconds=0.5,
    body_seconds=0.5,
    send_seconds=0.5,
    idle_seconds=1.0,
    max_requests=2,
    max_connections=30,
    client_connections=20,
    client_requests=1,
    max_held_bytes=3_000_000,
    client_held_bytes=2_000_000,
    max_body_bytes=1_500_000,
)


@pytest.fixture(scope="module")
def served():
    return {"grid": build_served("grid")}


@pytest.fixture(scope="module")
def running(served):
    with running_server(served, LIMITS) as (port, app):
        yield port, app


@pytest.fixture
def port(running):
    port, app = running
    yield port
    deadline = time.monotonic() + 10  # whatever a client did, nothing of it is left
    while app.state.service.held_bytes.held or app.state.service.slots.held:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    status = 0
    while status != 200:  # connections of clients that left may be counted a little longer
        assert time.monotonic() < deadline
        with Raw(port) as honest:
            status = ask(honest)[0]


def ask(raw, seed=0, **headers):
    inputs = np.random.default_rng(seed).standard_normal((1, 6, 5, 1)).astype(np.float32)
    body = json.dumps({"inputs": inputs.tolist()}).encode()
    raw.head(PREDICT, "POST", **JSON, Content_Length=len(body), **headers)
    raw.send(body)
    return raw.response()


@pytest.mark.parametrize("begun", [b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nHost: loc"])
def test_a_header_that_does_not_end_is_given_up(port, begun):
    with Raw(port) as slow:
        slow.send(begun)
        began = time.monotonic()
        assert slow.status() == (408 if begun else None)
        assert 0.3 < time.monotonic() - began < 5


def test_drop_by_drop_gains_no_time(port):
    with Raw(port) as slow:
        assert ask(slow)[0] == 200  # also on a connection that has been used
        began = time.monotonic()
        ended = threading.Event()

        def drip():
            while not ended.wait(0.1):
                try:
                    slow.send(b"G")
                except OSError:
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        slow.seconds_until_end()
        ended.set()
        dripping.join()
        assert time.monotonic() - began < 5


def test_an_idle_connection_is_closed(port):
    with Raw(port) as idle:
        assert ask(idle)[0] == 200
        assert 0.5 < idle.seconds_until_end() < 5


def test_the_rest_of_a_refused_body_gains_no_time(port):
    with Raw(port) as slow:
        slow.head("/models/none/predict", "POST", **JSON, Content_Length=1000)
        assert slow.status() == 404
        began = time.monotonic()
        slow.socket.settimeout(0.1)
        with pytest.raises(OSError, match=r"reset|pipe"):  # noqa: PT012
            while time.monotonic() - began < 5:
                slow.send(b" ")
                time.sleep(0.05)


def test_a_slot_is_taken_only_when_the_whole_body_has_arrived(port):
    slow = [Raw(port) for _ in range(6)]
    for raw in slow:
        raw.head(PREDICT, "POST", **JSON, Content_Length=500)
        raw.send(b'{"inputs": [')
    with Raw(port) as honest:
        for seed in range(5):
            assert ask(honest, seed)[0] == 200
    for raw in slow:
        status, headers, _ = raw.response()
        assert (status, headers["connection"]) == (408, "close")
        raw.socket.close()


def test_connections_are_limited_per_client_and_in_all(port):
    mine = [Raw(port, "127.0.0.2") for _ in range(20)]
    with Raw(port, "127.0.0.2") as refused:
        status, headers, body = refused.response()
        assert (status, headers["retry-after"]) == (429, "1")
        assert "limited to 20 per client" in json.loads(body)["detail"]
    theirs = [Raw(port, "127.0.0.3") for _ in range(10)]
    with Raw(port, "127.0.0.4") as refused:
        assert refused.status() == 503
    for raw in (*mine, *theirs):
        raw.socket.close()
    deadline = time.monotonic() + 5
    while True:  # the place of a closed connection is free again
        with Raw(port, "127.0.0.4") as raw:
            raw.head()
            if raw.status() == 200:
                break
        assert time.monotonic() < deadline


def test_bodies_in_memory_are_limited_per_client_and_in_all(port):
    def upload(address):
        raw = Raw(port, address)
        raw.head(PREDICT, "POST", **JSON, Content_Length=1_400_000)
        raw.send(1_300_000 * b" ")
        return raw

    def wait_until_held(num_bytes):
        deadline, held = time.monotonic() + 30, 0.0
        while held < num_bytes:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
                held = float(
                    re.search(r"^cato_held_bytes (\S+)", response.read().decode(), re.M)[1]
                )
            assert time.monotonic() < deadline

    first = upload("127.0.0.2")
    wait_until_held(1_300_000)
    second = upload("127.0.0.2")
    assert second.status() == 429
    third = upload("127.0.0.3")
    wait_until_held(2_600_000)
    fourth = upload("127.0.0.4")
    assert fourth.status() == 503
    for raw in (first, second, third, fourth):
        raw.socket.close()


def test_a_client_that_reads_nothing_is_disconnected(served):
    """Its response is larger than what the kernel takes, and is not kept for it."""
    content = bytes(12 * 2**20)

    def large() -> Response:
        return Response(content)

    def wait_until(condition):
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    with running_server(served, ServeSettings(send_seconds=0.5)) as (port, app):
        app.add_api_route("/large", large)
        held = app.state.service.held_bytes
        with Raw(port, receive_buffer=4096) as deaf:
            deaf.head("/large")
            wait_until(lambda: held.held == len(content))
            wait_until(lambda: held.held == 0)
        with Raw(port) as honest:
            honest.head("/large")
            assert honest.response()[2] == content


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST " + PREDICT.encode() + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST "
        + PREDICT.encode()
        + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + 2_000_000 * b"a" + b"\r\n\r\n",
        b"POST "
        + PREDICT.encode()
        + b" HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
        + b"Content-Type: application/json\r\n\r\nzz\r\n",
    ],
)
def test_garbage_is_a_400_or_the_end(port, garbage):
    with Raw(port) as raw:
        with suppress(ConnectionError):
            raw.send(garbage)
        assert raw.status() in (400, None)


def test_pipelined_requests_are_answered_in_order(port):
    with Raw(port) as raw:
        for path in (b"/health", b"/nowhere", b"/models"):
            raw.send(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        statuses = b""
        while statuses.count(b"HTTP/1.1 ") < 3:
            statuses += raw.socket.recv(65536)
        assert re.findall(rb"HTTP/1.1 (\d+)", statuses) == [b"200", b"404", b"200"]


def test_clients_that_break_off_leave_nothing(port):
    for length in (10, 400):
        with Raw(port) as raw:
            raw.head(PREDICT, "POST", **JSON, Content_Length=length)
            raw.send(b'{"inputs":')


def test_hosts(port):
    for host, status in (
        ("localhost", 200),
        ("LOCALHOST:8000", 200),
        ("127.0.0.1", 200),
        ("10.1.2.3:80", 200),
        ("[::1]:8000", 200),
        ("evil.example", 400),
        ("localhost.evil.example", 400),
        ("127.0.0.1.evil.example", 400),
        ("localhost:1:2", 400),
        ("", 400),
        ("127.0.0.1@evil", 400),
    ):
        with Raw(port) as raw:
            raw.head(Host=host)
            assert raw.status() == status, host
    with Raw(port) as raw:
        raw.send(b"GET /health HTTP/1.0\r\n\r\n")
        assert raw.status() == 400


def test_host_names_can_be_added(served):
    app = create_app(served, ServeSettings(host_names=("Cato.Example.org",)))
    with TestClient(app, base_url="http://cato.example.org") as client:
        assert client.get("/health").status_code == 200


def test_every_response_has_the_security_headers(served):
    with TestClient(
        create_app(served), base_url="http://localhost", raise_server_exceptions=False
    ) as client:
        answers = [
            client.get(path) for path in ("/", "/docs", "/explorer/", "/nowhere", "/metrics")
        ]
        answers.append(client.get("/health", headers={"host": "evil.example"}))
        answers.append(client.post(PREDICT, content=b"x"))
        served_model = client.app.state.service.models["grid"]
        object.__setattr__(served_model, "describe", None)  # a bug
        answers.append(client.get("/models/grid"))
        object.__delattr__(served_model, "describe")
    assert answers[-1].status_code == 500
    for answer in answers:
        for name, value in SECURITY_HEADERS.items():
            assert answer.headers[name] == value
    policy = SECURITY_HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    for page in ("/docs", "/explorer/"):  # which works because nothing is inline
        text = client.get(page).text
        assert "<style" not in text
        assert "style=" not in text
        assert "onclick" not in text
        assert text.count("<script") == text.count('<script type="module" src=')


def test_the_token_is_needed_for_everything_but_the_pages(served):
    app = create_app(served, token=TOKEN)
    with TestClient(app, base_url="http://localhost", follow_redirects=False) as client:
        for path in sorted(PUBLIC):
            assert client.get(path).status_code in (200, 307), path
        for path in ("/models", "/models/grid", "/metrics", "/explorer/api/benchmarks", "/nope"):
            for header in ({}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}):
                refused = client.get(path, headers=header)
                assert refused.status_code == 401, path
                assert refused.headers["www-authenticate"] == "Bearer"
                assert TOKEN not in refused.text
            known = client.get(path, headers={"authorization": f"Bearer {TOKEN}"})
            assert known.status_code in (200, 404)
        for trick in ("/models/", "/docs/../models", "/explorer/../models", "/health/..%2Fmodels"):
            assert client.get(trick).status_code in (401, 404), trick
        for bad in ("Bearer ä", "bearer", "Bearer  ", "Basic " + TOKEN):
            assert client.get("/models", headers={"authorization": bad.encode()}).status_code == 401


def test_where_the_token_comes_from(tmp_path, monkeypatch):
    monkeypatch.delenv("CATO_TOKEN", raising=False)
    assert server.read_token(None) == ""
    monkeypatch.setenv("CATO_TOKEN", TOKEN)
    assert server.read_token(None) == TOKEN
    assert "CATO_TOKEN" not in os.environ  # children do not inherit it
    (tmp_path / "token").write_text(TOKEN + "\n")
    assert server.read_token(tmp_path / "token") == TOKEN
    for bad in ("short", "two words in one line", "ä" * 20, "line\nline-line-line-line"):
        (tmp_path / "token").write_text(bad)
        with pytest.raises(InputError, match="at least 16"):
            server.read_token(tmp_path / "token")


def test_forwarded_addresses_are_believed_of_proxies_only(served):
    def whoami(request: Request) -> str:
        return client_of_scope(request.scope)

    def ask_whoami(port, address, forwarded):
        with Raw(port, address) as raw:
            raw.head("/whoami", X_Forwarded_For=forwarded)
            return json.loads(raw.response()[2])

    with running_server(served, LIMITS) as (port, app):
        app.add_api_route("/whoami", whoami)
        assert ask_whoami(port, "127.0.0.7", "203.0.113.9") == "127.0.0.7"
        assert ask_whoami(port, "127.0.0.1", "203.0.113.9") == "127.0.0.1"  # not uvicorn's default
    behind = ServeSettings(proxies=("127.0.0.7",), client_connections=1)
    with running_server(served, behind) as (port, app):
        app.add_api_route("/whoami", whoami)
        with Raw(port, "127.0.0.7"), Raw(port, "127.0.0.7"):  # proxies may have many connections
            assert ask_whoami(port, "127.0.0.7", "10.9.9.9, 203.0.113.9") == "203.0.113.9"
        assert ask_whoami(port, "127.0.0.8", "203.0.113.9") == "127.0.0.8"


def test_clients():
    assert client_of("192.0.2.1") == client_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert client_of("2001:db8::1") == client_of("2001:db8::ffff") != client_of("2001:db8:0:1::1")
    assert client_of("fe80::1%eth0") == client_of("fe80::2")
    assert len(client_of("x" * 10**6)) < 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-requests", "0"], "max_requests: input should be greater than 0"),
        (["--header-seconds", "inf"], "header_seconds"),
        (["--proxies", "everywhere"], "numeric addresses"),
        (["--token-file", "no such file"], "No such file"),
        (["--max-connections", "100000000"], "open files"),
        (["--token", "secret"], "--token"),  # everybody could see it
    ],
)
def test_options_that_are_refused(options, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["serve", *options, "--port", "0"])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_deterministic_answers_do_not_depend_on_other_clients(served):
    """Bit for bit, under load of other samples of the same model."""
    app = create_app(served, ServeSettings(deterministic=True))
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((12, 1, 6, 5, 1)).astype(np.float32)
    expected = [served["grid"].surrogate.predict(one) for one in inputs]

    async def work(client):
        async def one(number):
            stream = io.BytesIO()
            np.savez(stream, inputs=inputs[number])
            answer = await client.post(
                PREDICT, content=stream.getvalue(), headers={"content-type": "application/x-npz"}
            )
            with np.load(io.BytesIO(answer.content)) as found:
                return number, int(found["batch"]), found["outputs"]

        return await asyncio.gather(*(one(number % 12) for number in range(60)))

    for number, batch, outputs in concurrently(app, work):
        assert batch == 1
        assert outputs.tobytes() == expected[number].tobytes()
