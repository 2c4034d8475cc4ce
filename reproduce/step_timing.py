"""Equal time: how many steps of each model fit into the same training time.

A step is timed in processor seconds of one thread, so that waiting for a core does not count. Load
on the other cores still slows it, so it is measured in matmuls timed next to it, and these in
seconds of the matmul at the start of the experiment. The number of steps is fixed before any
training begins, so an experiment that is killed, resumed or run on a busy machine stays fair.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from loky import cpu_count

from cato.errors import InputError
from cato.files import read_json, write_json
from cato.models.registry import model_class
from cato.processes import Worker
from cato.progress import progress_bar
from cato.runs.folder import create_run
from cato.runs.load import load_splits
from cato.runs.settings import RunConfig, run_config
from reproduce.profiling import digest, in_matmuls, seconds_of

if TYPE_CHECKING:
    from cato.training.loop import Training

SPEEDS = "speeds.json"
"""Seconds of a step by `speed_key`, and of `UNIT`; committed with the trainings."""
UNIT, MATMUL = "matmul", 1024
"""What steps are measured in, and its size."""
TIMED_SECONDS, MIN_STEPS = 5.0, 5
"""Processor time that a measurement takes at least, matmuls included, and steps in it."""


def in_equal_time(
    jobs: Mapping[str, RunConfig], minutes: float, folder: Path, workers: int | None
) -> dict[str, RunConfig]:
    """The same jobs, each with as many steps as it can do in the minutes on one thread.

    Args:
        jobs: Settings by name.
        minutes: Training time of each, with its share of the validations.
        folder: Where measured times are kept.
        workers: Measurements at a time; one per core by default.
    """
    speeds = measure_speeds(jobs, folder / SPEEDS, workers)
    fitted = {}
    for name, config in jobs.items():
        num_steps = max(1, int(60 * minutes / speeds[speed_key(config)]))
        fitted[name] = replace(config, train=replace(config.train, steps=num_steps))
    return fitted


def measure_speeds(
    jobs: Mapping[str, RunConfig], path: Path, workers: int | None
) -> dict[str, float]:
    """Seconds of a step of all jobs, by `speed_key`; what `path` holds is not measured again."""
    speeds: dict[str, float] = read_json(path, str(path)) if path.exists() else {}
    unknown = {speed_key(config): config for config in jobs.values()}
    unknown = {key: config for key, config in unknown.items() if key not in speeds}
    if not unknown:
        return speeds
    if UNIT not in speeds:
        speeds[UNIT] = _measure_apart(None)
    with (
        ThreadPoolExecutor(workers or cpu_count()) as pool,
        progress_bar("timing steps", len(unknown)) as bar,
    ):
        measured = pool.map(_measure_apart, unknown.values())
        for number, (key, matmuls) in enumerate(zip(unknown, measured, strict=True), start=1):
            speeds[key] = matmuls * speeds[UNIT]
            write_json(path, speeds)
            bar(number, f"{key} {1000 * speeds[key]:.0f} ms")
    return speeds


def speed_key(config: RunConfig) -> str:
    """A name for all settings that a step's time may depend on: the seed, for one, does not."""
    values = config.to_dict()
    del values["data"]["root"]
    length = ("epochs", "steps", "minutes", "min_steps")
    start = ("seed", "start_from", "start_fingerprint")
    for name in (*length, *start, "learning_rate", "muon_learning_rate", "schedule"):
        del values["train"][name]
    return f"{config.benchmark}-{config.scale}-{config.model_name}-{digest(values)}"


def _measure_apart(config: RunConfig | None) -> float:
    """Matmuls per step, or seconds per matmul, in a process of its own with one thread."""
    try:
        with Worker() as worker:
            return worker.run(measure, config and config.to_dict())
    except (InputError, RuntimeError) as error:
        what = UNIT if config is None else speed_key(config)
        raise InputError(f"{what} cannot be timed: {str(error).splitlines()[-1]}") from error


def measure(settings: dict[str, Any] | None) -> float:
    """Matmuls per step of a training with these settings; without settings seconds per matmul."""
    torch.set_num_threads(1)
    if settings is None:
        return seconds_per_matmul()
    return matmuls_per_step(run_config(settings, "study"))


def seconds_per_step(config: RunConfig) -> float:
    """Wall time in the real training, with its share of the validations."""
    with _training(config) as training:
        return training.seconds_per_step()


def matmuls_per_step(config: RunConfig) -> float:
    """The same in matmuls, by processor time: the median of steps between two of them."""
    matrix, clock = torch.randn(MATMUL, MATMUL), time.process_time
    with _training(config) as training:
        training.state.num_steps = 1000
        training.step()  # the first step compiles and allocates
        began = clock()
        steps: list[float] = []
        while clock() - began < TIMED_SECONDS or len(steps) < MIN_STEPS:
            steps.append(in_matmuls(training.step, matrix, clock)[1])
        _, validation = in_matmuls(training.validate, matrix, clock)
        return median(steps) + validation / training.steps_per_validation


@contextmanager
def _training(config: RunConfig) -> "Iterator[Training]":
    """A training of these settings that leaves nothing behind."""
    from cato.training.loop import Training, new_model
    from cato.training.train import make_fabric  # imports Lightning, which takes seconds

    splits = load_splits(config)
    with tempfile.TemporaryDirectory() as folder:
        problem = config.data.condition(splits.train, model_class(config.model_name))
        run = create_run(Path(folder) / "run", config, problem)
        fabric = make_fabric(config.train)
        conditioned = splits.conditioned(problem.conditioning)
        yield Training(run, conditioned, fabric, new_model(config, problem))


def seconds_per_matmul() -> float:
    """Processor time, the median of some."""
    matrix = torch.randn(MATMUL, MATMUL)
    return median(seconds_of(lambda: matrix @ matrix, time.process_time) for _ in range(50))
