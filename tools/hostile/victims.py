"""Commands to disturb: trainings of all sorts, generating, evaluating and exporting."""

import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from cato.export import describe
from cato.inference.conformal import load_band
from cato.runs.folder import open_run
from cato.runs.load import load_surrogate
from cato.runs.settings import DataConfig
from tools.hostile.launcher import Call, Ended, Launcher, can_trace
from tools.hostile.samples import ending_of, is_same, leftovers_in, train_words

STEPS, LONGER = 12, 16
MUON = ("--train.optimizer", "muon", "--train.average", "0.9")
TWO = ("--train.devices", "2")
STREAMED = ("--data.streamed", "yes")
OPTIONS = {
    "adamw": (),
    "muon": MUON,
    "streamed": STREAMED,
    "streamed muon": (*STREAMED, *MUON),
    "two processes": TWO,
    "two processes, muon": (*TWO, *MUON),
}
"""Further options of the trainings."""
KINDS = (
    *("adamw", "generate", "muon", "evaluate", "streamed", "two processes"),
    *("extend", "export", "copy", "evaluate", "streamed muon", "two processes, muon"),
)


def victims(folder: Path, launcher: Launcher, kinds: Sequence[str]) -> "Iterator[Victim]":
    """A victim of each kind in turn, without end; each is made when it is first needed."""
    if "streamed" not in {field.name for field in fields(DataConfig)}:
        kinds = [kind for kind in kinds if STREAMED[0] not in OPTIONS.get(kind, ())]
    made: dict[str, Victim] = {}
    for kind in cycle(kinds):
        yield made.get(kind) or made.setdefault(kind, Victim(kind, folder, launcher))


class Victim:
    """A command to disturb, what to run after that, and the result that it has alone."""

    def __init__(self, kind: str, folder: Path, launcher: Launcher) -> None:
        self.kind, self.folder, self.launcher = kind, folder, launcher
        self.data = folder / ("user.h5" if STREAMED[0] in self._more else "user.npz")
        self.target, self.source = folder / "target", folder / "source"
        self.first = 0  # Rank of two processes that is killed first.
        self.calls: list[Call] = []
        if not self.source.exists():  # a finished run, to extend, evaluate and export
            self._require(self.run(train_words(self.data, self.source)))
        self.prepare()
        command = self.command
        if kind in ("extend", "copy"):  # they end like a training of that length
            shutil.rmtree(self.target, ignore_errors=True)
            command = train_words(self.data, self.target, 0, LONGER)
        began = time.monotonic()
        self._require(self.run(command))
        self.seconds = time.monotonic() - began
        self.reference = self.result()
        if can_trace() and TWO[0] not in self._more:
            self.prepare()
            self.calls = launcher.calls_on(self.target, self.command)

    @property
    def _more(self) -> Sequence[str]:
        return OPTIONS.get(self.kind, ())

    @staticmethod
    def _require(end: Ended) -> None:
        if end.code:
            raise RuntimeError(end.errors)

    def prepare(self) -> None:
        shutil.rmtree(self.target, ignore_errors=True)
        if self.kind in ("evaluate", "export", "extend"):
            shutil.copytree(self.source, self.target)
        if self.kind == "evaluate":
            (self.target / "band.safetensors").unlink()

    @property
    def command(self) -> list[Any]:
        """The command to disturb, or what continues it."""
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
        return train_words(self.data, self.target, 0, STEPS, *self._more)

    @property
    def is_exported(self) -> bool:
        """Whether an export has written its file, so that it is not run again."""
        return self.kind == "export" and (self.target / "model.pt2").exists()

    def outcome(self, end: Ended) -> str:
        """The verdict on what the command has left, after its end."""
        if end.code and not end.was_killed:
            print(end.errors, file=sys.stderr)
            return "tracebacks"
        if found := leftovers_in(self.target):
            print(f"left behind: {found}", file=sys.stderr)
            return "leftovers"
        return "correct" if self.is_right() else "wrong"

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

    def run(self, arguments: Sequence[Any], at: float | Call | None = None) -> Ended:
        """Run a command, disturbed after some seconds or at a system call."""
        if TWO[0] in self._more:
            assert not isinstance(at, Call)
            self.first = 1 - self.first
            return self.launcher.run_two(arguments, at, self.first)
        if isinstance(at, Call):
            return self.launcher.run_disturbed(arguments, at)
        if at is not None:
            return self.launcher.run_killed(arguments, at)
        return self.launcher.run(*arguments)


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
