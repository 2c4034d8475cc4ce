"""Checkpoints: a safetensors file of weights and optimiser state, and a JSON with its checksum.

The tensors are written first, the JSON last, each atomically: a checkpoint exists if its JSON does,
and is intact if the checksum agrees. Nothing is loaded with pickle.

    last-00000120.safetensors, last-00000120.json   to resume from; the newest two are kept
    best-00000090.safetensors, best-00000090.json   lowest validation error; the newest two are kept
    trunk-00000096.…                                before the decay of schedule wsd, to extend
                                                    from; the best one before it is kept too
    start-00000000.…                                initial weights of fine-tuning
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from cato.errors import InputError
from cato.files import atomic_write, digest, read_json, write_json
from cato.progress import note

Kind = Literal["last", "best", "trunk", "start"]
KEEP = 2  # Checkpoints of each kind that are kept: a spare one, in case the newest is damaged.
FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """A saved state of a training."""

    tensors: dict[str, Tensor]
    state: dict[str, Any]


def save_checkpoint(folder: Path, kind: Kind, step: int, checkpoint: Checkpoint) -> None:
    """Write a checkpoint and remove old ones."""
    about = folder / f"{kind}-{step:08d}.json"
    weights = about.with_suffix(".safetensors")
    tensors = {name: tensor.contiguous().cpu() for name, tensor in checkpoint.tensors.items()}
    with atomic_write(weights) as temporary:
        temporary.write_bytes(save(tensors))  # not save_file, whose errors are not OSErrors
        checksum = digest(temporary)
    write_json(about, {"format": FORMAT, "sha256": checksum, "state": checkpoint.state})
    saved = _newest_first(folder, kind)
    kept = saved[:KEEP]
    if kind == "best" and (trunks := _newest_first(folder, "trunk")):
        kept += [about for about in saved if _step(about) <= _step(trunks[0])][:1]
    _remove(about for about in saved if about not in kept)


def remove_leftovers(folder: Path) -> None:
    """Remove incomplete files of killed trainings."""
    for path in [*folder.glob(".*.tmp"), *folder.glob("*.safetensors")]:
        if path.suffix == ".tmp" or not path.with_suffix(".json").exists():
            path.unlink(missing_ok=True)


def load_checkpoint(folder: Path, kind: Kind) -> Checkpoint | None:
    """The newest intact checkpoint; None if there is none. Damaged ones are reported."""
    candidates = _newest_first(folder, kind)
    for about in candidates:
        try:
            return _read(about)
        except InputError as error:
            note(f"checkpoint {about.stem} is damaged, using the one before: {error}")
    if candidates:
        raise InputError(
            f"all checkpoints in {folder} are damaged; remove the folder and train again"
        )
    return None


def rewind(folder: Path, checkpoint: Checkpoint) -> None:
    """Make a checkpoint the last one: write it, then remove the last and best ones after it."""
    step = int(checkpoint.state["step"])
    save_checkpoint(folder, "last", step, checkpoint)
    later = [*_newest_first(folder, "last"), *_newest_first(folder, "best")]
    _remove([about for about in later if _step(about) > step])


def _newest_first(folder: Path, kind: Kind) -> list[Path]:
    return sorted(folder.glob(f"{kind}-*.json"), reverse=True)


def _step(about: Path) -> int:
    return int(about.stem.rsplit("-", 1)[1])


def _remove(checkpoints: Iterable[Path]) -> None:
    for about in checkpoints:
        about.unlink(missing_ok=True)
        about.with_suffix(".safetensors").unlink(missing_ok=True)


def _read(about: Path) -> Checkpoint:
    values = read_json(about, "checkpoint")
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise InputError(f"{about} is not a checkpoint of format {FORMAT}")
    weights = about.with_suffix(".safetensors")
    try:
        if digest(weights) != values["sha256"]:
            raise InputError(f"{weights} does not have the checksum that was recorded for it")
        return Checkpoint(load_file(weights), values["state"])
    except (OSError, KeyError, SafetensorError) as error:
        raise InputError(f"{weights} cannot be read ({error})") from None
