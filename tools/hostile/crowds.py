"""Commands of all kinds on one run at once: evaluate, report, predict, export, resume.

Each ends as if it were alone or is refused with one line, and at the end the run is what a single
command would have left. On a finished run nothing may be refused.
"""

import random
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from cato.runs.folder import open_run
from tools.hostile.launcher import Ended, Launcher
from tools.hostile.samples import STEPS, ending_of, is_same, leftovers_in, train_words, workshop

SIZE = 5  # Commands at once.


def campaign(seconds: float, seed: int, most: int | None = None) -> dict[str, int]:
    """Start crowds until the time is up, or `most` of them; counts of commands in "commands"."""
    draw = random.Random(seed)
    names = ("tried", "commands", "correct", "refused", "wrong", "tracebacks", "leftovers")
    counts: Counter[str] = Counter(dict.fromkeys(names, 0))
    began = time.monotonic()
    with workshop() as folder, Launcher() as launcher:
        crowds = _Crowds(folder, launcher)
        while time.monotonic() < began + seconds and counts["tried"] != most:
            is_finished = bool(counts["tried"] % 2)
            counts["tried"] += 1
            counts[crowds.outcome(is_finished, draw, counts)] += 1
    return dict(counts)


class _Crowds:
    def __init__(self, folder: Path, launcher: Launcher) -> None:
        self.folder, self.launcher = folder, launcher
        self.finished, self.target = folder / "finished", folder / "target"
        self._require(self.launcher.run(*train_words(folder / "user.npz", self.finished)))
        self.ending = ending_of(self.finished)
        with np.load(folder / "user.npz") as arrays:
            np.savez(folder / "in.npz", coords=arrays["coords"], inputs=arrays["inputs"][:3])
        self._require(self.launcher.run("evaluate", self.finished))
        self.figures = self._figures(self.finished)
        self.prediction = self._prediction(folder / "alone.npz")

    @staticmethod
    def _require(end: Ended) -> None:
        if end.code:
            raise RuntimeError(end.errors)

    def _figures(self, run: Path) -> dict[str, Any]:
        """What `cato evaluate` has written, without times."""
        found = open_run(run).read_figures(run / "evaluation.json")
        return {name: value for name, value in found.items() if "seconds" not in name}

    def _prediction(self, path: Path) -> bytes:
        """What the finished run predicts, written to a path."""
        self._require(self.launcher.run("predict", self.finished, self.folder / "in.npz", path))
        with np.load(path) as arrays:
            return arrays["outputs"].tobytes()

    def outcome(self, is_finished: bool, draw: random.Random, counts: Counter[str]) -> str:
        """Let a crowd loose on a copy of the run, which is finished or stopped at its last step."""
        shutil.rmtree(self.target, ignore_errors=True)
        shutil.copytree(self.finished, self.target)
        if not is_finished:
            for path in (self.target / "checkpoints").glob(f"last-{STEPS:08d}.*"):
                path.unlink()
        for path in self.folder.glob("out-*"):
            path.unlink()
        crowd = [draw.choice(self._commands(number)) for number in range(SIZE)]
        start = time.time() + 0.1
        processes = [self.launcher.start(words, start + draw.uniform(0, 1)) for words in crowd]
        ends = [self.launcher.wait(process) for process in processes]
        counts["commands"] += len(ends)
        counts["refused"] += sum(end.is_one_line_error for end in ends)
        for words, end in zip(crowd, ends, strict=True):
            is_rival = words[0] == "train" and "another process" in end.errors
            if end.code and not (end.is_one_line_error and (is_rival or not is_finished)):
                print(f"{words}: {end.errors}", file=sys.stderr)
                return "tracebacks"
        for words in (["train", "--resume", self.target], ["evaluate", self.target]):
            self._require(self.launcher.run(*words))
        if leftovers_in(self.target):
            return "leftovers"
        return "correct" if self._is_right() else "wrong"

    def _commands(self, number: int) -> list[list[Any]]:
        """What may be run; files that are written have the number in their names."""
        out = self.folder / f"out-{number}"
        return [
            ["evaluate", self.target],
            ["report", self.target],
            ["predict", self.target, self.folder / "in.npz", out.with_suffix(".npz")],
            ["export", self.target, "--format", "pt2", "--out", out.with_suffix(".pt2")],
            ["train", "--resume", self.target],
        ]

    def _is_right(self) -> bool:
        for path in self.folder.glob("out-*.npz"):
            with np.load(path) as arrays:
                if arrays["outputs"].tobytes() != self.prediction:
                    return False
        is_evaluated = self._figures(self.target) == self.figures
        return is_evaluated and is_same(ending_of(self.target), self.ending)
