"""What is served: trained surrogates with a name and a description."""

import hashlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cato.benchmarks import BENCHMARKS
from cato.errors import InputError
from cato.files import read_json
from cato.inference.conformal import Band
from cato.inference.evaluate import load_run_band
from cato.problem import Problem
from cato.progress import progress_bar
from cato.runs.folder import PRETRAINED, Run, open_run, pretrained_names
from cato.runs.load import load_surrogate
from cato.surrogate import Surrogate

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class ServedModel:
    """A surrogate under the name that clients call it by.

    Attributes:
        name: In addresses.
        surrogate: Ready to predict.
        about: Whatever else a client may want to know, JSON-ready: architecture, benchmark, errors.
        band: Around its predictions, where the run has one.
    """

    name: str
    surrogate: Surrogate
    about: dict[str, Any]
    band: Band | None = None

    @property
    def problem(self) -> Problem:
        """What was learnt."""
        return self.surrogate.problem

    @property
    def has_coords(self) -> bool:
        """Whether the training mesh stands in where a request has no coordinates."""
        return self.surrogate.coords is not None

    @cached_property
    def version(self) -> str:
        """Twelve digits that change with the weights."""
        checksum = hashlib.sha256()
        for name, tensor in sorted(self.surrogate.state_dict().items()):
            checksum.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
        return checksum.hexdigest()[:12]

    def summary(self) -> dict[str, Any]:
        """One line of the list of models."""
        return {
            "name": self.name,
            "version": self.version,
            "problem": self.problem.name,
            "geometry": self.problem.geometry,
            "shape": list(self.problem.shape),
            "inputs": list(self.problem.inputs),
            "outputs": list(self.problem.outputs),
        }

    def describe(self) -> dict[str, Any]:
        """All that is needed to ask for a prediction and to understand the answer."""
        problem = self.problem
        frames = [] if problem.time == "steady" else [problem.num_steps]
        return {
            **self.summary(),
            "dimension": problem.dimension,
            "periodic": list(problem.periodic),
            "time": problem.time,
            "num_steps": problem.num_steps,
            "inputs_shape": ["samples", *problem.shape, problem.num_inputs],
            "coords_shape": ["samples", *problem.shape, problem.dimension],
            "outputs_shape": ["samples", *frames, *problem.shape, problem.num_outputs],
            "needs_coords": not self.has_coords,
            "parameters": sum(p.numel() for p in self.surrogate.model.parameters()),
            "about": self.about,
        }

    def warm_up(self) -> float:
        """Seconds of one prediction, after a first that compiles and allocates."""
        shape = self.problem.shape
        inputs = np.zeros((1, *shape, self.problem.num_inputs), np.float32)
        axes = [np.linspace(0, 1, nodes, dtype=np.float32) for nodes in shape]
        coords = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
        if coords.shape[-1] != self.problem.dimension:  # a cloud: any different points will do
            coords = np.random.default_rng(0).random((*shape, self.problem.dimension), np.float32)
        self.surrogate.predict(inputs, coords)
        began = time.perf_counter()
        self.surrogate.predict(inputs, coords)
        return time.perf_counter() - began


def load_models(runs: Sequence[str]) -> dict[str, ServedModel]:
    """The models of `cato serve RUN …`, loaded and warm, by name.

    Args:
        runs: Run folders or pretrained models; NAME=RUN gives a model another name than that of its
            folder. All pretrained models for none.
    """
    runs = runs or [str(PRETRAINED / name) for name in pretrained_names()]
    models: dict[str, ServedModel] = {}
    with progress_bar("loading models", len(runs)) as report:
        for number, argument in enumerate(runs):
            report(number, argument)
            model = load_model(argument)
            if model.name in models:
                raise InputError(
                    f"two models are called {model.name!r}; name one of them: "
                    f"cato serve OTHER={argument.rpartition('=')[2]}"
                )
            model.about["seconds_per_sample"] = model.warm_up()
            models[model.name] = model
        report(len(runs))
    return models


def load_model(argument: str) -> ServedModel:
    """What one RUN argument stands for: the only place that decides it."""
    given, separator, rest = argument.partition("=")
    if not separator or Path(argument).exists():
        given, rest = "", argument
    run = open_run(rest)
    name = given or run.folder.resolve().name
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot be part of an address; give the model a name of letters, digits, "
            f"dots, dashes and underscores: cato serve NAME={rest}"
        )
    return ServedModel(name, load_surrogate(run), _about(run), load_run_band(run))


def _about(run: Run) -> dict[str, Any]:
    """What a client is told of a run."""
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
    evaluation = run.source / "evaluation.json"
    if evaluation.exists():
        figures = read_json(evaluation, "evaluation")
        about["test_error"] = {key: figures.get(key) for key in ("relative_l2", "median", "worst")}
        about["band"] = figures.get("band")
    return about
