"""A queue of trainings: one process and one thread each, resumable, a failure stops no other.

A job is a run folder. What is trained and evaluated already is left alone; what was stopped or
killed goes on from its checkpoint.

    python -m reproduce.jobs FOLDER        one job, as the queue starts it

reads its settings as one line of JSON and ends, with everything saved, when that pipe closes: the
queue may be killed at any moment.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cato.errors import Diverged, InputError, Interrupted
from cato.files import read_json, write_json
from cato.processes import num_cores
from cato.progress import progress_bar
from cato.runs.folder import Run, open_run
from cato.runs.settings import RunConfig, run_config
from cato.subprocesses import start_module

POLL_SECONDS = 0.5
RESULT = "job.json"
"""In the run folder of a finished job: its figures on the test split."""

Process = subprocess.Popen[bytes]


def run_jobs(
    jobs: Mapping[str, RunConfig], folder: Path, workers: int | None, label: str
) -> dict[str, Run]:
    """Train and evaluate every job in `folder`/name; returns the runs.

    Args:
        jobs: Settings by name.
        folder: Where the run folders are.
        workers: Jobs at a time; one per core by default.
        label: Of the progress bar.
    """
    for name, config in jobs.items():
        _require_same_settings(folder / name, config)
    waiting = [name for name in jobs if not is_done(folder / name)]
    running: dict[str, Process] = {}
    failed: list[str] = []
    try:
        with progress_bar(label, len(jobs)) as bar:
            while waiting or running:
                while waiting and len(running) < (workers or num_cores()):
                    name = waiting.pop(0)
                    running[name] = _start(folder / name, jobs[name])
                for name, process in list(running.items()):
                    if process.poll() is not None:
                        del running[name]
                        failed += [name] if process.returncode else []
                bar(_completed(jobs, folder, [*waiting, *running]), _underway(running, failed))
                time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        raise Interrupted("stopped; the same command goes on where it was") from None
    finally:
        _stop(running.values())
    if failed:
        log = log_of(folder / failed[0])
        raise InputError(
            f"{len(failed)} of {len(jobs)} jobs failed ({', '.join(failed)}), the others are kept; "
            f"see {log}, then run the same command again"
        )
    return {name: open_run(folder / name) for name in jobs}


def is_done(folder: Path) -> bool:
    """Whether a job has come to its end."""
    return (folder / RESULT).exists()


def log_of(folder: Path) -> Path:
    """What a job printed."""
    return folder.with_name(f"{folder.name}.log")


def _require_same_settings(folder: Path, config: RunConfig) -> None:
    if (folder / "run.json").exists() and open_run(folder).config != config:
        raise InputError(
            f"{folder} holds a run with other settings; remove it or choose another --runs"
        )


def _start(folder: Path, config: RunConfig) -> Process:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with log_of(folder).open("w") as log:
        process = start_module("reproduce.jobs", str(folder), stdout=log, stderr=log)
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it is dead already: its code will say so
        process.stdin.write(json.dumps(config.to_dict()).encode() + b"\n")
    return process


def _stop(processes: Iterable[Process]) -> None:
    """Ask all to save and end, and wait for them."""
    going = [process for process in processes if process.poll() is None]
    for process in going:
        process.send_signal(signal.SIGTERM)
    for process in going:
        process.wait()


def _completed(jobs: Mapping[str, RunConfig], folder: Path, unfinished: list[str]) -> float:
    """How many jobs are done, those under way by the share of their epochs."""
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


def _underway(running: Mapping[str, object], failed: list[str]) -> str:
    return ", ".join(running) + (f"; {len(failed)} failed" if failed else "")


def main() -> None:
    """One job: train or go on, then read the test split once.

    A training that diverges would do so again: its best checkpoint before is its result.
    """
    import torch

    from cato.inference.evaluate import evaluate, train_mean
    from cato.runs.load import load_splits, load_surrogate
    from cato.training.train import resume, train

    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    config = run_config(json.loads(sys.stdin.readline()), "job")
    threading.Thread(target=_end_with_queue, daemon=True).start()
    diverged = None
    try:
        run = resume(folder) if (folder / "run.json").exists() else train(config, folder)
    except Interrupted as stopped:
        sys.exit(str(stopped))
    except Diverged as error:
        run, diverged = open_run(folder), str(error)
    splits = load_splits(config)
    figures = evaluate(load_surrogate(run), splits.test, train_mean(splits)).to_dict()
    write_json(folder / RESULT, figures | {"diverged": diverged})


def _end_with_queue() -> None:
    """Wait for the pipe to close, then stop as if asked to."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def figures_of(run: Run) -> dict[str, Any]:
    """What the evaluation of a finished job found."""
    return read_json(run.folder / RESULT, f"{run.folder} is not finished")


if __name__ == "__main__":
    main()
