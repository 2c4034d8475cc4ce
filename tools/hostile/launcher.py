"""Commands of cato in processes that start within milliseconds, to be raced and killed.

A server process imports cato once and forks a child for every command. Loading PyTorch anew would
take seconds, which is too slow for hundreds of attacks and too coarse to aim at a moment.

Exact system calls are found and hit with strace, where it is installed.
"""

import faulthandler
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from cato.processes import slowness
from tools.results import ROOT

LIMIT_SECONDS = 300  # A command that takes longer, in proportion to the load, is aborted.

CALLS = (
    *("openat", "write", "pwrite64", "ftruncate", "fsync"),
    *("rename", "link", "unlink", "unlinkat", "mkdir"),
)
"""System calls that change files."""


def can_trace() -> bool:
    """Whether commands can be killed at exact system calls."""
    return shutil.which("strace") is not None


@dataclass(frozen=True)
class Call:
    """The n-th system call of this name of a command's main thread, and what happens to it."""

    name: str
    number: int
    error: str = ""  # It fails, such as with ENOSPC; otherwise the process is killed before it.


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int  # Exit code, or minus the number of the signal that killed it.
    errors: str  # Standard error.

    @property
    def is_one_line_error(self) -> bool:
        """Whether it was refused as documented: one line, exit code 2."""
        lines = [line for line in self.errors.splitlines() if line.startswith("cato: ")]
        return self.code == 2 and len(lines) == 1 and "Traceback" not in self.errors

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL


class Launcher:
    """Starts commands of cato in forked processes."""

    def __enter__(self) -> Self:
        self._logs = tempfile.TemporaryDirectory()
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tools.hostile.launcher"],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: Any) -> None:
        self._server.communicate()  # its input closes, so it ends
        self._logs.cleanup()

    def start(
        self,
        arguments: Sequence[Any],
        at: float = 0.0,
        *,
        is_stopped: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Start `cato ARGUMENTS`, at a moment of `time.time()`; returns the process id.

        A process that is stopped waits for SIGCONT.
        """
        words = [str(word) for word in arguments]
        about = {"at": at, "logs": self._logs.name, "is_stopped": is_stopped}
        return int(self._ask({"arguments": words, "environment": environment or {}, **about}))

    def wait(self, process: int) -> Ended:
        """Wait until a command ends."""
        code = int(self._ask({"wait": process}))
        log = Path(self._logs.name) / str(process)
        return Ended(code, log.read_text(errors="replace") if log.exists() else "")

    def run(self, *arguments: Any) -> Ended:
        """Run a command to its end."""
        return self.wait(self.start(arguments))

    def run_killed(self, arguments: Sequence[Any], after: float) -> Ended:
        """Run a command and kill it after some seconds."""
        process = self.start(arguments)
        time.sleep(after)
        os.kill(process, signal.SIGKILL)
        return self.wait(process)

    def run_two(
        self, arguments: Sequence[Any], kill_after: float | None = None, first: int = 0
    ) -> Ended:
        """Run a training on two processes, as torchrun starts them; returns the end of rank 0.

        The process of rank `first` is killed after some seconds, and the other one a second later,
        as torchrun does.
        """
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = str(server.getsockname()[1])
        processes = [self.start(arguments, environment=_torchrun(rank, port)) for rank in range(2)]
        if kill_after is not None:
            for process, pause in ((processes[first], kill_after), (processes[1 - first], 1.0)):
                time.sleep(pause)
                os.kill(process, signal.SIGKILL)
        ends = [self.wait(process) for process in processes]
        return next((end for end in ends if end.was_killed), ends[0])

    def run_disturbed(self, arguments: Sequence[Any], call: Call) -> Ended:
        """Run a command that is killed by a system call, or sees it fail."""
        effect = f"error={call.error}" if call.error else "signal=KILL"
        words = f"inject={call.name}:{effect}:when={call.number}"
        return self._run_traced(arguments, "-e", words)[0]

    def calls_on(self, folder: Path, arguments: Sequence[Any]) -> list[Call]:
        """The system calls of a command that change something in a folder; runs it."""
        ended, trace = self._run_traced(arguments)
        assert not ended.code, ended.errors
        calls, found = Counter[str](), []
        for line in trace.splitlines():
            name = line.partition("(")[0]
            calls[name] += 1
            is_read = name == "openat" and not re.search("O_WRONLY|O_RDWR", line)
            if str(folder) in line and not is_read:
                found.append(Call(name, calls[name]))
        return found

    def _run_traced(self, arguments: Sequence[Any], *options: str) -> tuple[Ended, str]:
        """Run a command with strace attached to its main thread; its end and the trace."""
        process = self.start(arguments, is_stopped=True)
        trace = Path(self._logs.name) / f"{process}.calls"
        names = ",".join(f"?{name}" for name in CALLS)  # some machines lack some
        words = ["strace", "-y", "-o", trace, "-e", f"trace={names}", *options, "-p", str(process)]
        tracer = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        assert tracer.stderr is not None
        attached = tracer.stderr.readline()
        os.kill(process, signal.SIGCONT)
        ended = self.wait(process)
        tracer.communicate()
        if "attached" not in attached:
            raise RuntimeError(f"strace cannot trace: {attached}")
        return ended, trace.read_text()

    def _ask(self, question: dict[str, Any]) -> str:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(question) + "\n")
        self._server.stdin.flush()
        return self._server.stdout.readline()


def _torchrun(rank: int, port: str) -> dict[str, str]:
    """What torchrun tells one of two processes on one machine."""
    ranks = dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))
    sizes = dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "2")
    place = {"GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return {**ranks, **sizes, **place, "TORCHELASTIC_RUN_ID": "hostile"}


def _serve() -> None:
    """Fork a child for every line of standard input; answer with its number, or its exit code."""
    import cato.export
    import cato.training.train
    import cato.viz.report  # noqa: F401

    for line in sys.stdin:
        question = json.loads(line)
        if "wait" in question:
            answer = _exit_code(question["wait"])
        else:
            answer = os.fork()
            if not answer:
                _run(question)
            if question["is_stopped"]:
                os.waitpid(answer, os.WUNTRACED)
        print(answer, flush=True)


def _exit_code(process: int) -> int:
    """Wait for a child. One that hangs is aborted, and writes where it hung to its log."""
    until = time.monotonic() + slowness() * LIMIT_SECONDS
    while not (ended := os.waitpid(process, os.WNOHANG))[0]:
        if time.monotonic() > until:
            os.kill(process, signal.SIGABRT)
            ended = os.waitpid(process, 0)
            break
        time.sleep(0.005)
    return os.waitstatus_to_exitcode(ended[1])


def _run(question: dict[str, Any]) -> None:
    """A command, in a child."""
    from cato.cli import main

    faulthandler.enable()

    log = os.open(Path(question["logs"]) / str(os.getpid()), os.O_CREAT | os.O_WRONLY)
    for stream, target in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
        os.dup2(target, stream)
    os.environ.update(question["environment"])
    if question["is_stopped"]:
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(max(0.0, question["at"] - time.time()))
    code = 1
    try:
        main(question["arguments"])
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
