"""Solver jobs of the explorer: a queue, and worker processes that run the solvers.

A solver needs a whole core for seconds, so it never runs in the process that serves requests. A
worker process imports no torch and keeps imported and compiled code for the next job. A job that is
cancelled or too slow is ended by killing its process; the next job starts another.
"""

import functools
import logging
import secrets
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np

from cato.benchmarks.contract import Rejected
from cato.benchmarks.editor import Editor
from cato.errors import InputError
from cato.kernels.jit import when_compiling
from cato.processes import Worker, WorkerDied

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

    def __init__(self, editor: Editor, task: Task, values: np.ndarray) -> None:
        self.id = secrets.token_hex(8)  # for URLs; cannot be guessed
        self.state: State = "waiting"
        self.message = ""  # why there is no result
        self.result: Future[Solution] = Future()  # fails with `InputError`
        self.result.set_running_or_notify_cancel()  # ended by this class only
        self._task = (editor, task, values)
        self._lock = threading.Lock()
        self._worker: Worker | None = None
        self._started = 0.0

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

    def cancel(self, message: str = "cancelled") -> None:
        """End the job and its process; waits until the process is gone."""
        self._end("cancelled", message)
        while self._worker is not None:  # again if the process was just being started
            with self._lock:
                if self._worker is not None:
                    self._worker.kill()
            time.sleep(0.01)

    def _end(self, state: State, message: str, solution: Solution | None = None) -> None:
        with self._lock:
            if self.is_over:  # the first outcome counts
                return
            self.state, self.message = state, message
        if solution is None:
            self.result.set_exception(InputError(message))
        else:
            self.result.set_result(solution)


class SolverJobs:
    """The queue and its worker processes, which are started when they are needed.

    `submit`, `SolverJob.cancel` and `close` may kill processes, which takes a moment: do not call
    them in an event loop.

    Args:
        num_processes: Maximum number of jobs that run at a time.
        max_jobs: Maximum number of jobs, including finished ones; a new job replaces the oldest.
        time_limit: Time limit per job in seconds.
    """

    def __init__(
        self, num_processes: int = 2, max_jobs: int = 8, time_limit: float = 300.0
    ) -> None:
        self._max_jobs, self._time_limit = max_jobs, time_limit
        self._jobs: OrderedDict[str, SolverJob] = OrderedDict()
        self._lock = threading.Lock()
        self._workers: list[Worker] = []
        self._of_thread = threading.local()
        self._threads = ThreadPoolExecutor(num_processes, "solvers", self._add_worker)

    def submit(self, editor: Editor, task: Task, values: np.ndarray) -> SolverJob:
        """Add a job to the queue; if there are too many, the oldest is dropped."""
        job, dropped = SolverJob(editor, task, values), None
        with self._lock:
            if len(self._jobs) >= self._max_jobs:
                over = (old for old in self._jobs.values() if old.is_over)
                dropped = next(over, None) or next(iter(self._jobs.values()))
                del self._jobs[dropped.id]
            self._jobs[job.id] = job
        if dropped is not None:
            dropped.cancel("dropped because of too many newer jobs; try again")
        self._threads.submit(self._run, job)
        return job

    def find(self, job_id: str) -> SolverJob | None:
        """The job with this id, unless it was dropped."""
        return self._jobs.get(job_id)

    def close(self) -> None:
        for job in list(self._jobs.values()):
            job.cancel("the service is shutting down")
        self._threads.shutdown()
        for worker in self._workers:
            worker.kill()

    def _add_worker(self) -> None:
        self._of_thread.worker = Worker()
        self._workers.append(self._of_thread.worker)

    def _run(self, job: SolverJob) -> None:
        job.run(self._of_thread.worker, self._time_limit)


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
