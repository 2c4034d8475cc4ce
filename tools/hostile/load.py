"""Load: 64 honest clients with and without 64 that stall, break off, lie and send garbage.

    python -m tools.hostile.load SECONDS SEED

Half of the time the server batches, and answers are compared to rounding; the other half it is
deterministic, and answers are compared bit for bit. Within each half, short rounds with and without
the liars alternate, so that other load on the machine affects both. `ratio` is the throughput of
the honest clients with the liars over that without them; `cpu_ratio` the same per CPU second of the
server, which other load on the machine hardly touches.
"""

import asyncio
import io
import json
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager, nullcontext
from statistics import median
from typing import Any

import numpy as np
import torch

from cato.serve.models import load_model
from cato.surrogate import Surrogate
from tools.hostile.served import ServerProcess

NUM_CLIENTS = NUM_LIARS = 64
NUM_INPUTS = 48  # Different ones, so that an answer to another client is recognised.
TOLERANCE = 1e-5  # Of the largest value, for answers that were computed in batches.
OPTIONS = (
    *("darcy", "--client-requests", "4", "--client-connections", "8"),
    *("--header-seconds", "5", "--body-seconds", "8", "--send-seconds", "5"),
)
ROUND_SECONDS = 10.0
SETTLE_SECONDS = 1.5  # Liars connect, or are gone.


class Honest:
    """Clients that send one request after the other and check every answer."""

    def __init__(self, port: int, surrogate: Surrogate, is_exact: bool, seed: int) -> None:
        self.port, self.is_exact = port, is_exact
        rng = np.random.default_rng(seed)
        shape = (NUM_INPUTS, 1, *surrogate.problem.shape, 1)
        self.inputs = rng.choice([3.0, 12.0], shape).astype(np.float32)
        self.expected = [surrogate.predict(one) for one in self.inputs]
        self.requests = [_request(one, number) for number, one in enumerate(self.inputs)]
        self.counts: Counter[str] = Counter()
        self.deviation = 0.0

    async def run(self, seconds: float) -> float:
        """Right answers per second."""
        before, began = self.counts["right"], time.perf_counter()
        until = began + seconds
        await asyncio.gather(*(self._visit(number, until) for number in range(NUM_CLIENTS)))
        return (self.counts["right"] - before) / (time.perf_counter() - began)

    async def _visit(self, client: int, until: float) -> None:
        number, streams = client, None
        while time.perf_counter() < until:
            number = (number + 7) % NUM_INPUTS
            try:
                async with asyncio.timeout(60):
                    streams = streams or await asyncio.open_connection(
                        "127.0.0.1", self.port, local_addr=(f"127.0.1.{client + 1}", 0)
                    )
                    streams[1].write(self.requests[number])
                    status, is_kept, content = await _response(streams[0])
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                self.counts["lost"] += 1
                streams = None
                continue
            self.counts[f"status {status}"] += 1
            if status == 200:
                self.counts["right" if self._is_right(number, content) else "wrong"] += 1
            elif status in (429, 503):
                await asyncio.sleep(0.2)
            if not is_kept:
                streams[1].close()
                streams = None
        if streams:
            streams[1].close()

    def _is_right(self, number: int, content: bytes) -> bool:
        found, expected = _outputs(content, number), self.expected[number]
        if self.is_exact:
            return found.tobytes() == expected.tobytes()
        deviation = float(np.abs(found - expected).max() / np.abs(expected).max())
        self.deviation = max(self.deviation, deviation)
        return deviation < TOLERANCE


def _is_json(number: int) -> bool:
    return number % 4 == 0


def _request(inputs: np.ndarray, number: int) -> bytes:
    if _is_json(number):
        kind, body = "application/json", json.dumps({"inputs": inputs.tolist()}).encode()
    else:
        stream = io.BytesIO()
        np.savez(stream, inputs=inputs)
        kind, body = "application/x-npz", stream.getvalue()
    head = (
        "POST /models/darcy/predict HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _response(reader: asyncio.StreamReader) -> tuple[int, bool, bytes]:
    """Status, whether the connection stays open, and body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.partition("content-length:")[2].partition("\r\n")[0])
    return int(head.split()[1]), "connection: close" not in head, await reader.readexactly(length)


def _outputs(content: bytes, number: int) -> np.ndarray:
    if _is_json(number):
        return np.array(json.loads(content)["outputs"], np.float32)
    with np.load(io.BytesIO(content)) as archive:
        return archive["outputs"]


@contextmanager
def liars(port: int, seed: int):
    """The liars, in a process of their own."""
    words = ["-m", "tools.hostile.liars", str(port), str(NUM_LIARS), str(seed)]
    process = subprocess.Popen([sys.executable, *words])
    try:
        time.sleep(SETTLE_SECONDS)
        yield
        assert process.poll() is None, "the liars have given up"
    finally:
        process.terminate()
        process.wait()
        time.sleep(SETTLE_SECONDS)


def campaign(seconds: float, seed: int, most: int | None = None) -> dict[str, Any]:
    """Both halves; ratios of throughput, counts of answers by kind, memory in megabytes."""
    torch.set_num_threads(1)
    surrogate = load_model("darcy").surrogate
    halves = {
        "batched": _half((), surrogate, seconds / 2, seed),
        "deterministic": _half(("--deterministic",), surrogate, seconds / 2, seed + 1),
    }
    total: Counter[str] = Counter()
    for half in halves.values():
        total.update(half["honest"])
    ratio = min(half["ratio"] for half in halves.values())
    growth = max(half["megabytes"][-1] - half["megabytes"][0] for half in halves.values())
    errors = sum(half["tracebacks"] for half in halves.values())
    bad = {code for half in halves.values() for code in half["5xx"] if code != 503}
    return {
        "right": total["right"],
        "wrong": total["wrong"],
        "lost": total["lost"],
        "ratio": ratio,
        "cpu_ratio": min(half["cpu_ratio"] for half in halves.values()),
        "megabytes_grown": growth,
        "tracebacks": errors,
        "passed": not (total["wrong"] or total["lost"] or errors or bad) and ratio >= 0.8,
        "halves": halves,
    }


def _half(options: tuple[str, ...], surrogate: Surrogate, seconds: float, seed: int) -> dict:
    with ServerProcess(*OPTIONS, *options) as server:
        honest = Honest(server.port, surrogate, "--deterministic" in options, seed)
        asyncio.run(honest.run(min(5.0, seconds / 4)))  # warm up
        num_pairs = max(1, round(seconds / 2 / ROUND_SECONDS))
        length = seconds / 2 / num_pairs
        pairs, costs, megabytes = [], [], []

        def measure() -> tuple[float, float]:
            """Right answers per second, and per CPU second of the server."""
            cpu, right = server.cpu_seconds(), honest.counts["right"]
            rate = asyncio.run(honest.run(length))
            return rate, (honest.counts["right"] - right) / (server.cpu_seconds() - cpu)

        for number in range(num_pairs):
            rounds = {}
            for kind in ("alone", "beside") if number % 2 else ("beside", "alone"):
                with liars(server.port, seed + number) if kind == "beside" else nullcontext():
                    rounds[kind] = measure()
            (alone, cost), (beside, cost_beside) = rounds["alone"], rounds["beside"]
            pairs.append((alone, beside))
            costs.append(cost_beside / cost)
            megabytes.append(round(server.megabytes(), 1))
        statuses = server.statuses()
        return {
            "ratio": round(median(beside / alone for alone, beside in pairs), 3),
            "cpu_ratio": round(median(costs), 3),
            "pairs": [[round(alone, 1), round(beside, 1)] for alone, beside in pairs],
            "honest": dict(honest.counts),
            "deviation": honest.deviation,
            "statuses": dict(sorted(statuses.items())),
            "5xx": {code: count for code, count in statuses.items() if code >= 500},
            "megabytes": megabytes,
            "tracebacks": server.errors().count("Traceback"),
            "errors": server.errors()[-2000:],
        }


if __name__ == "__main__":
    print(json.dumps(campaign(float(sys.argv[1]), int(sys.argv[2])), indent=1))
