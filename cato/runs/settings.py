"""The settings of a run, and the recipes that fill them in.

A recipe is a small TOML file per benchmark with a table for each scale. It says only what differs
from the defaults: `all.train` and `all.loss` for every model, `NAME.model`, `NAME.loss` and
`NAME.train` for one. Own data have a recipe too, and the name `own` in place of a benchmark's.
"""

import shlex
import tomllib
from dataclasses import dataclass, field, fields
from importlib.resources import files
from typing import Annotated, Any, Literal

from annotated_types import Ge

from cato.benchmarks import get_benchmark
from cato.config import Count, NonNegative, Positive, from_dict, to_dict
from cato.errors import InputError
from cato.models.registry import default_model, model_entry
from cato.physics import LossConfig
from cato.user_data.naming import Naming

Seed = Annotated[int, Ge(0)]
OWN = "own"
"""What stands for the benchmark of a run on own data."""
FITTED = (
    *("train.minutes", "train.batch_size", "train.frames_per_step", "train.optimizer"),
    *("model.width", "loss.gradient", "loss.flux", "loss.consistency", "loss.gdl"),
)
"""Settings that follow from the data: a command that repeats a run on own data says them all."""


@dataclass(frozen=True)
class DataConfig:
    """Which data."""

    root: str = "data"
    """Folder of the data files; generated there where missing."""
    seed: Seed = 0
    """Seed of the samples; of own data, of their split."""
    count: Count | None = None
    """Number of training samples, where it differs from the scale's."""
    resolution: Count | None = None
    """Nodes per side, where it differs from the scale's."""
    original: str | None = None
    """Folder of the published files of the benchmark, used instead of generated data."""
    file: str | None = None
    """File or folder of your own data, used instead of a benchmark's."""
    coords: str = ""
    """Fields of `file` that are coordinates, such as x,y; by the documented layout unless given."""
    inputs: str = ""
    """Fields of `file` that are inputs, such as k,u[:10] (frames of a time series)."""
    targets: str = ""
    """Fields of `file` that are targets."""
    periodic: tuple[int, ...] = ()
    """Mesh axes of `file`, from 0, that close on themselves."""
    fingerprint: str = ""
    """Of the data in `file`; others are refused."""

    @property
    def naming(self) -> Naming:
        """The fields of `file`."""
        return Naming.parse(self.coords, self.inputs, self.targets, self.periodic)


@dataclass(frozen=True)
class TrainConfig:
    """How to train."""

    epochs: Count = 500
    """Passes over the training samples."""
    steps: Count | None = None
    """Optimiser steps, instead of `epochs`."""
    minutes: Positive | None = None
    """Fit the schedule to this time, instead of `epochs`."""
    batch_size: Count = 4
    """Samples of one optimiser step, over all processes."""
    frames_per_step: Count | None = None
    """Frames of a sample learnt in one step, drawn anew each time; all unless given. Problems in
    time only."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """AdamW for all, or Muon for the matrices of the blocks and AdamW for the rest."""
    learning_rate: Positive = 1e-3
    """Highest learning rate of AdamW."""
    muon_learning_rate: Positive = 2e-3
    """Highest learning rate of Muon, scaled to match AdamW's update size."""
    weight_decay: NonNegative = 1e-5
    """Decoupled weight decay."""
    clip: NonNegative = 1.0
    """Largest norm of the gradient; 0 does not clip."""
    seed: Seed = 0
    """Seed of the initial weights and the order of the samples."""
    checkpoint_minutes: Positive = 5.0
    """Longest time between two checkpoints; there is one after every epoch anyway."""
    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """What to run on."""
    devices: Count = 1
    """Devices of this machine; under torchrun its number of processes counts."""
    strategy: Literal["auto", "ddp", "fsdp"] = "auto"
    """How several devices share the work: a copy each, or the parameters sharded."""
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    """Number format."""
    compile: bool = False
    """Use torch.compile (needs a C++ compiler on CPUs)."""


@dataclass(frozen=True)
class RunConfig:
    """Everything that defines a run."""

    benchmark: str
    scale: str
    model_name: str
    model: Any
    data: DataConfig = field(default_factory=DataConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return to_dict(self)


def run_config(values: dict[str, Any], where: str) -> RunConfig:
    """A checked `RunConfig` from plain values; `where` names their source in messages."""
    values = dict(values)
    unknown = set(values) - {f.name for f in fields(RunConfig)}
    missing = {"benchmark", "scale", "model_name"} - set(values)
    if unknown or missing:
        raise InputError(f"{where}: unknown settings {sorted(unknown)}, missing {sorted(missing)}")
    parts = {
        "model": model_entry(values["model_name"]).config,
        "data": DataConfig,
        "loss": LossConfig,
        "train": TrainConfig,
    }
    for name, cls in parts.items():
        values[name] = from_dict(cls, values.get(name, {}), f"{where}, {name}")
    config = RunConfig(**values)
    data = config.data
    chosen = data.seed or data.count is not None or data.resolution is not None
    if data.original is not None and chosen:
        raise InputError(
            f"{where}: the published files have fixed samples; leave out data.seed, data.count and "
            f"data.resolution"
        )
    if (data.file is not None) != (config.benchmark == OWN) or (data.file and data.original):
        raise InputError(f"{where}: data.file is for own data only; give it as `cato train FILE`")
    if data.file is None and (data.coords or data.inputs or data.targets or data.periodic):
        raise InputError(
            f"{where}: data.coords, data.inputs, data.targets and data.periodic are for own data"
        )
    if data.file is not None and data.resolution is not None:
        raise InputError(f"{where}: own data have the resolution of their file")
    return config


def recipe(benchmark: str, scale: str, model_name: str | None = None) -> RunConfig:
    """The settings the library recommends for a model on a benchmark.

    Args:
        benchmark: Such as darcy.
        scale: paper, small or smoke.
        model_name: CATO for the geometry by default.
    """
    problem = get_benchmark(benchmark).problem(scale)  # refuses what does not exist
    return _recipe(benchmark, scale, model_name or default_model(problem), {})


def own_recipe(data: DataConfig, scale: str, model_name: str) -> RunConfig:
    """The settings for own data before `cato.runs.user_settings` fits them to their size."""
    return _recipe(OWN, scale, model_name, to_dict(data))


def _recipe(benchmark: str, scale: str, model_name: str, data: dict[str, Any]) -> RunConfig:
    if benchmark == OWN:
        table = tomllib.loads((files("cato") / "user_data/recipe.toml").read_text())
    else:
        table = get_benchmark(benchmark).recipe
    if scale not in table:
        raise InputError(f"no scale {scale!r}; choose one of {', '.join(table)}")
    common, own = table[scale].get("all", {}), table[scale].get(model_name, {})
    groups = {name: common.get(name, {}) | own.get(name, {}) for name in ("model", "loss", "train")}
    named = {"benchmark": benchmark, "scale": scale, "model_name": model_name, "data": data}
    return run_config(named | groups, f"recipe {benchmark}.toml, {scale}")


def command_of(config: RunConfig) -> str:
    """The command that trains with these settings: the recipe and what differs from it."""
    if config.data.file is not None:
        start = own_recipe(DataConfig(file=config.data.file), config.scale, config.model_name)
        what = shlex.quote(config.data.file)
    else:
        start = recipe(config.benchmark, config.scale, config.model_name)
        what = config.benchmark
    base = options_of(start.to_dict())
    words = ["cato train", what, "--scale", config.scale, "--model", config.model_name]
    for name, value in options_of(config.to_dict()).items():
        is_fitted = config.data.file is not None and name in FITTED
        if (value != base[name] or is_fitted) and "." in name:
            values = value if isinstance(value, list) else [value]
            words += [f"--{name.replace('_', '-')}", *(shlex.quote(str(v)) for v in values)]
    return " ".join(words)


def options_of(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by the names of their options, such as model.geo.latent."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        nested = isinstance(value, dict)
        flat |= options_of(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value}
    return flat
