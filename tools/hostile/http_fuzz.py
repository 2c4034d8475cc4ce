"""HTTP fuzzing: requests that nearly keep the rules, to every route; nothing may be a 5xx but 503.

    python -m tools.hostile.http_fuzz SECONDS SEED

Half of the requests are mutations of valid ones (bytes, numbers, shapes, lengths, headers, paths);
some are framed oddly: in chunks, with two lengths or hosts, two at once, as a WebSocket or HTTP/2.
Between them, valid requests must be answered as by the model itself, whole and in chunks.
"""

import io
import json
import socket
import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save

from cato.benchmarks import BENCHMARKS, editor_for
from cato.serve.models import ServedModel, load_model
from tools.hostile.served import ServerProcess

OPTIONS = (
    *("--header-seconds", "2", "--body-seconds", "2", "--idle-seconds", "1"),
    *("--time-limit", "50"),  # Predictions may take long on a busy machine.
)
EXTREMES = (0.0, -1.0, 1e-45, 1e-30, 1e19, 1e38, -3.4e38, 1e300, float("nan"), float("inf"))
SIZES = (0, 1, 2, -1, 10**20, 2**31, 2**63, 2**64, 1e20, True, None, "5", [], {})
TYPES = ("application/json", "application/x-npz", "application/octet-stream", "text/html", "")
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "FOO")
FIXED_PATHS = ("/", "/docs", "/models", "/health", "/metrics", "/openapi.json", "/explorer/", "/x")
FRAMES = (
    "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    "Transfer-Encoding: chunked, chunked\r\n",
    "Transfer-Encoding: gzip\r\n",
    "Content-Length: 5\r\nContent-Length: 6\r\n",
    "Content-Length: +5\r\n",
    "Content-Length: 5, 5\r\n",
    "Content-Encoding: gzip\r\nContent-Length: 5\r\n",
    "Host: other\r\nContent-Length: 5\r\n",
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
    "X: a\r\n b\r\n",
    "X: \0\r\n",
    "X" * 100_000 + ": 1\r\n",
    "X: 1\r\n" * 20_000,
)
"""Lines of a header that frame a body in odd ways."""
STARTS = (
    "POST {path} HTTP/1.1\r\n",
    "POST http://localhost{path} HTTP/1.1\r\n",
    "POST {path} HTTP/1.0\r\n",
    "POST {path} HTTP/9.9\r\n",
    "POST {path}\r\n",
    "GET {path}?" + "a" * 100_000 + " HTTP/1.1\r\n",
    "CONNECT localhost:80 HTTP/1.1\r\n",
    "OPTIONS * HTTP/1.1\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)
TIMEOUT = 60.0
CHECK_EVERY = 50  # Requests between two valid ones.


class Fuzzer:
    """Draws requests for models of the benchmarks. Every draw depends on the seed only."""

    def __init__(self, models: Mapping[str, ServedModel], seed: int) -> None:
        self.models, self.rng = models, np.random.default_rng(seed)

    def pick(self, options: Any) -> Any:
        return options[self.rng.integers(len(options))]

    def arrays(self, model: ServedModel) -> dict[str, np.ndarray]:
        """Valid arrays for a model, then spoilt a little, or not."""
        problem = model.problem
        shape = [int(self.pick([1, 1, 2])), *problem.shape]
        if self.rng.random() < 0.2:
            shape[int(self.rng.integers(len(shape)))] = int(self.pick([0, 1, 2, 3, 5, 8]))
        arrays = {"inputs": self.rng.standard_normal((*shape, problem.num_inputs))}
        if not model.has_coords or self.rng.random() < 0.4:
            axes = [np.linspace(0, 1, nodes) for nodes in shape[1:]]
            mesh = np.stack(np.meshgrid(*axes, indexing="ij"), -1)
            if mesh.shape[-1] < problem.dimension:
                mesh = self.rng.random((*shape[1:], problem.dimension))
            arrays["coords"] = mesh
        if not problem.num_inputs and self.rng.random() < 0.8:
            del arrays["inputs"]
        for array in arrays.values():
            if array.size and self.rng.random() < 0.5:
                value = self.pick(EXTREMES)
                if self.rng.random() < 0.5:
                    array.flat[self.rng.integers(array.size)] = value
                else:
                    array[...] = value if self.rng.random() < 0.5 else array * 1e30
        dtype = self.pick([np.float32, np.float64, np.float16, np.int64, ">f4", "u1", "g"])
        with np.errstate(all="ignore"):
            return {
                name: np.asarray(array, dtype if self.rng.random() < 0.3 else np.float32)
                for name, array in arrays.items()
            }

    def body(self, model: ServedModel) -> tuple[str, bytes]:
        """Content type and body of a prediction."""
        arrays = self.arrays(model)
        kind = self.pick(["json", "flat", "npz", "npz", "junk"])
        if kind == "npz":
            stream = io.BytesIO()
            self.pick([np.savez, np.savez_compressed])(stream, **arrays)
            return "application/x-npz", stream.getvalue()
        if kind == "junk":
            return "application/json", json.dumps(self.junk(3)).encode()
        fields: dict[str, Any] = {
            name: array.astype(float).tolist()
            if kind == "json"
            else {"shape": list(array.shape), "values": array.astype(float).ravel().tolist()}
            for name, array in arrays.items()
        }
        if kind == "flat" and fields and self.rng.random() < 0.5:
            field = fields[self.pick(sorted(fields))]
            field["shape"][self.rng.integers(len(field["shape"]))] = self.pick(SIZES)
        return "application/json", json.dumps(fields).encode()

    def junk(self, depth: int) -> Any:
        """Any JSON value."""
        if depth and self.rng.random() < 0.6:
            keys = ["inputs", "coords", "shape", "values", "x"]
            if self.rng.random() < 0.5:
                return {self.pick(keys): self.junk(depth - 1) for _ in range(3)}
            return [self.junk(depth - 1) for _ in range(self.rng.integers(4))]
        return self.pick([None, True, 3, -1, 10**30, 0.5, "a", "\ud800", "", [], {}, *EXTREMES])

    def values(self, model: ServedModel) -> bytes:
        """Body of the explorer, with a header that may lie."""
        editor = editor_for(model.problem, model.about.get("scale"))
        assert editor is not None
        values = editor.draw(self.rng)
        if values.dtype.kind == "f" and self.rng.random() < 0.3:
            values.flat[self.rng.integers(values.size)] = self.pick(EXTREMES)
        body = save({"values": np.asarray(values, order="C")})
        length = int.from_bytes(body[:8], "little")
        if self.rng.random() < 0.5:
            header = json.loads(body[8 : 8 + length])
            key = self.pick(["dtype", "shape", "data_offsets"])
            lies = [[self.pick(SIZES), self.pick(SIZES)], self.pick(["F64", "BF16", "X"])]
            header["values"][key] = self.pick([*lies, self.junk(2)])
            text = json.dumps(header).encode()
            body = len(text).to_bytes(8, "little") + text + body[8 + length :]
        return body

    def mutated(self, data: bytes) -> bytes:
        """The data with a few bytes changed, removed or repeated."""
        changed = bytearray(data)
        for _ in range(self.rng.integers(1, 6)):
            at = int(self.rng.integers(len(changed) + 1))
            match self.rng.integers(4):
                case 0:
                    changed[at : at + 1] = self.rng.bytes(1)
                case 1:
                    del changed[at : at + int(self.rng.integers(1, 20))]
                case 2:
                    changed[at:at] = changed[max(0, at - 10) : at]
                case 3:
                    changed[at:] = changed[at : at + int(self.rng.integers(1, 2000))]
        return bytes(changed)

    def oddity(self, path: str) -> bytes:
        """A request that is framed oddly."""
        start = self.pick(STARTS) if self.rng.random() < 0.3 else STARTS[0]
        frame = self.pick(FRAMES) if self.rng.random() < 0.8 else ""
        host = "Host: localhost\r\n" * int(self.pick([0, 1, 1, 1, 2]))
        kind = "Content-Type: application/json\r\nConnection: close\r\n"
        body = self.pick(
            ["", "hello", "5\r\nhello\r\n0\r\n\r\n", "ffffffffffffffff\r\nx", "-1\r\n"]
        )
        request = start.format(path=path) + host + kind + frame + "\r\n" + body
        return request.encode() * int(self.pick([1, 1, 2, 50]))

    def request(self) -> bytes:
        """A whole request."""
        name = self.pick(sorted(self.models))
        if self.rng.random() < 0.1:
            return self.oddity(f"/models/{name}/predict")
        model = self.models[name]
        method, target, kind, body = "POST", f"/models/{name}/predict", "application/json", b""
        match self.rng.integers(6):
            case 0 | 1 | 2:
                kind, body = self.body(model)
            case 3:
                target = f"/explorer/api/models/{name}/predict"
                kind, body = "application/octet-stream", self.values(model)
            case 4:
                method = "GET"
                seed = self.pick([1, -1, 2**53, 10**30, "x", "", "%00", "1e9", "nan"])
                target = f"/explorer/api/models/{name}/draw?seed={seed}"
            case 5:
                method, target = self.pick(METHODS), self.pick(FIXED_PATHS)
                job = self.pick(["", "/explorer/api/jobs/" + self.rng.bytes(16).hex(), "/%2e%2e/"])
                target = job or target
        if self.rng.random() < 0.3:
            body = self.mutated(body)
        if self.rng.random() < 0.1:
            kind = self.pick(TYPES)
        length = len(body) + int(self.pick([-3, 3])) if self.rng.random() < 0.03 else len(body)
        fields = [
            f"{method} {target} HTTP/1.1",
            "Host: localhost",
            f"Content-Type: {kind}",
            f"Content-Length: {max(0, length)}",
            "Connection: close",
        ]
        if self.rng.random() < 0.1:
            odd = ["Authorization: Bearer x", "X-Forwarded-For: 1", "Expect: 100-continue"]
            odd += ["Range: bytes=-1", "Accept-Encoding: \x7f", "Upgrade: websocket"]
            fields.append(self.pick(odd))
        head = "\r\n".join(fields).encode() + b"\r\n\r\n"
        if self.rng.random() < 0.05:
            head = self.mutated(head)
        return head + body


def send(port: int, request: bytes) -> tuple[int, bytes]:
    """Status and body of the response; status 0 without one."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT) as connection:
        try:
            connection.sendall(request)
            while part := connection.recv(2**16):
                received += part
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
    received = received.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    if not received.startswith(b"HTTP/1.1 "):
        return 0, b""
    return int(received[9:12]), received.partition(b"\r\n\r\n")[2]


def is_right(port: int, model: ServedModel, rng: np.random.Generator) -> bool:
    """Whether a valid request, whole or in chunks, is answered as by the model itself."""
    inputs = rng.choice([3.0, 12.0], (1, *model.problem.shape, 1)).astype(np.float32)
    stream = io.BytesIO()
    np.savez(stream, inputs=inputs)
    body, frame = stream.getvalue(), f"Content-Length: {len(stream.getvalue())}"
    if rng.random() < 0.5:
        frame, cut = "Transfer-Encoding: chunked", int(rng.integers(1, len(body)))
        parts = (body[:cut], body[cut:], b"")
        body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    head = (
        f"POST /models/{model.name}/predict HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: application/x-npz\r\n{frame}\r\n\r\n"
    )
    status, content = send(port, head.encode() + body)
    if status != 200:
        return False
    with np.load(io.BytesIO(content)) as archive:
        return archive["outputs"].tobytes() == model.surrogate.predict(inputs).tobytes()


def campaign(seconds: float, seed: int, most: int | None = None) -> dict[str, Any]:
    """Counts by status, and the first requests that broke something."""
    torch.set_num_threads(1)
    fuzzer = Fuzzer({name: load_model(name) for name in BENCHMARKS}, seed)
    statuses: Counter[int] = Counter()
    broken: list[str] = []
    num_checks = num_wrong = 0
    with ServerProcess(*BENCHMARKS, "--deterministic", *OPTIONS) as server:
        until = time.monotonic() + seconds
        while time.monotonic() < until and sum(statuses.values()) != most:
            request = fuzzer.request()
            try:
                status, content = send(server.port, request)
            except TimeoutError:
                status, content = -1, b"no answer"
            statuses[status] += 1
            if status < 0 or (status >= 500 and status != 503):
                broken.append(f"{status} {content[:200]!r} for {request[:600]!r}")
            if sum(statuses.values()) % CHECK_EVERY == 0:
                num_checks += 1
                num_wrong += not is_right(server.port, fuzzer.models["darcy"], fuzzer.rng)
        errors = server.errors()
    return {
        "requests": sum(statuses.values()),
        "statuses": dict(sorted(statuses.items())),
        "checks": num_checks,
        "wrong": num_wrong,
        "broken": len(broken),
        "examples": broken[:5],
        "tracebacks": errors.count("Traceback"),
        "errors": errors[-3000:],
        "passed": not (broken or num_wrong or "Traceback" in errors),
    }


if __name__ == "__main__":
    print(json.dumps(campaign(float(sys.argv[1]), int(sys.argv[2])), indent=1))
