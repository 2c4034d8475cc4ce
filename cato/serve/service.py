"""State and helpers that the routes share: models, limits, queue, metrics."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

from fastapi import Depends, HTTPException, Request
from starlette.requests import ClientDisconnect

from cato.serve.batching import Batcher, PredictRequest, PredictResult
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
        self._num_under_way = 0
        self.metrics.requests_under_way.set_function(lambda: self._num_under_way)
        self.metrics.models.set(len(models))

    def model(self, name: str) -> ServedModel:
        if name not in self.models:
            known = ", ".join(self.models)
            raise HTTPException(404, f"no model {name[:80]!r} is served here; known are {known}")
        return self.models[name]

    @asynccontextmanager
    async def admit(self, request: Request) -> AsyncIterator[Callable[[], Awaitable[bytes]]]:
        """Admit a prediction if there is room; yields the function that reads its body.

        The block is limited in time: status 408 while the body is being read, 504 after that.
        """
        limit = self.settings.time_limit
        if self._num_under_way >= self.settings.max_requests:
            raise HTTPException(
                503,
                f"{self._num_under_way} predictions are in progress, which is the limit; try again",
                {"Retry-After": "1"},
            )
        is_read = False

        async def read_body() -> bytes:
            nonlocal is_read
            body = await request.body()
            is_read = True
            return body

        self._num_under_way += 1
        try:
            async with asyncio.timeout(limit):
                yield read_body
        except ClientDisconnect:
            raise HTTPException(CLIENT_GONE, "the client has disconnected") from None
        except TimeoutError:
            raise (
                HTTPException(504, f"not solved within {limit:g} s; send less, or try again later")
                if is_read
                else HTTPException(408, f"the body did not arrive within {limit:g} s")
            ) from None
        finally:
            self._num_under_way -= 1

    async def run_in_executor(self, work: Callable[..., T], *args: Any) -> T:
        """Run a function, such as a codec, without blocking the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *args)

    async def predict(self, arrays: PredictRequest, request: Request) -> PredictResult:
        """Run a model; dropped on cancellation or if the client disconnects."""
        job = self.batcher.submit(arrays)
        result = asyncio.wrap_future(job.result)
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
            self.batcher.cancel(job)

    def close(self) -> None:
        """Finish the requests in progress, then stop."""
        self.batcher.close()
        self._executor.shutdown()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Serving = Annotated[Service, Depends(_service)]
