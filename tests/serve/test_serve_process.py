"""A server process: it starts, says where it is, refuses a port in use, and ends in order."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import numpy as np
import pytest

from cato.errors import InputError
from cato.runs.settings import build_settings, run_config
from cato.serve import server
from cato.serve.models import load_model, load_models
from cato.training.train import train

COMMAND = (
    "import sys; from cato.serve.server import serve; "
    "serve(sys.argv[2:], port=int(sys.argv[1]), as_json=True)"
)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """A run as `cato train` leaves it."""
    root = tmp_path_factory.mktemp("serve")
    values = build_settings("darcy", "smoke", "cato").to_dict()
    values["data"] |= {"root": str(root / "data")}
    values["model"] |= {"width": 8, "depth": 1}
    values["train"] |= {"epochs": 1, "accelerator": "cpu"}
    return train(run_config(values, "test"), root / "darcy run").folder


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_server_from_start_to_end(run_folder, end):
    process = start(0, f"darcy={run_folder}")
    try:
        said = json.loads(process.stdout.readline())
        assert [model["name"] for model in said["models"]] == ["darcy"]
        surrogate = load_model(f"darcy={run_folder}").surrogate
        inputs = np.random.default_rng(0).random((64, *surrogate.problem.shape, 1))
        with httpx.Client(base_url=said["url"], timeout=60, trust_env=False) as client:
            assert client.get("/health").json()["ready"]
            assert client.get("/health", headers={"host": "evil.example"}).status_code == 400
            # The reason arrives although the body is refused before it has been sent.
            large = {"content-type": "application/x-npz"}
            refused = client.post("/models/darcy/predict", headers=large, content=bytes(40 * 2**20))
            assert refused.status_code == 413
            answers = []

            def ask():
                answers.append(
                    client.post("/models/darcy/predict", json={"inputs": inputs.tolist()})
                )

            asking = threading.Thread(target=ask)
            asking.start()
            metrics = ""
            while "cato_requests_under_way 1" not in metrics and asking.is_alive():
                metrics = httpx.get(said["url"] + "/metrics", trust_env=False).text
            process.send_signal(end)  # while the prediction is under way
            asking.join(60)
        outputs = np.array(answers[0].json()["outputs"])
        expected = surrogate.predict(inputs.astype(np.float32))
        np.testing.assert_allclose(outputs, expected, rtol=1e-3, atol=1e-5)
        _, notes = process.communicate(timeout=60)
        assert process.returncode == 0, notes
        assert notes.splitlines()[-1] == "stopped"
    finally:
        process.kill()
        process.communicate()


def test_a_port_in_use_is_told_before_anything_is_loaded():
    with server.listening_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        began = time.monotonic()
        with pytest.raises(InputError, match=rf"port {port}: another program uses it.*--port"):
            server.serve(["no such run"], port=port)
        assert time.monotonic() - began < 5


def test_addresses_that_cannot_be_used():
    with pytest.raises(InputError, match="0 to 65535"):
        server.listening_socket("127.0.0.1", 70000)
    with pytest.raises(InputError, match="--host"):
        server.listening_socket("no.such.host.invalid", 0)
    with pytest.raises(InputError, match="does not have that address"):
        server.listening_socket("192.0.2.1", 0)


def test_a_port_is_free_again_after_a_failed_start():
    with server.listening_socket("127.0.0.1", 0) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(InputError, match="not a run folder"):
        server.serve(["no such run"], port=port)
    with socket.socket() as again:
        again.bind(("127.0.0.1", port))


@pytest.mark.parametrize(
    ("host", "is_open"),
    [("127.0.0.1", False), ("::1", False), ("localhost", False), ("0.0.0.0", True), ("::", True)],
)
def test_an_open_address_is_said_to_be_open(host, is_open, capsys):
    server._warn_if_open(host, "127.0.0.1" if host == "localhost" else host)
    assert ("anyone who can reach this machine" in capsys.readouterr().err) == is_open


def test_names_of_models(run_folder):
    with pytest.raises(InputError, match=r"'darcy run' cannot be part of a URL.*NAME="):
        load_model(str(run_folder))
    with pytest.raises(InputError, match="two models are called 'a'"):
        load_models([f"a={run_folder}", f"a={run_folder}"])
    model = load_model(f"a={run_folder}")
    assert model.about["benchmark"] == "darcy"
    assert model.version == load_model(f"b={run_folder}").version


def test_what_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(server.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'cato-pde\[serve\]'"):
        server.serve([])
