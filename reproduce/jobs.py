"""A queue of trainings: one process and one thread each, resumable, a failure stops no other.

They run on this machine or on a cluster, whose machines share the folders of runs and data.

A job is a run folder. Finished jobs are kept; those that were stopped or killed resume from their
checkpoint. If the queue itself is killed, its jobs save and end. With schedule `wsd` a job extends
the longest finished job of its folder that has the same settings but fewer steps, from before its
decay: experiments that share a folder of runs share these trunks.

What the results need of a finished job, its run folder without weights, is copied into one text
file, which is committed with the results: an experiment of many hours continues on another machine.
"""

import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from cato.errors import ClusterError, Diverged, InputError, Interrupted
from cato.files import atomic_folder, read_json, write_json
from cato.processes import Slot, Workers, workers_from
from cato.progress import progress_bar
from cato.runs.folder import LOCK, LOG, RECORD, Run, copy_run, open_run
from cato.runs.settings import RunConfig, run_config

if TYPE_CHECKING:
    from cato.data.dataset import Dataset
    from cato.surrogate import Surrogate

POLL_SECONDS = 0.5
SECONDS_TO_SAVE = 60
RESULT = "job.json"
"""In the run folder of a finished job: its figures on the test split, and the error of ∇u."""
KEPT = "trainings.json"
"""The finished jobs without their weights: the texts of their files by job."""
KEPT_FILES = (RECORD, LOG, RESULT)
_keeping = Lock()


def run_jobs(
    jobs: Mapping[str, RunConfig],
    folder: Path,
    workers: int | Workers | None,
    label: str,
    kept: Path | None = None,
    need_weights: bool = False,
) -> dict[str, Run]:
    """Train and evaluate every job in `folder`/name; returns the runs.

    Args:
        jobs: Settings by name.
        folder: Folder of the run folders.
        workers: Jobs at a time, one per core by default, or a cluster, which gets all jobs.
        label: Of the progress bar.
        kept: File of the finished jobs, see `KEPT`; not kept without it.
        need_weights: Train jobs again whose weights are not on this machine.
    """
    if kept is not None:
        restore(jobs, folder, kept)
    if need_weights:
        for name in jobs:
            if is_done(folder / name) and not has_weights(folder / name):
                shutil.rmtree(folder / name)
    for name, config in jobs.items():
        _require_same_settings(folder / name, config)
    waiting = [name for name in jobs if not is_done(folder / name)]
    trunks = trunks_of({name: jobs[name] for name in waiting}, folder)
    slots = workers_from(workers).slots(max(1, len(waiting)))
    idle: SimpleQueue[Slot] = SimpleQueue()  # kept between jobs: PyTorch takes long to import
    for slot in slots:
        idle.put(slot)
    pool = ThreadPoolExecutor(len(slots))
    try:
        futures = {
            name: pool.submit(_run_job, idle, folder / name, jobs[name], trunks.get(name), kept)
            for name in waiting
        }
        with progress_bar(label, len(jobs)) as bar:
            while not all(future.done() for future in futures.values()):
                bar(_completed(jobs, folder, futures), _underway(futures, folder))
                time.sleep(POLL_SECONDS)
            bar(_completed(jobs, folder, futures), _underway(futures, folder))
    except KeyboardInterrupt:
        raise Interrupted("stopped; the same command resumes") from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for slot in slots:
            slot.terminate()  # jobs that still run save and end
        pool.shutdown()
        for slot in slots:
            slot.kill()
    if failed := [name for name, future in futures.items() if not future.result()]:
        raise InputError(
            f"{len(failed)} of {len(jobs)} jobs failed ({', '.join(failed)}), the others are kept; "
            f"see {log_of(folder / failed[0])}, then run the same command again"
        )
    return {name: open_run(folder / name) for name in jobs}


def is_done(folder: Path) -> bool:
    """Whether a job is finished."""
    return (folder / RESULT).exists()


def log_of(folder: Path) -> Path:
    """The output of a job."""
    return folder.with_name(f"{folder.name}.log")


def figures_of(run: Run) -> dict[str, Any]:
    """The evaluation of a finished job."""
    return read_json(run.folder / RESULT, f"{run.folder} is not finished")


def has_weights(folder: Path) -> bool:
    """Whether a finished job was trained on this machine."""
    return (folder / "checkpoints").exists()


def trunks_of(jobs: Mapping[str, RunConfig], folder: Path) -> dict[str, str]:
    """By job, the longest finished one with the same settings but fewer steps, if there is one."""
    extensible = {
        name: c for name, c in jobs.items() if c.train.schedule == "wsd" and c.train.steps
    }
    if not extensible:
        return {}
    folders = [path.parent for path in sorted(folder.glob(f"*/{RESULT}"))]
    finished = [open_run(path) for path in folders if has_weights(path)]
    found = {}
    for name, config in extensible.items():
        shorter = [
            (run.config.train.steps or 0, run.folder.name)
            for run in finished
            if _with_steps(run.config, config.train.steps) == config
            and (run.config.train.steps or inf) < (config.train.steps or 0)
        ]
        if shorter:
            found[name] = max(shorter)[1]
    return found


def _with_steps(config: RunConfig, steps: int | None) -> RunConfig:
    return replace(config, train=replace(config.train, steps=steps))


def restore(jobs: Mapping[str, RunConfig], folder: Path, kept: Path) -> None:
    """Write the run folders of jobs that were finished elsewhere, without weights.

    Those with other settings than today's are trained again.
    """
    finished = read_json(kept, "trainings") if kept.exists() else {}
    for name, config in jobs.items():
        if name not in finished or (folder / name).exists():
            continue
        settings = json.loads(finished[name][RECORD])["config"]
        if run_config(settings, str(kept)) == config:
            folder.mkdir(parents=True, exist_ok=True)
            with atomic_folder(folder / name) as temporary:
                for file, text in finished[name].items():
                    (temporary / file).write_text(text)


def keep(run: Run, kept: Path) -> None:
    """Copy a finished job into the file of finished jobs; of its log the best line and the last."""
    lines = run.log()
    thinned = [min(lines, key=lambda line: line["validation"]), lines[-1]]
    with TemporaryDirectory() as scratch:
        slim = replace(run, folder=Path(scratch))
        slim.write_log(thinned[-1:] if thinned[0] is thinned[1] else thinned)
        texts = {LOG: (slim.folder / LOG).read_text()}
    texts |= {name: (run.folder / name).read_text() for name in (RECORD, RESULT)}
    with _keeping:
        finished = read_json(kept, "trainings") if kept.exists() else {}
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_json(kept, finished | {run.folder.name: {name: texts[name] for name in KEPT_FILES}})


def _require_same_settings(folder: Path, config: RunConfig) -> None:
    if (folder / "run.json").exists() and open_run(folder).config != config:
        raise InputError(
            f"{folder} holds a run with other settings; remove it or choose another --runs"
        )


def _run_job(
    idle: "SimpleQueue[Slot]",
    folder: Path,
    config: RunConfig,
    shorter: str | None,
    kept: Path | None,
) -> bool:
    """Run a job in an idle process; whether it finished. Its log says why it did not."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    slot = idle.get()
    try:
        slot.run(train_job, str(folder), config.to_dict(), shorter)
    except ClusterError:
        raise
    except (InputError, RuntimeError):
        pass
    finally:
        idle.put(slot)
    if is_done(folder) and kept is not None:
        keep(open_run(folder), kept)
    return is_done(folder)


def _completed(
    jobs: Mapping[str, RunConfig], folder: Path, futures: Mapping[str, Future[bool]]
) -> float:
    """Number of jobs that are done; those under way count by the share of their steps."""
    unfinished = [name for name, future in futures.items() if not future.done()]
    shares = [_share(folder / name, jobs[name]) for name in unfinished]
    return len(jobs) - len(unfinished) + sum(shares)


def _share(folder: Path, config: RunConfig) -> float:
    with suppress(OSError, ValueError, IndexError):
        last = json.loads((folder / "log.jsonl").read_text().splitlines()[-1])
        if config.train.steps is not None:
            return min(1.0, last["step"] / config.train.steps)
        if config.train.minutes is not None:
            return min(1.0, last["seconds"] / 60 / config.train.minutes)
        return min(1.0, last["epoch"] / config.train.epochs)
    return 0.0


def _underway(futures: Mapping[str, Future[bool]], folder: Path) -> str:
    """The jobs that run; raises if the cluster is lost."""
    waiting = [name for name, future in futures.items() if future.running()]
    running = [name for name in waiting if log_of(folder / name).exists()]
    failed = sum(future.done() and not future.result() for future in futures.values())
    return ", ".join(running) + (f"; {failed} failed" if failed else "")


def train_job(name: str, settings: dict[str, Any], shorter: str | None) -> None:
    """One job, in a worker process: train, extend or resume, then read the test split once.

    A training that diverges would do so again, so its best checkpoint before that is its result,
    and that of the longer jobs that would have extended it.
    """
    folder = Path(name)
    with log_of(folder).open("w") as log:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(log.fileno(), stream.fileno())
    try:
        _wait_for_the_last(folder)
        start = None if shorter is None else open_run(folder.with_name(shorter))
        _train_and_evaluate(folder, run_config(settings, "job"), start)
    except Interrupted as stopped:
        print(stopped, file=sys.stderr, flush=True)
    except Exception:
        traceback.print_exc()
        raise


def _wait_for_the_last(folder: Path) -> None:
    """A job of a cluster begins again elsewhere while what was left of it is still being saved."""
    if folder.exists():
        with suppress(Timeout), FileLock(folder / LOCK, timeout=SECONDS_TO_SAVE):
            pass


def _train_and_evaluate(folder: Path, config: RunConfig, shorter: Run | None) -> None:
    import torch

    from cato.inference.evaluate import evaluate, train_mean
    from cato.runs.load import load_splits, load_surrogate

    torch.set_num_threads(1)
    diverged = None
    try:
        run = _train(folder, config, shorter)
    except Diverged as error:
        run, diverged = open_run(folder), str(error)
    splits, surrogate = load_splits(config), load_surrogate(run)
    figures = evaluate(surrogate, splits.test, train_mean(splits)).to_dict()
    slopes = gradient_error(surrogate, splits.validation)
    write_json(folder / RESULT, figures | {"gradient_error": slopes, "diverged": diverged})


def gradient_error(surrogate: "Surrogate", data: "Dataset") -> float | None:
    """Relative error of ∇u on a steady mesh; None elsewhere."""
    from cato.inference.evaluate import solve_all
    from cato.physics.gradient import gradient, inverse_metric
    from cato.physics.metrics import relative_l2

    problem = data.problem
    if problem.time != "steady" or problem.geometry == "cloud":
        return None
    metric = inverse_metric(data.coords, problem.shape, problem.periodic, problem.period)
    slopes = partial(gradient, metric=metric, shape=problem.shape, periodic=problem.periodic)
    truth = slopes(data.targets).flatten(2)
    return relative_l2(slopes(solve_all(surrogate, data)).flatten(2), truth).mean().item()


def _train(folder: Path, config: RunConfig, shorter: Run | None) -> Run:
    from cato.training.train import resume, train

    if (folder / "run.json").exists():
        return resume(folder)
    if shorter is None or not has_weights(shorter.folder):
        return train(config, folder)  # the same steps, from the start
    if figures_of(shorter)["diverged"]:
        last = shorter.log()[-1]
        copy_run(shorter, folder, config, {name: last[name] for name in ("step", "seconds")})
        return resume(folder)  # raises as the shorter one did
    return resume(shorter.folder, {"steps": config.train.steps}, folder)
