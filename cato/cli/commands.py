"""All commands. Each is a dataclass: its fields are the options, its docstring the help.

Commands import what they need when they run, so that help and errors appear at once.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro
from tyro.conf import Positional

from cato.cli.output import Command, RunCommand, show, show_errors, show_rows
from cato.cli.user_data import Advise, Inspect
from cato.config import from_dict, to_dict
from cato.errors import InputError
from cato.serve.settings import (
    Access,
    Batching,
    ClientLimits,
    RequestLimits,
    ServeSettings,
    SolverLimits,
    TotalLimits,
)

_Group = TypeVar("_Group")
_Flat = Annotated[_Group, tyro.conf.OmitArgPrefixes]  # A group of options without a common prefix.

DEMO_STEPS = 2500
"""Minimum steps of the demo, nearly what two idle cores take in its minutes, so that slow and busy
machines end with the same error; proportionally fewer for fewer minutes."""


@dataclass
class Demo(Command):
    """Train, evaluate and report on Darcy flow in under five minutes."""

    out: Path = Path("runs/demo")  # Run folder; an interrupted demo is resumed.
    minutes: float = 2.5  # Minutes of training on two idle cores; slower machines take longer.

    def run(self) -> None:
        from cato.runs.settings import build_settings
        from cato.training.train import resume, train
        from cato.viz.report import write_report

        if (self.out / "run.json").exists():
            run = resume(self.out)
        else:
            min_steps = max(1, round(DEMO_STEPS * min(1.0, self.minutes / Demo.minutes)))
            changes = {"minutes": self.minutes, "min_steps": min_steps}
            config = build_settings("darcy", "small", None, {"train": changes}, where="cato demo")
            run = train(config, self.out)
        path, figures = write_report(run)
        figures["report"] = str(path)
        show("demo: CATO on Darcy flow", figures, self.json, f"open {path}")


@dataclass
class Pretrained(Command):
    """List the models that come with cato, or show one."""

    name: Positional[str] = ""  # A model's name, for its card.

    def run(self) -> None:
        from cato.cli.catalogue import pretrained_card, pretrained_table

        if self.name:
            then = "" if self.json else f"cato.load({self.name!r}) in Python, or cato serve"
            show_errors(self.name, pretrained_card(self.name), self.json, then)
        else:
            show_rows("pretrained", pretrained_table(), self.json)


@dataclass
class Generate(Command):
    """Generate the data of a benchmark. An interrupted call is resumed."""

    benchmark: Positional[str]  # A benchmark, see `cato benchmarks`, or `all`.
    scale: str = "small"  # paper, small or smoke.
    seed: int = 0  # Seed of the samples.
    count: int | None = None  # Number of training samples; the scale's by default.
    resolution: int | None = None  # Nodes per side; the scale's by default.
    splits: tuple[str, ...] = ("train", "validation", "test")  # Splits to generate.
    workers: int | None = None
    """Worker processes; one per core by default. Samples do not depend on it."""
    cluster: str | None = None
    """Solve on a Dask cluster: the address of its scheduler, or `local` to start one here."""
    out: Path = Path("data")  # Folder of the file.

    def run(self) -> None:
        from cato.cluster import workers_of
        from cato.data.generate import generate_file

        specs = self.specs()  # all validated before the first is generated
        with workers_of(self.workers, self.cluster) as workers:
            rows = [self._described(generate_file(spec, self.out, workers)) for spec in specs]
        if self.benchmark == "all":
            show_rows("generated", rows, self.json)
        else:
            show("generated", rows[0], self.json)

    def specs(self) -> list[Any]:
        """What to generate; raises if a benchmark, scale or size does not exist."""
        from cato.benchmarks import BENCHMARKS
        from cato.data.spec import DataSpec

        names = BENCHMARKS if self.benchmark == "all" else [self.benchmark]
        return [
            DataSpec(name, self.scale, self.seed, self.count, self.resolution, self.splits)
            for name in names
        ]

    def _described(self, path: Path) -> dict[str, Any]:
        from cato.data.store import num_rejected, read_header

        remedy = "delete it and generate it again"
        header = read_header(path, remedy)
        return {
            "path": str(path),
            "nodes": " × ".join(map(str, header["problem"]["shape"])),
            **header["identity"]["counts"],
            "rejected_draws": num_rejected(path, remedy),
            "seed": self.seed,
        }


@dataclass
class Benchmarks(Command):
    """List the benchmarks, or describe one."""

    name: Positional[str] = ""  # A benchmark's name.

    def run(self) -> None:
        from cato.benchmarks import BENCHMARKS, get_benchmark

        if self.name:
            benchmark = get_benchmark(self.name)
            scales = {
                name: f"{' × '.join(map(str, benchmark.problem(name).shape))} nodes, "
                f"{scale.train} + {scale.validation} + {scale.test} samples"
                for name, scale in benchmark.scales.items()
            }
            card = {
                "title": benchmark.title,
                "description": benchmark.description,
                "headline_error": next(iter(benchmark.headline), "all outputs"),
                **scales,
            }
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
class Models(Command):
    """List the models, or show one with its settings."""

    name: Positional[str] = ""  # A model's name, for its settings.

    def run(self) -> None:
        from cato.cli.catalogue import model_card, model_table

        if self.name:
            show(self.name, model_card(self.name), self.json)
        else:
            show_rows("models", model_table(), self.json)


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
    """The model, see `cato models`; CATO by default. auto tries three and trains the best."""
    start: Annotated[str | None, tyro.conf.arg(name="from", metavar="MODEL|RUN")] = None
    """Start from the weights of a pretrained model, see `cato pretrained`, or of a run."""
    original: Path | None = None
    """Folder with the published files of the benchmark, used instead of generated data. The scale
    then selects the recipe only."""
    coords: str | None = None  # Your data: fields that are coordinates, such as x,y.
    inputs: str | None = None
    """Your data: fields that are inputs, such as k; frames of a time series as u[:10]."""
    targets: str | None = None  # Your data: fields that are targets, such as p.
    out: Path | None = None  # New run folder; runs/BENCHMARK-SCALE-MODEL by default.
    resume: Path | None = None  # Resume the run in this folder instead of starting one.

    def run(self, changes: dict[str, Any]) -> None:
        from cato.training.train import resume, train

        if self.resume is not None:
            options = (self.benchmark, self.model, self.scale, self.start, self.original)
            longer = changes.get("train", {})
            others = set(changes) - {"train"} | set(longer) - {"minutes", "steps", "epochs"}
            if others or any((*options, self.coords, self.inputs, self.targets)):
                raise InputError(
                    "--resume takes all settings from the run; to extend it, give --train.minutes, "
                    "--train.steps or --train.epochs, and --out for a copy"
                )
            run = resume(self.resume, longer, self.out)
        else:
            config, *rivals = self.configs(changes)
            data = "original" if config.data.original else config.scale
            name = Path(config.data.file).stem if config.data.file else config.benchmark
            model = self.model or config.model_name
            run = train(config, self.out or Path("runs") / f"{name}-{data}-{model}", rivals)
        log, folds = run.log(), run.config.data.folds
        best = min(log, key=lambda line: line.get("validation", -line["step"]))
        figures = {
            "run": str(run.folder),
            "epochs": round(log[-1]["epoch"], 2),
            "validation_relative_l2": best.get("validation"),
            "best_epoch": round(best["epoch"], 2),
            "minutes": round(log[-1]["seconds"] / 60, 2),
        }
        if folds and run.config.data.fold is None:
            from cato.inference.evaluate import evaluate_run

            errors = evaluate_run(run).figures
            del figures["validation_relative_l2"], figures["best_epoch"]
            figures |= {"folds": folds, "cross_validation_relative_l2": errors["relative_l2"]}
        if run.trials:
            figures["model"] = run.config.model_name
            figures["trials"] = {
                trial["model"]: {k: v for k, v in trial.items() if k != "model"}
                for trial in run.trials
            }
        show("trained", figures, self.json, then=f"cato report {run.folder}")

    def configs(self, changes: dict[str, Any]) -> list[Any]:
        """The settings of the run; of model auto, those of all candidates."""
        from cato.runs.settings import build_candidates

        if not self.benchmark:
            raise InputError("say what to train on, such as `cato train darcy`, or --resume RUN")
        names = ("coords", "inputs", "targets", "original")
        data = {name: str(value) for name in names if (value := getattr(self, name)) is not None}
        train = {} if self.start is None else {"start_from": self.start}
        scale, groups = self.scale or "small", ({"data": data, "train": train}, changes)
        return build_candidates(self.benchmark, scale, self.model, *groups, where="cato train")


@dataclass
class Evaluate(RunCommand):
    """Measure the error of a model on held-out samples."""

    split: str = "test"  # test or validation.
    resolution: int | None = None
    """Nodes per side, to evaluate at a resolution other than that of the training."""

    def run(self) -> None:
        from cato.inference.evaluate import evaluate_run
        from cato.runs.folder import open_run

        evaluated = evaluate_run(open_run(self.folder), self.split, self.resolution)
        figures = {**evaluated.figures, "path": str(evaluated.path)}
        show_errors("evaluated", figures, self.json, f"cato report {self.folder}")


@dataclass
class Predict(RunCommand):
    """Predict for the inputs of a file; the result has its format.

    IN has the documented layout, or the fields that the run was trained on: .npz, HDF5, .mat, .pt,
    NetCDF, Zarr, a table, or a folder of VTK or other files. In the documented layout OUT gets
    `outputs`, `bands` if the run has been evaluated, and `errors` if IN has `targets`. A named
    field p becomes p_predicted, p_band and p_error.
    """

    input: Annotated[Positional[Path], tyro.conf.arg(metavar="IN")]
    """File or folder with the inputs."""
    output: Annotated[Positional[Path | None], tyro.conf.arg(metavar="OUT")] = None
    """New file or folder; IN-predicted by default."""
    steps: int | None = None
    """Frames of a rollout, also more than in training; those of the targets or controls of IN, or
    of the training, by default."""

    def run(self) -> None:
        from cato import sandbox

        sandbox.prepare("cato.user_data.readers", "xarray")  # starts while PyTorch is imported
        from cato.inference.predict import predict_file
        from cato.runs.folder import open_run

        figures = predict_file(open_run(self.folder), self.input, self.output, self.steps)
        show_errors("predicted", figures, self.json)


@dataclass
class Report(RunCommand):
    """Write a self-contained HTML report with curves and pictures."""

    def run(self) -> None:
        from cato.inference.evaluate import ALL_ERRORS
        from cato.runs.folder import open_run
        from cato.viz.report import write_report

        path, figures = write_report(open_run(self.folder))
        kept = (*ALL_ERRORS, "what_would_help")
        errors = {key: figures[key] for key in (kept if self.json else ALL_ERRORS)}
        show_errors("report", {"path": str(path), **errors}, self.json)


@dataclass
class Export(RunCommand):
    """Export a model to a file that runs without cato."""

    format: str = "onnx"  # onnx or pt2.
    out: Path | None = None
    """New file; model.onnx or model.pt2 in the run folder (or runs/pretrained/NAME) by default."""

    def run(self) -> None:
        from cato.export import export_run
        from cato.runs.folder import open_run

        run = open_run(self.folder)
        if self.out is None:  # the folder for results of a pretrained model may be new
            run.folder.mkdir(parents=True, exist_ok=True)
        show("exported", export_run(run, self.format, self.out), self.json)


@dataclass
class Serve(Command):
    """Serve models and the explorer over HTTP."""

    runs: Annotated[Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN")] = ()
    """Run folders or pretrained models, or NAME=RUN; all pretrained models by default."""
    host: str = "127.0.0.1"  # Address to listen on; this machine only by default.
    port: int = 8000  # Port; 0 picks a free one.
    open: bool = False  # Open the explorer in a browser.
    token_file: Path | None = None
    """File with a token that clients must send; or set the environment variable CATO_TOKEN."""
    access: _Flat[Access] = field(default_factory=Access)
    requests: _Flat[RequestLimits] = field(default_factory=RequestLimits)
    total: _Flat[TotalLimits] = field(default_factory=TotalLimits)
    client: _Flat[ClientLimits] = field(default_factory=ClientLimits)
    solvers: _Flat[SolverLimits] = field(default_factory=SolverLimits)
    batching: _Flat[Batching] = field(default_factory=Batching)

    def run(self) -> None:
        from cato.serve.server import read_token, serve

        groups = (
            self.access,
            self.requests,
            self.total,
            self.client,
            self.solvers,
            self.batching,
        )
        values = {name: value for group in groups for name, value in to_dict(group).items()}
        serve(
            self.runs,
            self.host,
            self.port,
            settings=from_dict(ServeSettings, values, "cato serve"),
            token=read_token(self.token_file),
            open_page=self.open,
            as_json=self.json,
        )


SECTIONS: dict[str, dict[str, type[Any]]] = {
    "Start": {"demo": Demo, "pretrained": Pretrained},
    "Data": {"benchmarks": Benchmarks, "generate": Generate, "inspect": Inspect, "advise": Advise},
    "Train": {"models": Models, "train": Train, "evaluate": Evaluate, "report": Report},
    "Use": {"predict": Predict, "serve": Serve, "export": Export},
}
"""Commands as `cato --help` lists them."""
COMMANDS = {name: command for section in SECTIONS.values() for name, command in section.items()}
