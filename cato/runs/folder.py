"""The run folder: everything about one training, and the input of all later commands.

run.json            settings, problem, key of the data, commit, environment and command; of an
                    extended run also the step and seconds of training from which it was extended;
                    of model auto also the trials
log.jsonl           one line per validation
checkpoints/        see `cato.runs.checkpoint`
evaluation.json     written by `cato evaluate`
band.safetensors    half-width of the conformal band, see `cato.inference.conformal`
range.safetensors   range of the training inputs, see `cato.data.training_range`
report.html         written by `cato report`, with its figures as PNG files in figures/

The id of a run, drawn when it is created, is part of the checksum of each of these files that a
later command reads (see `cato.files`), so that damage, and files of another run, are noticed. Runs
of version 0.1 have no id; what is written into them now has checksums without one.

A folder is a run once it has run.json. `.new` marks what is written into a folder before that.

Pretrained models are such folders too, in cato/pretrained. The name of a benchmark stands for its
pretrained model wherever a run folder is expected. Results computed from it are written to
runs/pretrained/NAME, never into the library.
"""

import hashlib
import json
import os
import shlex
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

from torch import Tensor

from cato import __version__
from cato.benchmarks import BENCHMARKS
from cato.errors import InputError
from cato.files import (
    MAX_TEXT,
    atomic_write,
    locked,
    open_regular,
    read_json,
    read_sealed,
    require_seal,
    sealed,
    to_json,
    write_sealed,
)
from cato.problem import Problem
from cato.runs.checkpoint import Checkpoint, Checkpoints, copy_checkpoints, save_checkpoint
from cato.runs.provenance import commit, environment
from cato.runs.settings import RunConfig, command_of, run_config
from cato.user_data.naming import NO_TIMES

FORMAT = 1
LOCK = ".lock"
RECORD, LOG, NEW = "run.json", "log.jsonl", ".new"
IN_EVERY_LINE = ("epoch", "step", "validation", "learning_rate", "seconds")  # Numbers of the log.
PRETRAINED = Path(__file__).resolve().parents[1] / "pretrained"
"""The models that come with the library."""
PRETRAINED_RESULTS = Path("runs") / "pretrained"  # Folder of results that are computed from them.


@dataclass(frozen=True)
class Run:
    """An existing run."""

    folder: Path  # For a pretrained model, the folder of its results.
    config: RunConfig
    problem: Problem
    record: dict[str, Any]  # Contents of run.json.
    pretrained: Path | None = None  # Read-only folder of a model that comes with the library.

    @property
    def source(self) -> Path:
        return self.pretrained or self.folder

    @property
    def id(self) -> str:
        """Drawn when the run was created; empty for runs of version 0.1."""
        return str(self.record.get("id", ""))

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.source / "checkpoints", self.id)

    @property
    def command(self) -> str:
        """The command that repeats the training with the recipes of this version."""
        return command_of(self.config) if self.pretrained else _command(self.config, self.folder)

    @property
    def trials(self) -> list[dict[str, Any]]:
        """The trials of model auto, see `cato.training.trials`; empty if the model was named."""
        return self.record.get("trials", [])

    def log(self) -> list[dict[str, Any]]:
        """The lines of the training log, at least one."""
        lines = self.read_log()
        if not lines:
            raise InputError(
                f"{self.source} has no epoch in its log; if it is not trained to the end, continue "
                f"it with `cato train --resume {self.folder}`"
            )
        return lines

    def read_log(self) -> list[dict[str, Any]]:
        """The lines of the training log; none before the end of the first epoch."""
        path = self.source / LOG
        try:
            with open_regular(path, MAX_TEXT) as file:
                content = file.read()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror})") from None
        content = require_seal(path, content, self.id, "training log")
        try:
            # Those of version 0.1 may end in half a line, if they were killed.
            lines = [json.loads(line) for line in content.splitlines() if line.endswith(b"}")]
            for line in lines:
                if line.get("validation", 0) is None:  # not finite
                    line["validation"] = inf
                # Cross-validation has no validation samples.
                needed = [n for n in IN_EVERY_LINE if n != "validation" or n in line]
                if not all(isinstance(line[name], int | float) for name in needed):
                    raise TypeError(f"{', '.join(IN_EVERY_LINE)} are not all numbers")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InputError(f"{path} is damaged ({error}); restore it from a copy") from None
        return lines

    def write_log(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Replace the training log."""
        self.write_log_text([to_json(line) for line in lines])

    def write_log_text(self, lines: Sequence[str]) -> None:
        """Replace the training log by lines of JSON."""
        path = self.folder / LOG
        if not lines:
            path.unlink(missing_ok=True)
            return
        with atomic_write(path) as temporary:
            temporary.write_bytes(sealed("\n".join(lines).encode(), LOG, self.id))

    def require_in_place(self) -> None:
        """Raise if the folder was moved, removed or replaced since the run was opened.

        Files written under its old name would mix with those of the next run there.
        """
        try:
            found = read_json(self.source / RECORD, "run").get("id", "")
        except (InputError, AttributeError):
            found = None
        if found != self.id:
            raise InputError(
                f"{self.folder} was moved, removed or replaced while this command used it; stopped "
                f"before writing there. Run the command again where the run is now"
            )

    def write_figures(self, path: Path, figures: Mapping[str, Any]) -> None:
        """Write results computed from this run as JSON."""
        self.require_in_place()
        write_sealed(path, figures, self.id)

    def read_figures(self, path: Path) -> dict[str, Any]:
        """Results that `write_figures` wrote for this run."""
        return read_sealed(path, "results of a run", self.id)

    def change_settings(self, config: RunConfig, branch: Mapping[str, Any]) -> "Run":
        """Record new settings, as the command that leads to them, and from which state on."""
        command = _command(config, self.folder)
        changed = {"config": config.to_dict(), "command": command, "branch": dict(branch)}
        run = Run(self.folder, config, self.problem, self.record | changed)
        write_sealed(run.folder / RECORD, run.record, run.id)
        return run


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Keep all other trainings out of a folder while the block runs; a new one may be created."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    busy = f"another process ({{pid}}) is training in {folder}; wait or choose another --out"
    try:
        with locked(folder / LOCK, busy):
            yield
    finally:
        with suppress(OSError):  # unless something was written
            for path in missing:
                path.rmdir()


def fold_folder(folder: Path, fold: int) -> Path:
    """Where a run keeps the model of a fold of cross-validation."""
    return folder / "folds" / str(fold)


def fold_id(run: Run, fold: int) -> str:
    """The id of the run of a fold: a fold of another run or number has another one."""
    return hashlib.sha256(f"{run.id}/{fold}".encode()).hexdigest()[:32]


def open_fold(run: Run, fold: int) -> Run:
    """The run of a fold; raises if it is not that fold of this run, whose samples it has seen."""
    found = open_run(fold_folder(run.folder, fold))
    if found.id != fold_id(run, fold):
        raise InputError(
            f"{found.folder} is not fold {fold} of this run; restore it from a copy, or remove it "
            f"and continue with `cato train --resume {run.folder}`"
        )
    return found


def require_new(folder: Path) -> None:
    """Raise if a folder already holds a run, or what is left of one."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; choose another --out")
    if (folder / RECORD).exists():
        raise InputError(
            f"{folder} already holds a run; continue it with `cato train --resume {folder}` "
            f"or choose another --out"
        )
    parts = [name for name in (LOG, "checkpoints") if (folder / name).exists()]
    if parts and not (folder / NEW).exists():
        raise InputError(
            f"{folder} holds {parts[0]} of a run without {RECORD}; restore that file, remove the "
            f"folder or choose another --out"
        )


def create_run(
    folder: Path,
    config: RunConfig,
    problem: Problem,
    data: str = "",
    start: Mapping[str, Tensor] | None = None,
    trials: Sequence[Mapping[str, Any]] = (),
    run_id: str = "",
) -> Run:
    """Start a new run folder, which must not hold a run yet.

    Args:
        folder: The new folder.
        config: Settings of the run.
        problem: The conditioned problem.
        data: From `data_key`; other data are refused later. Without it any are accepted.
        start: Initial weights of fine-tuning: the run never needs its start again.
        trials: From `cato.training.trials`, if the model was chosen by them.
        run_id: Of a fold; that of any other run is drawn.
    """
    folder = Path(folder)
    record = {
        "format": FORMAT,
        "id": run_id or uuid.uuid4().hex,
        "cato": __version__,
        "commit": commit(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": _command(config, folder),
        "config": config.to_dict(),
        "problem": problem.to_dict(),
        "data": data,
        "environment": environment(),
        "launch": os.environ.get("TORCHELASTIC_RUN_ID"),
    }
    if trials:
        record["trials"] = [dict(trial) for trial in trials]
    run = Run(folder, config, problem, record)
    with _new_run(run):
        if start is not None:
            save_checkpoint(run.checkpoints, "start", 0, Checkpoint(dict(start), {}))
    return run


def copy_run(run: Run, folder: Path, config: RunConfig, branch: Mapping[str, Any]) -> Run:
    """A new run with the checkpoints and the log of another, and new settings from a state on."""
    record = run.record | {
        "id": uuid.uuid4().hex,
        "command": _command(config, folder),
        "config": config.to_dict(),
        "branch": dict(branch),
    }
    copy = Run(folder, config, run.problem, record)
    with _new_run(copy):
        copy_checkpoints(run.checkpoints, copy.checkpoints)
        copy.write_log(run.read_log())
    return copy


@contextmanager
def _new_run(run: Run) -> Iterator[None]:
    """Write the first files of a run in the block. They become a run, which must be new, after it.

    Those of a start that was killed here are removed.
    """
    folder = run.folder
    require_new(folder)
    if (folder / NEW).exists():
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        for path in (folder / LOG, *folder.glob("*.safetensors"), *folder.glob("evaluation*.json")):
            path.unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NEW).touch()
    yield
    write_sealed(folder / RECORD, run.record, run.id, must_be_new=True)
    (folder / NEW).unlink(missing_ok=True)


def open_run(folder: str | Path) -> Run:
    """Read a run folder; one of `pretrained_names` is that model if nothing exists at that path."""
    folder = Path(folder)
    name = folder.name
    is_name = str(folder) == name and not folder.exists()
    if name in pretrained_names() and (is_name or folder.resolve() == PRETRAINED / name):
        return _read_run(PRETRAINED_RESULTS / name, PRETRAINED / name)
    return _read_run(folder)


def pretrained_names() -> list[str]:
    """The models that come with the library, in the order of the benchmarks."""
    return [name for name in BENCHMARKS if (PRETRAINED / name / "run.json").exists()]


def _read_run(folder: Path, pretrained: Path | None = None) -> Run:
    path, what = (pretrained or folder) / RECORD, _no_run(folder)
    _require_format(path, read_json(path, what))  # first: other formats may have other checksums
    return run_of(read_sealed(path, what, None), folder, pretrained)


def _require_format(path: Path, record: Any) -> None:
    if not isinstance(record, dict) or "format" not in record:
        raise InputError(f"{path} is not the record of a cato run")
    if record["format"] != FORMAT:
        raise InputError(
            f"{path.parent} was made by cato {record.get('cato')} with run format "
            f"{record['format']}; this is cato {__version__} with format {FORMAT}: use that "
            f"version or train again"
        )


def run_of(record: dict[str, Any], folder: Path, pretrained: Path | None = None) -> Run:
    """The run of a folder from the contents of its run.json."""
    path = (pretrained or folder) / RECORD
    try:
        settings = record["config"]
        if "conditioning" not in record["problem"]:  # version 0.1 had the published one only
            settings = settings | {"data": {"conditioning": "published"} | settings["data"]}
        if "static" not in record["problem"] and settings["data"].get("file"):  # before parameters
            time = record["problem"]["time"]
            known = {"time": time, "times": NO_TIMES} if time != "steady" else {}
            settings = settings | {"data": {"folds": 0} | settings["data"] | known}
        config = run_config(settings, str(path))
        problem = Problem.from_dict(record["problem"])
        for name, kind in (("cato", str), ("created", str), ("environment", dict)):
            if not isinstance(record[name], kind):
                raise TypeError(f"{name} is {record[name]!r}")
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} is incomplete ({error}); train again") from None
    return Run(folder, config, problem, record, pretrained)


def _command(config: RunConfig, folder: Path) -> str:
    return f"{command_of(config)} --out {shlex.quote(str(folder))}"


def _no_run(folder: Path) -> str:
    """Message about a folder without run.json."""
    names = pretrained_names()
    if not folder.exists():
        models = ", ".join(names)
        return f"{folder} is not a run folder, nor a model that comes with cato ({models})"
    if str(folder) in names:
        return (
            f"the folder {folder} here is not a run folder, and hides the model of that name that "
            f"comes with cato (to use the model, change to another folder)"
        )
    return f"{folder} is not a run folder"
