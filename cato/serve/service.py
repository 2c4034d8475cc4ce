"""State and helpers that the routes share: models, limits, queue, metrics."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

from fastapi import Depends, HTTPException, Request
from starlette.requests import ClientDisconnect

from cato.serve.batching import Batcher, PredictRequest, PredictResult
from cato.serve.clients import Quota, client_of_scope
from cato.serve.metrics import Metrics
from cato.serve.models import ServedModel
from cato.serve.settings import ServeSettings

T = TypeVar("T")

CLIENT_GONE = 499  # Status for the metrics only: no client is left to read it.


class Service:
    """State of the application, `app.state.service`; routes take it as a `Serving` parameter."""

    def __init__(self, models: Mapping[str, ServedModel], settings: ServeSettings) -> None:
        self.models, self.settings, self.metrics = models, settings, Metrics()
        self.batcher = Batcher(settings, self.metrics)
        # A single thread: a large body delays other bodies but never the event loop, and the many
        # objects of a parsed JSON body exist for one request at a time.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="bodies")
        self.slots = Quota(settings.max_requests, settings.client_requests, "predictions")
        self.held_bytes = Quota(
            settings.max_held_bytes, settings.client_held_bytes, "bytes in memory"
        )
        self.metrics.requests_under_way.set_function(lambda: self.slots.held)
        self.metrics.held_bytes.set_function(lambda: self.held_bytes.held)
        self.metrics.models.set(len(models))

    def model(self, name: str) -> ServedModel:
        if name not in self.models:
            known = ", ".join(self.models)
            raise HTTPException(404, f"no model {name[:80]!r} is served here; known are {known}")
        return self.models[name]

    async def read_body(self, request: Request) -> bytes:
        """The whole body of a request, limited in time (408)."""
        limit = self.settings.body_seconds
        try:
            async with asyncio.timeout(limit):
                return await request.body()
        except ClientDisconnect:
            raise _gone() from None
        except TimeoutError:
            reason = f"the body did not arrive within {limit:g} s"
            raise HTTPException(408, reason, {"Connection": "close"}) from None

    @asynccontextmanager
    async def admit(self, request: Request) -> AsyncIterator[None]:
        """Admit a request to the work of the block if there is room; limited in time (504).

        Read the body before: a client that sends slowly must not take the place of another.
        """
        limit = self.settings.time_limit
        with self.slots.holding(client_of_scope(request.scope)):
            try:
                async with asyncio.timeout(limit):
                    yield
            except ClientDisconnect:
                raise _gone() from None
            except TimeoutError:
                reason = f"not solved within {limit:g} s; send less, or try again later"
                raise HTTPException(504, reason) from None

    async def run_in_executor(self, work: Callable[..., T], *args: Any) -> T:
        """Run a function, such as a codec, without blocking the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *args)

    async def predict(self, arrays: PredictRequest, request: Request) -> PredictResult:
        """Run a model; dropped on cancellation or if the client disconnects."""
        job = self.batcher.submit(arrays, client_of_scope(request.scope))
        try:
            return await unless_gone(request, job.result)
        finally:
            self.batcher.cancel(job)

    def close(self) -> None:
        """Finish the requests in progress, then stop."""
        self.batcher.close()
        self._executor.shutdown()


async def unless_gone(request: Request, future: "Future[T]") -> T:
    """The result of a future; raises `ClientDisconnect` if the client disconnects before."""
    result = asyncio.wrap_future(future)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        either: set[asyncio.Future[Any]] = {result, gone}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            raise ClientDisconnect
        return result.result()
    finally:
        gone.cancel()
        result.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _gone() -> HTTPException:
    return HTTPException(CLIENT_GONE, "the client has disconnected")


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Serving = Annotated[Service, Depends(_service)]
