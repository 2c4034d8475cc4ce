"""What every request passes on its way to a route, and every response on its way back.

Plain ASGI, because Starlette's base class hides a client's disconnection.
"""

import hashlib
import hmac
import ipaddress
import logging
import re
import socket
import time
from collections.abc import Collection, Iterable
from http import HTTPMethod

from fastapi import HTTPException
from fastapi.responses import JSONResponse
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cato.serve.clients import Quota, client_of_scope
from cato.serve.metrics import Metrics

logger = logging.getLogger(__name__)

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
PART_BYTES = 256 * 2**10  # A response is sent in parts, each after the client has read another.
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(:[0-9]{1,5})?")


def error_response(error: HTTPException) -> JSONResponse:
    """An error as all routes give it."""
    return JSONResponse({"detail": error.detail}, error.status_code, error.headers)


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


class SecureResponses:
    """Add the security headers to every response; a bug becomes a 500 that shows nothing of it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        has_started = False

        async def send_secured(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self.app(scope, receive, send_secured)
        except Exception as error:
            if has_started:
                raise
            logger.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
            response = error_response(HTTPException(500, "internal error; see the server log"))
            await response(scope, receive, send_secured)


class CheckHost:
    """Refuse requests for other hosts.

    Otherwise a web page whose name resolves to the address of this service could use it through
    its visitor's browser. A numeric address needs no resolving, so any is accepted.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        known = ("localhost", socket.gethostname(), *names)
        self.app, self.names = app, {name.lower().rstrip(".") for name in known}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_ours(scope):
            reason = "unknown Host header; the operator can allow it: cato serve --host-names NAME"
            await error_response(HTTPException(400, reason))(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _is_ours(self, scope: Scope) -> bool:
        header = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        match = _HOST.fullmatch(header)
        if match is None:
            return False
        name = match[1].lower().rstrip(".")
        if name in self.names:
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True


class RequireToken:
    """Refuse requests without the token, except for public paths."""

    def __init__(self, app: ASGIApp, token: str, public: Collection[str]) -> None:
        self.app, self.public = app, frozenset(public)
        self._digest = _digest(token.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_open = scope["type"] != "http" or scope["path"] in self.public
        if is_open or self._is_known(scope):
            await self.app(scope, receive, send)
            return
        reason = "this service needs its token: send the header 'Authorization: Bearer TOKEN'"
        error = HTTPException(401, reason, {"WWW-Authenticate": "Bearer"})
        await error_response(error)(scope, receive, send)

    def _is_known(self, scope: Scope) -> bool:
        header = dict(scope["headers"]).get(b"authorization", b"")
        scheme, _, given = header.partition(b" ")
        # Digests have one length, and their comparison takes one time.
        return scheme.lower() == b"bearer" and hmac.compare_digest(
            _digest(given.strip()), self._digest
        )


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


class LimitBodies:
    """Limit the size of a request body, and of all bodies in memory.

    A body is refused by its Content-Length or, if that is wrong or missing, while it is read. The
    bodies of a request and its response count as held until the client has read the response.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, held: Quota) -> None:
        self.app, self.max_bytes, self.held = app, max_bytes, held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        client, size, num_held = client_of_scope(scope), 0, 0
        announced = _announced(scope["headers"])
        is_refused = False

        def hold(num_bytes: int) -> None:
            nonlocal num_held
            self.held.take(client, num_bytes)
            num_held += num_bytes

        async def receive_limited() -> Message:
            nonlocal size
            if announced > self.max_bytes:
                raise self._too_large(f"{announced} bytes")
            message = await receive()
            size += len(message.get("body", b""))
            if size > self.max_bytes:
                raise self._too_large("more")
            hold(len(message.get("body", b"")))
            return message

        async def send_in_parts(message: Message) -> None:
            nonlocal is_refused
            if is_refused:
                return
            if message["type"] == "http.response.start":
                try:
                    hold(_announced(message["headers"]))
                except HTTPException as refusal:
                    is_refused = True
                    await error_response(refusal)(scope, receive, send)
                    return
            if len(body := message.get("body", b"")) <= PART_BYTES:
                await send(message)
                return
            for start in range(0, len(body), PART_BYTES):
                part, is_last = body[start : start + PART_BYTES], start + PART_BYTES >= len(body)
                has_more = message.get("more_body", False) or not is_last
                await send({"type": message["type"], "body": part, "more_body": has_more})

        try:
            await self.app(scope, receive_limited, send_in_parts)
        finally:
            self.held.release(client, num_held)

    def _too_large(self, size: str) -> HTTPException:
        return HTTPException(
            413,
            f"the body is limited to {self.max_bytes} bytes, this one has {size}; split the "
            f"request into smaller ones",
        )


def _announced(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """The Content-Length; 0 without one."""
    header = dict(headers).get(b"content-length", b"")
    return int(header) if header.isdigit() and len(header) < 20 else 0
