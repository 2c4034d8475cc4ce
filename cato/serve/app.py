"""The application: routes, what every request passes, and what becomes of errors.

The addresses are those of two routers, `routes` (the documented API) and `explorer` (the page).
Counting, the limit of bodies and one-line errors hold for both: they raise `InputError` for what
the client can mend (422), `HTTPException` for any other refusal. What takes long runs in another
process or thread, and never in the event loop.
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
from cato.serve.explorer import exploration_over
from cato.serve.middleware import CountRequests, LimitBody
from cato.serve.models import ServedModel
from cato.serve.service import Service
from cato.serve.settings import ServeSettings

logger = logging.getLogger(__name__)
STATIC = Path(__file__).parent / "static"


def create_app(models: Mapping[str, ServedModel], settings: ServeSettings | None = None) -> FastAPI:
    """The service over some models, by name.

    It answers from the moment it exists; whoever runs it without a lifespan (some test clients)
    ends its threads by `app.state.service.close()`, and by `app.state.exploration.jobs.close()` if
    a solver was asked.
    """
    settings = settings or ServeSettings()
    service, exploration = Service(models, settings), exploration_over(models)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.to_thread(exploration.jobs.close)  # requests that wait for jobs end too
            service.close()

    app = FastAPI(
        title="cato",
        summary="Neural networks that stand in for PDE solvers",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own pages load their scripts from the network
        redoc_url=None,
    )
    app.state.service, app.state.exploration = service, exploration
    app.add_middleware(LimitBody, max_bytes=settings.max_body_bytes)
    app.add_middleware(CountRequests, metrics=service.metrics)
    app.add_exception_handler(InputError, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_parameters)
    app.add_exception_handler(Exception, _apologise)
    app.include_router(routes.router)
    app.include_router(explorer.router)
    app.get("/docs", include_in_schema=False)(_docs)
    app.get("/", include_in_schema=False)(_home)
    return app


async def _docs() -> FileResponse:
    return FileResponse(STATIC / "api.html")


async def _home(request: Request) -> RedirectResponse:
    """The explorer, where one of the models can be explored."""
    return RedirectResponse("/explorer/" if request.app.state.exploration.models else "/docs")


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 422)


async def _refuse_parameters(request: Request, error: Exception) -> JSONResponse:
    """FastAPI's list of mistakes as one line, like all other refusals."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    return JSONResponse({"detail": f"{field}: {first['msg']}"}, 422)


async def _apologise(request: Request, error: Exception) -> JSONResponse:
    """A bug of ours: the client learns that it is one, the log the traceback."""
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return JSONResponse({"detail": "internal error; its traceback is in the server's log"}, 500)
