"""The FastAPI application: routers, middleware and error handlers.

Two routers share them: `routes` (the documented API) and `explorer` (the page). Both raise
`InputError` for mistakes of the client (422) and `HTTPException` for other errors. Long work runs
in another process or thread, never in the event loop.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPMethod
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cato import __version__
from cato.errors import InputError
from cato.serve import explorer, routes
from cato.serve.metrics import Metrics
from cato.serve.models import ServedModel
from cato.serve.service import Service
from cato.serve.settings import ServeSettings

logger = logging.getLogger(__name__)
STATIC = Path(__file__).parent / "static"


def create_app(models: Mapping[str, ServedModel], settings: ServeSettings | None = None) -> FastAPI:
    """Build the application that serves these models.

    Without a lifespan (some test clients), call `app.state.service.close()` at the end, and
    `app.state.exploration.jobs.close()` if a solver was used.
    """
    settings = settings or ServeSettings()
    service, exploration = Service(models, settings), explorer.Exploration(models)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.to_thread(exploration.jobs.close)  # ends requests that wait for jobs
            service.close()

    app = FastAPI(
        title="cato",
        summary="Neural surrogates for PDE solvers",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's pages load scripts from the network
        redoc_url=None,
    )
    app.state.service, app.state.exploration = service, exploration
    app.add_middleware(LimitBody, max_bytes=settings.max_body_bytes)
    app.add_middleware(CountRequests, metrics=service.metrics)
    app.add_exception_handler(InputError, _on_input_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_parameter)
    app.add_exception_handler(Exception, _on_bug)
    app.include_router(routes.router)
    app.include_router(explorer.router)
    app.get("/docs", include_in_schema=False)(_docs)
    app.get("/", include_in_schema=False)(_home)
    return app


async def _docs() -> FileResponse:
    return FileResponse(STATIC / "api.html")


async def _home(request: Request) -> RedirectResponse:
    """Redirect to the explorer if it can show any of the models."""
    return RedirectResponse("/explorer/" if request.app.state.exploration.editors else "/docs")


async def _on_input_error(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 422)


async def _on_invalid_parameter(request: Request, error: Exception) -> JSONResponse:
    """The first of FastAPI's errors in one line, like all other errors."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    return JSONResponse({"detail": f"{field}: {first['msg']}"}, 422)


async def _on_bug(request: Request, error: Exception) -> JSONResponse:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return JSONResponse({"detail": "internal error; see the server log"}, 500)


# Middleware in plain ASGI, because Starlette's base class hides a client's disconnection.


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
