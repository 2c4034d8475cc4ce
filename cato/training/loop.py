"""The training loop.

What a step does depends on its number only (schedule, order of samples, frames), so a resumed run
ends bit for bit like an uninterrupted one.
"""

import math
import signal
import threading
import time
from collections import defaultdict
from contextlib import closing
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import Any, Self

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from cato.data.dataset import Batch, Dataset, Splits
from cato.data.normalise import Normaliser
from cato.data.symmetry import draw, mapped, require_symmetric
from cato.errors import Diverged
from cato.inference.evaluate import mean_error
from cato.models.contract import Operator
from cato.models.registry import build_model
from cato.physics.gradient import inverse_metric
from cato.physics.losses import PhysicalLoss, gradient_rms
from cato.problem import Problem
from cato.progress import Bar, note, progress_bar
from cato.runs.checkpoint import Checkpoint, Kind, load_checkpoint, save_checkpoint
from cato.runs.folder import Run
from cato.runs.settings import RunConfig, TrainConfig
from cato.surrogate import Frame, Surrogate, frame_to_learn, join_frames
from cato.training.average import WeightAverage
from cato.training.journal import Journal
from cato.training.optim import build_optimizers, decay_start, set_rates

CALIBRATION_SECONDS = 4.0
"""How long steps are timed to fit a schedule to a time budget; at most a tenth of the budget."""
FRAME_STREAM, SYMMETRY_STREAM = 1, 2
"""Separate the random numbers that choose frames and symmetries from all others of a seed."""
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
OPTIMIZER = "optimizer/"  # Prefixes of tensors in checkpoints; all others are weights.
AVERAGE = "average/"


def new_model(config: RunConfig, problem: Problem) -> Operator:
    """The model of a run with its initial weights, which depend on the seed only."""
    torch.manual_seed(config.train.seed)
    return build_model(config.model_name, config.model, problem)


def steps_within(config: TrainConfig, seconds_per_step: float) -> int:
    """The number of steps of a time budget, at least `min_steps`; says how many."""
    assert config.minutes is not None
    num_steps = max(1, int(60 * config.minutes / seconds_per_step))
    budget = f"a step takes {1000 * seconds_per_step:.0f} ms: {config.minutes:g} minutes"
    floor = config.min_steps or 1
    if num_steps >= floor:
        note(f"{budget} are {num_steps} steps")
        return num_steps
    note(
        f"{budget} allow only {num_steps} steps; training {floor} instead, about "
        f"{floor * seconds_per_step / 60:.1f} minutes (--train.min-steps sets this minimum)"
    )
    return floor


def prepare(
    config: RunConfig, train_set: Dataset, model: Operator
) -> tuple[Surrogate, PhysicalLoss, Tensor | None]:
    """The surrogate before its first step, its loss, and the inverse metric if the loss needs it.

    Normalisation and gradient scale are fitted on the training samples.
    """
    problem = train_set.problem
    metric, scale = None, None
    if config.loss.needs_metric and problem.geometry != "cloud":
        metric = inverse_metric(train_set.coords, problem.shape, problem.periodic, problem.period)
        if config.loss.needs_scale:
            scale = gradient_rms(train_set.targets, metric, problem.shape, problem.periodic)
    loss = PhysicalLoss(config.loss, problem, scale)
    if model.flux_head is not None and not config.loss.needs_flux:
        # It gets no gradient, and distributed training waits for every gradient.
        model.flux_head.requires_grad_(False)
    coords = train_set.coords if train_set.coords.ndim == 2 else None
    surrogate = Surrogate(
        model, Normaliser.fit(train_set), scale, coords, has_flux=config.loss.needs_flux
    )
    return surrogate, loss, metric


class StopRequest:
    """Collects Ctrl-C and termination signals while its block runs; a second one interrupts.

    Python delivers signals to the main thread only; in other threads nothing is collected.
    """

    requested = False

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        signals = (signal.SIGINT, signal.SIGTERM) if is_main else ()
        self._previous = {number: signal.signal(number, self._on_signal) for number in signals}
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        note("stopping after this step …")


@dataclass
class TrainState:
    """Progress of a training; saved with every checkpoint."""

    step: int = 0
    num_steps: int = 0
    best_error: float = math.inf
    best_step: int = 0
    seconds: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)
    """Sums over the samples of the current epoch of the loss and its terms."""
    num_summed: int = 0
    diverged: str = ""  # Why the training cannot go on.


class Training:
    """One training: model (from `new_model`), data, optimisers and progress."""

    def __init__(self, run: Run, splits: Splits, fabric: Fabric, model: Operator) -> None:
        self.run, self.config, self.fabric = run, run.config.train, fabric
        self.train_set, self.validation_set = splits.train, splits.validation
        self.surrogate, loss, self.metric = prepare(run.config, splits.train, model)
        self.symmetries = run.config.data.symmetries
        require_symmetric(self.symmetries, splits.train)
        if self.metric is not None and len(self.metric) == 1:  # all samples share one mesh
            self.metric = self.metric.to(fabric.device)
        self.loss = loss.to(fabric.device)
        module: Any = torch.compile(self.surrogate) if self.config.compile else self.surrogate
        self.module = fabric.setup_module(module)
        self.raw_optimizers = build_optimizers(self.surrogate.model, self.config)
        optimizers = fabric.setup_optimizers(*self.raw_optimizers)
        self.optimizers = list(optimizers) if isinstance(optimizers, tuple) else [optimizers]
        self.steps_per_epoch = math.ceil(len(self.train_set) / self.config.batch_size)
        self.average = WeightAverage(self.surrogate, self.config.average)
        self.state = TrainState()
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))

    # -- the loop ---------------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        return self.state.step >= self.state.num_steps

    def fit(self) -> bool:
        """Train to the end; False if a signal stopped it, after saving a checkpoint."""
        state = self.state
        epoch_start = state.step - state.step % self.steps_per_epoch
        with (
            StopRequest() as stop,
            closing(Journal(self.run, epoch_start, self.fabric.is_global_zero)) as journal,
            progress_bar(f"training {self.run.config.model_name}", state.num_steps) as bar,
        ):
            save_next = time.monotonic() + 60 * self.config.checkpoint_minutes
            while state.step < state.num_steps:
                if self.config.schedule == "wsd" and state.step == decay_start(state.num_steps):
                    self.save("trunk")
                began = time.monotonic()
                try:
                    stopping = self.step(stop.requested)
                except Diverged as error:  # the weights are still those before the bad step
                    if state.num_summed or state.step == 0:  # else an epoch ended with them
                        self.end_epoch(journal)
                    state.diverged = str(error)
                    self.save("last")
                    raise
                state.seconds += time.monotonic() - began
                self._show(bar, journal)
                finished = state.step == state.num_steps
                if finished or state.step % self.steps_per_epoch == 0:
                    self.end_epoch(journal)
                elif not stopping and time.monotonic() < save_next:
                    continue
                self.save("last")
                save_next = time.monotonic() + 60 * self.config.checkpoint_minutes
                if stopping and not finished:
                    return False
        return True

    def step(self, stop_requested: bool = False) -> bool:
        """One optimiser step; returns whether any process got a stop signal."""
        indices = self._batch_indices(self.state.step)
        schedule = self.config.schedule
        set_rates(self.raw_optimizers, schedule, self.state.step, self.state.num_steps)
        sums = self._accumulate_gradients(indices)
        *means, stopping = self._over_processes(
            torch.tensor([*sums.values(), float(stop_requested)])
        )
        self._require_finite("loss", means[0])
        parameters = [p for p in self.surrogate.parameters() if p.requires_grad]
        norm: Any = torch.nn.utils.clip_grad_norm_(parameters, self.config.clip or math.inf)
        self._require_finite("gradient", float(getattr(norm, "full_tensor", lambda: norm)()))
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.average.update(self.state.step)
        for name, mean in zip(sums, means, strict=True):
            self.state.sums[name] = self.state.sums.get(name, 0.0) + mean * len(indices)
        self.state.num_summed += len(indices)
        self.state.step += 1
        return stopping > 0

    def _require_finite(self, what: str, value: float) -> None:
        """Raise before a bad step is taken."""
        if not math.isfinite(value):
            epoch, batch = divmod(self.state.step, self.steps_per_epoch)
            advice = "Try a lower --train.learning-rate"
            if not self.state.step:  # no step was taken yet, so that the rate is not the cause
                advice = "Look for values far from all others in the ranges of `cato inspect`"
            raise Diverged(
                f"the {what} became {value} in epoch {epoch + 1}, batch {batch + 1}; the best "
                f"checkpoint is kept. {advice}"
            )

    def _accumulate_gradients(self, indices: Tensor) -> dict[str, float]:
        """Gradient of the batch's mean loss; returns the mean loss and its terms.

        Each process takes some samples of the batch. Gradients are averaged over processes, so the
        weight of a sample is the number of processes over the size of the whole batch.
        """
        world = self.fabric.world_size
        places = torch.arange(len(indices))[self.fabric.global_rank :: world]
        weight = world / len(indices)
        if not len(places):  # fewer samples than processes: take part with weight 0
            places, weight = torch.arange(1), 0.0
        mine = indices[places]
        batch = self._mapped(self.fabric.to_device(self.train_set.batch(mine)), places)
        metric = self.metric
        if metric is not None and len(metric) > 1:
            metric = self.fabric.to_device(metric[mine])
        weights = batch.inputs.new_full((len(mine),), weight)
        frames = self._frames(batch, places)
        sums: defaultdict[str, float] = defaultdict(float)
        for number, frame in enumerate(frames, start=1):
            with self.fabric.no_backward_sync(self.module, enabled=number < len(frames)):
                values, flux = self.module(
                    batch.coords, frame.inputs, time=frame.time, mask=batch.mask
                )
                total, terms = self.loss(
                    values, frame.target, flux=flux, metric=metric, mask=batch.mask, weights=weights
                )
                self.fabric.backward(total)
            sums["loss"] += total.item()
            for name, term in terms.items():
                sums[name] += term.item()
        # The mean over frames is logged, which is comparable with the validation error.
        return {name: total / len(frames) for name, total in sums.items()}

    def _mapped(self, batch: Batch, places: Tensor) -> Batch:
        """The batch with a random symmetry of the problem applied to each sample."""
        if not self.symmetries:
            return batch
        rng = np.random.default_rng((SYMMETRY_STREAM, self.config.seed, self.state.step))
        chosen = draw(self.symmetries, self.config.batch_size, rng)[places]
        return mapped(batch, self.surrogate.problem.shape, self.symmetries, chosen)

    def _frames(self, batch: Batch, places: Tensor) -> list[Frame]:
        """The frames that this step learns: all, or for each sample some of its own.

        Those follow from the seed, the step and the place of the sample in the whole batch.
        """
        problem, num_frames = self.surrogate.problem, self.config.frames_per_step
        numbers = np.arange(problem.num_steps)
        if num_frames is None:
            return [frame_to_learn(problem, batch.inputs, batch.targets, int(k)) for k in numbers]
        rng = np.random.default_rng((FRAME_STREAM, self.config.seed, self.state.step))
        drawn = rng.permuted(np.tile(numbers, (self.config.batch_size, 1)), axis=1)
        frames = [
            [
                frame_to_learn(problem, batch.inputs[i : i + 1], batch.targets[i : i + 1], int(k))
                for k in drawn[place, :num_frames]
            ]
            for i, place in enumerate(places)
        ]
        return [join_frames(some) for some in zip(*frames, strict=True)]

    def end_epoch(self, journal: Journal) -> None:
        """Validate, log and keep the best weights."""
        state = self.state
        began = time.monotonic()
        with self.average.in_place():
            error = self.validate()
            state.seconds += time.monotonic() - began
            if error < state.best_error or not math.isfinite(state.best_error):
                state.best_error, state.best_step = error, state.step
                self.save("best")
        means = {name: total / state.num_summed for name, total in state.sums.items()}
        line = {
            "epoch": state.step / self.steps_per_epoch,
            "step": state.step,
            **means,
            "validation": error,
            "learning_rate": self.raw_optimizers[0].param_groups[0]["lr"],
            "samples_per_second": journal.rate,
            "seconds": round(state.seconds, 3),
        }
        journal.write(line)
        state.sums, state.num_summed = {}, 0

    def validate(self) -> float:
        """Mean relative error on the validation split, over all processes."""
        world, rank = self.fabric.world_size, self.fabric.global_rank
        if self.config.strategy == "fsdp":  # processes must call a sharded model equally often
            world, rank = 1, 0
        share = torch.arange(len(self.validation_set))[rank::world]
        with self.fabric.autocast():
            error = mean_error(self.surrogate, self.validation_set.subset(share))
        sums = self._over_processes(torch.tensor([error * len(share), float(len(share))]))
        return sums[0] / sums[1]

    # -- the schedule -----------------------------------------------------------------------

    def plan(self) -> None:
        """Set the number of steps: from the settings, from epochs, or to fill the minutes."""
        num_steps = self.config.steps or self.config.epochs * self.steps_per_epoch
        if self.config.minutes is not None:
            duration = min(CALIBRATION_SECONDS, 60 * self.config.minutes / 10)
            num_steps = steps_within(self.config, self.seconds_per_step(duration))
            num_steps = self.fabric.broadcast(num_steps)
        self.state.num_steps = num_steps

    def seconds_per_step(self, duration: float = CALIBRATION_SECONDS) -> float:
        """Measured on real steps for `duration` seconds; the weights are restored afterwards."""
        weights = {k: v.clone() for k, v in self.surrogate.state_dict().items()}
        self.state.num_steps = 1000
        self.step()  # the first step compiles and allocates
        began = time.monotonic()
        num_steps = 0
        going = True
        while going:
            self.step()
            num_steps += 1
            more = time.monotonic() - began < duration or num_steps < 3
            going = self.fabric.broadcast(more)  # by the clock of the first process
        per_step = (time.monotonic() - began) / num_steps
        began = time.monotonic()
        self.validate()
        per_step += (time.monotonic() - began) / self.steps_per_epoch
        self.surrogate.load_state_dict(weights)
        for optimizer in self.raw_optimizers:
            optimizer.state.clear()
        self.average.reset()
        self.state = TrainState()
        return per_step

    def _batch_indices(self, step: int) -> Tensor:
        """The samples of a step: each epoch has its own order, drawn from the seed."""
        epoch, batch = divmod(step, self.steps_per_epoch)
        if self._order[0] != epoch:
            generator = torch.Generator().manual_seed(self.config.seed * 1_000_003 + epoch)
            self._order = (epoch, torch.randperm(len(self.train_set), generator=generator))
        size = self.config.batch_size
        return self._order[1][batch * size : (batch + 1) * size]

    def _over_processes(self, values: Tensor) -> list[float]:
        """Mean over all processes."""
        if self.fabric.world_size == 1:
            return values.tolist()
        mean: Any = self.fabric.all_reduce(values.to(self.fabric.device), reduce_op="mean")
        return mean.tolist()

    def _show(self, bar: Bar, journal: Journal) -> None:
        state = self.state
        journal.count(self.config.batch_size)
        loss = state.sums["loss"] / state.num_summed
        best = "" if math.isinf(state.best_error) else f" best validation {state.best_error:.2%}"
        bar(
            state.step,
            f"epoch {1 + (state.step - 1) // self.steps_per_epoch} loss {loss:.4f}{best} "
            f"{journal.rate:.0f} samples/s",
        )

    # -- checkpoints ------------------------------------------------------------------------

    def save(self, kind: Kind) -> None:
        """Write a checkpoint, unsharded on every strategy; `best` holds the weights only."""
        # Both dictionaries are empty in all but the first process.
        tensors: dict[str, Any] = dict(get_model_state_dict(self.surrogate, options=WHOLE))
        if kind != "best":
            found: Any = get_optimizer_state_dict(
                self.surrogate, self.raw_optimizers, options=WHOLE
            )
            tensors |= {
                f"{OPTIMIZER}{name}/{key}": value
                for name, values in found.get("state", {}).items()
                for key, value in values.items()
            }
            with self.average.in_place():
                found = get_model_state_dict(self.surrogate, options=WHOLE)
                if self.average.values:
                    tensors |= {f"{AVERAGE}{name}": value.clone() for name, value in found.items()}
        if self.fabric.is_global_zero:
            checkpoint = Checkpoint(tensors, asdict(self.state))
            save_checkpoint(self.run.checkpoints, kind, self.state.step, checkpoint)
        self.fabric.barrier()

    def restore(self) -> bool:
        """Resume from the last checkpoint; False if there is none."""
        checkpoint = load_checkpoint(self.run.checkpoints, "last")
        if checkpoint is None:
            return False
        self.state = TrainState(**checkpoint.state)
        if self.state.best_error is None:  # JSON has no infinity
            self.state.best_error = math.inf
        weights: dict[str, Any] = {}
        state: dict[str, Any] = {}
        average: dict[str, Any] = {}
        for path, tensor in checkpoint.tensors.items():
            if path.startswith(OPTIMIZER):
                name, key = path.removeprefix(OPTIMIZER).rsplit("/", 1)
                state.setdefault(name, {})[key] = tensor
            elif path.startswith(AVERAGE):
                average[path.removeprefix(AVERAGE)] = tensor
            else:
                weights[path] = tensor
        module, optimizers = self.surrogate, self.raw_optimizers
        groups = get_optimizer_state_dict(module, optimizers)["param_groups"]
        if average:
            set_model_state_dict(module, average, options=WHOLE)
            self.average.take()
        set_model_state_dict(module, weights, options=WHOLE)
        loaded = {"state": state, "param_groups": groups}
        set_optimizer_state_dict(module, optimizers, loaded, options=WHOLE)
        return True
