"""The training loop.

What a step does depends on its number only (schedule, order of samples, frames), so a resumed run
ends bit for bit like an uninterrupted one.
"""

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import Any, NamedTuple, Self

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

from cato.data.dataset import Batch, Dataset, InMemory, Splits
from cato.data.normalise import Normaliser
from cato.data.symmetry import draw, mapped, require_symmetric
from cato.errors import Diverged, InputError
from cato.inference.evaluate import SAMPLES_AT_ONCE, mean_error
from cato.models.contract import Operator
from cato.models.registry import build_model
from cato.partition import WHOLE, Partition
from cato.physics.gradient import inverse_metric
from cato.physics.losses import PhysicalLoss
from cato.problem import Problem
from cato.progress import Bar, note, progress_bar
from cato.runs.checkpoint import Checkpoint, Kind, load_checkpoint, save_checkpoint
from cato.runs.folder import Run
from cato.runs.measure import gradients_of
from cato.runs.settings import RunConfig, TrainConfig
from cato.runs.shards import read_shards, save_shards, shapes_in
from cato.surrogate import Frame, Surrogate, frame_to_learn, join_frames
from cato.training.average import WeightAverage
from cato.training.cross_validation import own_training
from cato.training.devices import is_compiled, partition_of
from cato.training.guard import Guard
from cato.training.journal import Journal
from cato.training.optim import build_optimizers, decay_start, set_rates

CALIBRATION_SECONDS = 4.0
"""How long steps are timed to fit a schedule to a time budget; at most a tenth of the budget."""
PATIENCE = 20.0
"""Seconds after which slow steps are not timed again."""
VALIDATION_SHARE = 0.2  # Largest time of validations, in units of that of steps.
STEP_IN_FORWARDS = 3  # The backward pass takes twice the time of the forward pass.
FRAME_STREAM, SYMMETRY_STREAM = 1, 2
"""Separate the random numbers that choose frames and symmetries from all others of a seed."""
STEPS_BETWEEN_READS = 10
"""On devices other than CPUs: reading a number waits for all queued work."""
UNSHARDED = StateDictOptions(full_state_dict=True, cpu_offload=True)
SHARDED = StateDictOptions()
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
    config: RunConfig, train_set: Dataset, model: Operator, partition: Partition = WHOLE
) -> tuple[Surrogate, PhysicalLoss, Tensor | None]:
    """The surrogate before its first step, its loss, and the inverse metric if the loss needs it.

    Normalisation and gradient scale are fitted on the training samples; what follows computes on
    the part of the mesh that this process has. The metric of meshes that are streamed is None: each
    step computes that of its samples.
    """
    problem, nodes = train_set.problem, train_set.shared_coords
    metric, scale = None, None
    if config.loss.needs_metric and problem.geometry != "cloud":
        if nodes is not None or isinstance(train_set, InMemory):
            meshes = train_set.coords if nodes is None else nodes
            metric = inverse_metric(meshes, problem.shape, problem.periodic, problem.period)
        if config.loss.needs_scale:
            gradients = gradients_of(train_set)
            gradients.require()
            is_exact = {"coords", "outputs"} & set(problem.float64)
            scale = gradients.scale.rms.to(torch.float64 if is_exact else torch.float32)
        if metric is not None:
            metric = partition.slab(metric, 1)
    loss = PhysicalLoss(config.loss, problem, scale, partition)
    if model.flux_head is not None and not config.loss.needs_flux:
        # It gets no gradient, and distributed training waits for every gradient.
        model.flux_head.requires_grad_(False)
    surrogate = Surrogate(
        model, Normaliser.fit(train_set), scale, nodes, has_flux=config.loss.needs_flux
    )
    if not partition.is_whole:
        surrogate.spread_over(partition)
    return surrogate, loss, metric


def series_lengths(problem: Problem, targets: Tensor) -> np.ndarray:
    """The number of frames of each sample before its series ends in NaN; 1 if steady."""
    if problem.time == "steady":
        return np.ones(len(targets), int)
    has_value = ~targets.isnan().flatten(2).all(-1)
    numbers = torch.arange(1, problem.num_steps + 1)
    return (has_value * numbers).amax(1).numpy()


def epochs_per_validation(train_set: Dataset, validation_set: Dataset, config: TrainConfig) -> int:
    """After how many epochs to validate: as often as takes little of the time.

    Where a step learns one frame of a sample, solving for all frames of the validation samples
    takes longer than an epoch.
    """
    num_frames = train_set.problem.num_steps
    learnt = len(train_set) * min(config.frames_per_step or num_frames, num_frames)
    validated = len(validation_set) * num_frames
    return max(1, math.ceil(validated / (VALIDATION_SHARE * STEP_IN_FORWARDS * learnt)))


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
    """Sums of the loss and its terms over the samples since the last line of the log."""
    num_summed: int = 0
    diverged: str = ""  # Why the training cannot go on.


class UnreadStep(NamedTuple):
    """A step whose numbers are still on the device."""

    step: int
    num_samples: int
    names: tuple[str, ...]  # Of the loss and its terms.
    numbers: Tensor  # Those, the wishes to stop and to save, and the norm of the gradient.


class Training:
    """One training: model (from `new_model`), data, optimisers and progress."""

    def __init__(self, run: Run, splits: Splits, fabric: Fabric, model: Operator) -> None:
        self.run, self.config, self.fabric = run, own_training(run.config), fabric
        self.train_set, self.validation_set = splits.train, splits.validation
        self.partition = partition_of(fabric, self.config.mesh_parallel, splits.train.problem)
        # Processes with parts of one mesh share their samples.
        self.share = fabric.global_rank // self.partition.size
        self.num_shares = fabric.world_size // self.partition.size
        self.surrogate, loss, self.metric = prepare(run.config, splits.train, model, self.partition)
        self.symmetries = run.config.data.symmetries
        require_symmetric(self.symmetries, splits.train)
        if self.metric is not None and len(self.metric) == 1:  # all samples share one mesh
            self.metric = self.metric.to(fabric.device)
        self.loss = loss.to(fabric.device)
        if self.config.remat:
            model.rematerialise()
        module: Any = self.surrogate
        if is_compiled(self.config, fabric.device.type):
            module = torch.compile(module)
        self.module = fabric.setup_module(module)
        self.raw_optimizers = build_optimizers(self.surrogate.model, self.config)
        optimizers = fabric.setup_optimizers(*self.raw_optimizers)
        self.optimizers = list(optimizers) if isinstance(optimizers, tuple) else [optimizers]
        self.steps_per_epoch = math.ceil(len(self.train_set) / self.config.batch_size)
        epochs = epochs_per_validation(self.train_set, self.validation_set, self.config)
        self.steps_per_validation = epochs * self.steps_per_epoch
        self.average = WeightAverage(self.surrogate, self.config.average)
        self.state = TrainState()
        self._orders: dict[int, Tensor] = {}  # Of this epoch, and of the next towards its end.
        self._reads_always = fabric.device.type == "cpu"
        self._unread: list[UnreadStep] = []
        self._guard = Guard(self.surrogate)

    # -- the loop ---------------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        return self.state.step >= self.state.num_steps

    def fit(self) -> bool:
        """Train to the end; False if a signal stopped it, after saving a checkpoint."""
        state = self.state
        begun = state.step - bool(state.num_summed)  # steps that are not logged yet
        logged = begun - begun % self.steps_per_validation
        with (
            StopRequest() as stop,
            closing(Journal(self.run, logged, self.fabric.is_global_zero)) as journal,
            progress_bar(f"training {self.run.config.model_name}", state.num_steps) as bar,
        ):
            is_due = self.is_finished or state.step % self.steps_per_validation == 0
            if state.num_summed and is_due:  # the validation or its line in the log failed
                set_rates(
                    self.raw_optimizers, self.config.schedule, state.step - 1, state.num_steps
                )
                self.validate_and_log(journal)
                self.save("last")
            save_next = time.monotonic() + 60 * self.config.checkpoint_minutes
            while state.step < state.num_steps:
                began = time.monotonic()
                try:
                    if self.config.schedule == "wsd" and state.step == decay_start(state.num_steps):
                        self.read()
                        self.save("trunk")
                    with self._saved_if_data_fail():
                        stopping, saving = self.step(stop.requested, began >= save_next)
                except Diverged as error:  # the weights are still those before the bad step
                    if state.num_summed or state.step == 0:  # else they have been validated
                        self.validate_and_log(journal)
                    state.diverged = str(error)
                    self.save("last")
                    raise
                state.seconds += time.monotonic() - began
                self._show(bar, journal)
                finished = state.step == state.num_steps
                if finished or state.step % self.steps_per_validation == 0:
                    with self._saved_if_data_fail():
                        self.validate_and_log(journal)
                elif not (stopping or saving):
                    continue
                self.save("last")
                save_next = time.monotonic() + 60 * self.config.checkpoint_minutes
                if stopping and not finished:
                    return False
        return True

    @contextmanager
    def _saved_if_data_fail(self) -> Iterator[None]:
        """Streamed data that have changed or are gone end the training, and no step is lost."""
        try:
            yield
        except Diverged:
            raise
        except InputError:
            if self.fabric.world_size == 1:  # other processes would not take part in saving
                self.save("last")
            raise

    def step(self, stop: bool = False, save: bool = False) -> tuple[bool, bool]:
        """One optimiser step.

        Returns whether any process wants to stop, and to save. On a device that works while Python
        goes on, the step does not wait for it: the answers come with some of the steps only, when
        the losses are read, and a bad step is undone instead of not being taken.
        """
        state = self.state
        indices = self._batch_indices(state.step)
        set_rates(self.raw_optimizers, self.config.schedule, state.step, state.num_steps)
        terms = self._accumulate_gradients(indices)
        wishes = [torch.full_like(terms["loss"], wish) for wish in (stop, save)]
        means = self._over_processes(torch.stack([*terms.values(), *wishes]))
        parameters = [p for p in self.surrogate.parameters() if p.requires_grad]
        norm: Any = torch.nn.utils.clip_grad_norm_(parameters, self.config.clip or math.inf)
        norm = getattr(norm, "full_tensor", lambda: norm)()
        numbers = torch.cat((means, norm[None]))
        self._unread.append(UnreadStep(state.step, len(indices), tuple(terms), numbers))
        wants = (False, False)
        if self._reads_always:
            wants = self.read()
            self._take_step()
        else:
            with self._guard.undoing_unless(numbers.isfinite().all()):
                self._take_step()
        self.average.update(state.step)
        state.step += 1
        is_end = state.step == state.num_steps or state.step % self.steps_per_validation == 0
        if not self._reads_always and (is_end or state.step % STEPS_BETWEEN_READS == 0):
            wants = self.read()
        return wants

    def _take_step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()

    def read(self) -> tuple[bool, bool]:
        """Add the losses of the steps since the last call; returns the wishes of all processes.

        A step whose loss or gradient is not finite is an error, with the state before it.
        """
        if not self._unread:
            return False, False
        steps, self._unread = self._unread, []
        rows = torch.stack([one.numbers for one in steps]).tolist()
        state, reached = self.state, self.state.step
        wishes = [False, False]
        for one, (*means, stop, save, norm) in zip(steps, rows, strict=True):
            state.step = one.step
            self._require_finite("loss", means[0])
            self._require_finite("gradient", norm)
            for name, mean in zip(one.names, means, strict=True):
                state.sums[name] = state.sums.get(name, 0.0) + mean * one.num_samples
            state.num_summed += one.num_samples
            wishes = [wishes[0] or stop > 0, wishes[1] or save > 0]
        state.step = reached
        return wishes[0], wishes[1]

    @property
    def mean_loss(self) -> float:
        """Mean loss of the samples of this epoch so far; NaN before the first ones were read."""
        return self.state.sums["loss"] / self.state.num_summed if self.state.sums else math.nan

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

    def _accumulate_gradients(self, indices: Tensor) -> dict[str, Tensor]:
        """Gradient of the batch's mean loss; returns the mean loss and its terms.

        Each process takes some samples of the batch, or its part of their meshes. Gradients are
        averaged over processes, so the weight of a sample is the number of shares over the size of
        the whole batch, and parts of a mesh, whose gradients must be summed, count `size` times.
        """
        places = torch.arange(len(indices))[self.share :: self.num_shares]
        weight = self.num_shares / len(indices)
        if not len(places):  # fewer samples than processes: take part with weight 0
            places, weight = torch.arange(1), 0.0
        mine = indices[places]
        samples = self.train_set.batch(mine)
        self._prefetch()
        metric = self._metric(samples, mine)
        batch = self._mapped(self.fabric.to_device(samples), places).part(self.partition)
        weights = batch.inputs.new_full((len(mine),), weight)
        lengths = series_lengths(self.train_set.problem, samples.targets)
        frames = self._frames(batch, places, lengths)
        sums: dict[str, Tensor] = {}
        for number, frame in enumerate(frames, start=1):
            with self.fabric.no_backward_sync(self.module, enabled=number < len(frames)):
                values, flux = self.module(
                    batch.coords, frame.inputs, time=frame.time, mask=batch.mask
                )
                total, terms = self.loss(
                    values, frame.target, flux=flux, metric=metric, mask=batch.mask, weights=weights
                )
                self.fabric.backward(self.partition.size * total)
            for name, term in ({"loss": total.detach()} | terms).items():
                sums[name] = sums[name] + term if name in sums else term
        # The mean over frames is logged, which is comparable with the validation error.
        return {name: total / len(frames) for name, total in sums.items()}

    def _metric(self, batch: Batch, indices: Tensor) -> Tensor | None:
        """The inverse metric of some samples, or of all; None if the loss has no use for it."""
        problem = self.train_set.problem
        if not self.loss.config.needs_metric or problem.geometry == "cloud":
            return None
        if self.metric is None:
            found = inverse_metric(batch.coords, problem.shape, problem.periodic, problem.period)
            return self.fabric.to_device(self.partition.slab(found, 1))
        return self.metric if len(self.metric) == 1 else self.fabric.to_device(self.metric[indices])

    def _prefetch(self) -> None:
        """Begin to read what this process needs in the next steps."""
        if not (count := self.train_set.lookahead):
            return
        size = self.config.batch_size
        steps = range(self.state.step + 1, self.state.step + 2 + count * self.num_shares // size)
        mine = [self._batch_indices(k)[self.share :: self.num_shares] for k in steps]
        self.train_set.prefetch(torch.cat(mine))

    def _mapped(self, batch: Batch, places: Tensor) -> Batch:
        """The batch with a random symmetry of the problem applied to each sample."""
        if not self.symmetries:
            return batch
        rng = np.random.default_rng((SYMMETRY_STREAM, self.config.seed, self.state.step))
        chosen = draw(self.symmetries, self.config.batch_size, rng)[places]
        return mapped(batch, self.surrogate.problem.shape, self.symmetries, chosen)

    def _frames(
        self, batch: Batch, places: Tensor, lengths: np.ndarray | None = None
    ) -> list[Frame]:
        """The frames that this step learns: all, or for each sample some of its own.

        Those follow from the seed, the step and the place of the sample in the whole batch. A
        sample whose series ends before takes part with its own frames, as often as needed.
        """
        problem, num_frames = self.surrogate.problem, self.config.frames_per_step
        numbers = np.arange(problem.num_steps)
        if lengths is None:
            lengths = np.full(len(places), problem.num_steps)
        if num_frames is None and (lengths == problem.num_steps).all():
            return [frame_to_learn(problem, batch.inputs, batch.targets, int(k)) for k in numbers]
        rng = np.random.default_rng((FRAME_STREAM, self.config.seed, self.state.step))
        drawn = rng.permuted(np.tile(numbers, (self.config.batch_size, 1)), axis=1)
        num_frames = num_frames or problem.num_steps
        chosen = [
            np.resize(drawn[place][drawn[place] < length], num_frames)
            for place, length in zip(places, lengths, strict=True)
        ]
        frames = [
            [
                frame_to_learn(problem, batch.inputs[i : i + 1], batch.targets[i : i + 1], int(k))
                for k in own
            ]
            for i, own in enumerate(chosen)
        ]
        return [join_frames(some) for some in zip(*frames, strict=True)]

    def validate_and_log(self, journal: Journal) -> None:
        """Validate, write a line to the log and keep the best weights."""
        state = self.state
        began = time.monotonic()
        with self.average.in_place():
            error = self.validate()
            state.seconds += time.monotonic() - began
            if error is None:  # the newest weights are the best
                state.best_step = state.step
                self.save("best")
            elif error < state.best_error or not math.isfinite(state.best_error):
                state.best_error, state.best_step = error, state.step
                self.save("best")
        means = {name: total / state.num_summed for name, total in state.sums.items()}
        line = {
            "epoch": state.step / self.steps_per_epoch,
            "step": state.step,
            **means,
            **({} if error is None else {"validation": error}),
            "learning_rate": self.raw_optimizers[0].param_groups[0]["lr"],
            "samples_per_second": journal.rate,
            "seconds": round(state.seconds, 3),
        }
        journal.write(line)
        state.sums, state.num_summed = {}, 0

    def validate(self, at_most: int | None = None) -> float | None:
        """Mean relative error on the validation split or its first samples, over all processes.

        None if the split is empty.
        """
        if not len(self.validation_set):
            return None
        share, num_shares = self.share, self.num_shares
        if self.config.strategy == "fsdp":  # processes must call a sharded model equally often
            share, num_shares = 0, 1
        mine = torch.arange(len(self.validation_set))[:at_most][share::num_shares]
        with self.fabric.autocast():
            error = mean_error(self.surrogate, self.validation_set.subset(mine))
        sums = torch.tensor([error * len(mine), float(len(mine))], device=self.fabric.device)
        total, count = self._over_processes(sums).tolist()
        return total / count

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
        self.read()  # waits for the device
        began = time.monotonic()
        num_steps = 0
        going = True
        while going:
            self.step()
            num_steps += 1
            elapsed = time.monotonic() - began
            more = elapsed < duration or (num_steps < 3 and elapsed < PATIENCE)
            going = self.fabric.broadcast(more)  # by the clock of the first process
        self.read()
        per_step = (time.monotonic() - began) / num_steps
        began = time.monotonic()
        self.validate(SAMPLES_AT_ONCE)
        share = max(1.0, len(self.validation_set) / SAMPLES_AT_ONCE)
        per_step += share * (time.monotonic() - began) / self.steps_per_validation
        self.surrogate.load_state_dict(weights)
        for optimizer in self.raw_optimizers:
            optimizer.state.clear()
        self.average.reset()
        self.state = TrainState()
        return per_step

    def _batch_indices(self, step: int) -> Tensor:
        """The samples of a step: each epoch has its own order, drawn from the seed."""
        epoch, batch = divmod(step, self.steps_per_epoch)
        if epoch not in self._orders:
            self._orders = {k: order for k, order in self._orders.items() if k == epoch - 1}
            self._orders[epoch] = self.train_set.order(self.config.seed, epoch)
        size = self.config.batch_size
        return self._orders[epoch][batch * size : (batch + 1) * size]

    def _over_processes(self, values: Tensor) -> Tensor:
        """Mean over all processes."""
        if self.fabric.world_size == 1:
            return values
        mean: Any = self.fabric.all_reduce(values, reduce_op="mean")
        return mean

    def _show(self, bar: Bar, journal: Journal) -> None:
        state = self.state
        journal.count(self.config.batch_size)
        best = "" if math.isinf(state.best_error) else f" best validation {state.best_error:.2%}"
        bar(
            state.step,
            f"epoch {1 + (state.step - 1) // self.steps_per_epoch} loss {self.mean_loss:.4f}{best} "
            f"{journal.rate:.0f} samples/s",
        )

    # -- checkpoints ------------------------------------------------------------------------

    def save(self, kind: Kind) -> None:
        """Write a checkpoint; `best` holds the weights only, whole on every strategy."""
        saved, state = self.run.checkpoints, asdict(self.state)
        if self.fabric.is_global_zero:
            self.run.require_in_place()
        tensors: dict[str, Any]
        if kind != "best" and self.config.strategy == "fsdp":
            tensors = self._tensors(SHARDED, has_average=bool(self.average.values))
            save_shards(saved, kind, self.state.step, tensors, state)
        else:
            if kind == "best":
                tensors = dict(get_model_state_dict(self.surrogate, options=UNSHARDED))
            else:
                tensors = self._tensors(UNSHARDED, has_average=bool(self.average.values))
            if self.fabric.is_global_zero:
                save_checkpoint(saved, kind, self.state.step, Checkpoint(tensors, state))
        self.fabric.barrier()

    def _tensors(self, options: StateDictOptions, has_average: bool) -> dict[str, Tensor]:
        """Weights, optimiser state and average by name; unsharded in the first process only."""
        tensors: dict[str, Any] = dict(get_model_state_dict(self.surrogate, options=options))
        found: Any = get_optimizer_state_dict(self.surrogate, self.raw_optimizers, options=options)
        tensors |= {
            f"{OPTIMIZER}{name}/{key}": value
            for name, values in found.get("state", {}).items()
            for key, value in values.items()
        }
        if has_average:
            with self.average.in_place():
                found = get_model_state_dict(self.surrogate, options=options)
                tensors |= {f"{AVERAGE}{name}": value.clone() for name, value in found.items()}
        return tensors

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
        tensors, options = checkpoint.tensors, UNSHARDED
        if checkpoint.shards is not None:
            has_average = any(name.startswith(AVERAGE) for name in shapes_in(checkpoint.shards))
            live, options = self._tensors(SHARDED, has_average), SHARDED
            tensors = {name: tensor.clone() for name, tensor in live.items()}
            read_shards(checkpoint.shards, tensors)
        for path, tensor in tensors.items():
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
            set_model_state_dict(module, average, options=options)
            self.average.take()
        set_model_state_dict(module, weights, options=options)
        loaded = {"state": state, "param_groups": groups}
        set_optimizer_state_dict(module, optimizers, loaded, options=options)
        return True
