"""Solver jobs of the explorer: a queue, and worker processes that run the solvers.

A solver needs a whole core for seconds, so it never runs in the process that serves requests. A
worker process imports no torch and keeps imported and compiled code for the next job. A job that is
cancelled or too slow is ended by killing its process; the next job starts another.

A job belongs to the client that started it: nobody else can see or end it, and no number of other
jobs drops it. A client may have a few jobs at a time, and the clients take turns.
"""

import functools
import logging
import secrets
import threading
import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
from fastapi import HTTPException

from cato.benchmarks.contract import Rejected
from cato.benchmarks.editor import Editor
from cato.errors import InputError
from cato.kernels.jit import when_compiling
from cato.processes import Worker, WorkerDied
from cato.serve.settings import ServeSettings

logger = logging.getLogger(__name__)

State = Literal["waiting", "running", "done", "failed", "cancelled"]
Task = Literal["inputs", "solve"]


@dataclass(frozen=True)
class Solution:
    """Result of a job."""

    arrays: dict[str, np.ndarray]  # `inputs` and `coords`, or `targets`
    seconds: float  # run time of the solver, for the job that a model does
    is_compiled: bool  # whether code had to be compiled first


class SolverJob:
    """A task for a solver process."""

    def __init__(self, editor: Editor, task: Task, values: np.ndarray, client: str) -> None:
        self.id = secrets.token_hex(16)  # for URLs; cannot be guessed
        self.client = client
        self.state: State = "waiting"
        self.message = ""  # why there is no result
        self.result: Future[Solution] = Future()  # fails with `InputError`
        self.result.set_running_or_notify_cancel()  # ended by this class only
        self._task = (editor, task, values)
        self._lock = threading.Lock()
        self._worker: Worker | None = None
        self._started = self._ended = 0.0
        self.is_taken = False  # whether a thread runs it, or is about to
        self.is_known = False  # whether its client has got the result, or the reason for none

    @property
    def seconds(self) -> float:
        """Time since the start of the job; 0 unless it is running."""
        return time.monotonic() - self._started if self.state == "running" else 0.0

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "failed", "cancelled")

    def run(self, worker: Worker, time_limit: float) -> None:
        """Run the task in a worker process, unless the job was cancelled before."""
        with self._lock:
            if self.is_over:
                return
            self._started, self._worker, self.state = time.monotonic(), worker, "running"
        message, solution = "", None
        try:
            solution = worker.run(run_task, *self._task, timeout=time_limit)
        except TimeoutError:
            message = f"not solved within {time_limit:g} s"
        except InputError as error:
            message = str(error)
        except WorkerDied:
            message = "the solver process died; see the server log"
        except Exception as error:
            logger.error("%s", error)
            message = "the solver failed; see the server log"
        with self._lock:
            self._worker = None
        self._end("failed" if solution is None else "done", message, solution)

    def is_kept(self, seconds: float) -> bool:
        """Whether the job still matters: it goes on, or its result waits, but not for too long."""
        waits = not self.is_known and time.monotonic() - self._ended < seconds
        return not self.is_over or waits

    def cancel(self, message: str = "cancelled") -> None:
        """End the job and its process; the call that ends it waits until the process is gone."""
        if not self._end("cancelled", message):
            return
        while self._worker is not None:  # again if the process was just being started
            with self._lock:
                if self._worker is not None:
                    self._worker.kill()
            time.sleep(0.01)

    def _end(self, state: State, message: str, solution: Solution | None = None) -> bool:
        with self._lock:
            if self.is_over:  # the first outcome counts
                return False
            self._ended = time.monotonic()
            self.state, self.message = state, message
        if solution is None:
            self.result.set_exception(InputError(message))
        else:
            self.result.set_result(solution)
        return True


class SolverJobs:
    """The queue and its worker processes, which are started when they are needed.

    `SolverJob.cancel` and `close` may kill processes, which takes a moment: do not call them in an
    event loop.
    """

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._jobs: dict[str, SolverJob] = {}  # in order of age
        self._changed = threading.Condition()
        self._is_closing = False
        self._threads: list[threading.Thread] = []

    def submit(self, client: str, editor: Editor, task: Task, values: np.ndarray) -> SolverJob:
        """Add a job of a client to the queue; raises `HTTPException` if there are too many.

        It may replace the oldest result that the same client has not fetched.
        """
        job, settings = SolverJob(editor, task, values, client), self._settings
        with self._changed:
            kept = [old for old in self._jobs.values() if old.is_kept(settings.result_seconds)]
            own = [old for old in kept if old.client == client]
            if len(own) >= settings.client_jobs:
                replaced = next((old for old in own if old.is_over), None)
                if replaced is None:
                    raise _too_many(429, f"{settings.client_jobs} per client")
                kept.remove(replaced)
            if len(kept) >= settings.max_jobs:
                raise _too_many(503, f"{settings.max_jobs} in total")
            self._jobs = {old.id: old for old in [*kept, job]}
            if len(self._threads) < settings.solver_processes:
                self._threads.append(threading.Thread(target=self._work, daemon=True))
                self._threads[-1].start()
            self._changed.notify()
        return job

    def find(self, job_id: str, client: str) -> SolverJob | None:
        """The client's job with this id, unless it was dropped."""
        job = self._jobs.get(job_id)
        return job if job is not None and job.client == client else None

    def close(self) -> None:
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        for job in list(self._jobs.values()):
            job.cancel("the service is shutting down")
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        with Worker() as worker:
            while (job := self._next()) is not None:
                job.run(worker, self._settings.job_seconds)

    def _next(self) -> SolverJob | None:
        """Wait for a job: the oldest of a client with the fewest running ones; None at the end."""

        def choose() -> SolverJob | None:
            jobs = self._jobs.values()
            running = Counter(job.client for job in jobs if job.is_taken and not job.is_over)
            waiting = [job for job in jobs if not job.is_taken and not job.is_over]
            return min(waiting, key=lambda job: running[job.client], default=None)

        with self._changed:
            self._changed.wait_for(lambda: self._is_closing or choose() is not None)
            job = None if self._is_closing else choose()
            if job is not None:
                job.is_taken = True
        return job


def _too_many(status: int, limit: str) -> HTTPException:
    reason = f"solver jobs are limited to {limit} at a time; try again later"
    return HTTPException(status, reason, {"Retry-After": "5"})


def run_task(editor: Editor, task: Task, values: np.ndarray) -> Solution:
    """Compute the inputs of a model or the reference solution; runs in the worker process."""
    compilations = _watch_compilations()
    compilations.clear()
    folder = type(editor.benchmark).__module__.rpartition(".")[0]
    if folder and find_spec(f"{folder}.solver"):
        import_module(f"{folder}.solver")  # not part of the run time
    started = time.perf_counter()
    try:
        if task == "inputs":
            arrays: dict[str, Any] = editor.model_inputs(values)._asdict()
            seconds = time.perf_counter() - started
        else:
            sample, seconds = editor.solve(values)
            arrays = {"targets": sample.targets}
    except Rejected as rejected:
        raise InputError(f"the solver has no solution for this input: {rejected}") from None
    return Solution(arrays, seconds, bool(compilations))


@functools.cache
def _watch_compilations() -> list[bool]:
    """A list that gets an entry for every function that Numba compiles in this process."""
    compilations: list[bool] = []
    when_compiling(lambda: compilations.append(True))
    return compilations
