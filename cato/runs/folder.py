"""The run folder: everything about one training, and the input of all later commands.

run.json            settings, problem, key of the data, commit, environment and command; of an
                    extended run also the step and seconds of training from which it was extended;
                    of model auto also the trials
log.jsonl           one line per epoch
checkpoints/        see `cato.runs.checkpoint`
evaluation.json     written by `cato evaluate`
band.safetensors    half-width of the conformal band, see `cato.inference.conformal`
report.html         written by `cato report`, with its figures as PNG files in figures/

Pretrained models are such folders too, in cato/pretrained. The name of a benchmark stands for its
pretrained model wherever a run folder is expected. Results computed from it are written to
runs/pretrained/NAME, never into the library.
"""

import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cato import __version__
from cato.benchmarks import BENCHMARKS
from cato.errors import InputError
from cato.files import atomic_write, read_json, write_json
from cato.problem import Problem
from cato.runs.provenance import commit, environment
from cato.runs.settings import RunConfig, command_of, run_config

FORMAT = 1
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
    def checkpoints(self) -> Path:
        return self.source / "checkpoints"

    @property
    def command(self) -> str:
        """The command that repeats the training with the recipes of this version."""
        return command_of(self.config) if self.pretrained else _command(self.config, self.folder)

    @property
    def trials(self) -> list[dict[str, Any]]:
        """The trials of model auto, see `cato.training.trials`; empty if the model was named."""
        return self.record.get("trials", [])

    def log(self) -> list[dict[str, Any]]:
        """The lines of the training log."""
        path = self.source / "log.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]

    def change_settings(self, config: RunConfig, state: Mapping[str, Any]) -> None:
        """Record new settings, as the command that leads to them, and from which state on."""
        command = _command(config, self.folder)
        branch = {name: state[name] for name in ("step", "seconds")}
        record = {"config": config.to_dict(), "command": command, "branch": branch}
        write_json(self.folder / "run.json", self.record | record)

    def write_log(self, lines: list[dict[str, Any]]) -> None:
        """Replace the training log."""
        with atomic_write(self.folder / "log.jsonl") as temporary:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in lines))


def require_new(folder: Path) -> None:
    """Raise if a folder already holds a run."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; choose another --out")
    if (folder / "run.json").exists():
        raise InputError(
            f"{folder} already holds a run; continue it with `cato train --resume {folder}` "
            f"or choose another --out"
        )


def create_run(
    folder: Path,
    config: RunConfig,
    problem: Problem,
    data: str = "",
    trials: Sequence[Mapping[str, Any]] = (),
) -> Run:
    """Start a new run folder, which must not hold a run yet.

    Args:
        folder: The new folder.
        config: Settings of the run.
        problem: The conditioned problem.
        data: From `data_key`; other data are refused later. Without it any are accepted.
        trials: From `cato.training.trials`, if the model was chosen by them.
    """
    folder = Path(folder)
    require_new(folder)
    record = {
        "format": FORMAT,
        "cato": __version__,
        "commit": commit(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": _command(config, folder),
        "config": config.to_dict(),
        "problem": problem.to_dict(),
        "data": data,
        "environment": environment(),
    }
    if trials:
        record["trials"] = [dict(trial) for trial in trials]
    write_json(folder / "run.json", record)
    return Run(folder, config, problem, record)


def copy_run(run: Run, folder: Path) -> Run:
    """Copy checkpoints and log into a new folder, which `change_settings` makes a run.

    So a killed copy is not a run yet: copy it again.
    """
    require_new(folder)
    shutil.copytree(run.checkpoints, folder / "checkpoints", dirs_exist_ok=True)
    copy = replace(run, folder=folder)
    copy.write_log(run.log())
    return copy


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
    source = pretrained or folder
    record = read_json(source / "run.json", _no_run(folder))
    if not isinstance(record, dict) or "format" not in record:
        raise InputError(f"{source}/run.json is not the record of a cato run")
    if record["format"] != FORMAT:
        raise InputError(
            f"{source} was made by cato {record.get('cato')} with run format {record['format']}; "
            f"this is cato {__version__} with format {FORMAT}: use that version or train again"
        )
    try:
        settings = record["config"]
        if "conditioning" not in record["problem"]:  # version 0.1 had the published one only
            settings = settings | {"data": {"conditioning": "published"} | settings["data"]}
        config = run_config(settings, f"{source}/run.json")
        problem = Problem.from_dict(record["problem"])
    except (KeyError, TypeError) as error:
        raise InputError(f"{source}/run.json is incomplete ({error}); train again") from None
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
