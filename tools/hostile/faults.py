"""System calls that fail: a full disk, a quota, a broken or read-only disk, at any moment.

A command whose call fails ends as if it had not, or with one line. After that the same command ends
as if nothing had happened.
"""

import random
import sys
import time
from collections import Counter

from tools.hostile.launcher import Call, Launcher, can_trace
from tools.hostile.samples import workshop
from tools.hostile.victims import Victim, victims

KINDS = ("adamw", "generate", "evaluate", "extend", "export", "copy", "streamed")
ERRORS = ("ENOSPC", "EDQUOT", "EIO", "EROFS", "EINTR")
HARMLESS = ("unlink", "unlinkat")  # What cannot be removed is left behind.


def campaign(seconds: float, seed: int, most: int | None = None) -> dict[str, int]:
    """Let calls fail until the time is up, or `most` of them; nothing where strace is missing."""
    draw = random.Random(seed)
    names = ("tried", "correct", "one_line_errors", "wrong", "tracebacks", "leftovers")
    counts: Counter[str] = Counter(dict.fromkeys(names, 0))
    began = time.monotonic()
    if not can_trace():
        return dict(counts)
    with workshop() as folder, Launcher() as launcher:
        for victim in victims(folder, launcher, KINDS):
            if time.monotonic() > began + seconds or counts["tried"] == most:
                break
            call = draw.choice([c for c in victim.calls if c.name not in HARMLESS])
            fault = Call(call.name, call.number, draw.choice(ERRORS))
            outcome = _attack(victim, fault)
            counts.update({"tried": 1, outcome: 1})
            if outcome not in ("correct", "one_line_errors"):
                print(f"{outcome}: {victim.kind}, {fault}", file=sys.stderr)
    return dict(counts)


def _attack(victim: Victim, fault: Call) -> str:
    victim.prepare()
    end = victim.run(victim.command, fault)
    if not end.is_one_line_error:
        return victim.outcome(end)
    if not victim.is_exported:
        end = victim.run(victim.command)
    outcome = victim.outcome(end)
    return "one_line_errors" if outcome == "correct" else outcome
