"""Served models: trained surrogates with a name and a description."""

import hashlib
import re
import timeit
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cato.benchmarks import BENCHMARKS
from cato.data.training_range import TrainingRange, Verdict, judge, load_range
from cato.errors import InputError
from cato.inference.conformal import Band
from cato.inference.evaluate import ALL_ERRORS, band_of, read_evaluation
from cato.problem import Problem
from cato.progress import progress_bar
from cato.runs.folder import PRETRAINED, Run, open_run, pretrained_names
from cato.runs.load import load_surrogate
from cato.surrogate import Surrogate
from cato.user_data.axes import unit_grid

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class ServedModel:
    """A surrogate with the name that clients use."""

    name: str  # used in URLs
    surrogate: Surrogate
    about: dict[str, Any]  # JSON-ready details for clients: architecture, benchmark, test errors
    band: Band | None = None  # conformal band, if the run has one
    training_range: TrainingRange | None = None  # of the inputs, if the run has one

    @property
    def problem(self) -> Problem:
        return self.surrogate.problem

    @property
    def has_coords(self) -> bool:
        """Whether requests without coordinates are solved on the training mesh."""
        return self.surrogate.coords is not None

    @cached_property
    def version(self) -> str:
        """Twelve hexadecimal digits that change with the weights."""
        checksum = hashlib.sha256()
        for name, tensor in sorted(self.surrogate.state_dict().items()):
            checksum.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
        return checksum.hexdigest()[:12]

    def verdicts(self, inputs: np.ndarray, coords: np.ndarray | None) -> list[Verdict]:
        """Whether validated samples are inside the training range; coordinates as in a request."""
        if coords is None:
            assert self.surrogate.coords is not None
            coords = self.surrogate.coords.cpu().numpy().reshape(*self.problem.shape, -1)
        return judge(self.training_range, self.problem, inputs, coords)

    def describe(self) -> dict[str, Any]:
        """Everything needed to call the model; see `routes.ModelDescription`."""
        problem = self.problem
        frames = [] if problem.time == "steady" else [problem.num_steps]
        return {
            **problem.to_dict(),
            "name": self.name,
            "version": self.version,
            "problem": problem.name,
            "inputs_shape": ["samples", *problem.shape, problem.num_inputs],
            "coords_shape": ["samples", *problem.shape, problem.dimension],
            "outputs_shape": ["samples", *frames, *problem.shape, problem.num_outputs],
            "needs_coords": not self.has_coords,
            "parameters": sum(p.numel() for p in self.surrogate.model.parameters()),
            "about": self.about,
        }

    def warm_up(self) -> float:
        """Seconds for one prediction, measured after a first call that compiles and allocates."""
        shape, dimension = self.problem.shape, self.problem.dimension
        if self.problem.geometry == "cloud":  # any distinct points
            coords = np.random.default_rng(0).random((*shape, dimension))
        else:
            coords = unit_grid(shape)
        # Values of the size of the training's: others may overflow.
        statistics = {n: b.cpu().numpy() for n, b in self.surrogate.normaliser.named_buffers()}
        coords = statistics["coords_mean"] + statistics["coords_std"] * coords
        mean = self.surrogate.normaliser.of_inputs(self.problem)[0].cpu().numpy()
        inputs = np.broadcast_to(mean, (1, *shape, self.problem.num_inputs))
        self.surrogate.predict(inputs, coords)
        return timeit.timeit(lambda: self.surrogate.predict(inputs, coords), number=1)


def load_models(runs: Sequence[str]) -> dict[str, ServedModel]:
    """Load and warm up the models of `cato serve RUN …`, by name; all pretrained models if empty.

    NAME=RUN serves a run under another name than that of its folder.
    """
    runs = runs or [str(PRETRAINED / name) for name in pretrained_names()]
    models: dict[str, ServedModel] = {}
    with progress_bar("loading models", len(runs)) as report:
        for number, argument in enumerate(runs):
            report(number, argument)
            model = load_model(argument)
            if model.name in models:
                raise InputError(
                    f"two models are called {model.name!r}; rename one of them: "
                    f"cato serve OTHER={argument.rpartition('=')[2]}"
                )
            model.about["seconds_per_sample"] = model.warm_up()
            models[model.name] = model
        report(len(runs))
    return models


def load_model(argument: str) -> ServedModel:
    """The model for one RUN or NAME=RUN argument."""
    prefix, separator, rest = argument.partition("=")
    if not separator or Path(argument).exists():
        prefix, rest = "", argument
    run = open_run(rest)
    name = prefix or run.folder.resolve().name
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot be part of a URL; choose a name of letters, digits, dots, dashes and "
            f"underscores: cato serve NAME={rest}"
        )
    surrogate = load_surrogate(run)
    step = surrogate.step
    known = load_range(run.source, run.problem, run.id)
    return ServedModel(name, surrogate, _about(run, step), band_of(run, step), known)


def _about(run: Run, step: int | None) -> dict[str, Any]:
    config = run.config
    about: dict[str, Any] = {
        "model": config.model_name,
        "benchmark": config.benchmark,
        "scale": config.scale,
        "trained": run.record["created"],
        "cato": run.record["cato"],
    }
    if config.benchmark in BENCHMARKS:
        benchmark = BENCHMARKS[config.benchmark]
        about |= {"title": benchmark.title, "description": benchmark.description}
    if (figures := read_evaluation(run, step)) is not None:
        about["test_error"] = {key: figures.get(key) for key in ALL_ERRORS}
        about |= {key: figures.get(key) for key in ("band", "training_range")}
    return about
