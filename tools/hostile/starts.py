"""Two commands that start in one folder at the same moment.

One wins and ends bit for bit like the same command alone; the other is refused with one line, or
comes late and finds a finished run.
"""

import random
import shutil
import time
from collections import Counter
from pathlib import Path

from cato.runs.folder import open_run
from tools.hostile.launcher import Ended, Launcher
from tools.hostile.samples import (
    STEPS,
    Ending,
    ending_of,
    is_same,
    leftovers_in,
    train_words,
    workshop,
)

LONGER = 16
PAIRS = ("train + train", "resume + resume", "resume + train", "copy + train", "extend + resume")


def campaign(seconds: float, seed: int, most: int | None = None) -> dict[str, int]:
    """Start pairs of commands until the time is up, or `most` pairs."""
    draw = random.Random(seed)
    counts: Counter[str] = Counter(dict.fromkeys(("tried", "correct", "wrong", "tracebacks"), 0))
    began = time.monotonic()
    with workshop() as folder, Launcher() as launcher:
        arena = _Arena(folder, launcher)
        while time.monotonic() < began + seconds and counts["tried"] != most:
            pair = PAIRS[counts["tried"] % len(PAIRS)]
            counts["tried"] += 1
            counts[arena.race(pair, draw.uniform(-0.02, 0.02))] += 1
    return dict(counts)


class _Arena:
    """A folder with references: what every command leaves if it runs alone."""

    def __init__(self, folder: Path, launcher: Launcher) -> None:
        self.folder, self.launcher, self.data = folder, launcher, folder / "user.npz"
        self.references: dict[str, Ending] = {}
        for name, seed, steps in (("0", 0, STEPS), ("1", 1, STEPS), ("long", 0, LONGER)):
            target = folder / f"reference-{name}"
            assert launcher.run(*train_words(self.data, target, seed, steps)).code == 0
            self.references[name] = ending_of(target)

    def race(self, pair: str, offset: float) -> str:
        """Run a pair, the second command `offset` seconds after the first; returns the outcome."""
        target = self.folder / "target"
        shutil.rmtree(target, ignore_errors=True)
        started = self.folder / "reference-0"
        resume = ["train", "--resume", target]
        longer = ["--train.steps", str(LONGER)]
        others = train_words(self.data, target, 1)
        commands = {
            "train + train": (train_words(self.data, target, 0), others),
            "resume + resume": (resume, resume),
            "resume + train": (resume, others),
            "copy + train": (["train", "--resume", started, *longer, "--out", target], others),
            "extend + resume": ([*resume, *longer], resume),
        }[pair]
        if "resume" in pair:
            shutil.copytree(started, target)
            if "extend" not in pair:  # stopped before its last step
                for path in (target / "checkpoints").glob(f"last-{STEPS:08d}.*"):
                    path.unlink()
        start = time.time() + 0.1
        times = (start + max(0.0, -offset), start + max(0.0, offset))
        processes = [
            self.launcher.start(words, at) for words, at in zip(commands, times, strict=True)
        ]
        ends = [self.launcher.wait(process) for process in processes]
        if not all(end.code == 0 or end.is_one_line_error for end in ends):
            return "tracebacks"
        return "correct" if self._is_right(pair, ends, target) else "wrong"

    def _is_right(self, pair: str, ends: list[Ended], target: Path) -> bool:
        won = [end.code == 0 for end in ends]
        if leftovers_in(target) or not any(won):
            return False
        if "+ train" in pair:  # the second is always refused, if the first one created the folder
            if all(won):
                return False
            name = {"train + train": "0", "resume + train": "0", "copy + train": "long"}[pair]
            expected = name if won[0] else "1"
            if open_run(target).config.train.seed != (0 if won[0] else 1):
                return False
        else:
            expected = "long" if pair == "extend + resume" and won[0] else "0"
        return is_same(ending_of(target), self.references[expected])
