"""`cato train`, on a benchmark or on user data, and `cato demo`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.conf import Positional

from cato.cli.output import Command, show
from cato.cli.parsing import changes_of
from cato.errors import InputError
from cato.progress import note


@dataclass
class Train(Command):
    """Train a model on a benchmark or on your own data.

    Every setting of the recipe is an option, for example `--model.width 64 --train.epochs 20`.
    """

    benchmark: Annotated[Positional[str], tyro.conf.arg(metavar="BENCHMARK|FILE")] = ""
    """A benchmark, see `cato benchmarks`; or a file or folder of your data, see `cato inspect`."""
    scale: str | None = None
    """paper (for a GPU), small (minutes on two cores, the default) or smoke (seconds)."""
    model: str | None = None
    """The model, see `cato models`; CATO by default."""
    original: Path | None = None
    """Folder with the published files of the benchmark, to train on them instead of generated data.
    The scale then selects the recipe only."""
    coords: str | None = None
    """Your data: fields that are coordinates, such as x,y."""
    inputs: str | None = None
    """Your data: fields that are inputs, such as k; frames of a time series as u[:10]."""
    targets: str | None = None
    """Your data: fields that are targets, such as p."""
    out: Path | None = None
    """New run folder; runs/BENCHMARK-SCALE-MODEL by default."""
    resume: Path | None = None
    """Resume the run in this folder instead of starting one."""

    def run(self, overrides: list[str]) -> None:
        from cato.training.train import resume, train

        if self.resume is not None:
            options = (self.benchmark, self.out, self.model, self.scale, self.original)
            if any((*options, overrides, self.coords, self.inputs, self.targets)):
                raise InputError("--resume takes all settings from the run; give no other option")
            run = resume(self.resume)
        else:
            config = self.config(overrides)
            data = "original" if config.data.original else config.scale
            name = Path(config.data.file).stem if config.data.file else config.benchmark
            default = f"{name}-{data}-{config.model_name}"
            folder = self.out or Path("runs") / default
            run = train(config, folder)
        log = run.log()
        best = min(log, key=lambda line: line["validation"])
        show(
            "trained",
            {
                "run": str(run.folder),
                "epochs": round(log[-1]["epoch"], 2),
                "validation_relative_l2": best["validation"],
                "best_epoch": round(best["epoch"], 2),
                "minutes": round(log[-1]["seconds"] / 60, 2),
            },
            self.json,
            then=f"cato report {run.folder}",
        )

    def config(self, overrides: list[str]) -> Any:
        """The settings of the run."""
        from cato.runs.settings import build_settings

        if not self.benchmark:
            raise InputError("say what to train on, such as `cato train darcy`, or --resume RUN")
        names = ("coords", "inputs", "targets", "original")
        data = {name: str(value) for name in names if (value := getattr(self, name)) is not None}
        scale, changes = self.scale or "small", changes_of(overrides)
        return build_settings(
            self.benchmark, scale, self.model, {"data": data}, changes, where="cato train"
        )


@dataclass
class Demo(Command):
    """Train, evaluate and report on Darcy flow in under five minutes."""

    out: Path = Path("runs/demo")
    """Run folder; an interrupted demo is resumed."""
    minutes: float = 2.0
    """Training time in minutes."""

    def run(self) -> None:
        import torch

        from cato.runs.settings import build_settings
        from cato.training.train import resume, train
        from cato.viz.report import write_report

        if (self.out / "run.json").exists():
            run = resume(self.out)
        else:
            changes: dict[str, Any] = {"minutes": self.minutes}
            if not hasattr(torch.optim, "Muon"):
                note("this PyTorch has no Muon (added in 2.9): the demo uses AdamW")
                changes["optimizer"] = "adamw"
            config = build_settings("darcy", "small", None, {"train": changes}, where="cato demo")
            run = train(config, self.out)
        path, figures = write_report(run)
        figures["report"] = str(path)
        show("demo: CATO on Darcy flow", figures, self.json, f"open {path}")
