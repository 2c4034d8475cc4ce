"""What all studies that train have in common: recipes with a few settings changed, in a queue."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from cato.benchmarks import get_benchmark
from cato.data.generate import covering, generate_file
from cato.errors import InputError
from cato.models.registry import default_model
from cato.runs.folder import Run
from cato.runs.load import data_spec
from cato.runs.provenance import environment
from cato.runs.settings import Changes, RunConfig, build_settings
from reproduce.jobs import run_jobs
from reproduce.step_timing import in_equal_time


@dataclass(frozen=True)
class Setup:
    """How and where a study trains.

    Attributes:
        scale: Of data and recipes.
        seeds: Of the trainings; the data are the same for all.
        share: Of the recipe's steps that every training gets.
        minutes: Training time of each on one thread instead, the same for all.
        data: Folder of the data files.
        runs: Folder of the run folders.
        out: Folder of the results.
        workers: Trainings at a time, one thread each; one per core by default.
    """

    scale: str = "small"
    seeds: tuple[int, ...] = (0,)
    share: float = 1.0
    minutes: float | None = None
    data: Path = Path("data")
    runs: Path = Path("runs/studies")
    out: Path = Path("results")
    workers: int | None = None

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            given = ", ".join(map(str, self.seeds)) or "none"
            raise InputError(f"name at least one seed, each once; got {given}")
        if not 0 < self.share <= 1:
            raise InputError(f"the share must be above 0 and at most 1; got {self.share:g}")
        if self.minutes is not None and self.minutes <= 0:
            raise InputError(f"the minutes must be above 0; got {self.minutes:g}")
        if self.minutes is not None and self.share != 1:
            raise InputError("give every training so many minutes or a share, not both")

    @property
    def budget(self) -> str:
        """What every training gets, for names of run folders."""
        if self.minutes is not None:
            return f"{self.minutes:g}min"
        return "recipe" if self.share == 1 else f"share{self.share:g}"

    def job(self, benchmark: str, what: str, seed: int) -> str:
        """The name of a run folder; `what` is the model, if all else is the recipe's."""
        return f"{benchmark}-{self.scale}-{what}-{self.budget}-seed{seed}"

    def config(self, benchmark: str, model: str, *changes: Changes) -> RunConfig:
        """The recipe with some settings changed, the later last, and its share of the steps."""
        data = {"data": {"root": str(self.data)}}
        config = build_settings(benchmark, self.scale, model, data, *changes, where="study")
        if self.share == 1 or config.train.steps is not None:
            return config
        return replace(config, train=replace(config.train, steps=self.num_steps(config)))

    def num_steps(self, config: RunConfig) -> int:
        """The share of the steps of a training by its epochs."""
        per_epoch = math.ceil(data_spec(config).counts["train"] / config.train.batch_size)
        return max(1, round(self.share * config.train.epochs * per_epoch))

    def own_model(self, benchmark: str) -> str:
        """CATO, or CATO-PC where the benchmark is a cloud."""
        return default_model(get_benchmark(benchmark).problem(self.scale))

    def _provide_data(self, jobs: Iterable[RunConfig]) -> None:
        """Generate the data of jobs that are missing; whole scales first, they serve for parts."""
        specs = {data_spec(config) for config in jobs}
        for spec in sorted(specs, key=lambda spec: (spec.count is not None, spec.file_name)):
            generate_file(covering(spec, self.data), self.data, self.workers)

    def train(self, jobs: Mapping[str, RunConfig], label: str) -> dict[str, Run]:
        """The finished run of every job; trains and evaluates what is missing."""
        self._provide_data(jobs.values())
        if self.minutes is not None:
            if torch.cuda.is_available():
                raise InputError(
                    "equal time is that of one CPU thread; hide the GPUs with "
                    "CUDA_VISIBLE_DEVICES= or leave --minutes out"
                )
            jobs = in_equal_time(jobs, self.minutes, self.runs, self.workers)
        return run_jobs(jobs, self.runs, self.workers, label)

    def record(self, finished: Mapping[str, Run]) -> dict[str, Any]:
        """For the results file: how the trainings were done, on what, and what each took."""
        settings = {
            "scale": self.scale,
            "seeds": list(self.seeds),
            "share": self.share,
            "minutes": self.minutes,
            "threads": 1,
        }
        minutes = {name: run.log()[-1]["seconds"] / 60 for name, run in finished.items()}
        return {"settings": settings, "environment": environment(), "minutes": minutes}
