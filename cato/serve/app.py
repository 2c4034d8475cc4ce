"""The FastAPI application: routers, middleware and error handlers.

Two routers share them: `routes` (the documented API) and `explorer` (the page). Both raise
`InputError` for mistakes of the client (422) and `HTTPException` for other errors. Long work runs
in another process or thread, never in the event loop.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse

from cato import __version__
from cato.errors import InputError
from cato.serve import explorer, routes
from cato.serve.explorer import build_exploration
from cato.serve.middleware import CountRequests, LimitBody
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
    service, exploration = Service(models, settings), build_exploration(models)

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
    return RedirectResponse("/explorer/" if request.app.state.exploration.models else "/docs")


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
