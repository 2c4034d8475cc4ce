"""Load test of `cato serve`: requests per second and latency over loopback, batched and not.

    make bench-serve        # writes tools/results/serve.json and docs/serving-speed.md

Two real servers (uvicorn, a process each), one with batching and one with `max_batch` 1, serve the
same two untrained CATO models on the mesh of Darcy `small`: one of the recipe's size, one tiny, of
which nearly all time is overhead. Clients send one sample at a time, the next when the answer is
there. The servers take turns, a round each, so that other load on the machine meets both; figures
are medians over the rounds, and the gain is the median of the ratios within rounds. With one client
there is nothing to batch: the range of that ratio is the noise of all others. Every answer is
compared with the model's own: one that is lost, late or another client's is counted, and none may
be. Loading takes 28 s; starting the processes comes on top, and is long on a busy machine.
"""

import asyncio
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np
import torch

from cato.data.normalise import Normaliser
from cato.files import write_json
from cato.models.registry import build_model, model_entry
from cato.problem import Problem
from cato.runs.provenance import environment
from cato.serve.models import ServedModel
from cato.serve.server import listening_socket, run_app, url_of
from cato.serve.settings import ServeSettings
from cato.surrogate import Surrogate

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "tools" / "results" / "serve.json"
PAGE = ROOT / "docs" / "serving-speed.md"
PROBLEM = Problem("darcy", "grid", (29, 29), ("a",), ("u",))
SIZES = {"recipe": {"width": 64, "depth": 4, "heads": 2}, "tiny": {"width": 8, "depth": 1}}
SERVERS = {"batched": 16, "one by one": 1}
CASES = (("recipe", "npz", 16), ("tiny", "npz", 1), ("tiny", "npz", 16), ("tiny", "json", 16))
"""Model, format and number of clients."""
ROUNDS, SECONDS = 5, 0.7
NUM_INPUTS = 32
"""Different inputs, so that an answer tells whose it is."""


def build_models() -> dict[str, ServedModel]:
    """The models; the same weights in every process."""
    torch.set_num_threads(1)
    axes = [torch.linspace(0, 1, nodes) for nodes in PROBLEM.shape]
    coords = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, 1)
    models = {}
    for name, size in SIZES.items():
        torch.manual_seed(0)
        model = build_model("cato", model_entry("cato").config(**size), PROBLEM)
        surrogate = Surrogate(model, Normaliser(PROBLEM), coords=coords).eval()
        models[name] = ServedModel(name, surrogate, {})
        models[name].warm_up()
    return models


def run_server(max_batch: int) -> None:
    """A server process: prints its address, serves until it is ended."""
    from cato.serve.app import create_app

    settings = ServeSettings(max_batch=max_batch, max_requests=200)
    with listening_socket("127.0.0.1", 0) as listener:
        app = create_app(build_models(), settings)
        print(url_of(listener), flush=True)
        run_app(app, listener, settings)


class Load:
    """Clients that ask one server for one model, and check every answer."""

    def __init__(self, url: str, model: ServedModel, form: str) -> None:
        self.url, self.form = f"{url}/models/{model.name}/predict", form
        rng = np.random.default_rng(0)
        inputs = rng.standard_normal((NUM_INPUTS, 1, *PROBLEM.shape, 1)).astype(np.float32)
        self.expected = [model.surrogate.predict(one) for one in inputs]
        self.bodies = [_body(one, form) for one in inputs]
        self.seconds: list[float] = []
        self.num_wrong = 0

    async def run(self, num_clients: int, duration: float) -> float:
        """Ask for some seconds; returns requests per second."""
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


def measure(urls: dict[str, str], models: dict[str, ServedModel]) -> list[dict[str, Any]]:
    """All cases; the servers alternate within each."""
    rows = []
    for name, form, num_clients in CASES:
        loads = {server: Load(url, models[name], form) for server, url in urls.items()}
        rates: dict[str, list[float]] = {server: [] for server in loads}
        percentiles: dict[str, list[np.ndarray]] = {server: [] for server in loads}
        num_requests = 0
        for _ in range(ROUNDS):
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
        }
        print(json.dumps(row), file=sys.stderr, flush=True)
        rows.append(row)
    return rows


def write_page(results: dict[str, Any]) -> None:
    """docs/serving-speed.md, from the results alone."""
    rows = results["rows"]
    total, wrong = (sum(row[key] for row in rows) for key in ("requests", "wrong"))
    lines = [
        "# Speed of the service",
        "",
        "<!-- written by `make bench-serve` from tools/results/serve.json; do not edit -->",
        "",
        f"`cato serve` over loopback, clients and servers on the same {results['cores']} cores of "
        f"{results['environment']['processor']},",
        "one thread for the model. Requests of one sample on 29 × 29 nodes; each client sends the",
        f"next when it has its answer. Medians of {ROUNDS} rounds of {SECONDS} s, the two servers "
        "in turn. `recipe` is",
        "CATO as trained on Darcy `small`, `tiny` a model that takes nearly no time itself. With",
        "one client there is nothing to batch: that gain is 1 but for noise, and its range is the",
        "noise of the others.",
        "",
        "| model | format | clients | server | requests/s | p50, ms | p95, ms | p99, ms "
        "| gain by batching (range) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        least, middle, most = row["gain"]
        for server, rate in row["requests_per_second"].items():
            times = " | ".join(f"{value:.0f}" for value in row["milliseconds"][server])
            gain = f"{middle:.2f} ({least:.2f} to {most:.2f})" if server == "batched" else ""
            lines.append(
                f"| {row['model']} | {row['format']} | {row['clients']} | {server} "
                f"| {rate:.0f} | {times} | {gain} |"
            )
    clear = [row for row in rows if row["clients"] > 1 and row["gain"][0] > 1]
    lines += [
        "",
        f"In {len(clear)} of {sum(row['clients'] > 1 for row in rows)} cases with several clients "
        "batching was faster in every round.",
        f"All {total} answers were compared with the model's own: {wrong} were lost, wrong or "
        "another client's.",
        f"The load of the machine was {results['load']:.1f} for {results['cores']} cores while "
        "this was measured.",
        "",
    ]
    PAGE.write_text("\n".join(lines))


def main() -> None:
    """Start both servers, load them in turn, write results and page."""
    if len(sys.argv) > 1:
        run_server(int(sys.argv[1]))
        return
    processes = {
        name: subprocess.Popen(
            [sys.executable, __file__, str(max_batch)], stdout=subprocess.PIPE, text=True
        )
        for name, max_batch in SERVERS.items()
    }
    try:
        urls = {name: _address(process) for name, process in processes.items()}
        rows = measure(urls, build_models())
    finally:
        for process in processes.values():
            process.terminate()
            process.wait()
    results = {
        "environment": environment(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "rows": rows,
    }
    write_json(RESULTS, results)
    write_page(results)
    print(f"wrote {RESULTS.relative_to(ROOT)} and {PAGE.relative_to(ROOT)}")
    if any(row["wrong"] for row in rows):
        sys.exit("some answers were wrong")


def _address(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


if __name__ == "__main__":
    main()
