"""Many requests, one forward: the queue between the event loop and the thread that runs models.

Requests for the same model on meshes of the same shape are stacked and solved together. A forward
begins with the oldest request and takes along all that fit it; it waits a few milliseconds only if
other requests are just being read, so that a lone client never waits. While it runs, requests
gather for the next one.

Models run in one thread of this process: PyTorch itself uses the cores. Work that would keep it
busy for long, such as a solver, belongs into a process of its own (`cato.subprocesses`).
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

import numpy as np

from cato.errors import InputError
from cato.serve.models import ServedModel
from cato.serve.settings import ServeSettings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Question:
    """Checked arrays for one model.

    Attributes:
        model: Whom to ask.
        inputs: (S, *mesh, C_in).
        coords: (S, *mesh, D), or None for the training mesh.
    """

    model: ServedModel
    inputs: np.ndarray
    coords: np.ndarray | None

    @property
    def num_samples(self) -> int:
        """How many samples it asks for."""
        return len(self.inputs)

    def fits(self, other: "Question") -> bool:
        """Whether both can be answered by one forward."""
        return (
            self.model is other.model
            and self.inputs.shape[1:] == other.inputs.shape[1:]
            and (self.coords is None) == (other.coords is None)
        )


@dataclass(frozen=True)
class Answer:
    """The solution of one question.

    Attributes:
        outputs: (S, *mesh, C_out), or (S, T, *mesh, C_out) for problems in time.
        seconds: How long the model ran, for this question and those solved together with it.
        batch: How many samples were solved together.
    """

    outputs: np.ndarray
    seconds: float
    batch: int


class Job:
    """A question in the queue, and the answer to come."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.answer: Future[Answer] = Future()
        self.is_abandoned = False
        """Whether nobody waits for the answer any more."""


class Batcher:
    """The queue and its thread.

    Args:
        settings: Size and patience of a batch.
        observe_batch: Told the number of samples of every forward.
    """

    def __init__(
        self, settings: ServeSettings, observe_batch: Callable[[int], None] = lambda size: None
    ) -> None:
        self._settings = settings
        self._observe_batch = observe_batch
        self._changed = threading.Condition()
        self._queue: deque[Job] = deque()
        self._num_arriving = 0
        self._is_closing = False
        self._thread = threading.Thread(target=self._work, name="models", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether questions are being answered."""
        return self._thread.is_alive() and not self._is_closing

    @property
    def num_waiting(self) -> int:
        """Length of the queue."""
        return len(self._queue)

    @contextmanager
    def arriving(self) -> Iterator[None]:
        """While the block runs, a forward about to begin waits a little for its question."""
        with self._changed:
            self._num_arriving += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_arriving -= 1
                self._changed.notify()

    def submit(self, question: Question) -> Job:
        """Put a question into the queue."""
        job = Job(question)
        with self._changed:
            self._queue.append(job)
            self._changed.notify()
        return job

    def abandon(self, job: Job) -> None:
        """Drop a job that nobody waits for: at once from the queue, soon if it is running."""
        job.is_abandoned = True
        with self._changed:
            if job in self._queue:
                self._queue.remove(job)

    def close(self) -> None:
        """Answer what is in the queue, then end the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next_batch():
            self._answer(batch)
            del batch  # frees the arrays before the thread sleeps

    def _next_batch(self) -> list[Job]:
        """Wait for the jobs of the next forward; empty when the batcher is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._is_closing)
            until = time.monotonic() + self._settings.batch_seconds
            while (
                self._queue
                and self._num_arriving
                and not self._is_full(self._fitting())
                and (left := until - time.monotonic()) > 0
            ):
                self._changed.wait(left)
            batch = self._fitting()
            for job in batch:
                self._queue.remove(job)
                job.answer.set_running_or_notify_cancel()
        # Empty if all were abandoned in the meantime: wait for others.
        return batch if batch or self._is_closing else self._next_batch()

    def _fitting(self) -> list[Job]:
        """The oldest job and all that fit it, as many as one forward takes."""
        batch: list[Job] = []
        for job in self._queue:
            if not batch or job.question.fits(batch[0].question):
                size = sum(other.question.num_samples for other in [*batch, job])
                if batch and size > self._capacity(job.question):
                    break
                batch.append(job)
        return batch

    def _is_full(self, batch: list[Job]) -> bool:
        size = sum(job.question.num_samples for job in batch)
        return size >= self._capacity(batch[0].question)

    def _capacity(self, question: Question) -> int:
        """Samples per forward, which has no more nodes than the largest sample allowed."""
        by_nodes = self._settings.max_nodes // prod(question.inputs.shape[1:-1])
        return max(1, min(self._settings.max_batch, by_nodes))

    def _answer(self, jobs: list[Job]) -> None:
        """Solve together; if that fails, each alone, so that none suffers for another."""
        try:
            answers = self._solve(jobs)
        except _Abandoned:
            return
        except Exception as error:
            if len(jobs) > 1:
                for job in jobs:
                    self._answer([job])
            else:
                jobs[0].answer.set_exception(_explained(error, jobs[0].question))
            return
        for job, answer in zip(jobs, answers, strict=True):
            if np.isfinite(answer.outputs).all():
                job.answer.set_result(answer)
            else:
                job.answer.set_exception(_not_finite(job.question))

    def _solve(self, jobs: list[Job]) -> list[Answer]:
        questions = [job.question for job in jobs]
        inputs = np.concatenate([question.inputs for question in questions])
        given = [question.coords for question in questions if question.coords is not None]
        coords = np.concatenate(given) if given else None
        began = time.perf_counter()
        predict, size = questions[0].model.surrogate.predict, self._capacity(questions[0])
        parts = []
        for first in range(0, len(inputs), size):  # one job may be more than a forward takes
            if all(job.is_abandoned for job in jobs):
                raise _Abandoned
            part = slice(first, first + size)
            parts.append(predict(inputs[part], None if coords is None else coords[part], size))
            self._observe_batch(len(parts[-1]))
        seconds = time.perf_counter() - began
        outputs = np.split(
            np.concatenate(parts), np.cumsum([question.num_samples for question in questions])[:-1]
        )
        return [Answer(own, seconds, len(inputs)) for own in outputs]


class _Abandoned(Exception):
    """Nobody waits for any answer of this batch."""


def _not_finite(question: Question) -> InputError:
    return InputError(
        f"the outputs of {question.model.name} for these inputs are not finite; the values are "
        f"probably far from those it was trained on"
    )


def _explained(error: Exception, question: Question) -> Exception:
    """An error of the model as the client's, where the client chose a mesh it cannot take."""
    shape, problem = question.inputs.shape[1:-1], question.model.problem
    if isinstance(error, InputError) or shape == problem.shape:
        return error
    logger.warning("%s failed on mesh %s", question.model.name, shape, exc_info=error)
    reason = " ".join(str(error).split())[:200]
    return InputError(
        f"{question.model.name} cannot be applied to a mesh of {shape} nodes, having been trained "
        f"on {problem.shape} ({reason}); send that many"
    )
