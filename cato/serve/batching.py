"""Dynamic batching: the queue between the event loop and the thread that runs the models.

Requests for the same model on meshes of the same shape are stacked into one forward pass. A pass
starts with the oldest request in turn and takes along every request that fits. It waits a few
milliseconds only if other requests are being decoded, so a single client never waits. While a pass
runs, requests collect for the next one. Clients take turns: each has one request per turn, so a
client with many requests delays another by one of them.

The values of a result depend on the other samples of its pass in the last bits. In deterministic
mode a pass has one request only, and PyTorch one thread.

Models run in one thread of this process: PyTorch itself uses the cores. Longer work, such as a
solver, belongs in its own process.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from operator import attrgetter

import numpy as np
import torch

from cato.errors import InputError
from cato.serve.metrics import Metrics
from cato.serve.models import ServedModel
from cato.serve.settings import ServeSettings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PredictRequest:
    """Validated arrays for one model."""

    model: ServedModel
    inputs: np.ndarray  # (S, *mesh, C_in)
    coords: np.ndarray | None  # (S, *mesh, D), or None for the training mesh

    def fits(self, other: "PredictRequest") -> bool:
        """Whether both requests can share a forward pass."""
        return (
            self.model is other.model
            and self.inputs.shape[1:] == other.inputs.shape[1:]
            and (self.coords is None) == (other.coords is None)
        )


@dataclass(frozen=True)
class PredictResult:
    """Outputs for one request."""

    outputs: np.ndarray  # (S, *mesh, C_out), or (S, T, *mesh, C_out) for time-dependent problems
    seconds: float  # run time of the model for the whole batch
    batch: int  # number of samples in the batch


@dataclass(eq=False)
class Job:
    """A request in the queue, with the future of its result."""

    request: PredictRequest
    turn: int = 0  # jobs run in this order, then by age
    result: "Future[PredictResult]" = field(default_factory=Future)
    is_cancelled: bool = False  # nothing waits for the result any more


class Batcher:
    """The queue and its thread; `metrics` receives the queue length and the batch sizes."""

    def __init__(self, settings: ServeSettings, metrics: Metrics | None = None) -> None:
        self._settings = settings
        self._metrics = metrics or Metrics()
        self._metrics.queue_length.set_function(lambda: self.num_waiting)
        self._changed = threading.Condition()
        self._queue: deque[Job] = deque()
        self._num_arriving = 0
        self._turn = 0  # of the last pass
        self._next_turn: dict[str, int] = {}  # by client, if it is not the current turn
        self._is_closing = False
        self._thread = threading.Thread(target=self._work, name="models", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive() and not self._is_closing

    @property
    def num_waiting(self) -> int:
        return len(self._queue)

    @contextmanager
    def arriving(self) -> Iterator[None]:
        """Announce a request: until the block ends, the next pass waits a little for it."""
        with self._changed:
            self._num_arriving += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_arriving -= 1
                self._changed.notify()

    def submit(self, request: PredictRequest, client: str = "") -> Job:
        with self._changed:
            job = Job(request, max(self._turn, self._next_turn.get(client, 0)))
            self._next_turn[client] = job.turn + 1
            self._queue.append(job)
            self._changed.notify()
        return job

    def cancel(self, job: Job) -> None:
        """Drop a job: at once while it is queued, after the current pass if it is running."""
        job.is_cancelled = True
        with self._changed:
            if job in self._queue:
                self._queue.remove(job)

    def close(self) -> None:
        """Process the queue, then stop the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        if self._settings.deterministic:
            torch.set_num_threads(1)
        while batch := self._next_batch():
            self._process(batch)
            del batch  # frees the arrays before the thread sleeps

    def _next_batch(self) -> list[Job]:
        """Wait for the jobs of the next forward pass; empty once the batcher is closed."""
        batch: list[Job] = []
        with self._changed:
            while not batch:  # all jobs may be cancelled during the wait
                self._changed.wait_for(lambda: self._queue or self._is_closing)
                if not self._queue:
                    break
                self._changed.wait_for(
                    lambda: not self._num_arriving or self._is_full(self._fitting()),
                    self._settings.batch_seconds,
                )
                batch = self._fitting()
            if batch:
                self._turn = max(self._turn, batch[0].turn)
                later = self._next_turn.items()
                self._next_turn = {client: turn for client, turn in later if turn > self._turn}
            for job in batch:
                self._queue.remove(job)
                job.result.set_running_or_notify_cancel()
        return batch

    def _fitting(self) -> list[Job]:
        """The first job in turn and those that fit it, up to the capacity of one pass."""
        batch: list[Job] = []
        for job in sorted(self._queue, key=attrgetter("turn")):
            if batch and self._settings.deterministic:
                break
            if not batch or job.request.fits(batch[0].request):
                if batch and _num_samples([*batch, job]) > self._capacity(job.request):
                    break
                batch.append(job)
        return batch

    def _is_full(self, batch: list[Job]) -> bool:
        is_alone = self._settings.deterministic
        return is_alone or not batch or _num_samples(batch) >= self._capacity(batch[0].request)

    def _capacity(self, request: PredictRequest) -> int:
        """Samples per pass; their nodes together are at most those of the largest sample."""
        by_nodes = self._settings.max_nodes // prod(request.inputs.shape[1:-1])
        return max(1, min(self._settings.max_batch, by_nodes))

    def _process(self, jobs: list[Job]) -> None:
        """Run jobs together; if that fails, one by one, so that only the failing one fails."""
        try:
            results = self._run(jobs)
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].result.set_exception(_explain(error, jobs[0].request))
            else:
                for job in jobs:
                    self._process([job])
            return
        for job, result in zip(jobs, results, strict=False):  # no results if all were cancelled
            if np.isfinite(result.outputs).all():
                job.result.set_result(result)
                continue
            reason = InputError(
                f"the outputs of {job.request.model.name} for these inputs are not finite; "
                f"the values are probably far from the training data"
            )
            job.result.set_exception(reason)

    def _run(self, jobs: list[Job]) -> list[PredictResult]:
        """Results of the jobs; empty if all of them were cancelled meanwhile."""
        requests = [job.request for job in jobs]
        inputs = np.concatenate([request.inputs for request in requests])
        given = [request.coords for request in requests if request.coords is not None]
        coords = np.concatenate(given) if given else None
        predict, size = requests[0].model.surrogate.predict, self._capacity(requests[0])
        started = time.perf_counter()
        parts = []
        for first in range(0, len(inputs), size):  # one request may exceed the capacity
            if all(job.is_cancelled for job in jobs):
                return []
            part = slice(first, first + size)
            parts.append(predict(inputs[part], None if coords is None else coords[part], size))
            self._metrics.batch_samples.observe(len(parts[-1]))
        seconds = time.perf_counter() - started
        ends = np.cumsum([len(request.inputs) for request in requests])[:-1]
        outputs = np.split(np.concatenate(parts), ends)
        return [PredictResult(part, seconds, len(inputs)) for part in outputs]


def _num_samples(jobs: list[Job]) -> int:
    return sum(len(job.request.inputs) for job in jobs)


def _explain(error: Exception, request: PredictRequest) -> Exception:
    """Blame the request for a model's error if it uses another mesh than the training data."""
    shape, problem = request.inputs.shape[1:-1], request.model.problem
    if isinstance(error, InputError) or shape == problem.shape:
        return error
    logger.warning("%s failed on mesh %s", request.model.name, shape, exc_info=error)
    reason = " ".join(str(error).split())[:200]
    return InputError(
        f"{request.model.name} cannot be applied to a mesh of {shape} nodes, it was trained on "
        f"{problem.shape} ({reason}); use the training mesh"
    )
