"""Clients that stall, break off, lie about lengths and send garbage, until they are terminated.

    python -m tools.hostile.liars PORT NUMBER SEED

Standard library only: they run next to the clients whose throughput is measured, and should cost
the machine as little as possible. Every liar has an address of its own.
"""

import asyncio
import contextlib
import random
import sys
import zipfile
from io import BytesIO

PREDICT = "POST /models/darcy/predict HTTP/1.1\r\nHost: localhost\r\n"
JSON = "Content-Type: application/json\r\n"
NPZ = "Content-Type: application/x-npz\r\n"
PATIENCE = 15.0  # Seconds; a liar that is not disconnected tries something else.
PAUSE = 1.0  # Mean seconds between two attempts of a liar.


def _bomb() -> bytes:
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inputs.npy", bytes(2**22))
    return stream.getvalue()


BOMB = _bomb()
BODIES = [
    (JSON, b'{"inputs": ' + 5000 * b"[" + 5000 * b"]" + b"}"),
    (JSON, b'{"inputs": {"shape": [100000000000000000000], "values": []}}'),
    (JSON, b'{"inputs": [[[[1e999]]]]}'),
    (JSON, b"\xff" * 300),
    (JSON, b'{"inputs": [' + 2000 * b"0," + b"0]}"),
    (NPZ, BOMB),
    (NPZ, BOMB[: len(BOMB) // 2]),
    (NPZ, random.Random(0).randbytes(500)),
    ("Content-Type: text/plain\r\n", b"hello"),
]
"""Whole bodies that are refused."""


async def stall_in_header(reader, writer, rng):
    writer.write(b"POST /models/darcy/predict HTTP/1.1\r\nHost: local"[: rng.randrange(50)])
    await reader.read()


async def drip_a_header(reader, writer, rng):
    await _drip(reader, writer)


async def stall_in_body(reader, writer, rng):
    length = rng.choice([10, 1000, 10**6, 3 * 10**7])
    writer.write(f"{PREDICT}{JSON}Content-Length: {length}\r\n\r\n".encode() + b'{"inputs"')
    await reader.read()


async def drip_a_body(reader, writer, rng):
    writer.write(f"{PREDICT}{JSON}Content-Length: 1000\r\n\r\n".encode())
    await _drip(reader, writer)


async def _drip(reader, writer):
    """A byte now and then, until the server says something."""
    is_alone = True
    while is_alone:
        writer.write(b"G")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await reader.read(4000)
                is_alone = False


async def break_off(reader, writer, rng):
    writer.write(f"{PREDICT}{NPZ}Content-Length: 5000\r\n\r\n".encode() + rng.randbytes(2000))
    await writer.drain()
    writer.transport.abort()


async def leave_before_the_answer(reader, writer, rng):
    head = "GET /models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    writer.write(head.encode())
    await writer.drain()
    writer.transport.abort()


async def lie_about_the_length(reader, writer, rng):
    content, body = rng.choice(BODIES)
    length = rng.choice([len(body) - 3, len(body) + 3, 10**12])
    writer.write(f"{PREDICT}{content}Content-Length: {length}\r\n\r\n".encode() + body)
    await reader.read(4000)


async def send_a_bad_body(reader, writer, rng):
    content, body = rng.choice(BODIES)
    writer.write(f"{PREDICT}{content}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    await reader.read(4000)


async def send_bad_chunks(reader, writer, rng):
    writer.write(f"{PREDICT}{JSON}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n".encode())
    await reader.read(4000)


async def send_garbage(reader, writer, rng):
    writer.write(rng.randbytes(rng.randrange(1, 3000)) + b"\r\n\r\n")
    await reader.read(4000)


async def read_nothing(reader, writer, rng):
    for _ in range(20):
        writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await asyncio.sleep(PATIENCE)


ATTACKS = (
    stall_in_header,
    drip_a_header,
    stall_in_body,
    drip_a_body,
    break_off,
    leave_before_the_answer,
    lie_about_the_length,
    send_a_bad_body,
    send_bad_chunks,
    send_garbage,
    read_nothing,
)


async def lie(port: int, number: int, seed: int) -> None:
    """One liar."""
    rng = random.Random(1000 * seed + number)
    while True:
        with contextlib.suppress(OSError, TimeoutError):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, local_addr=(f"127.0.2.{number + 1}", 0), limit=4096
            )
            try:
                async with asyncio.timeout(PATIENCE):
                    await rng.choice(ATTACKS)(reader, writer, rng)
            finally:
                writer.close()
        await asyncio.sleep(rng.expovariate(1 / PAUSE))


async def main(port: int, count: int, seed: int) -> None:
    """All liars."""
    await asyncio.gather(*(lie(port, number, seed) for number in range(count)))


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
