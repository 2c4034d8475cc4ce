"""Checkpoints: a safetensors file of weights and optimiser state, and a sealed JSON about it.

The tensors are written first, the JSON with their checksum last, each atomically: a checkpoint
exists if its JSON does, and is intact if both checksums agree. Nothing is loaded with pickle.

    last-00000120.safetensors, last-00000120.json   to resume from; the newest two are kept
    best-00000090.safetensors, best-00000090.json   lowest validation error; the newest two are kept
    trunk-00000096.…                                before the decay of schedule wsd, to extend
                                                    from; the best one before it is kept too
    start-00000000.…                                initial weights of fine-tuning

Where a model is sharded (FSDP), `last` and `trunk` are too: in the place of one file of tensors is
a folder in which every process has written its part by `torch.distributed.checkpoint`, again as
safetensors. Any number of processes can read it.
"""

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from cato.errors import InputError
from cato.files import atomic_write, digest, read_sealed, remove_leftovers, write_sealed
from cato.progress import note

Kind = Literal["last", "best", "trunk", "start"]
KEEP = 2  # Checkpoints of each kind that are kept: a spare one, in case the newest is damaged.
FORMAT = 1
_NAME = re.compile(r"(last|best|trunk|start)-\d{8,}")


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a run."""

    folder: Path
    owner: str = ""  # Id of the run; those of other runs are refused.


@dataclass(frozen=True)
class Checkpoint:
    """A saved state of a training; sharded tensors stay in their folder, see `cato.runs.shards`."""

    tensors: dict[str, Tensor]
    state: dict[str, Any]
    shards: Path | None = None


def save_checkpoint(saved: Checkpoints, kind: Kind, step: int, checkpoint: Checkpoint) -> None:
    """Write a checkpoint and remove old ones."""
    about = saved.folder / f"{kind}-{step:08d}.json"
    if checkpoint.shards is not None:
        folder = about.with_suffix("")
        if folder != checkpoint.shards:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(checkpoint.shards, folder)
        sums = {"shards": sums_of(sorted(folder.iterdir()))}
    else:
        tensors = {name: x.contiguous().cpu() for name, x in checkpoint.tensors.items()}
        with atomic_write(about.with_suffix(".safetensors")) as temporary:
            temporary.write_bytes(save(tensors))  # not save_file, whose errors are not OSErrors
            sums = sums_of([temporary])[temporary.name]
    finish_checkpoint(saved, kind, about, sums, checkpoint.state)


def sums_of(files: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Size and checksum of files by their names."""
    return {path.name: {"bytes": path.stat().st_size, "sha256": digest(path)} for path in files}


def finish_checkpoint(
    saved: Checkpoints, kind: Kind, about: Path, sums: dict[str, Any], state: dict[str, Any]
) -> None:
    """Make a checkpoint of tensors that are written, and remove old ones."""
    _write_about(saved, about.name, sums, state)
    found = _newest_first(saved, kind)
    kept = [*found[:KEEP], about]  # an extended run writes an older one than it has
    if kind == "best" and (trunks := _newest_first(saved, "trunk")):
        kept += [about for about in found if _step(about) <= _step(trunks[0])][:1]
    _remove(about for about in found if about not in kept)


def copy_checkpoints(source: Checkpoints, target: Checkpoints) -> None:
    """Copy the intact checkpoints of a run to another one."""
    for about in sorted(source.folder.glob("*.json")):
        try:
            values = _read_about(source, about)
            for path, sums in _files(about, values).items():
                with atomic_write(target.folder / path.relative_to(source.folder)) as temporary:
                    shutil.copyfile(path, temporary)
                    _require_digest(temporary, sums)
        except InputError as error:
            note(f"checkpoint {about.stem} is damaged and not copied: {error}")
        else:
            sums = {k: v for k, v in values.items() if k in ("bytes", "sha256", "shards")}
            _write_about(target, about.name, sums, values["state"])


def remove_incomplete(saved: Checkpoints) -> None:
    """Remove incomplete files of killed trainings."""
    remove_leftovers(saved.folder)
    for weights in saved.folder.glob("*.safetensors"):
        if not weights.with_suffix(".json").exists():
            weights.unlink(missing_ok=True)
    for shards in saved.folder.glob("*/"):
        if _NAME.fullmatch(shards.name) and not shards.with_suffix(".json").exists():
            shutil.rmtree(shards)


def load_checkpoint(saved: Checkpoints, kind: Kind) -> Checkpoint | None:
    """The newest intact checkpoint of a kind; None if there is none.

    Where an older one leads to the same result, it takes the place of a damaged one, with a note: a
    training that resumes from it ends the same. The best weights are those that the training
    recorded as such and no others.
    """
    found = _newest_first(saved, kind)
    best_step = last_state(saved).get("best_step", 0) if kind == "best" else 0
    for about in found:
        try:
            checkpoint = _read(saved, about)
        except InputError as error:
            if kind == "best":
                raise InputError(
                    f"the best weights in {saved.folder} are damaged ({error}); if the training "
                    f"is not finished, `cato train --resume` may repair them"
                ) from None
            note(f"checkpoint {about.stem} is damaged, using the one before: {error}")
            continue
        if _step(about) >= best_step:
            return checkpoint
        break
    if best_step:
        raise InputError(
            f"{saved.folder} has lost the best weights, of step {best_step}; restore them from a "
            f"copy or train again"
        )
    if found:
        raise InputError(
            f"all checkpoints in {saved.folder} are damaged; remove the folder and train again"
        )
    return None


def last_state(saved: Checkpoints) -> dict[str, Any]:
    """The state in the last checkpoint, without its tensors; empty without a checkpoint.

    If the newest is damaged, that of the one before, whose best step is the same or earlier.
    """
    for about in _newest_first(saved, "last"):
        try:
            state: dict[str, Any] = _read_about(saved, about)["state"]
        except InputError:
            continue
        return state
    return {}


def rewind(saved: Checkpoints, checkpoint: Checkpoint) -> None:
    """Make a checkpoint the last one: write it, then remove the last and best ones after it."""
    step = int(checkpoint.state["step"])
    save_checkpoint(saved, "last", step, checkpoint)
    later = [*_newest_first(saved, "last"), *_newest_first(saved, "best")]
    _remove([about for about in later if _step(about) > step])


def _newest_first(saved: Checkpoints, kind: Kind) -> list[Path]:
    found = [p for p in saved.folder.glob(f"{kind}-*.json") if _NAME.fullmatch(p.stem)]
    return sorted(found, key=_step, reverse=True)


def _step(about: Path) -> int:
    return int(about.stem.rsplit("-", 1)[1])


def _remove(checkpoints: Iterable[Path]) -> None:
    for about in checkpoints:
        about.unlink(missing_ok=True)
        about.with_suffix(".safetensors").unlink(missing_ok=True)
        shutil.rmtree(about.with_suffix(""), ignore_errors=True)


def _read(saved: Checkpoints, about: Path) -> Checkpoint:
    """An intact checkpoint whose best weights, which a resumed training needs, are intact too."""
    values = _read_about(saved, about)
    for path, sums in _files(about, values).items():
        _require_digest(path, sums)
    best_step = values["state"].get("best_step", 0)
    if best_step and not about.stem.startswith("best-"):
        best = about.with_name(f"best-{best_step:08d}.json")
        _require_digest(best.with_suffix(".safetensors"), _read_about(saved, best))
    if "shards" in values:
        return Checkpoint({}, values["state"], about.with_suffix(""))
    weights = about.with_suffix(".safetensors")
    try:
        return Checkpoint(load_file(weights), values["state"])
    except (OSError, SafetensorError) as error:
        raise InputError(f"{weights} cannot be read ({error})") from None


def _read_about(saved: Checkpoints, about: Path) -> dict[str, Any]:
    values = read_sealed(about, "checkpoint", saved.owner)
    if values.get("format") != FORMAT:
        raise InputError(f"{about} is not a checkpoint of format {FORMAT}")
    state = values.get("state")
    if not isinstance(state, dict) or not isinstance(state.get("best_step", 0), int):
        raise InputError(f"{about} has no state of a training")
    return values


def _write_about(
    saved: Checkpoints, name: str, sums: dict[str, Any], state: dict[str, Any]
) -> None:
    """Write the JSON of a checkpoint; `sums` are size and checksum of its tensors' files."""
    about = {"format": FORMAT, **sums, "state": state}
    write_sealed(saved.folder / name, about, saved.owner)


def _files(about: Path, values: dict[str, Any]) -> dict[Path, dict[str, Any]]:
    """The files of a checkpoint's tensors, with what is recorded about them."""
    if "shards" not in values:
        return {about.with_suffix(".safetensors"): values}
    shards: dict[str, dict[str, Any]] = values["shards"]
    folder = about.with_suffix("")
    found = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if found != set(shards):  # a file more would be read too
        raise InputError(f"{folder} does not hold the {len(shards)} files that were written there")
    return {folder / name: sums for name, sums in shards.items()}


def _require_digest(weights: Path, about: dict[str, Any]) -> None:
    try:
        found = digest(weights, about.get("bytes"))  # not in version 0.1
    except OSError as error:
        raise InputError(f"{weights} cannot be read ({error.strerror or error})") from None
    if found != about.get("sha256"):
        raise InputError(f"{weights} does not have the checksum that was recorded for it")
