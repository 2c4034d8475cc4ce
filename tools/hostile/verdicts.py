"""Run something hostile in a process of its own and say how it ended.

Every attack ends in one of six verdicts. Only the first two are acceptable:

    correct           it returned, and what it printed as JSON is valid
    one_line_errors   an `InputError`, or exit code 2 after one line on standard error
    wrong             it returned something invalid, or ended with another code or more lines
    tracebacks        any other exception
    crashes           the process died
    hangs             no end after `HANG` seconds, in proportion to the load, two times in a row
"""

import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from itertools import chain
from typing import Any

from cato.errors import InputError
from cato.processes import Worker, WorkerDied, slowness

ACCEPTABLE = ("correct", "one_line_errors")
VERDICTS = (*ACCEPTABLE, "wrong", "tracebacks", "crashes", "hangs")
HANG = 20.0

Attack = tuple[str, Callable[..., Any], tuple[Any, ...]]
"""A name, and the importable function with its arguments."""


def run_attacks(attacks: Iterable[Attack], seconds: float, most: int | None = None) -> dict:
    """Counts of the verdicts, and the first attacks with a bad one.

    Stops after `seconds`, or after `most` attacks.
    """
    counts: dict[str, Any] = {"tried": 0, **dict.fromkeys(VERDICTS, 0)}
    failures: list[str] = []
    deadline = time.monotonic() + seconds
    attacks = iter(attacks)
    first = next(attacks)
    with Worker() as worker:
        worker.run(judge, first[1], *first[2])  # imports everything, which may take its time
        for name, function, arguments in chain([first], attacks):
            if time.monotonic() > deadline or counts["tried"] == most:
                break
            verdict, detail = _judged(worker, function, arguments)
            if verdict == "hangs":  # or the machine did, faster than its load average tells
                verdict, detail = _judged(worker, function, arguments)
            counts["tried"] += 1
            counts[verdict] += 1
            if verdict not in ACCEPTABLE:
                failures.append(ascii(f"{verdict}: {name}: {detail}"))
    return counts | {"failures": failures[:20]}


def _judged(
    worker: Worker, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> tuple[str, str]:
    """The verdict on one call in the worker."""
    try:
        return worker.run(judge, function, *arguments, timeout=3 * slowness() * HANG)
    except TimeoutError:
        return "hangs", ""
    except WorkerDied as error:
        return "crashes", str(error)


def judge(function: Callable[..., Any], *arguments: Any) -> tuple[str, str]:
    """The verdict on one call, and what it printed or raised."""
    out, began = StringIO(), time.monotonic()
    with _captured_errors() as errors:
        try:
            with redirect_stdout(out):
                function(*arguments)
            verdict = _of_output(out.getvalue())
        except SystemExit as stop:
            verdict = ("wrong", f"exit code {stop.code}")
            if stop.code == 2:
                verdict = ("one_line_errors", "")
        except InputError as error:
            is_line = "\n" not in str(error)
            verdict = ("one_line_errors" if is_line else "wrong", str(error))
        except BaseException:
            verdict = ("tracebacks", traceback.format_exc())
    lines = errors[0].splitlines()
    # Notes may come before, such as the one on the generation of data.
    messages = [line for line in lines if line.startswith("cato: ")]
    if verdict == ("one_line_errors", ""):
        is_line = len(messages) == 1 and lines[-1] == messages[0] and not out.getvalue()
        verdict = ("one_line_errors" if is_line else "wrong", "\n".join(lines))
    elif verdict[0] == "correct" and any("Traceback" in line for line in lines):
        verdict = ("tracebacks", "\n".join(lines))
    if time.monotonic() - began > slowness() * HANG:
        verdict = ("hangs", f"{time.monotonic() - began:.0f} s, {verdict}")
    return verdict


def _of_output(text: str) -> tuple[str, str]:
    """Text that starts like JSON must be JSON, which has no NaN."""
    if text.startswith("{"):
        try:
            json.loads(text, parse_constant=_refuse)
        except ValueError as error:
            return "wrong", f"invalid JSON ({error}): {text[:200]}"
    return "correct", ""


def _refuse(constant: str) -> None:
    raise ValueError(constant)


@contextmanager
def _captured_errors() -> Iterator[list[str]]:
    """What the block writes to standard error, also from native code."""
    found = [""]
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield found
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            found[0] = file.read().decode(errors="replace")
