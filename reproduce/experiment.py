"""An experiment: its definition in experiments.toml, and the trainings that it asks for."""

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from cato.benchmarks import BENCHMARKS, get_benchmark
from cato.cluster import workers_of
from cato.data.generate import covering, generate_file
from cato.errors import InputError
from cato.models.registry import MODELS, default_model, model_class
from cato.processes import Workers
from cato.runs.folder import Run
from cato.runs.load import data_spec
from cato.runs.settings import Changes, RunConfig, build_settings
from reproduce.candidates import NAME as CANDIDATE
from reproduce.jobs import KEPT, run_jobs
from reproduce.power_law import MIN_BUDGETS
from reproduce.step_timing import in_equal_time
from reproduce.variants import recipe_of_variant

FILE = Path(__file__).with_name("experiments.toml")
RESULTS = Path("docs/studies")
"""Results of the experiments as they are defined."""
RUNS = Path("runs/studies")
"""Run folders of the experiments as they are defined."""
TRIALS = Path("results")
"""Results of experiments with overridden entries."""
OURS = ("cato", "cato_pc")
"""The paper's models."""
TRAINING = (
    "benchmarks",
    "scale",
    "seeds",
    "share",
    "minutes",
    "data",
    "runs",
    "workers",
    "cluster",
)
OPTIONS = {
    "compare": ("models", "rivals", "curve_seeds", "extrapolate", "best", "variants", *TRAINING),
    "ablation": ("questions", "change_seeds", *TRAINING),
    "why-not": ("questions", "extrapolate", *TRAINING),
    "lr-sweep": ("models", *TRAINING),
    "scaling": TRAINING,
    "chart": TRAINING,
    "gallery": ("models", *TRAINING),
    "efficiency": ("models", "benchmarks", "scale", "growth_scale", "sizes", "repeats", "runs"),
    "theory": (),
}
"""The entries of an experiment that each kind reads."""


class Planned(NamedTuple):
    """A training that an experiment will ask for."""

    training: str
    """All settings but its length, in words: trainings with the same extend each other."""
    minutes: float


@dataclass(frozen=True)
class Experiment:
    """What is run, and where the runs and results go; see experiments.toml for the entries.

    Attributes:
        plan: How the training time was reduced, for the plan of the paper's table.
        minutes: Training times on one CPU thread, ascending. Only a comparison takes several: a
            longer training extends the one before.
        extrapolate: Minutes up to which the fitted errors of several times are drawn.
        schedule: Schedule of all trainings, if it is not the recipe's.
        conditioning: Conditioning of all trainings, if it is not the recipe's.
        best_of: Comparison whose best models are compared again, besides `models`; of `why-not`
            that which CATO did not win everywhere.
        best: Their number, without those of `models`.
        variants: Models of `reproduce.variants` to show next to the others, on benchmarks that
            they can do, with the first seed; they enter no rank and no verdict.
        change_seeds: Number of seeds of the changed recipes of an ablation, the first ones; the
            recipe itself gets all. All unless given.
        rivals: Number of models besides CATO that get all the seeds, the best on validation with
            the first seed; all unless given.
        curve_seeds: Number of seeds that are trained for all of several times, the first ones; the
            others have the longest time alone. All unless given.
        growth_scale: Scale of the recipes with which the cost grows with the mesh.
        sizes: Nodes per side of the square meshes on which the cost is measured.
        repeats: Measurements of which the median is taken.
        data: Folder of the data files.
        runs: Folder of the run folders and measurements; a killed experiment resumes there.
        out: Folder of the results.
        workers: Trainings at a time, one thread each; one per core by default.
        cluster: Address of a Dask scheduler, or `local`, to generate and train there.
    """

    name: str
    kind: str
    title: str = ""
    question: str = ""
    cost: str = ""
    plan: str = ""
    models: tuple[str, ...] = ()
    benchmarks: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    scale: str = "small"
    seeds: tuple[int, ...] = (0,)
    share: float = 1.0
    minutes: tuple[float, ...] = ()
    extrapolate: float | None = None
    schedule: str | None = None
    conditioning: str | None = None
    best_of: str | None = None
    best: int = 0
    variants: tuple[str, ...] = ()
    rivals: int | None = None
    curve_seeds: int | None = None
    change_seeds: int | None = None
    growth_scale: str = "small"
    sizes: tuple[int, ...] = ()
    repeats: int = 3
    data: Path = Path("data")
    runs: Path = RUNS
    out: Path = TRIALS
    workers: int | None = None
    cluster: str | None = None

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            given = ", ".join(map(str, self.seeds)) or "none"
            raise InputError(f"give at least one seed, each once; got {given}")
        if not 0 < self.share <= 1:
            raise InputError(f"the share must be above 0 and at most 1; got {self.share:g}")
        if self.minutes != tuple(sorted({m for m in self.minutes if m > 0})):
            given = ", ".join(f"{m:g}" for m in self.minutes)
            raise InputError(f"the minutes must be above 0 and ascending; got {given}")
        if len(self.minutes) > 1 and self.kind != "compare":
            raise InputError(f"{self.name} takes one number of minutes; got {len(self.minutes)}")
        if self.minutes and self.share != 1:
            raise InputError("give minutes or a share of the steps, not both")
        is_curve = self.kind == "compare"  # others extrapolate the curves of a comparison
        if is_curve and self.extrapolate is not None and len(self.minutes) < MIN_BUDGETS:
            raise InputError(f"to extrapolate, give at least {MIN_BUDGETS} numbers of minutes")
        if self.extrapolate is not None and self.extrapolate <= self.minutes[-1]:
            longest = f"{self.minutes[-1]:g}"
            raise InputError(f"extrapolate to above {longest} minutes; got {self.extrapolate:g}")
        for name in self.benchmarks:
            get_benchmark(name)  # raises for unknown names
        for name in self.models:
            model_class(name)

    @property
    def results(self) -> Path:
        """The results file."""
        return self.out / f"{self.kind}.json"

    @property
    def source(self) -> Path:
        """Results of the comparison that this one follows; a trial's, if there is one."""
        assert self.best_of is not None
        source = load(self.best_of)
        trial = self.out.parent / source.name / source.results.name
        found = trial if trial.exists() else source.results
        if not found.exists():
            raise InputError(
                f"{self.name} follows from the results of {source.name}; run "
                f"`make study-{source.name}` first"
            )
        return found

    @property
    def page(self) -> Path:
        """The page written from the results file."""
        return self.out / f"{self.kind}.md"

    @property
    def all_benchmarks(self) -> tuple[str, ...]:
        """The benchmarks, all if none are named."""
        return self.benchmarks or tuple(BENCHMARKS)

    @property
    def all_models(self) -> tuple[str, ...]:
        """The models, all that work on meshes if none are named."""
        return self.models or tuple(n for n, model in MODELS.items() if "grid" in model.geometries)

    @property
    def budget(self) -> str:
        """Training budget in names of run folders."""
        if self.minutes:
            return f"{self.minutes[-1]:g}min"
        return "recipe" if self.share == 1 else f"share{self.share:g}"

    @property
    def by_budget(self) -> list["Experiment"]:
        """The experiment with each of its times alone, so that one run can extend another."""
        if len(self.minutes) < 2:
            return [self]
        return [
            replace(self, minutes=(minutes,), schedule="wsd", extrapolate=None)
            for minutes in self.minutes
        ]

    def parts_of(self, seed: int) -> list["Experiment"]:
        """Those of `by_budget` that a seed is trained for."""
        number = self.curve_seeds
        return self.by_budget if seed in self.seeds[:number] else self.by_budget[-1:]

    def job(self, benchmark: str, what: str, seed: int) -> str:
        """Name of a run folder; `what` is the model if all else is the recipe's."""
        return f"{benchmark}-{self.scale}-{what}-{self.budget}-seed{seed}"

    def planned(self, benchmark: str, what: str, seed: int) -> list[Planned]:
        """A training with all the times of its seed."""
        name = f"{benchmark}-{what}-seed{seed}"
        return [Planned(name, part.minutes[-1]) for part in self.parts_of(seed)]

    def config(self, benchmark: str, model: str, *changes: Changes) -> RunConfig:
        """The recipe with some settings changed, the later last, and its share of the steps."""
        common: dict[str, Any] = {"data": {"root": str(self.data)}}
        if self.conditioning is not None:
            common["data"]["conditioning"] = self.conditioning
        if self.schedule is not None:
            common["train"] = {"schedule": self.schedule}
        recipe = recipe_of_variant(benchmark, self.scale, model)
        every = (recipe, common, *changes)
        config = build_settings(benchmark, self.scale, model, *every, where="study")
        if self.share == 1 or config.train.steps is not None:
            return config
        return replace(config, train=replace(config.train, steps=self.num_steps(config)))

    def num_steps(self, config: RunConfig) -> int:
        """The share of the steps of a training by its epochs."""
        per_epoch = math.ceil(data_spec(config).counts["train"] / config.train.batch_size)
        return max(1, round(self.share * config.train.epochs * per_epoch))

    def our_model(self, benchmark: str) -> str:
        """CATO, or CATO-PC if the benchmark is a point cloud."""
        return default_model(get_benchmark(benchmark).problem(self.scale))

    def one_change(self, benchmark: str, changes: Changes, seed: int) -> tuple[str, RunConfig]:
        """Name and settings of a training of CATO with some settings changed.

        The name follows from the changes, so that equal answers to two questions share a training,
        and the unchanged recipe shares it with the comparison.
        """
        model = self.our_model(benchmark)
        train = {"seed": seed}
        if "data" in changes and not self.minutes:  # fewer samples, the same number of steps
            train["steps"] = self.num_steps(build_settings(benchmark, self.scale, model))
        if "structure" in changes.get("model", {}):
            model = CANDIDATE
        config = self.config(benchmark, model, changes, {"train": train})
        return self.job(benchmark, self.in_words(benchmark, changes), seed), config

    def in_words(self, benchmark: str, changes: Changes) -> str:
        """Changes of CATO's recipe in the name of a run folder; the model if there are none."""
        settings = [f"{name}={value}" for new in changes.values() for name, value in new.items()]
        return "_".join(settings).replace(" ", "") or self.our_model(benchmark)

    @property
    def kept(self) -> Path:
        """Folder of what is kept of the trainings besides run folders: records, measured times.

        It is committed, unless this is a trial. Experiments that share run folders share it.
        """
        if self.out.parent == RESULTS and self.runs.parent == RUNS:
            return RESULTS / self.runs.name
        return self.runs

    def train(
        self,
        jobs: Mapping[str, RunConfig],
        need_weights: bool = False,
    ) -> dict[str, Run]:
        """The finished run of every job; trains and evaluates those that are missing.

        Args:
            jobs: Settings by name.
            need_weights: Train again what was trained on another machine.
        """
        if not jobs:
            return {}
        kept = self.kept / KEPT
        with workers_of(self.workers, self.cluster) as workers:
            self._generate_data(jobs.values(), workers)
            if self.minutes:
                if torch.cuda.is_available():
                    raise InputError(
                        "equal time is measured on one CPU thread; hide the GPUs with "
                        "CUDA_VISIBLE_DEVICES= or leave --minutes out"
                    )
                (minutes,) = self.minutes
                jobs = in_equal_time(jobs, minutes, self.kept, self.workers)
            return run_jobs(jobs, self.runs, workers, self.name, kept, need_weights)

    def _generate_data(self, jobs: Iterable[RunConfig], workers: int | Workers | None) -> None:
        """Generate missing data; whole scales first, because smaller sets are parts of them."""
        specs = {data_spec(config) for config in jobs}
        for spec in sorted(specs, key=lambda spec: (spec.count is not None, spec.file_name)):
            generate_file(covering(spec, self.data), self.data, workers)

    def record(self, finished: Mapping[str, Run]) -> dict[str, Any]:
        """Settings and training minutes for the results file, of extended runs what they added."""
        settings = {
            "scale": self.scale,
            "share": self.share,
            "minutes": self.minutes[-1] if self.minutes else None,
            "seeds": list(self.seeds),
            "threads": 1,
        }
        minutes = {
            name: (run.log()[-1]["seconds"] - run.record.get("branch", {"seconds": 0})["seconds"])
            / 60
            for name, run in finished.items()
        }
        return {"settings": settings, "minutes": minutes}


@cache
def definitions() -> dict[str, Any]:
    """All of experiments.toml; "null" becomes None."""

    def convert(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: convert(item) for name, item in value.items()}
        return None if value == "null" else value

    return dict(convert(tomllib.loads(FILE.read_text())))


def load(name: str, **overrides: Any) -> Experiment:
    """An experiment of experiments.toml, with some entries replaced; None keeps an entry."""
    table = definitions()["experiments"]
    if name not in table:
        raise InputError(f"no experiment {name!r}; choose one of {', '.join(table)}")
    given = {key: value for key, value in overrides.items() if value is not None}
    entries: dict[str, Any] = {"runs": RUNS / name} | table[name]
    places = ("out", "data", "runs", "workers")
    if unused := [key for key in given if key not in (*OPTIONS[entries["kind"]], *places)]:
        raise InputError(f"{name} has no --{unused[0].replace('_', '-')}; leave it out")
    if {"share", "minutes"} & set(given):
        entries = {key: v for key, v in entries.items() if key not in ("share", "minutes")}
    is_trial = any(key not in (*places, "cluster") for key in given)
    entries["out"] = (TRIALS if is_trial else RESULTS) / name
    types = {field.name: field.type for field in fields(Experiment)}
    merged: dict[str, Any] = entries | given
    for key, value in merged.items():
        if isinstance(value, list):
            value = tuple(value)
        elif key == "minutes" and not isinstance(value, tuple):
            value = (value,)
        entries[key] = Path(value) if types[key] is Path else value
    return Experiment(name=name, **entries)


def all_experiments() -> list[Experiment]:
    """All experiments of experiments.toml."""
    return [load(name) for name in definitions()["experiments"]]
