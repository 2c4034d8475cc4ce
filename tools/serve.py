"""Load test of `cato serve`: requests per second and latency, with and without batching.

    make bench-serve                 # writes tools/results/serve.json and docs/speed.md
    python -m tools.serve --trial    # one short round; writes nothing

Two real servers (uvicorn, a process each), one with batching and one with `max_batch`
1, serve the same two untrained CATO models on the mesh of Darcy `small`: one of the recipe's size,
and a tiny one whose time is nearly all overhead. Clients send one sample and wait for the answer.
The servers take turns, one round each, so that other load on the machine affects both; figures are
medians over the rounds, and the gain is the median of the ratios within rounds. With one client
there is nothing to batch: the range of that ratio is the noise of all others. Every answer is
compared with the model's own: answers that are lost, late or another client's are counted, and
there must be none.
"""

import argparse
import asyncio
import io
import json
import os
import subprocess
import sys
import time
from statistics import median

import httpx
import numpy as np
import torch

from cato.data.normalise import Normaliser
from cato.models.registry import build_model, model_class
from cato.problem import Problem
from cato.serve.models import ServedModel
from cato.serve.server import listening_socket, run_app, url_of
from cato.serve.settings import ServeSettings
from cato.surrogate import Surrogate
from tools import speed_page
from tools.pages import write_pages
from tools.results import ROOT, Row, stamped, write_results

PROBLEM = Problem("darcy", "grid", (29, 29), ("a",), ("u",))
SIZES = {"recipe": {"width": 64, "depth": 4, "heads": 2}, "tiny": {"width": 8, "depth": 1}}
SERVERS = {"batched": 16, "one by one": 1}
CASES = (("recipe", "npz", 16), ("tiny", "npz", 1), ("tiny", "npz", 16), ("tiny", "json", 16))
"""Model, format and number of clients."""
ROUNDS, SECONDS = 5, 0.7
NUM_INPUTS = 32
"""Number of different inputs, so that an answer to another client is recognised."""


def build_models() -> dict[str, ServedModel]:
    """The models; the same weights in every process."""
    torch.set_num_threads(1)
    axes = [torch.linspace(0, 1, nodes) for nodes in PROBLEM.shape]
    coords = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, 1)
    models = {}
    for name, size in SIZES.items():
        torch.manual_seed(0)
        model = build_model("cato", model_class("cato").config_class(**size), PROBLEM)
        surrogate = Surrogate(model, Normaliser(PROBLEM), coords=coords).eval()
        models[name] = ServedModel(name, surrogate, {})
        models[name].warm_up()
    return models


def run_server(max_batch: int) -> None:
    """A server process: print the address, then serve until terminated."""
    from cato.serve.app import create_app

    settings = ServeSettings(max_batch=max_batch, max_requests=200)
    with listening_socket("127.0.0.1", 0) as listener:
        app = create_app(build_models(), settings)
        print(url_of(listener), flush=True)
        run_app(app, listener, settings)


class Load:
    """Clients that send requests for one model to one server and check every answer."""

    def __init__(self, url: str, model: ServedModel, form: str) -> None:
        self.url, self.form = f"{url}/models/{model.name}/predict", form
        rng = np.random.default_rng(0)
        inputs = rng.standard_normal((NUM_INPUTS, 1, *PROBLEM.shape, 1)).astype(np.float32)
        self.expected = [model.surrogate.predict(one) for one in inputs]
        self.bodies = [_body(one, form) for one in inputs]
        self.seconds: list[float] = []
        self.num_wrong = 0

    async def run(self, num_clients: int, duration: float) -> float:
        """Send requests for some seconds; returns requests per second."""
        self.seconds.clear()
        limits = httpx.Limits(max_connections=num_clients)
        async with httpx.AsyncClient(limits=limits, timeout=30, trust_env=False) as client:
            began = time.perf_counter()
            until = began + duration
            await asyncio.gather(*(self._visit(client, n, until) for n in range(num_clients)))
            return len(self.seconds) / (time.perf_counter() - began)

    async def _visit(self, client: httpx.AsyncClient, number: int, until: float) -> None:
        kind = {"npz": "application/x-npz", "json": "application/json"}[self.form]
        while time.perf_counter() < until:
            number = (number + 7) % NUM_INPUTS
            began = time.perf_counter()
            answer = await client.post(
                self.url, content=self.bodies[number], headers={"content-type": kind}
            )
            self.seconds.append(time.perf_counter() - began)
            right = answer.status_code == 200 and np.allclose(
                _outputs(answer, self.form), self.expected[number], rtol=1e-3, atol=1e-5
            )
            self.num_wrong += not right


def _body(inputs: np.ndarray, form: str) -> bytes:
    if form == "json":
        return json.dumps({"inputs": inputs.tolist()}).encode()
    stream = io.BytesIO()
    np.savez(stream, inputs=inputs)
    return stream.getvalue()


def _outputs(answer: httpx.Response, form: str) -> np.ndarray:
    if form == "json":
        return np.array(answer.json()["outputs"])
    with np.load(io.BytesIO(answer.content)) as archive:
        return archive["outputs"]


def measure(
    urls: dict[str, str], models: dict[str, ServedModel], num_rounds: int = ROUNDS
) -> list[Row]:
    """All cases; the servers alternate within each."""
    rows = []
    for name, form, num_clients in CASES:
        loads = {server: Load(url, models[name], form) for server, url in urls.items()}
        rates: dict[str, list[float]] = {server: [] for server in loads}
        percentiles: dict[str, list[np.ndarray]] = {server: [] for server in loads}
        num_requests = 0
        for _ in range(num_rounds):
            for server, load in loads.items():
                rates[server].append(asyncio.run(load.run(num_clients, SECONDS)))
                percentiles[server].append(np.percentile(load.seconds, (50, 95, 99)))
                num_requests += len(load.seconds)
        gains = [batched / single for batched, single in zip(*rates.values(), strict=True)]
        row = {
            "model": name,
            "format": form,
            "clients": num_clients,
            "requests_per_second": {server: median(values) for server, values in rates.items()},
            "milliseconds": {
                server: (1000 * np.median(values, axis=0)).tolist()
                for server, values in percentiles.items()
            },
            "gain": [min(gains), median(gains), max(gains)],
            "requests": num_requests,
            "wrong": sum(load.num_wrong for load in loads.values()),
            "load": os.getloadavg()[0],
        }
        print(json.dumps(row), file=sys.stderr, flush=True)
        settings = {"mesh": PROBLEM.shape, "size": SIZES[name], "max_batch": SERVERS}
        rows.append(stamped(row, settings | {"rounds": num_rounds, "seconds": SECONDS}))
    return rows


def main() -> None:
    """Start both servers, load them in turn, write results and page."""
    parser = argparse.ArgumentParser(description="load test of cato serve")
    parser.add_argument("--trial", action="store_true", help="one round; writes nothing")
    parser.add_argument("--max-batch", type=int, help=argparse.SUPPRESS)  # a server
    options = parser.parse_args()
    if options.max_batch:
        run_server(options.max_batch)
        return
    processes = {name: start_server(max_batch) for name, max_batch in SERVERS.items()}
    try:
        urls = {name: address_of(process) for name, process in processes.items()}
        rows = measure(urls, build_models(), 1 if options.trial else ROUNDS)
    finally:
        for process in processes.values():
            process.terminate()
            process.wait()
    if not options.trial:
        write_results("serve", {"rows": rows})
        write_pages(speed_page.pages())
    if any(row["wrong"] for row in rows):
        sys.exit("some answers were wrong")


def start_server(max_batch: int) -> "subprocess.Popen[str]":
    """A server in its own process."""
    words = [sys.executable, "-m", "tools.serve", "--max-batch", str(max_batch)]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def address_of(process: "subprocess.Popen[str]") -> str:
    """The address that a server prints when it is ready."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


if __name__ == "__main__":
    main()
