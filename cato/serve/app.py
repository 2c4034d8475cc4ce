"""The application: routes, what every request passes, and what becomes of errors.

More routers and static files are added to what `create_app` returns:

    app = create_app(models, settings)
    app.include_router(explorer.router)       # routes get the service by Depends(service_of)
    app.mount("/explorer", StaticFiles(...))

Counting, the limit of bodies and one-line errors then hold for them too: raise `InputError` for
what the client can mend (422), `HTTPException` for any other refusal. What takes long runs in
another process, and never in the event loop.
"""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse

from cato import __version__
from cato.errors import InputError
from cato.serve.explorer import add_explorer
from cato.serve.limits import CountRequests, LimitBody
from cato.serve.models import ServedModel
from cato.serve.routes import router
from cato.serve.service import Service
from cato.serve.settings import ServeSettings

logger = logging.getLogger(__name__)
STATIC = Path(__file__).parent / "static"


def create_app(models: Mapping[str, ServedModel], settings: ServeSettings | None = None) -> FastAPI:
    """The service over some models, by name.

    It answers from the moment it exists; whoever runs it without a lifespan (some test clients)
    ends its threads by `app.state.service.close()`.
    """
    settings = settings or ServeSettings()
    service = Service(models, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="cato",
        summary="Neural networks that stand in for PDE solvers",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own pages load their scripts from the network
        redoc_url=None,
    )
    app.state.service = service
    app.add_middleware(LimitBody, max_bytes=settings.max_body_bytes)
    app.add_middleware(CountRequests, metrics=service.metrics)
    app.add_exception_handler(InputError, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_parameters)
    app.add_exception_handler(Exception, _apologise)
    app.include_router(router)
    add_explorer(app, models)
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
