"""Commands of cato in processes that start within milliseconds, to be raced and killed.

A server process imports cato once and forks a child for every command. Loading PyTorch anew would
take seconds, which is too slow for hundreds of attacks and too coarse to aim at a moment.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tools.results import ROOT


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

    def start(self, arguments: Sequence[Any], at: float = 0.0) -> int:
        """Start `cato ARGUMENTS`, at a moment of `time.time()`; returns the process id."""
        words = [str(word) for word in arguments]
        return int(self._ask({"arguments": words, "at": at, "logs": self._logs.name}))

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

    def _ask(self, question: dict[str, Any]) -> str:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(question) + "\n")
        self._server.stdin.flush()
        return self._server.stdout.readline()


def _serve() -> None:
    """Fork a child for every line of standard input; answer with its number, or its exit code."""
    import cato.export
    import cato.training.train
    import cato.viz.report  # noqa: F401

    for line in sys.stdin:
        question = json.loads(line)
        if "wait" in question:
            _, status = os.waitpid(question["wait"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if not answer:
                _run(question)
        print(answer, flush=True)


def _run(question: dict[str, Any]) -> None:
    """A command, in a child."""
    from cato.cli import main

    log = os.open(Path(question["logs"]) / str(os.getpid()), os.O_CREAT | os.O_WRONLY)
    for stream, target in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
        os.dup2(target, stream)
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
