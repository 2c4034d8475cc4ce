"""The commands, one dataclass each: its fields are the options, its docstring the help.

What a command needs is imported when it runs, so that help and errors come at once.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.conf import Positional

from cato.cli.deploy import Export, Serve
from cato.cli.output import show, show_rows
from cato.cli.own import Inspect, with_data_overrides
from cato.cli.parsing import GROUPS, parse, settings_type
from cato.cli.studies import STUDIES
from cato.errors import InputError
from cato.progress import note


@dataclass
class Generate:
    """Generate the data of a benchmark (a finished file is left as it is, a killed one goes on)."""

    benchmark: Positional[str]
    """Name, see `cato benchmarks`, or `all`."""
    scale: str = "small"
    """paper, small or smoke."""
    seed: int = 0
    """Seed of the samples."""
    count: int | None = None
    """Number of training samples."""
    resolution: int | None = None
    """Nodes per side."""
    splits: tuple[str, ...] = ("train", "validation", "test")
    """Which splits."""
    workers: int | None = None
    """Parallel processes; all cores by default. No sample depends on it."""
    out: Path = Path("data")
    """Folder of the file."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        """Generate and describe the files."""
        from cato.data.generate import generate_file

        rows = [
            self._described(generate_file(spec, self.out, self.workers)) for spec in self.specs()
        ]
        if self.benchmark == "all":
            show_rows("generated", rows, self.json)
        else:
            show("generated", rows[0], self.json)

    def specs(self) -> list[Any]:
        """What is asked for, all checked before the first is generated."""
        from cato.data.benchmarks import BENCHMARKS
        from cato.data.spec import DataSpec

        names = list(BENCHMARKS) if self.benchmark == "all" else [self.benchmark]
        return [
            DataSpec(name, self.scale, self.seed, self.count, self.resolution, self.splits)
            for name in names
        ]

    def _described(self, path: Path) -> dict[str, Any]:
        """What is in a file."""
        from cato.data.store import num_rejected, read_header

        remedy = "delete it and generate it again"
        header = read_header(path, remedy)
        return {
            "path": str(path),
            "nodes": " × ".join(map(str, header.problem.shape)),
            **header.identity["counts"],
            "rejected_draws": num_rejected(path, remedy),
            "seed": self.seed,
        }


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
        from cato.data.benchmarks import get_benchmark
        from cato.data.own.read import is_own
        from cato.models.registry import default_model
        from cato.training.config import recipe, run_config

        if not self.benchmark:
            raise InputError("say what to train on, such as `cato train darcy`, or --resume RUN")
        scale = self.scale or "small"
        if is_own(self.benchmark):
            config = self._own_config(scale, overrides)
        else:
            if self.coords or self.inputs or self.targets:
                raise InputError("--coords, --inputs and --targets are for files of your own")
            problem = get_benchmark(self.benchmark).problem(scale)
            config = recipe(self.benchmark, scale, self.model or default_model(problem))
        if self.original is not None:
            config = replace(config, data=replace(config.data, original=str(self.original)))
        settings = parse(settings_type(config), overrides, "cato train", default=config)
        changed = {name: checked(getattr(settings, name), name) for name in GROUPS}
        values = to_dict(replace(config, **changed))
        return run_config(values, "command line")

    def _own_config(self, scale: str, overrides: list[str]) -> Any:
        """The recipe for own data; what is said of the data decides which they are."""
        from cato.training.config import DataConfig
        from cato.training.own import own_config

        names = ("coords", "inputs", "targets")
        named = {name: value for name in names if (value := getattr(self, name)) is not None}
        data = with_data_overrides(DataConfig(file=self.benchmark, **named), overrides)
        config = own_config(data, scale, self.model)
        if any(word.startswith(("--train.epochs", "--train.steps")) for word in overrides):
            config = replace(config, train=replace(config.train, minutes=None))
        return config


@dataclass
class Evaluate:
    """The error of a trained model on held-out samples."""

    folder: Annotated[Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Run folder."""
    split: str = "test"
    """test or validation."""
    resolution: int | None = None
    """Nodes per side, where it differs from the training's."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        """Evaluate and write the figures into the run folder."""
        from cato.training.evaluate import evaluate_run
        from cato.training.run import open_run

        evaluated = evaluate_run(open_run(self.folder), self.split, self.resolution)
        figures = {**evaluated.figures, "path": str(evaluated.path)}
        show("evaluated", figures, self.json, f"cato report {self.folder}")


@dataclass
class Predict:
    """Solve for the inputs of a file with a trained model, and write the same format back.

    IN is of the layout or has the fields that the run was trained on: .npz, HDF5, .mat, NetCDF, or
    a folder of VTK or other files. By the layout OUT gets `outputs`, `bands` where the run has been
    evaluated, and `errors` where IN has `targets`; a named field p becomes p_predicted, p_band and
    p_error.
    """

    folder: Annotated[Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Run folder."""
    input: Annotated[Positional[Path], tyro.conf.arg(metavar="IN")]
    """What to solve for."""
    output: Annotated[Positional[Path | None], tyro.conf.arg(metavar="OUT")] = None
    """New file or folder; IN-predicted by default."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        """Predict and write."""
        from cato.training.predict import predict_file
        from cato.training.run import open_run

        figures = predict_file(open_run(self.folder), self.input, self.output)
        show("predicted", figures, self.json)


@dataclass
class Report:
    """Write the run's report: one self-contained HTML file with curves, errors and pictures."""

    folder: Annotated[Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Run folder."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        """Evaluate and render."""
        from cato.training.run import open_run
        from cato.viz.report import write_report

        path, figures = write_report(open_run(self.folder))
        show("report", {"path": str(path), "relative_l2": figures["relative_l2"]}, self.json)


@dataclass
class Models:
    """List the models, or show one."""

    name: Positional[str] = ""
    """A model's name, for its settings."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        """List or show."""
        from cato.cli.catalogue import model_card, model_table

        if self.name:
            show(self.name, model_card(self.name), self.json)
        else:
            show_rows("models", model_table(), self.json)


@dataclass
class Benchmarks:
    """List the benchmarks, or describe one."""

    name: Positional[str] = ""
    """A benchmark's name."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        """List or describe."""
        from cato.data.benchmarks import BENCHMARKS, get_benchmark

        if self.name:
            benchmark = get_benchmark(self.name)
            scales = {
                name: f"{' × '.join(map(str, benchmark.problem(name).shape))} nodes, "
                f"{scale.train} + {scale.validation} + {scale.test} samples"
                for name, scale in benchmark.scales.items()
            }
            card = {"title": benchmark.title, "description": benchmark.description, **scales}
            show(self.name, card, self.json)
        else:
            rows = [
                {
                    "name": name,
                    "title": benchmark.title,
                    "geometry": benchmark.problem("paper").geometry,
                    "nodes": " × ".join(map(str, benchmark.problem("paper").shape)),
                    "time": benchmark.problem("paper").time,
                }
                for name, benchmark in BENCHMARKS.items()
            ]
            show_rows("benchmarks", rows, self.json)


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

        from cato.training.config import recipe
        from cato.training.train import resume, train
        from cato.viz.report import write_report

        if (self.out / "run.json").exists():
            run = resume(self.out)
        else:
            config = recipe("darcy", "small", "cato")
            changes: dict[str, Any] = {"minutes": self.minutes}
            if not hasattr(torch.optim, "Muon"):
                note("this PyTorch has no Muon (it came with 2.9): the demo uses AdamW")
                changes["optimizer"] = "adamw"
            run = train(replace(config, train=replace(config.train, **changes)), self.out)
        path, figures = write_report(run)
        figures["report"] = str(path)
        show("demo: CATO on Darcy flow", figures, self.json, f"open {path}")


COMMANDS: dict[str, type[Any]] = {
    "generate": Generate,
    "inspect": Inspect,
    "train": Train,
    "evaluate": Evaluate,
    "predict": Predict,
    "report": Report,
    "models": Models,
    "benchmarks": Benchmarks,
    "export": Export,
    "serve": Serve,
    **STUDIES,
    "demo": Demo,
}
