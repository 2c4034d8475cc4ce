"""What the routes share: models, limits, the queue, the counters."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from fastapi import HTTPException, Request

from cato.serve.batching import Answer, Batcher, Question
from cato.serve.metrics import Metrics
from cato.serve.models import ServedModel
from cato.serve.settings import ServeSettings

P = ParamSpec("P")
T = TypeVar("T")

CLIENT_GONE = 499
"""Status for the counters only: nobody is there to read it."""


class Service:
    """The state of the application, `app.state.service`; routes get it by `Depends(service_of)`."""

    def __init__(self, models: Mapping[str, ServedModel], settings: ServeSettings) -> None:
        self.models, self.settings, self.metrics = models, settings, Metrics()
        self.batcher = Batcher(settings, self.metrics.observe_batch)
        # One thread, so that a long body holds up other bodies but never the event loop, and the
        # many objects of a parsed JSON exist for one request at a time.
        self._coder = ThreadPoolExecutor(1, thread_name_prefix="bodies")
        self._num_under_way = 0
        gauge = self.metrics.gauge
        gauge("cato_queue_length", "Predictions in the queue.", lambda: self.batcher.num_waiting)
        gauge("cato_requests_under_way", "Predictions not answered.", lambda: self._num_under_way)
        gauge("cato_models", "Models served.", lambda: len(models))

    def model(self, name: str) -> ServedModel:
        """The model of that name."""
        if name not in self.models:
            known = ", ".join(self.models)
            raise HTTPException(404, f"no model {name[:80]!r} is served here; known are {known}")
        return self.models[name]

    @contextmanager
    def admission(self) -> Iterator[None]:
        """Let one more prediction in, if there is room, until the block ends."""
        if self._num_under_way >= self.settings.max_requests:
            raise HTTPException(
                503,
                f"{self._num_under_way} predictions are under way, which is the limit; try again",
                {"Retry-After": "1"},
            )
        self._num_under_way += 1
        try:
            yield
        finally:
            self._num_under_way -= 1

    async def beside(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Read or write a body without stopping the event loop."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._coder, lambda: work(*args, **kwargs))

    async def ask(self, question: Question, request: Request) -> Answer:
        """The answer to a question; dropped if the time is over or the client has gone."""
        job = self.batcher.submit(question)
        answer = asyncio.wrap_future(job.answer)
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            either: set[asyncio.Future[Any]] = {answer, gone}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise HTTPException(CLIENT_GONE, "the client has gone")
            return answer.result()
        finally:
            gone.cancel()
            answer.cancel()
            self.batcher.abandon(job)

    def close(self) -> None:
        """Answer what was asked, then stop."""
        self.batcher.close()
        self._coder.shutdown()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def service_of(request: Request) -> Service:
    """The service of the application that a request came to."""
    service: Service = request.app.state.service
    return service
