"""Solver jobs: both ends of the pipe between the service and its solver processes.

A solver takes seconds of a whole core, so it never runs in the process that answers requests. A
solver process imports no torch, keeps what it has imported and compiled for the next job, and ends
when its pipe closes: because the service ends, or dies. A job that is cancelled or too slow is
ended by killing its process; the next job starts another.
"""

import os
import secrets
import subprocess
import sys
import threading
import time
import traceback
from collections import OrderedDict
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import IO, Any, Literal

import numpy as np

from cato.benchmarks import Editor, Rejected, get_benchmark
from cato.config import Count, Positive
from cato.errors import InputError
from cato.kernels.jit import when_compiling
from cato.serve.wire import Message, pack, unpack
from cato.subprocesses import start_module

State = Literal["waiting", "running", "done", "failed", "cancelled"]
Task = Literal["inputs", "solve"]


@dataclass(frozen=True)
class JobSettings:
    """The limits of solver jobs."""

    num_processes: Count = 2
    """Jobs under way at a time."""
    max_jobs: Count = 8
    """Jobs known at a time, waiting, under way or finished; a new one takes the oldest's place."""
    time_limit: Positive = 300.0
    """Seconds after which a job is given up."""


class SolverJob:
    """One task for a solver process.

    Attributes:
        id: In addresses; cannot be guessed.
        state: How far it is.
        message: Why it has no result, in words.
        finished: Has the message of the solver process once it is done; fails with `InputError`.
    """

    def __init__(self, editor: Editor, task: Task, values: np.ndarray) -> None:
        self.id = secrets.token_hex(8)
        self.state: State = "waiting"
        self.message = ""
        self.finished: Future[Message] = Future()
        self.finished.set_running_or_notify_cancel()  # only `end` ends it, not who stops waiting
        self.process: subprocess.Popen[bytes] | None = None
        self._began = 0.0
        facts = {
            "benchmark": editor.benchmark.name,
            "parameters": asdict(editor.parameters),
            "task": task,
        }
        self.request = pack(facts, {"values": values})

    @property
    def seconds(self) -> float:
        """Since it got its process; 0 before and after."""
        is_begun = self.state == "running" and self.process is not None
        return time.monotonic() - self._began if is_begun else 0.0

    def begin(self, process: "subprocess.Popen[bytes]") -> None:
        """It has a process now."""
        self._began = time.monotonic()
        self.state, self.process = "running", process

    def end(self, state: State, message: str = "", result: Message | None = None) -> None:
        """It is over, for the first reason that is given."""
        if self.is_over:
            return
        self.state, self.message = state, message
        if result is None:
            self.finished.set_exception(InputError(message))
        else:
            self.finished.set_result(result)

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in ("done", "failed", "cancelled")


class SolverJobs:
    """The queue, its threads, and one solver process for each thread."""

    def __init__(self, settings: JobSettings | None = None) -> None:
        self.settings = settings or JobSettings()
        self._jobs: OrderedDict[str, SolverJob] = OrderedDict()
        self._changed = threading.Condition()
        self._is_closing = False
        self._threads: list[threading.Thread] = []

    def submit(self, editor: Editor, task: Task, values: np.ndarray) -> SolverJob:
        """Put a task into the queue; if there are too many jobs the oldest is dropped."""
        job = SolverJob(editor, task, values)
        with self._changed:
            if len(self._jobs) >= self.settings.max_jobs:
                over = [old for old in self._jobs.values() if old.is_over]
                oldest = (over or list(self._jobs.values()))[0]
                self._cancel(oldest, "dropped: too many newer jobs came; try again")
                del self._jobs[oldest.id]
            self._jobs[job.id] = job
            self._start_threads()
            self._changed.notify()
        return job

    def _start_threads(self) -> None:
        """With the first job: most services never have one."""
        while len(self._threads) < self.settings.num_processes:
            name = f"solver {len(self._threads)}"
            self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
            self._threads[-1].start()

    def find(self, job_id: str) -> SolverJob | None:
        """The job of that id, unless it was dropped."""
        return self._jobs.get(job_id)

    def cancel(self, job: SolverJob) -> None:
        """Take a job from the queue, or end its process."""
        with self._changed:
            self._cancel(job, "cancelled")

    def close(self) -> None:
        """End all jobs, processes and threads."""
        with self._changed:
            self._is_closing = True
            for job in self._jobs.values():
                self._cancel(job, "the service ends")
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _cancel(self, job: SolverJob, message: str) -> None:
        job.end("cancelled", message)
        if job.process is not None:
            job.process.kill()

    def _work(self) -> None:
        """One thread: take a job, have it solved, take the next."""
        process: subprocess.Popen[bytes] | None = None
        while (job := self._next()) is not None:
            if process is None or process.poll() is not None:
                process = start_module("cato.serve.jobs", stdout=subprocess.PIPE)
            with self._changed:
                if job.is_over:
                    continue
                job.begin(process)
            timer = threading.Timer(self.settings.time_limit, self._give_up, [job])
            timer.start()
            reply = _exchange(process, job.request)
            timer.cancel()
            with self._changed:
                was_killed = job.is_over or reply is None
                job.process = None
                self._conclude(job, reply)
            if was_killed:
                _stop(process)
                process = None
        if process is not None:
            _stop(process)

    def _next(self) -> SolverJob | None:
        """The oldest job that waits; None when there will be no more."""

        def waiting() -> SolverJob | None:
            return next((job for job in self._jobs.values() if job.state == "waiting"), None)

        with self._changed:
            self._changed.wait_for(lambda: waiting() or self._is_closing)
            job = None if self._is_closing else waiting()
            if job is not None:
                job.state = "running"  # so that no other thread takes it
            return job

    def _give_up(self, job: SolverJob) -> None:
        with self._changed:
            job.end("failed", f"not solved within {self.settings.time_limit:g} s")
            if job.process is not None:
                job.process.kill()

    def _conclude(self, job: SolverJob, reply: Message | None) -> None:
        if reply is None:
            job.end("failed", "the solver process died; its last words are in the server's log")
        elif reply.facts["error"]:
            job.end("failed", reply.facts["error"])
        else:
            job.end("done", result=reply)


def _exchange(process: "subprocess.Popen[bytes]", request: bytes) -> Message | None:
    """Send a task and wait for the reply; None if the process died."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        _write(process.stdin, request)
        reply = _read(process.stdout)
    except OSError:
        return None
    return None if reply is None else unpack(reply)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with suppress(OSError):
            pipe.close()


def _write(pipe: IO[bytes], data: bytes) -> None:
    whole = memoryview(len(data).to_bytes(8, "little") + data)
    while whole:  # an unbuffered pipe may take a part only
        whole = whole[pipe.write(whole) :]


def _read(pipe: IO[bytes]) -> bytes | None:
    """One framed message; None at the end of the pipe."""
    head = _read_exactly(pipe, 8)
    return None if head is None else _read_exactly(pipe, int.from_bytes(head, "little"))


def _read_exactly(pipe: IO[bytes], size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        part = pipe.read(size - len(data))
        if not part:
            return None
        data += part
    return bytes(data)


def run_task(request: Message, compiled: list[bool]) -> bytes:
    """What a solver process answers: arrays and seconds, or an error in words.

    Args:
        request: The task.
        compiled: Gets an entry whenever a function had to be compiled first.
    """
    compiled.clear()
    facts = request.facts
    benchmark = get_benchmark(facts["benchmark"])
    settings = type(benchmark.parameters("paper"))(**facts["parameters"])
    assert benchmark.editor is not None
    editor = benchmark.editor(benchmark, settings)
    import_module(f"cato.benchmarks.{benchmark.name}.solver")  # not part of the solver's time
    reply: dict[str, Any] = {"error": ""}
    began, arrays = time.perf_counter(), {}
    try:
        if facts["task"] == "inputs":
            arrays = editor.model_inputs(request.arrays["values"])._asdict()
        else:
            arrays = {"targets": editor.solve(request.arrays["values"]).targets}
    except Rejected as rejected:
        reply["error"] = f"the solver has no solution for this input: {rejected}"
    except InputError as error:
        reply["error"] = str(error)
    except Exception:
        traceback.print_exc()
        reply["error"] = "the solver failed; its traceback is in the server's log"
    reply |= {"seconds": time.perf_counter() - began, "compiled": bool(compiled)}
    return pack(reply, arrays)


def main() -> None:
    """The solver's end of the pipe."""
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever a library prints must not end up among the replies
    compiled: list[bool] = []
    when_compiling(lambda: compiled.append(True))
    while (request := _read(sys.stdin.buffer)) is not None:
        _write(replies, run_task(unpack(request), compiled))


if __name__ == "__main__":
    with suppress(BrokenPipeError):  # the service is dead
        main()
