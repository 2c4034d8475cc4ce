"""`cato train`, on a benchmark or on own data, and `cato demo`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.conf import Positional

from cato.cli.output import show
from cato.cli.parsing import changes_of
from cato.errors import InputError
from cato.progress import note


@dataclass
class Train:
    """Train a model on a benchmark or on your own data.

    Override settings by `--model.width 64 --train.epochs 20` and the like.
    """

    benchmark: Annotated[Positional[str], tyro.conf.arg(metavar="BENCHMARK|FILE")] = ""
    """What to learn, see `cato benchmarks`; or a file or folder of your own data, see `cato
    inspect`."""
    scale: str | None = None
    """paper (meant for a GPU), small (minutes on two cores, the default) or smoke (seconds)."""
    model: str | None = None
    """Which model, see `cato models`; CATO by default."""
    original: Path | None = None
    """Folder of the published files of the benchmark, to train on these instead of generated data;
    the scale then means the recipe only."""
    coords: str | None = None
    """Own data: fields that are coordinates, such as x,y."""
    inputs: str | None = None
    """Own data: fields that are inputs, such as k or, frames of a time series, u[:10]."""
    targets: str | None = None
    """Own data: fields that are targets, such as p."""
    out: Path | None = None
    """New run folder; runs/BENCHMARK-SCALE-MODEL by default."""
    resume: Path | None = None
    """Continue the run in this folder instead of starting one."""
    json: bool = False
    """Print one JSON object."""

    def run(self, overrides: list[str]) -> None:
        """Train or resume, then say how it went."""
        from cato.training.train import resume, train

        if self.resume is not None:
            options = (self.benchmark, self.out, self.model, self.scale, self.original)
            if any((*options, overrides, self.coords, self.inputs, self.targets)):
                raise InputError("--resume takes all settings from the run; give it alone")
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
class Demo:
    """The whole way on Darcy in under five minutes: data, training, evaluation, report."""

    out: Path = Path("runs/demo")
    """Run folder; an earlier demo there is continued."""
    minutes: float = 2.0
    """Training time."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        """Run it all."""
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
