"""Worker processes, on loky: `map_unordered` for many small tasks, `Worker` for one job at a time.

    for task, result in LocalWorkers(4).map_unordered(function, tasks): ...
    with Worker() as worker:                                      a process kept between calls
        result = worker.run(function, *arguments, timeout=60)     worker.kill() cancels it

What holds for every worker:

- It imports the module of the function and nothing else: not the user's main script, and not torch
  unless that module does. The function must be importable; arguments and results are pickled.
- OpenMP, BLAS and Numba have one thread each. Standard output goes to standard error.
- Ctrl-C does not reach it: the parent decides. When the parent dies, even by SIGKILL, the worker
  gets SIGTERM: it ends at once, or after the call if the function handles that signal.
- An `InputError` of the function is raised in the parent as it is; any other exception becomes a
  `RuntimeError` with the worker's traceback; a worker that is killed or crashes is a `WorkerDied`.

Why loky, and what is ours: docs/decisions/0010-worker-processes.md.
"""

import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

from loky import cpu_count
from loky.process_executor import BrokenProcessPool, ProcessPoolExecutor, ShutdownExecutorError

from cato.errors import InputError

ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
"""Environment of a process whose libraries have one thread each."""
NO_LEAK_LIMIT = {"LOKY_MAX_MEMORY_LEAK_SIZE": "1e18"}
"""With psutil, loky ends workers that have grown by 300 MB, as importing PyTorch does."""

Task = TypeVar("Task", bound=tuple[Any, ...])
Result = TypeVar("Result")

# Where neither psutil nor pgrep is installed, loky cannot search a worker's children and says so at
# every kill. It still kills the worker, and children of ours end with it.
warnings.filterwarnings("ignore", "Failed to kill subprocesses on this platform")


class WorkerDied(RuntimeError):
    """A worker process was killed or crashed before its call had finished."""


@runtime_checkable
class Slot(Protocol):
    """Runs one call at a time in its own process; see `Worker`."""

    def run(self, function: Callable[..., Result], *arguments: Any) -> Result: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


@runtime_checkable
class Workers(Protocol):
    """Where calls run: on this machine (`LocalWorkers`) or a cluster (`cato.cluster.Cluster`)."""

    def map_unordered(
        self, function: Callable[..., Result], tasks: Iterable[Task]
    ) -> Generator[tuple[Task, Result], None, None]:
        """Call `function(*task)` for all tasks; yield (task, result) in order of completion.

        The first failure ends everything. Closing the generator kills the calls under way.
        """

    def slots(self, num_jobs: int) -> Sequence[Slot]:
        """For long jobs of which one may fail and others not; as many as can run at a time."""


def slowness() -> float:
    """How many times slower than on an idle machine a process is now, by the load; at least 1."""
    if not hasattr(os, "getloadavg"):  # Windows
        return 1.0
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@dataclass(frozen=True)
class LocalWorkers:
    """A number of processes of this machine."""

    count: int

    def map_unordered(
        self, function: Callable[..., Result], tasks: Iterable[Task]
    ) -> Generator[tuple[Task, Result], None, None]:
        """See `Workers`."""
        tasks = list(tasks)
        if not tasks:
            return
        executor = _executor(min(self.count, len(tasks)))
        try:
            with _sigint_blocked():
                futures = {executor.submit(_call, function, task): task for task in tasks}
            for future in as_completed(list(futures)):
                yield futures.pop(future), future.result()
        except BrokenProcessPool as error:
            raise WorkerDied(_died(function)) from error
        finally:
            executor.shutdown(kill_workers=True)

    def slots(self, num_jobs: int) -> "list[Worker]":
        """See `Workers`."""
        return [Worker() for _ in range(min(self.count, num_jobs))]


def workers_from(workers: int | Workers | None) -> Workers:
    """The workers, or that many processes of this machine; one per core by default."""
    if isinstance(workers, Workers):
        return workers
    return LocalWorkers(cpu_count() if workers is None else workers)


class Worker:
    """A process for one call at a time, started with the first call and kept for the next ones.

    `run` waits for the result; `kill` and `terminate` may be called from other threads meanwhile.
    After `idle_seconds` without a call the process ends; the next call starts another.
    """

    def __init__(self, idle_seconds: float | None = None) -> None:
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.kill()

    def run(
        self, function: Callable[..., Result], *arguments: Any, timeout: float | None = None
    ) -> Result:
        """Call the function in the process, which is started if there is none.

        Raises:
            InputError: As raised by the function.
            WorkerDied: The process was killed, by `kill` or from outside, or crashed.
            TimeoutError: No result after `timeout` seconds; the process is killed.
            RuntimeError: Any other exception of the function, with its traceback.
        """
        try:
            self.submit(os.getpid).result()  # before the timeout begins
            return self.submit(function, *arguments).result(timeout)
        except (BrokenProcessPool, ShutdownExecutorError) as error:
            self.kill()
            raise WorkerDied(_died(function)) from error
        except (TimeoutError, KeyboardInterrupt):
            self.kill()
            raise

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """Call the function in the process, which is started if there is none; do not wait."""
        with self._lock, _sigint_blocked():
            if self._executor is None:
                self._executor = _executor(1, self._idle_seconds)
            return self._executor.submit(_call, function, arguments)

    def kill(self) -> None:
        """End the process now; a call under way raises `WorkerDied`, the next starts another."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(kill_workers=True)

    def terminate(self) -> None:
        """Send SIGTERM: a function that handles it, such as a training, saves and returns."""
        with self._lock, suppress(ProcessLookupError):
            for pid in self._executor._processes if self._executor else ():
                os.kill(pid, signal.SIGTERM)


def _executor(num_workers: int, idle_seconds: float | None = None) -> ProcessPoolExecutor:
    # The worker imports the same modules as this process, whatever its working folder contains.
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return ProcessPoolExecutor(
        num_workers,
        timeout=idle_seconds,
        initializer=_initialise,
        initargs=(os.getpid(),),
        env=ONE_THREAD | NO_LEAK_LIMIT | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
    )


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Processes started in the block inherit the blocked signal, from their first moment."""
    resource_tracker.ensure_running()  # it unblocks the signal when it starts: start it before
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _died(function: Callable[..., Any]) -> str:
    return f"the worker process of {function.__name__} was killed or crashed"


# In the worker.

_is_busy = threading.Event()


def _initialise(parent: int) -> None:
    os.dup2(2, 1)  # standard output is for results of the parent
    threading.Thread(target=_end_with, args=[parent], daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGTERM)
    while _is_busy.is_set():  # the function handles the signal
        time.sleep(0.1)
    os._exit(1)


def _call(function: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
    _is_busy.set()
    try:
        return function(*arguments)
    except InputError:
        raise
    except (Exception, SystemExit):  # as text: not every exception can be pickled
        text = f"{function.__name__} failed in a worker process:\n{traceback.format_exc()}"
        raise RuntimeError(text) from None
    finally:
        _is_busy.clear()
