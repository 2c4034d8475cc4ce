"""Commands that are killed at a random moment and run again: they end as if they had not been.

Training and extending end bit for bit alike, with AdamW and Muon, on one process and on two;
generating writes the same file; evaluating and exporting give the same figures. Nothing of the
killed command is left.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cato.export import describe
from cato.inference.conformal import load_band
from cato.runs.folder import open_run
from cato.runs.load import load_surrogate
from tools.hostile.launcher import Ended, Launcher
from tools.hostile.samples import ending_of, is_same, leftovers_in, train_words, workshop
from tools.results import ROOT

STEPS, LONGER = 12, 16
MUON = ("--train.optimizer", "muon", "--train.average", "0.9")
TWO = ("--train.devices", "2")
KINDS = ("adamw", "muon", "extend", "copy", "generate", "evaluate", "export", "two processes")
KILLS = 2  # Times that a command is killed before it runs to its end.


def campaign(
    seconds: float, seed: int, most: int | None = None, kinds: Sequence[str] = KINDS
) -> dict[str, int]:
    """Kill commands until the time is up, or `most` of them.

    "kills" counts those that came before the command had ended, "tried" the commands.
    """
    draw = random.Random(seed)
    names = ("tried", "kills", "correct", "wrong", "tracebacks", "leftovers")
    counts: Counter[str] = Counter(dict.fromkeys(names, 0))
    began = time.monotonic()
    with workshop() as folder, Launcher() as launcher:
        victims: dict[str, _Victim] = {}
        while time.monotonic() < began + seconds and counts["tried"] != most:
            kind = kinds[counts["tried"] % len(kinds)]
            victim = victims.get(kind) or victims.setdefault(kind, _Victim(kind, folder, launcher))
            counts["tried"] += 1
            outcome, num_kills = victim.attack(draw)
            counts[outcome] += 1
            counts["kills"] += num_kills
            if outcome != "correct":
                print(f"{outcome}: {victim.kind}", file=sys.stderr)
    return dict(counts)


class _Victim:
    """A command to kill, what to run after that, and the result that it has alone."""

    def __init__(self, kind: str, folder: Path, launcher: Launcher) -> None:
        self.kind, self.folder, self.launcher = kind, folder, launcher
        self.data, self.target = folder / "user.npz", folder / "target"
        self.source = folder / "source"
        self.run: Callable[..., Ended] = self._run_alone if kind == "two processes" else self._run
        if not self.source.exists():  # a finished run, to extend, evaluate and export
            self._require(self.run(train_words(self.data, self.source)))
        self._prepare()
        command = self.command
        if kind in ("extend", "copy"):  # they end like a training of that length
            shutil.rmtree(self.target, ignore_errors=True)
            command = train_words(self.data, self.target, 0, LONGER)
        began = time.monotonic()
        self._require(self.run(command))
        self.seconds = time.monotonic() - began
        self.reference = self.result()

    @staticmethod
    def _require(end: Ended) -> None:
        if end.code:
            raise RuntimeError(end.errors)

    def _prepare(self) -> None:
        shutil.rmtree(self.target, ignore_errors=True)
        if self.kind in ("evaluate", "export", "extend"):
            shutil.copytree(self.source, self.target)
        if self.kind == "evaluate":
            (self.target / "band.safetensors").unlink()

    @property
    def command(self) -> list[Any]:
        """The command to kill, or what continues it."""
        resume = ["train", "--resume", self.target]
        longer = ["--train.steps", str(LONGER)]
        has_run = (self.target / "run.json").exists()
        match self.kind:
            case "generate":
                sizes = ["--scale", "smoke", "--count", "6", "--workers", "1"]
                return ["generate", "darcy", *sizes, "--out", self.target]
            case "evaluate":
                return ["evaluate", self.target]
            case "export":
                return ["export", self.target, "--format", "pt2"]
            case "extend":
                is_extended = open_run(self.target).config.train.steps == LONGER
                return resume if is_extended else [*resume, *longer]
            case "copy" if not has_run:
                return ["train", "--resume", self.source, *longer, "--out", self.target]
        if has_run:
            return resume
        more = {"muon": MUON, "two processes": TWO}.get(self.kind, ())
        return train_words(self.data, self.target, 0, STEPS, *more)

    def attack(self, draw: random.Random) -> tuple[str, int]:
        """Kill the command some times, then run it to its end; returns outcome and kills."""
        self._prepare()
        num_kills = 0
        for _ in range(KILLS):
            end = self.run(self.command, draw.uniform(0, self.seconds))
            num_kills += end.was_killed
            if not end.was_killed:
                break
        if num_kills and not (self.kind == "export" and (self.target / "model.pt2").exists()):
            end = self.run(self.command)
        if end.code and not end.was_killed:
            print(end.errors, file=sys.stderr)
            return "tracebacks", num_kills
        if found := leftovers_in(self.target):
            print(f"left behind: {found}", file=sys.stderr)
            return "leftovers", num_kills
        return ("correct" if self.is_right() else "wrong"), num_kills

    def result(self) -> Any:
        """What the command leaves, without times."""
        if self.kind == "generate":
            return {p.name: p.read_bytes() if p.is_file() else b"" for p in self.target.iterdir()}
        if self.kind == "evaluate":
            run = open_run(self.target)
            figures = run.read_figures(run.folder / "evaluation.json")
            band = load_band(run, load_surrogate(run).step)
            assert band is not None
            kept = {k: v for k, v in figures.items() if "seconds" not in k}
            return kept, band.half_width.numpy().tobytes()
        if self.kind == "export":
            return _outputs_of(self.target / "model.pt2")
        return ending_of(self.target)

    def is_right(self) -> bool:
        result = self.result()
        if self.kind in ("generate", "evaluate", "export"):
            return bool(result == self.reference)
        return is_same(result, self.reference)

    def _run(self, arguments: Sequence[Any], kill_after: float | None = None) -> Ended:
        if kill_after is None:
            return self.launcher.run(*arguments)
        return self.launcher.run_killed(arguments, kill_after)

    def _run_alone(self, arguments: Sequence[Any], kill_after: float | None = None) -> Ended:
        """In a process of its own, which starts the second one by its own command line."""
        process = subprocess.Popen(
            [sys.executable, "-m", "cato", *map(str, arguments)],
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            _, errors = process.communicate(timeout=kill_after)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # both processes
            _, errors = process.communicate()
        return Ended(process.returncode, errors)


def _outputs_of(path: Path) -> tuple[str, bytes]:
    """Metadata of an exported file without times and the run's name, and its outputs for ones."""
    import torch

    about = {k: v for k, v in describe(path).items() if k != "written"}
    about["run"] = {k: v for k, v in about["run"].items() if k not in ("name", "created")}
    shape = about["problem"]["shape"]
    coords = np.stack(np.meshgrid(*(np.arange(n) for n in shape), indexing="ij"), axis=-1)
    arrays = {"inputs": np.ones((1, *shape, 1)), "coords": coords[None]}
    module = torch.export.load(path).module()
    outputs = module(**{k: torch.tensor(v, dtype=torch.float32) for k, v in arrays.items()})
    return json.dumps(about, sort_keys=True), outputs.detach().numpy().tobytes()
