"""The FastAPI application: routers, middleware and error handlers.

Two routers share them: `routes` (the documented API) and `explorer` (the page). Both raise
`InputError` for mistakes of the client (422) and `HTTPException` for other errors. Long work runs
in another process or thread, never in the event loop.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse
from starlette.middleware import Middleware

from cato import __version__
from cato.errors import InputError
from cato.serve import explorer, routes
from cato.serve.middleware import (
    CheckHost,
    CountRequests,
    LimitBodies,
    RequireToken,
    SecureResponses,
)
from cato.serve.models import ServedModel
from cato.serve.service import Service
from cato.serve.settings import ServeSettings

STATIC = Path(__file__).parent / "static"
DOCS = {"/docs": "api.html", "/docs/api.css": "api.css", "/docs/api.js": "api.js"}
PUBLIC = {"/", "/health", "/openapi.json", "/explorer", "/explorer/", *DOCS} | {
    f"/explorer/{path.name}" for path in explorer.PAGE.iterdir()
}
"""Paths that need no token: pages, which ask for it, and what says nothing about the models."""


def create_app(
    models: Mapping[str, ServedModel], settings: ServeSettings | None = None, token: str = ""
) -> FastAPI:
    """Build the application that serves these models, with a token only to those who know it.

    Without a lifespan (some test clients), call `app.state.service.close()` at the end, and
    `app.state.exploration.jobs.close()` if a solver was used.
    """
    settings = settings or ServeSettings()
    service, exploration = Service(models, settings), explorer.Exploration(models, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.to_thread(exploration.jobs.close)  # ends requests that wait for jobs
            service.close()

    middleware = [  # from the outside inwards
        Middleware(CountRequests, metrics=service.metrics),
        Middleware(SecureResponses),
        Middleware(CheckHost, names=settings.host_names),
        *([Middleware(RequireToken, token=token, public=PUBLIC)] if token else []),
        Middleware(LimitBodies, max_bytes=settings.max_body_bytes, held=service.held_bytes),
    ]
    app = FastAPI(
        title="cato",
        summary="Neural surrogates for PDE solvers",
        version=__version__,
        lifespan=lifespan,
        middleware=middleware,
        docs_url=None,  # FastAPI's pages load scripts from the network
        redoc_url=None,
    )
    app.state.service, app.state.exploration = service, exploration
    app.add_exception_handler(InputError, _on_input_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_parameter)
    app.include_router(routes.router)
    app.include_router(explorer.router)
    for path in DOCS:
        app.get(path, include_in_schema=False)(_docs)
    app.get("/", include_in_schema=False)(_home)
    return app


async def _docs(request: Request) -> FileResponse:
    return FileResponse(STATIC / DOCS[request.url.path], headers={"Cache-Control": "no-cache"})


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
