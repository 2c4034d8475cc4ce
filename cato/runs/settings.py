"""The settings of a run, and the one function that builds them: `build_settings`.

Settings start from a recipe, a small TOML file per benchmark with a table for each scale. It holds
only what differs from the defaults: `all.train` and `all.loss` for every model, `NAME.model`,
`NAME.loss` and `NAME.train` for one. User data have a recipe too, which is then fitted to the size
of the data. Changes come last, and the result is validated once.
"""

import math
import os
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le, Lt
from pydantic import BeforeValidator

from cato.benchmarks import get_benchmark
from cato.config import (
    Axes,
    Count,
    Fraction,
    NonNegative,
    Positive,
    from_dict,
    one_or_more,
    to_dict,
)
from cato.data.conditioning import recommend
from cato.data.dataset import Dataset, Splits
from cato.data.normalise import require_corresponding
from cato.data.streamed import Streamed
from cato.data.symmetry import SymmetryName
from cato.errors import InputError
from cato.memory import readable_size, total_memory
from cato.models.contract import Operator
from cato.models.registry import candidates, default_model, model_class
from cato.physics.losses import LossConfig
from cato.problem import Conditioning, Problem, Reference
from cato.progress import note
from cato.runs.measure import gradients_of, measure
from cato.user_data.naming import Naming
from cato.user_data.read import (
    complete_naming,
    few_samples_note,
    is_user_data,
    num_bytes_of,
    open_user_data,
)

Seed = Annotated[int, Ge(0)]
Minutes = Annotated[float, Ge(1e-9), Le(10**6)]  # At most two years.
USER_DATA = "user"
"""Stands for the benchmark in settings of runs on user data; \"own\" in version 0.1."""
AUTO = "auto"
"""Stands for a model: the best of several candidates, see `build_candidates`."""
GROUPS = ("model", "data", "loss", "train")
FITTED = (
    *("train.minutes", "train.min_steps", "train.batch_size", "train.frames_per_step"),
    *("train.optimizer", "model.width", "model.kernel"),
    *("loss.gradient", "loss.flux", "loss.consistency", "loss.gdl"),
)
"""Settings fitted to user data: a command that repeats a run on user data names them all."""
ON_CPUS = {"precision": "32-true", "compile": False}
"""What settings left to the device mean on CPUs, and what older runs have recorded."""
RATES = ("learning_rate", "muon_learning_rate")
FINE_TUNING_RATE = 1 / 3  # Learning rates of fine-tuning, in units of the recipe's.
MANY_NODES = 2**12  # Meshes of this size get a small model of half the width.
NODES_PER_BATCH = 2**12  # Maximum nodes per batch of more than one sample.
KERNEL_3D = 3  # Nodes along each axis of a stencil in space: seven would be 343.
STEPS_PER_EPOCH = 20  # Minimum steps per epoch, if there are that many samples.
GRADIENT_TERMS = ("gradient", "flux", "consistency", "gdl")
SHARE_IN_MEMORY = 0.25  # Larger data, in units of the machine's memory, are streamed.
SHARE_TO_MENTION = 0.05  # Of these it is said whether they are streamed.

_say_once = cache(note)


@dataclass(frozen=True)
class DataConfig:
    """Data of a training."""

    root: str = "data"  # Folder of the data files; missing ones are generated there.
    seed: Seed = 0  # Seed of the samples; for user data, of the split.
    count: Count | None = None  # Number of training samples, if it differs from the scale's.
    resolution: Count | None = None  # Nodes per side, if it differs from the scale's.
    original: str | None = None
    """Folder of the published files of the benchmark, used instead of generated data."""
    file: str | None = None  # File or folder of user data, used instead of a benchmark.
    coords: str = ""
    """Fields of `file` that are coordinates, such as x,y; the documented layout by default."""
    inputs: str = ""
    """Fields of `file` that are inputs, such as k,u[:10] (frames of a time series)."""
    targets: str = ""  # Fields of `file` that are targets.
    periodic: Axes = ()  # Periodic mesh axes of `file`, from 0.
    time: Literal["auto", "rollout", "conditioned"] = "auto"
    """Time protocol of `file`: each frame from the ones before it, or from the inputs and its time.
    auto: the first if the inputs have earlier frames of the targets."""
    times: str = ""
    """Field of `file` with the times of its frames; times, time or t by default. none: evenly
    spaced."""
    mask: str = ""
    """Field of `file` that is not 0 at nodes with values, or such as land=0; mask by default. Nodes
    with NaN have no values in any case."""
    train_frames: Count | None = None
    """Frames of a rollout to train on, the first ones of `file`; the report shows the error in the
    later ones too. All by default."""
    folds: Annotated[int, Ge(0)] | None = None
    """Folds of cross-validation for the error and the band of `file`, with a model trained on all
    samples; 0 splits the samples instead. By default 5 for 10 to 50 samples without named splits.
    """
    fold: Annotated[int, Ge(0)] | None = None
    """Train on all samples but those of this fold, which are the test split."""
    fingerprint: str = ""  # Fingerprint of the data in `file`; other data are refused.
    streamed: Literal["auto", "yes", "no"] = "auto"
    """Read samples during training instead of loading all into memory. auto: if they would take
    more than a quarter of the memory."""
    conditioning: Literal["auto", "published"] = "auto"
    """How fields are presented to the network: chosen from the data (`cato inspect` explains), or
    as published, one mean and deviation per channel, with node indices for models published with
    them. reference, positions and mesh_inputs change single parts."""
    reference: Reference | None = None
    """Value that outputs are measured from: mean of the channel, training mean of the node, or last
    frame (rollouts)."""
    positions: bool | None = None  # Present outputs that are positions as displacements.
    symmetries: Annotated[tuple[SymmetryName, ...], BeforeValidator(one_or_more)] = ()
    """Maps of a grid that turn solutions of scalar fields into solutions, such as flip-0 transpose,
    or none: each training sample is mapped at random in every step."""
    mesh_inputs: bool | None = None
    """Displacement from the mean mesh and node indices as further inputs."""

    def is_streamed(self, num_bytes: float) -> bool:
        """Whether data of this size are streamed; says so where it could be either."""
        if self.streamed != "auto":
            return self.streamed == "yes"
        total = total_memory()
        streamed = num_bytes > SHARE_IN_MEMORY * total
        if num_bytes > SHARE_TO_MENTION * total:
            where = "streamed from the disk" if streamed else "read into memory"
            other = "no" if streamed else "yes"
            _say_once(
                f"the data ({readable_size(num_bytes)}) are {where}, as the machine has "
                f"{readable_size(total)} of memory; --data.streamed {other} changes that"
            )
        return streamed

    @property
    def naming(self) -> Naming:
        names = Naming.parse(self.coords, self.inputs, self.targets, self.periodic)
        return replace(names, time=self.time, times=self.times, mask=self.mask)

    def condition(self, train: Dataset, model: type[Operator], *, quiet: bool = False) -> Problem:
        """The problem of the training samples with the conditioning of these settings; says why."""
        published = Conditioning(
            index_inputs=model.index_inputs and train.problem.geometry == "mesh"
        )
        recommended, reasons = published, dict[str, str]()
        if self.conditioning == "auto" or self.positions:
            recommended, reasons = recommend(train)
        chosen = recommended if self.conditioning == "auto" else published
        changes: dict[str, Any] = {}
        if self.reference is not None:
            changes["reference"] = self.reference
        if self.positions is not None:
            changes["positions"] = recommended.positions if self.positions else ()
        if self.mesh_inputs is not None:
            changes["mesh_inputs"] = self.mesh_inputs
        chosen = replace(chosen, **changes)
        if chosen.reference == "node" or chosen.mesh_inputs:
            require_corresponding(train)
        for name, reason in reasons.items():
            used = getattr(chosen, name) == getattr(recommended, name) != getattr(published, name)
            if used and not quiet:
                note(reason)
        return replace(train.problem, conditioning=chosen)

    def open_file(self) -> tuple[str, Splits]:
        """Fingerprint and data of `file`; data with another fingerprint are refused."""
        assert self.file is not None
        fingerprint, splits = open_user_data(
            Path(self.file),
            self.naming,
            seed=self.seed,
            count=self.count,
            folds=self.folds,
            expected_fingerprint=self.fingerprint,
            streamed=self.is_streamed(num_bytes_of(Path(self.file))),
        )
        if self.train_frames is not None:
            splits = splits.with_train_frames(self.train_frames)
        if self.fold is not None:
            if self.fold >= splits.num_folds:
                raise InputError(
                    f"there are {splits.num_folds} folds of {self.file}, counted from 0; got fold "
                    f"{self.fold}. Their number is --data.folds"
                )
            splits = splits.fold(self.fold)
        if isinstance(splits.train, Streamed):
            measure(splits.train)
        return fingerprint, splits


@dataclass(frozen=True)
class TrainConfig:
    """Optimisation and devices."""

    epochs: Count = 500  # Passes over the training samples.
    steps: Count | None = None  # Optimiser steps, instead of `epochs`.
    minutes: Minutes | None = None  # Fit the schedule to this time, instead of `epochs`.
    min_steps: Count | None = None
    """Minimum steps of a time budget: a slow or busy machine takes longer instead of learning less.
    """
    batch_size: Count = 4  # Samples per optimiser step, over all processes.
    frames_per_step: Count | None = None
    """Frames of a sample per step, drawn at random in each step; all by default. Problems in time
    only."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """AdamW for all parameters, or Muon for the matrices of the blocks and AdamW for the rest."""
    schedule: Literal["onecycle", "wsd"] = "onecycle"
    """OneCycle; or warm-up, stable, decay, which --resume RUN --train.minutes 20 can extend."""
    learning_rate: Positive = 1e-3  # Peak learning rate of AdamW.
    muon_learning_rate: Positive = 2e-3
    """Peak learning rate of Muon, scaled to match AdamW's update size."""
    weight_decay: NonNegative = 1e-5  # Decoupled weight decay.
    average: Fraction = 0.0
    """Decay of an exponential average of the weights, which is kept as best; 0 turns it off."""
    clip: NonNegative = 1.0  # Maximum norm of the gradient; 0 turns clipping off.
    start_from: str | None = None
    """Pretrained model or run folder whose weights to start from; its model settings and lower
    learning rates become the defaults."""
    start_fingerprint: str = ""  # Fingerprint of these weights; others are refused.
    seed: Annotated[Seed, Lt(2**32)] = 0
    """Seed of the initial weights and the order of the samples."""
    checkpoint_minutes: Minutes = 5.0
    """Maximum time between checkpoints; there is also one after every validation."""
    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"  # Kind of device.
    devices: Count = 1  # Number of devices; torchrun sets it to its number of processes.
    strategy: Literal["auto", "ddp", "fsdp"] = "auto"
    """Several devices: ddp copies the model to each, fsdp shards its parameters."""
    mesh_parallel: Count = 1
    """Processes that share a mesh, each with some of its rows, for meshes that do not fit one
    device. CATO only; a divisor of the number of processes."""
    remat: bool = False
    """Recompute the model's blocks in the backward pass: less memory for a step, more time."""
    precision: Literal["auto", "32-true", "bf16-mixed"] = "auto"
    """Floating-point precision; auto is bf16-mixed on GPUs with bfloat16, and 32-true elsewhere."""
    compile: bool | None = None
    """Use torch.compile, which needs a C++ compiler on CPUs; by default only on GPUs."""


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
        return to_dict(self)


def run_config(values: Mapping[str, Any], where: str) -> RunConfig:
    """A validated `RunConfig` from plain values; `where` names their source in messages.

    A group of settings that is validated already, such as a `DataConfig`, is taken as it is.
    """
    values = dict(values)
    if values.get("benchmark") == "own":  # version 0.1
        values["benchmark"] = USER_DATA
    unknown = set(values) - {f.name for f in fields(RunConfig)}
    missing = {"benchmark", "scale", "model_name"} - set(values)
    if unknown or missing:
        raise InputError(f"{where}: unknown settings {sorted(unknown)}, missing {sorted(missing)}")
    classes: tuple[Any, ...] = (
        model_class(values["model_name"]).config_class,
        DataConfig,
        LossConfig,
        TrainConfig,
    )
    for name, cls in zip(GROUPS, classes, strict=True):
        values[name] = from_dict(cls, values.get(name, {}), where, name)
    config = RunConfig(**values)
    _require_consistent(config.data, config.benchmark, where)
    if config.train.steps is not None and config.train.minutes is not None:
        raise InputError(f"{where}: set train.steps or train.minutes, not both")
    if config.train.min_steps is not None and config.train.minutes is None:
        raise InputError(f"{where}: train.min_steps is for a time budget; set train.minutes too")
    return config


def _require_consistent(data: DataConfig, benchmark: str, where: str) -> None:
    """Refuse settings of the data that exclude each other."""
    chosen = data.seed or data.count is not None or data.resolution is not None
    if data.original is not None and chosen:
        raise InputError(
            f"{where}: the published files have fixed samples; leave out data.seed, data.count and "
            f"data.resolution"
        )
    if data.original is not None and data.streamed == "yes":
        raise InputError(
            f"{where}: the published files cannot be streamed; leave out data.streamed"
        )
    if (data.file is not None) != (benchmark == USER_DATA) or (data.file and data.original):
        raise InputError(f"{where}: data.file is for user data; give it as `cato train FILE`")
    names = (
        *("coords", "inputs", "targets", "periodic", "time", "times", "mask"),
        *("train_frames", "folds"),
    )
    if data.file is None and any(getattr(data, n) != getattr(DataConfig, n) for n in names):
        raise InputError(
            f"{where}: data.coords, data.inputs, data.targets, data.periodic, data.time, "
            f"data.times, data.mask, data.train_frames and data.folds are for user data"
        )
    if data.file is not None and data.resolution is not None:
        raise InputError(f"{where}: the resolution of user data is that of their file")


Changes = Mapping[str, Mapping[str, Any]]
"""Settings by group, such as {"train": {"seed": 1}, "model": {"width": 32}}."""


def build_settings(
    source: str | Path,
    scale: str = "small",
    model: str | None = None,
    *changes: Changes,
    where: str = "settings",
) -> RunConfig:
    """The settings of a run: the recipe with changes, validated.

    Args:
        source: A benchmark such as "darcy", or a file or folder of user data. User data are read,
            because the recipe depends on their size.
        scale: paper, small or smoke.
        model: Name of the model; CATO for the geometry by default.
        changes: Settings by group that replace the recipe's; later ones win. Setting train.epochs
            or train.steps drops a time budget of the recipe; fewer train.minutes lower its
            minimum of steps in proportion. With train.start_from the model and its settings are
            those of the start.
        where: Origin of the changes, for messages.
    """
    if model is not None:
        model_class(model)  # refuses an unknown name, and "auto"
    return build_candidates(source, scale, model, *changes, where=where)[0]


def build_candidates(
    source: str | Path,
    scale: str = "small",
    model: str | None = None,
    *changes: Changes,
    where: str = "settings",
) -> list[RunConfig]:
    """As `build_settings`; with the model "auto" the settings of each candidate for the problem.

    `cato.training.train.train` chooses between them by a trial of each.
    """
    changed: dict[str, Any] = {}
    for change in changes:
        changed = _merged(changed, change)
    if model == AUTO and changed.get("model"):
        raise InputError(
            f"{where}: model auto compares models with the settings of their recipes; leave out "
            f"model.{next(iter(changed['model']))}, or name the model that it is for"
        )
    train, start = changed.get("train", {}), None
    if train.get("start_from") is not None:
        from cato.runs.start import open_start  # which imports this module

        start = open_start(str(train["start_from"]), str(train.get("start_fingerprint", "")))
        if model not in (None, start.model_name):
            raise InputError(
                f"{where}: {start.name} is a {start.model_name}; leave out the model {model} or "
                f"the start"
            )
        model = start.model_name
        origin = {"start_from": start.name, "start_fingerprint": start.fingerprint}
        changed["train"] = train = train | origin
    name, splits = str(source), None
    if is_user_data(name):
        file, name = os.path.realpath(name), USER_DATA
        values = read_recipe(name, scale)["data"] | changed.get("data", {}) | {"file": file}
        data = from_dict(DataConfig, values, where, "data")
        naming, notes = complete_naming(Path(file), data.naming)
        if notes:  # stored with the run, as if the user had given the names
            words: dict[str, Any] = {**naming.words(), "periodic": naming.periodic}
            data = replace(data, **words)
        for sentence in notes:
            note(sentence)
        fingerprint, splits = data.open_file()
        num_folds = splits.num_folds or data.folds
        if splits.num_folds:
            note(few_samples_note(len(splits.train), splits.num_folds))
        changed["data"] = replace(data, fingerprint=fingerprint, folds=num_folds)
    # An unknown name or scale raises.
    problem = get_benchmark(name).problem(scale) if splits is None else splits.problem
    configs = []
    for one in candidates(problem) if model == AUTO else [model or default_model(problem)]:
        recipe = read_recipe(name, scale, one)
        if splits is not None:
            recipe = _merged(recipe, fit_recipe(recipe, splits.train))
        if train.keys() & {"epochs", "steps"}:
            for length in ("minutes", "min_steps"):
                recipe["train"].pop(length, None)
        if start is not None:
            recipe["model"] = to_dict(start.model)
            old = to_dict(TrainConfig()) | recipe["train"]
            recipe["train"] |= {rate: FINE_TUNING_RATE * old[rate] for rate in RATES}
        config = run_config(_merged(recipe, changed), where)
        if "min_steps" not in train and config.train.min_steps and config.train.minutes:
            share = min(1.0, config.train.minutes / recipe["train"]["minutes"])
            min_steps = math.ceil(share * config.train.min_steps)
            config = replace(config, train=replace(config.train, min_steps=min_steps))
        configs.append(config)
    return configs


def default_settings(file: Path, splits: Splits) -> RunConfig:
    """The default settings for user data that are read already."""
    data = {"file": os.path.realpath(file), "folds": splits.num_folds}
    recipe = read_recipe(USER_DATA, "small", default_model(splits.problem))
    changes = _merged(fit_recipe(recipe, splits.train), {"data": data})
    return run_config(_merged(recipe, changes), str(file))


def read_recipe(benchmark: str, scale: str, model_name: str = "") -> dict[str, Any]:
    """The recipe of a model as plain values, not validated; without a model what all share."""
    if benchmark == USER_DATA:
        table = tomllib.loads((files("cato") / "user_data/recipe.toml").read_text())
    else:
        table = get_benchmark(benchmark).recipe
    if scale not in table:
        raise InputError(f"no scale {scale!r}; choose one of {', '.join(table)}")
    common, special = table[scale].get("all", {}), table[scale].get(model_name, {})
    groups = {name: common.get(name, {}) | special.get(name, {}) for name in GROUPS}
    return {"benchmark": benchmark, "scale": scale, "model_name": model_name, **groups}


def fit_recipe(recipe: dict[str, Any], train: Dataset) -> dict[str, Any]:
    """Changes to the recipe for user data, all plain values, that the training samples ask for.

    Large meshes get a narrower model and smaller batches, meshes in space a smaller stencil, so
    that the recipe's minutes still allow hundreds of steps. Problems in time learn one frame of
    each sample per step. The loss has gradient terms only if the problem is steady and the mesh has
    gradients.
    """
    problem, scale = train.problem, recipe["scale"]
    changes: dict[str, Any] = {}
    if LossConfig(**recipe["loss"]).needs_metric and (why := why_no_gradients(train)):
        if problem.geometry != "cloud" and problem.time == "steady":
            note(f"no gradient terms in the loss: {why}")
        changes["loss"] = dict.fromkeys(GRADIENT_TERMS, 0.0)
    if scale == "paper":
        return changes
    settings = recipe["train"]
    largest = min(len(train) // STEPS_PER_EPOCH, NODES_PER_BATCH // problem.num_nodes)
    changes["train"] = {
        "batch_size": max(1, min(settings["batch_size"], largest)),
        "frames_per_step": None if problem.time == "steady" else 1,
    }
    changes["model"] = {}
    if scale == "small" and problem.num_nodes >= MANY_NODES:
        width = recipe["model"].get("width", model_class(recipe["model_name"]).config_class.width)
        changes["model"]["width"] = width // 2
    if len(problem.shape) == 3 and "kernel" in recipe["model"]:
        changes["model"]["kernel"] = KERNEL_3D
    return changes


def why_no_gradients(train: Dataset) -> str:
    """Why the loss has no gradient terms on these data; empty if it has them."""
    if train.problem.time != "steady":
        return "the recipe has none for problems in time"
    gradients = gradients_of(train)
    if gradients.obstacle:
        return gradients.obstacle
    sizes = gradients.scale.rms
    if not ((sizes > 0) & sizes.isfinite()).all():
        return "an output is constant over the mesh"
    return ""


def _merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dictionaries joined; changes win."""
    merged = dict(values)
    for name, change in changes.items():
        old = merged.get(name)
        if isinstance(old, Mapping) and isinstance(change, Mapping):
            merged[name] = _merged(old, change)
        else:
            merged[name] = change
    return merged


def command_of(config: RunConfig) -> str:
    """The command that trains with these settings: the recipe and what differs from it."""
    if config.data.file is not None:
        what, data = shlex.quote(config.data.file), {"file": config.data.file}
    else:
        what, data = config.benchmark, {}
    start = read_recipe(config.benchmark, config.scale, config.model_name)
    start["data"] = start["data"] | data
    base = options_of(run_config(start, f"recipe of {config.benchmark}").to_dict())
    words = ["cato train", what, "--scale", config.scale, "--model", config.model_name]
    is_tuned = config.train.start_from is not None  # its start sets the defaults of these
    for name, value in options_of(config.to_dict()).items():
        is_fitted = config.data.file is not None and name in FITTED
        is_fitted |= is_tuned and (
            name.startswith("model.") or name.removeprefix("train.") in RATES
        )
        on_cpus = ON_CPUS.get(name.removeprefix("train."), base[name])
        if (is_fitted or value not in (base[name], on_cpus)) and "." in name:
            values = (value or ["none"]) if isinstance(value, list) else [value]
            words += [f"--{name.replace('_', '-')}", *(shlex.quote(str(v)) for v in values)]
    return " ".join(words)


def options_of(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by the names of their options, such as model.geo.latent."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        nested = isinstance(value, dict)
        flat |= options_of(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value}
    return flat
