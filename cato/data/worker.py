"""Solving in parallel processes: both ends of the pipe between a generation and its workers.

A worker is a fresh Python that imports the solvers but not torch. It reads the settings and then
one task per line, [split, index], and answers each with one line once the sample is on disk; before
that, a line may say that it is compiling. When the pipe closes, because the work is done or its
parent is dead, it ends.

Plain subprocesses rather than `multiprocessing`: that would import the caller's main script again
in every worker (and with it torch), needs an `if __name__ == "__main__"` guard in every user's
script, and speaks pickle.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from cato.data.sample_cache import Parts
from cato.data.sampling import draw
from cato.data.spec import DataSpec
from cato.errors import InputError
from cato.kernels.jit import when_compiling
from cato.subprocesses import start_module

Task = tuple[str, int]


def solve_in_parallel(
    spec: DataSpec,
    target: Path,
    tasks: Sequence[Task],
    num_workers: int,
    tell_compiling: Callable[[], None] = lambda: None,
) -> Generator[Task, None, None]:
    """Solve all tasks, at most `num_workers` at a time; yield each when its part is on disk.

    `tell_compiling` is called whenever a worker has to compile a solver first.
    """
    waiting = iter(tasks)
    workers = [Worker(spec, target) for _ in range(min(num_workers, len(tasks)))]
    try:
        with selectors.DefaultSelector() as selector:
            for worker in workers:
                selector.register(worker.replies, selectors.EVENT_READ, worker)
                worker.assign(next(waiting))
            while selector.get_map():
                for key, _ in selector.select():
                    finished = key.data.collect(tell_compiling)
                    if finished is None:
                        continue
                    yield finished
                    task = next(waiting, None)
                    if task is None:
                        selector.unregister(key.fileobj)
                    else:
                        key.data.assign(task)
    finally:
        for worker in workers:
            worker.stop()


class Worker:
    """The parent's end: one process with at most one task under way."""

    def __init__(self, spec: DataSpec, target: Path) -> None:
        self.process = start_module("cato.data.worker", stdout=subprocess.PIPE)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.requests, self.replies = self.process.stdin, self.process.stdout
        self.task: Task | None = None
        self._unread = b""
        self._send({"spec": asdict(spec), "target": str(target)})

    def assign(self, task: Task) -> None:
        """Begin a task."""
        self.task = task
        self._send(task)

    def collect(self, tell_compiling: Callable[[], None] = lambda: None) -> Task | None:
        """Wait until the worker says something; the task once it is done, its failure passed on."""
        assert self.task is not None
        # Not through a buffered reader: lines left in its buffer would not wake the selector.
        said = os.read(self.replies.fileno(), 2**16)
        where = f"{self.task[0]} sample {self.task[1]}"
        if not said:
            code = self.process.wait()
            if code == -signal.SIGKILL:
                raise InputError(
                    f"a worker was killed at {where}, perhaps for want of memory; the finished "
                    f"samples are kept. Run the same command with fewer --workers"
                )
            raise RuntimeError(f"a worker ended with code {code} at {where}; see its output above")
        *lines, self._unread = (self._unread + said).split(b"\n")
        finished = None
        for reply in map(json.loads, lines):
            if "compiling" in reply:
                tell_compiling()
            elif reply["input_error"]:
                raise InputError(reply["input_error"])
            elif reply["error"]:
                raise RuntimeError(f"the solver failed at {where}:\n{reply['error']}")
            else:
                finished = self.task
        return finished

    def stop(self) -> None:
        """End the process; parts are written atomically, so any moment will do."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.requests, self.replies):
            with suppress(BrokenPipeError):
                pipe.close()

    def _send(self, message: object) -> None:
        with suppress(BrokenPipeError):  # it is dead: `collect` will say so
            self.requests.write(json.dumps(message).encode() + b"\n")


def main() -> None:
    """The worker's end."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not end up among the replies
    job = json.loads(sys.stdin.readline())
    spec = DataSpec(**job["spec"])
    parts = Parts(Path(job["target"]), spec)

    def send(reply: dict[str, object]) -> None:
        print(json.dumps(reply), file=replies, flush=True)

    when_compiling(lambda: send({"compiling": True}))
    for line in sys.stdin:
        split, index = json.loads(line)
        reply: dict[str, object] = {"input_error": "", "error": ""}
        try:
            parts.write(split, index, draw(spec, split, index))
        except InputError as error:
            reply["input_error"] = str(error)
        except Exception:
            reply["error"] = traceback.format_exc()
        send(reply)


if __name__ == "__main__":
    with suppress(BrokenPipeError):  # the parent is dead and the last sample is on disk
        main()
