"""The studies as commands: `python -m reproduce compare` and its sisters."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from cato.cli.main import print_overview, run_guarded
from cato.cli.output import show_results
from cato.cli.parsing import parse
from cato.errors import InputError

if TYPE_CHECKING:
    from reproduce.experiment import Setup


@dataclass
class Study:
    """What the studies have in common: a queue of trainings that a killed study goes on with."""

    scale: str = "small"
    """paper, small or smoke."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of the trainings."""
    data: Path = Path("data")
    """Folder of the data files."""
    runs: Path | None = None
    """Folder of the run folders, where a killed study goes on; runs/STUDY by default."""
    out: Path | None = None
    """Folder of the results; results/STUDY by default."""
    workers: int | None = None
    """Trainings at a time, one thread each; one per core by default."""
    json: bool = False
    """Print one JSON object."""

    name: ClassVar[str]

    @property
    def folder(self) -> Path:
        """Of the results."""
        return self.out or Path("results") / self.name

    def show(self, rows: list[dict[str, Any]], columns: Sequence[str]) -> None:
        """Some columns of the results, and what was written."""
        show_results(rows, columns, _files(self.folder, self.name), self.json)

    def setup(self, share: float = 1.0, minutes: float | None = None) -> "Setup":
        """The same for the study itself, with the budget of a training."""
        from reproduce.experiment import Setup

        runs = self.runs or Path("runs") / self.name
        return Setup(
            self.scale, self.seeds, share, minutes, self.data, runs, self.folder, self.workers
        )


@dataclass
class StudyCompare(Study):
    """Models side by side on the benchmarks: a queue of trainings, one results file, one page."""

    name = "compare"

    models: tuple[str, ...] = ("cato",)
    """Their names, see `cato models`; cato is CATO-PC on clouds."""
    benchmarks: tuple[str, ...] = ()
    """Their names; all six by default."""
    minutes: float | None = None
    """Training time of each; by the recipe's epochs unless given."""
    share: float = 1.0
    """Of the recipe's steps that every training gets."""
    rivals: int | None = None
    """Models beside CATO that get all the seeds, the best on validation; all unless given."""

    def run(self) -> None:
        """Train, collect and write."""
        from cato.benchmarks import BENCHMARKS
        from reproduce.compare import compare

        results = compare(
            self.models,
            self.benchmarks or tuple(BENCHMARKS),
            self.setup(share=self.share, minutes=self.minutes),
            self.rivals,
        )
        columns = ("benchmark", "model", "relative_l2", "spread", "mean_predictor", "epochs")
        self.show(results["rows"], columns)


@dataclass
class StudyAblation(Study):
    """One change at a time: CATO with a part left out, or an open choice made differently."""

    name = "ablation"

    questions: tuple[str, ...] = ()
    """What to change, such as chart or "rotary scale"; all that make sense by default."""
    benchmarks: tuple[str, ...] = ("darcy",)
    """Their names."""
    share: float = 1.0
    """Of the recipe's steps that every training gets."""
    minutes: float | None = None
    """Training time of each instead."""
    answer_seeds: int | None = None
    """How many of the seeds the changed recipes get, the first ones; all unless given."""

    def run(self) -> None:
        """Train, collect and write."""
        from reproduce.ablation import ablation

        setup = self.setup(self.share, self.minutes)
        results = ablation(self.questions, self.benchmarks, setup, self.answer_seeds)
        columns = ("benchmark", "question", "answer", "validation", "validation_spread")
        self.show(results["rows"], columns)


@dataclass
class StudyRates(Study):
    """Learning rates: the same short sweep for every model, judged on validation."""

    name = "rates"

    models: tuple[str, ...] = ()
    """Their names; all that work on meshes by default."""
    minutes: float = 1.0
    """Training time of each."""

    def run(self) -> None:
        """Train, collect and write."""
        from cato.models.registry import grid_models
        from reproduce.lr_sweep import rates

        results = rates(self.models or grid_models(), self.setup(minutes=self.minutes))
        self.show(results["rows"], ("model", "best"))


@dataclass
class StudyScaling(Study):
    """How errors fall with samples, resolution, depth and width: CATO against a strong rival."""

    name = "scaling"

    benchmarks: tuple[str, ...] = ("darcy", "pipe")
    """darcy, pipe or both."""
    share: float = 1.0
    """Of the recipe's steps that every training gets."""

    def run(self) -> None:
        """Train, collect and write."""
        from reproduce.scaling import scaling

        results = scaling(self.benchmarks, self.setup(share=self.share))
        columns = ("benchmark", "model", "axis", "value", "relative_l2", "spread")
        self.show(results["rows"], columns)


@dataclass
class StudyEfficiency:
    """What the models cost: parameters, operations, time, memory, their growth with the mesh."""

    models: tuple[str, ...] = ()
    """Their names; all that work on meshes by default."""
    benchmarks: tuple[str, ...] = ("darcy", "pipe")
    """Those to measure a training step on."""
    sizes: tuple[int, ...] = (32, 64, 96, 128, 192, 256, 384, 512)
    """Nodes per side of the square meshes on which the cost grows."""
    scale: str = "paper"
    """Of the recipes for the training steps: paper, small or smoke."""
    growth_scale: str = "small"
    """Of the recipes for the growth."""
    repeats: int = 3
    """Measurements of which the median is taken."""
    runs: Path = Path("runs/efficiency")
    """Folder of the measurements; a killed study goes on there."""
    out: Path = Path("results/efficiency")
    """Folder of the results."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        """Measure, collect and write."""
        from reproduce.efficiency import efficiency

        names = ("benchmarks", "sizes", "scale", "growth_scale", "repeats", "runs", "out")
        results = efficiency(self.models, **{name: getattr(self, name) for name in names})
        columns = ("benchmark", "model", "parameters", "gflop_forward", "epoch_seconds")
        show_results(results["rows"], columns, _files(self.out, "efficiency"), self.json)


@dataclass
class StudyChart(Study):
    """The learned chart: its shape beside the physical grid, and the error with other charts."""

    name = "chart"

    benchmarks: tuple[str, ...] = ()
    """Their names; all six by default."""
    share: float = 1.0
    """Of the recipe's steps that every training gets."""

    def run(self) -> None:
        """Train, collect and write."""
        from cato.benchmarks import BENCHMARKS
        from reproduce.chart import chart

        results = chart(self.benchmarks or tuple(BENCHMARKS), self.setup(share=self.share))
        columns = ("benchmark", "space", "seed", "first", "dimension", "folded")
        self.show(results["spaces"], columns)


@dataclass
class StudyGallery:
    """Pictures of models side by side, from the finished runs of `python -m reproduce compare`."""

    models: tuple[str, ...] = ("cato", "saot", "transolver")
    """Their names; cato, CATO-PC on clouds, must be among them."""
    benchmarks: tuple[str, ...] = ()
    """Their names; all six by default."""
    scale: str = "small"
    """paper, small or smoke."""
    minutes: float | None = None
    """As given to `python -m reproduce compare`."""
    share: float = 1.0
    """As given to `python -m reproduce compare`."""
    runs: Path = Path("runs/compare")
    """Folder of the run folders."""
    out: Path = Path("results/gallery")
    """Folder of the results."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        """Draw and write."""
        from cato.benchmarks import BENCHMARKS
        from reproduce.experiment import Setup
        from reproduce.gallery import compared_runs, gallery

        setup = Setup(self.scale, share=self.share, minutes=self.minutes, runs=self.runs)
        found = compared_runs(self.benchmarks or tuple(BENCHMARKS), setup, self.models)
        rows = [
            {"benchmark": row["benchmark"], "sample": row["sample"], "model": name, "error": error}
            for row in gallery(found, self.out)["rows"]
            for name, error in row["errors"].items()
        ]
        show_results(rows, rows[0], _files(self.out, "gallery"), self.json)


@dataclass
class StudyTheory:
    """The paper's theory executed: Lemma 1's weights, Lemma 2's constant, Theorem 1's bound."""

    out: Path = Path("results/theory")
    """Folder of the results."""
    seed: int = 0
    """Of operators, charts, features and fields."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        """Compute and write."""
        from reproduce.theory_study import theory

        rows = theory(self.out, self.seed)["realisation"]
        columns = ("rank", "width", "errors", "bounds")
        show_results(rows, columns, _files(self.out, "theory"), self.json)


@dataclass
class StudyReport:
    """One page from the results of all studies: each claim of the paper, our number, a verdict."""

    results: Path = Path("docs/studies")
    """Folder with a folder of results for each study."""
    out: Path = Path("docs")
    """Where results.md and results.html go."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        """Collect and write."""
        from reproduce.report import report

        stated = report(self.results, self.out)["claims"]
        files = (self.out / "results.md", self.out / "results.html")
        show_results(stated, ("text", "ours", "verdict"), files, self.json, title="claims")


def _files(folder: Path, study: str) -> tuple[Path, Path]:
    """What a study writes beside its pictures."""
    return folder / f"{study}.json", folder / f"{study}.md"


STUDIES: dict[str, type[Any]] = {
    "compare": StudyCompare,
    "rates": StudyRates,
    "ablation": StudyAblation,
    "scaling": StudyScaling,
    "efficiency": StudyEfficiency,
    "chart": StudyChart,
    "theory": StudyTheory,
    "gallery": StudyGallery,
    "report": StudyReport,
}


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `python -m reproduce`."""
    run_guarded(_dispatch, arguments)


def _dispatch(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        print_overview("python -m reproduce", STUDIES)
    elif arguments[0] not in STUDIES:
        raise InputError(f"unknown study {arguments[0]!r}; choose one of {', '.join(STUDIES)}")
    else:
        name, *rest = arguments
        parse(STUDIES[name], rest, f"python -m reproduce {name}").run()
