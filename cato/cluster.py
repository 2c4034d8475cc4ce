"""A Dask cluster as workers: many machines solve the samples or train the jobs.

    with open_cluster("tcp://10.0.0.5:8786") as cluster:       "local": a cluster on this machine
        generate_file(spec, root, cluster)

A task is text: the name of a function and JSON arguments; its result is bytes or JSON. Every thread
of a Dask worker has a process of its own (`cato.processes.Worker`) in which the function runs. So
it runs as it does on this machine, however the Dask workers were started, and can be ended.

If a Dask worker dies, the scheduler gives its tasks to others. If this process or the scheduler
dies, or Ctrl-C ends the work, the processes get SIGTERM: trainings save and end.

What Dask itself sends, and how to protect it: docs/decisions/0018-dask-clusters.md.
"""

import hashlib
import json
import logging
import multiprocessing
import os
import pkgutil
import platform
import socket
import threading
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from loky import cpu_count

from cato.errors import ClusterError, InputError
from cato.processes import Result, Task, Worker, WorkerDied, Workers
from cato.progress import note

LOCAL = "local"
CONNECT_SECONDS = 10
POLL_SECONDS = 0.5
IDLE_SECONDS = 60.0
DEATHS = 3
"""Workers that may die of one task until it is given up."""
LIBRARIES = ("numpy", "scipy", "numba", "pyamg", "scikit-fem", "torch")
"""Besides cato they decide on the bits of a result."""


@contextmanager
def open_cluster(address: str, num_workers: int | None = None) -> Iterator["Cluster"]:
    """Connect to a scheduler; `local` starts a cluster of `workers` on this machine."""
    if address != LOCAL and num_workers is not None:
        raise InputError("--workers is for this machine or --cluster local; leave it out")
    distributed = _distributed()
    with _client(distributed, address, num_workers) as client:
        cluster = Cluster(client)
        workers = client.scheduler_info(n_workers=0)["n_workers"]
        note(
            f"cluster {cluster.address}: {workers} workers{'' if workers else ', waiting for them'}"
            f"; dashboard {client.dashboard_link}"
        )
        _require_cato(client)
        try:
            yield cluster
        finally:
            for token in cluster.tokens:
                token.unlink(missing_ok=True)


def _require_cato(client: Any) -> None:
    """Raise if a worker cannot import cato: it would die of its first task."""
    workers = client.run(pkgutil.resolve_name, "cato:__version__", on_error="return")
    for address, found in workers.items():
        if isinstance(found, Exception):
            reason = str(found) or type(found).__name__
            raise ClusterError(
                f"the worker {address} cannot import cato ({reason}); install it there"
            )


@contextmanager
def workers_of(num_workers: int | None, address: str | None) -> Iterator[int | Workers | None]:
    """The workers of a cluster if there is an address, else of this machine."""
    if address is None:
        yield num_workers
    else:
        with open_cluster(address, num_workers) as cluster:
            yield cluster


class Cluster:
    """The workers of a Dask cluster; `Workers` of `cato.processes`."""

    def __init__(self, client: Any) -> None:
        self.address: str = client.scheduler.address
        self.tokens: set[Path] = set()
        self._client = client

    def map_unordered(
        self, function: Callable[..., Result], tasks: Iterable[Task]
    ) -> Generator[tuple[Task, Result], None, None]:
        """See `Workers`; arguments are JSON-ready."""
        from distributed import as_completed

        tasks = list(tasks)
        futures = self.submit(function, tasks)
        task_of = {future.key: task for future, task in zip(futures, tasks, strict=True)}
        completed = as_completed(futures, loop=self._client.loop)
        try:
            del futures  # a result is freed on the cluster when its future is
            for future in completed:
                yield task_of.pop(future.key), self.result(future)
        finally:
            if task_of:
                self.cancel(list(completed.futures))

    def slots(self, num_jobs: int) -> "list[ClusterSlot]":
        """See `Workers`: all jobs wait on the scheduler."""
        return [ClusterSlot(self) for _ in range(num_jobs)]

    def submit(
        self, function: Callable[..., Any], tasks: Sequence[Task], shared: Path | None = None
    ) -> list[Any]:
        """Futures of `function(*task)`; workers must see the folder `shared`."""
        about = {
            "function": f"{function.__module__}:{function.__qualname__}",
            "environment": environment(function.__module__.partition(".")[0]),
            "shared": None if shared is None else [str(self._token_in(shared)), os.getcwd()],
        }
        texts = [json.dumps(about | {"arguments": task}) for task in tasks]
        number = uuid.uuid4().hex
        keys = [f"{function.__name__}-{number}-{k}" for k in range(len(tasks))]
        with self._lost_as_error():
            return self._client.map(call, texts, key=keys, retries=DEATHS - 1)

    def result(self, future: Any) -> Any:
        """The result of a future; errors are those of `Worker.run`."""
        from distributed import KilledWorker

        try:
            with self._lost_as_error():
                value = future.result()
        except KilledWorker:
            raise WorkerDied(f"several workers of {self.address} died of one task") from None
        except (InputError, WorkerDied):
            raise
        except Exception as error:  # of Dask, or of a worker that cannot import cato
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ClusterError(
                f"the cluster {self.address} cannot run cato: {reason}; scheduler and workers need "
                f"the environment of this machine"
            ) from error
        return _result_of(value)

    def cancel(self, futures: Sequence[Any]) -> None:
        """Give up tasks; processes that run them get SIGTERM."""
        with suppress(Exception):  # a scheduler that is gone has given them up
            self._client.cancel(futures, force=True)

    def _token_in(self, folder: Path) -> Path:
        """A file that the machines of a cluster see if the folder is theirs too."""
        folder.mkdir(parents=True, exist_ok=True)
        token = folder.absolute() / f".{socket.gethostname()}-{os.getpid()}.cluster"
        token.touch()
        self.tokens.add(token)
        return token

    @contextmanager
    def _lost_as_error(self) -> Iterator[None]:
        from distributed.client import CancelledError
        from distributed.comm import CommClosedError

        try:
            yield
        except (CancelledError, CommClosedError):
            raise ClusterError(
                f"the connection to the scheduler {self.address} was lost; what is finished is "
                f"kept, run the same command again when it is back"
            ) from None


class ClusterSlot:
    """One job at a time; `Slot` of `cato.processes`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._future: Any = None
        self._is_given_up = False

    def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function whose first argument is a folder that all machines share."""
        folder = Path(arguments[0])
        (self._future,) = self._cluster.submit(function, [arguments], folder.parent)
        if self._is_given_up:
            self.terminate()
        try:
            return self._cluster.result(self._future)
        finally:
            self._future = None

    def terminate(self) -> None:
        """Give up the job: it saves and ends."""
        self._is_given_up = True
        if self._future is not None:
            self._cluster.cancel([self._future])

    kill = terminate


@contextmanager
def _client(distributed: Any, address: str, num_workers: int | None) -> Iterator[Any]:
    """A client, and a cluster if it is to be started; both end with the block."""
    for name in ("distributed", "distributed.client", "distributed.nanny"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # our errors are one line
    started = None
    try:
        if address == LOCAL:
            started = distributed.LocalCluster(
                n_workers=num_workers or cpu_count(),
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
            )
        client = distributed.Client(
            started or address, timeout=CONNECT_SECONDS, set_as_default=False
        )
    except (OSError, ValueError, ImportError) as error:
        if started is not None:
            started.close()
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"no Dask scheduler answers at {address} ({reason}); start one with `dask scheduler`, "
            f"or use --cluster local"
        ) from None
    try:
        yield client
    finally:
        with suppress(Exception):
            client.close(timeout=CONNECT_SECONDS)
        if started is not None:
            started.close(timeout=CONNECT_SECONDS)


def _distributed() -> Any:
    try:
        return import_module("distributed")
    except ImportError:
        raise InputError("clusters need Dask: pip install 'cato-pde[cluster]'") from None


@cache
def environment(package: str = "cato") -> dict[str, str]:
    """What the machines of a cluster must have in common: versions, and the code of packages."""
    found = {"Python": platform.python_version()}
    for library in LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            found[library] = metadata.version(library)
    for name in sorted({"cato", package}):
        module = import_module(name)
        root = Path(str(module.__file__)).parent
        code = hashlib.sha256()
        for file in sorted(root.rglob("*.py")):
            code.update(f"{file.relative_to(root).as_posix()}\n".encode() + file.read_bytes())
        version = f"{getattr(module, '__version__', '')} ".lstrip()
        found[name] = f"{version}with code {code.hexdigest()[:8]}"
    return found


# In a Dask worker.

_of_thread = threading.local()


def call(text: str) -> bytes | str:
    """Run a task in the process of this thread; errors for the user come back as results."""
    about = json.loads(text)
    try:
        result = _run(about)
    except WorkerDied:
        raise  # Dask tries it again
    except (InputError, RuntimeError) as error:
        kinds = ("cluster", ClusterError), ("error", InputError), ("failure", RuntimeError)
        kind = next(name for name, of in kinds if isinstance(error, of))
        return json.dumps({kind: str(error)})
    return result if isinstance(result, bytes) else json.dumps({"result": result})


def _run(about: dict[str, Any]) -> Any:
    module, _, name = about["function"].partition(":")
    _require_same(about["environment"], module.partition(".")[0])
    token, folder = about["shared"] or (None, None)
    for path in filter(None, (token, folder)):
        if not Path(path).exists():
            raise ClusterError(
                f"the worker on {socket.gethostname()} does not see {path}; trainings on a cluster "
                f"need folders that all machines share"
            )
    function = getattr(import_module(module), name)
    process = _process()
    with _ended_if_given_up(process):
        if folder is not None:  # paths are relative to it
            process.run(os.chdir, folder)
        return process.run(function, *about["arguments"])


def _require_same(expected: dict[str, str], package: str) -> None:
    where = f"the worker on {socket.gethostname()}"
    try:
        found = environment(package)
    except ImportError as error:
        raise ClusterError(f"{where} cannot import {package} ({error}); install it there") from None
    for name, value in expected.items():
        if found.get(name) != value:
            raise ClusterError(
                f"{where} has {name} {found.get(name, '(none)')}, this machine {value}; install "
                f"the same on all machines"
            )


def _process() -> Worker:
    """The process of this thread, kept between tasks."""
    if not hasattr(_of_thread, "process"):
        # Workers that a nanny has started may have no children, because these would outlive them.
        # Ours end with their parent.
        multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
        _of_thread.process = Worker(IDLE_SECONDS)
    return _of_thread.process


@contextmanager
def _ended_if_given_up(process: Worker) -> Iterator[None]:
    """Terminate the process if the scheduler or the client takes this task back."""
    from distributed import get_worker

    worker = get_worker()
    key, is_over = worker.get_current_task(), threading.Event()

    def watch() -> None:
        while not is_over.wait(POLL_SECONDS):
            task = worker.state.tasks.get(key)
            if task is None or task.state == "cancelled":
                process.terminate()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


def _result_of(value: bytes | str) -> Any:
    if isinstance(value, bytes):
        return value
    about = json.loads(value)
    if "cluster" in about:
        raise ClusterError(about["cluster"])
    if "error" in about:
        raise InputError(about["error"])
    if "failure" in about:
        raise RuntimeError(about["failure"])
    return about["result"]
