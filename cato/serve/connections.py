"""Connections: uvicorn's HTTP/1.1 protocol with limits on numbers and times.

uvicorn limits neither the time in which a header arrives nor that in which a response is read, and
counts connections for all clients together. A client that stalls is disconnected here; the time of
a request body is limited where it is read (`Service.read_body`).
"""

import asyncio
import json
from typing import Any

import h11
from fastapi import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

from cato.serve.clients import Quota, client_of
from cato.serve.settings import ServeSettings


class LimitedProtocol(H11Protocol):
    """One connection. Closed if it stays too long without a whole header or without reading.

    Args:
        open_connections: Shared by all connections of a server.
        settings: Their times.
    """

    def __init__(
        self, *args: Any, open_connections: Quota, settings: ServeSettings, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self.open_connections, self.settings = open_connections, settings
        self.peer = ""
        self.is_refused = False
        self.header_timer: asyncio.TimerHandle | None = None
        self.send_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.peer = client_of((transport.get_extra_info("peername") or ("",))[0])
        try:
            self.open_connections.take(self.peer)
        except HTTPException as refusal:
            self.is_refused = True
            transport.write(_as_bytes(refusal))
            transport.close()
            return
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # `pause_writing` at the first byte that waits
        self._watch_header()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.is_refused:
            return
        self.open_connections.release(self.peer)
        for timer in (self.header_timer, self.send_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.is_refused:
            return
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # a broken body, after the response has begun
            self.transport.abort()
            return
        self._watch_header()

    def _watch_header(self) -> None:
        """Run the timer unless a request is being answered.

        It starts with the connection and with the first byte after a response, of the next
        header or of the rest of an unwanted body; uvicorn's timer covers the silence between.
        """
        if self.cycle is not None and not self.cycle.response_complete:
            if self.header_timer is not None:
                self.header_timer.cancel()
                self.header_timer = None
        elif self.header_timer is None and not self.transport.is_closing():
            seconds = self.settings.header_seconds
            self.header_timer = self.loop.call_later(seconds, self._end_header)

    def _end_header(self) -> None:
        if not self.transport.is_closing():
            has_begun, _ = self.conn.trailing_data
            if self.cycle is None and has_begun:
                self.transport.write(_as_bytes(HTTPException(408, "no request arrived in time")))
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.send_timer is None:
            seconds = self.settings.send_seconds
            self.send_timer = self.loop.call_later(seconds, self.transport.abort)

    def resume_writing(self) -> None:
        if self.send_timer is not None:
            self.send_timer.cancel()
            self.send_timer = None
        super().resume_writing()


def _as_bytes(error: HTTPException) -> bytes:
    """A response that ends the connection, for those that never reach the application."""
    body = json.dumps({"detail": error.detail}).encode()
    lines = [
        f"HTTP/1.1 {error.status_code} ",
        "Content-Type: application/json",
        "X-Content-Type-Options: nosniff",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in (error.headers or {}).items()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
