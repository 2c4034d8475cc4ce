"""Middleware for every request: metrics and the limit on body size.

Plain ASGI, because Starlette's middleware base class hides a client's disconnection.
"""

import time
from http import HTTPMethod

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cato.serve.metrics import Metrics


class CountRequests:
    """Count requests and their duration by method, route and status."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, started = 500, time.perf_counter()  # 500 unless a response is sent

        async def send_counting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_counting)
        finally:
            method = scope["method"] if scope["method"] in HTTPMethod.__members__ else "other"
            # The route's template, not the URL: clients could invent any number of URLs.
            route = scope["route"].path if "route" in scope else "none"
            self.metrics.requests.labels(method, route, status).inc()
            self.metrics.request_seconds.labels(route).observe(time.perf_counter() - started)


class LimitBody:
    """Reject bodies above a size, by their Content-Length or, if that is wrong, while reading."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self.app, self.max_bytes = app, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        header = dict(scope["headers"]).get(b"content-length", b"")
        announced = int(header) if header.isdigit() else 0
        left = self.max_bytes

        async def receive_limited() -> Message:
            nonlocal left
            if announced > self.max_bytes:
                raise self._too_large(f"{announced} bytes")
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise self._too_large("more")
            return message

        await self.app(scope, receive_limited, send)

    def _too_large(self, size: str) -> HTTPException:
        return HTTPException(
            413,
            f"the body is limited to {self.max_bytes} bytes, this one has {size}; split the "
            f"request into smaller ones",
        )
