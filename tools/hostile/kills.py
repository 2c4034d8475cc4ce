"""Commands that are killed and run again: they end as if they had not been.

Training and extending end bit for bit alike, with AdamW and Muon, on one process and on two, with
data in memory and streamed; generating writes the same file; evaluating and exporting give the same
figures. Nothing of the killed command is left.

Kills come at random moments, and as the process enters a system call that changes a file of its
folder, drawn from all those of an undisturbed command. Of two processes both are killed, or one.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tools.hostile.launcher import Call, Launcher
from tools.hostile.samples import workshop
from tools.hostile.victims import KINDS, Victim, victims

MOST_KILLS = 2  # Of a command, before it runs to its end.


def campaign(
    seconds: float, seed: int, most: int | None = None, kinds: Sequence[str] = KINDS
) -> dict[str, int]:
    """Kill commands until the time is up, or `most` endings have been compared.

    "tried" counts the endings of commands that were killed at least once, "kills" all kills,
    "calls" those at exact system calls.
    """
    draw = random.Random(seed)
    names = ("tried", "kills", "calls", "correct", "wrong", "tracebacks", "leftovers")
    counts: Counter[str] = Counter(dict.fromkeys(names, 0))
    began = time.monotonic()
    with workshop() as folder, Launcher() as launcher:
        for victim in victims(folder, launcher, kinds):
            if time.monotonic() > began + seconds or counts["tried"] == most:
                break
            outcome = _attack(victim, draw, counts)
            if outcome != "correct":
                print(f"{outcome}: {victim.kind}", file=sys.stderr)
    return dict(counts)


def _attack(victim: Victim, draw: random.Random, counts: Counter[str]) -> str:
    """Kill a command, perhaps twice, then run it to its end; counts and returns the outcome.

    Nothing is counted if it had ended before.
    """
    victim.prepare()
    num_kills = 0
    at_calls = bool(victim.calls) and draw.random() < 0.6
    for _ in range(draw.randint(1, MOST_KILLS)):
        at = draw.choice(victim.calls) if at_calls else draw.uniform(0, victim.seconds)
        end = victim.run(victim.command, at)
        num_kills += end.was_killed
        counts["calls"] += end.was_killed and isinstance(at, Call)
        if not end.was_killed:
            break
    if num_kills and not victim.is_exported:
        end = victim.run(victim.command)
    outcome = victim.outcome(end)
    if num_kills or outcome != "correct":
        counts.update({"tried": 1, "kills": num_kills, outcome: 1})
    return outcome
