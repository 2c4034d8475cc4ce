"""`cato train`, on a benchmark or on own data, and `cato demo`."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.conf import Positional

from cato.cli.output import show
from cato.cli.parsing import GROUPS, parse, settings_type, with_data_overrides
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
        """The recipe with the overrides."""
        from cato.config import checked, to_dict
        from cato.runs.settings import recipe, run_config
        from cato.user_data.read import is_user_data

        if not self.benchmark:
            raise InputError("say what to train on, such as `cato train darcy`, or --resume RUN")
        scale = self.scale or "small"
        if is_user_data(self.benchmark):
            config = self._own_config(scale, overrides)
        else:
            if self.coords or self.inputs or self.targets:
                raise InputError("--coords, --inputs and --targets are for files of your own")
            config = recipe(self.benchmark, scale, self.model)
        if self.original is not None:
            config = replace(config, data=replace(config.data, original=str(self.original)))
        settings = parse(settings_type(config), overrides, "cato train", default=config)
        changed = {name: checked(getattr(settings, name), name) for name in GROUPS}
        values = to_dict(replace(config, **changed))
        return run_config(values, "command line")

    def _own_config(self, scale: str, overrides: list[str]) -> Any:
        """The recipe for own data; what is said of the data decides which they are."""
        from cato.runs.settings import DataConfig
        from cato.runs.user_settings import own_config

        names = ("coords", "inputs", "targets")
        named = {name: value for name in names if (value := getattr(self, name)) is not None}
        data = with_data_overrides(DataConfig(file=self.benchmark, **named), overrides)
        config = own_config(data, scale, self.model)
        if any(word.startswith(("--train.epochs", "--train.steps")) for word in overrides):
            config = replace(config, train=replace(config.train, minutes=None))
        return config


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

        from cato.config import checked
        from cato.runs.settings import recipe
        from cato.training.train import resume, train
        from cato.viz.report import write_report

        if (self.out / "run.json").exists():
            run = resume(self.out)
        else:
            config = recipe("darcy", "small")
            changes: dict[str, Any] = {"minutes": self.minutes}
            if not hasattr(torch.optim, "Muon"):
                note("this PyTorch has no Muon (it came with 2.9): the demo uses AdamW")
                changes["optimizer"] = "adamw"
            settings = checked(replace(config.train, **changes), "cato demo")
            run = train(replace(config, train=settings), self.out)
        path, figures = write_report(run)
        figures["report"] = str(path)
        show("demo: CATO on Darcy flow", figures, self.json, f"open {path}")
