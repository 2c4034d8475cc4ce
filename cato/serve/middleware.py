"""What every request passes, whatever route it is for: counting, and the limit of its body.

Plain ASGI, because Starlette's own middleware classes hide a client's disconnection.
"""

import time
from http import HTTPMethod

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cato.serve.metrics import Metrics


class CountRequests:
    """Count requests and their time by method, route and status."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and count it when it is over."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, began = 500, time.perf_counter()  # 500 unless an answer is sent

        async def send_counting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_counting)
        finally:
            method = scope["method"] if scope["method"] in HTTPMethod.__members__ else "other"
            # Not the address itself: everybody can invent addresses, and each would be kept.
            route = getattr(scope.get("route"), "path", "none")
            self.metrics.observe_request(method, route, status, time.perf_counter() - began)


class LimitBody:
    """Refuse bodies beyond a limit, by what they announce or, if that was untrue, on the way."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self.app, self.max_bytes = app, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its body measured."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        header = dict(scope["headers"]).get(b"content-length", b"")
        announced = int(header) if header.isdigit() else 0
        left = self.max_bytes

        async def receive_measured() -> Message:
            nonlocal left
            if announced > self.max_bytes:
                raise self._too_large(f"{announced} bytes")
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise self._too_large("more")
            return message

        await self.app(scope, receive_measured, send)

    def _too_large(self, size: str) -> HTTPException:
        return HTTPException(
            413, f"a body may have {self.max_bytes} bytes, this one has {size}; send less at a time"
        )
