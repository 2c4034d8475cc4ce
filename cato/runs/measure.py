"""What a training must know of all its samples beforehand: statistics and the scale of gradients.

For streamed data both come from one pass, and are saved in a sealed file next to the data. It is
bound to their fingerprint and to the problem, so that other data, and other samples or fields of
the same file, have their own.
"""

import hashlib
import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from cato.data.dataset import Batch, Dataset
from cato.data.moments import Moments
from cato.data.statistics import Statistics, one_pass
from cato.data.streamed import Streamed
from cato.errors import InputError
from cato.files import BLANK, DAMAGED, atomic_write, read_sealed_tensors, seal_tensors
from cato.physics.gradient import inverse_metric
from cato.physics.losses import GradientScale
from cato.progress import note

FORMAT = "2"  # Of the saved file, and of what is computed: another one is computed anew.
MAX_BYTES = 2**32


class Gradients:
    """The scale of gradients of training samples, or why their meshes have none."""

    def __init__(self, train: Dataset) -> None:
        self.problem, self.obstacle = train.problem, ""
        self.scale = GradientScale(self.problem.shape, self.problem.periodic)
        self._nodes, self._count = train.shared_coords, 0
        self._metric: Tensor | None = None
        if self.problem.geometry == "cloud":
            self.obstacle = "a cloud has no mesh to take gradients on"
        elif self._nodes is not None:
            self._metric = self._inverse(self._nodes)

    def add(self, batch: Batch) -> None:
        if not self.obstacle:
            shared = self._metric
            metric = self._inverse(batch.coords) if shared is None else shared
            if metric is not None:
                self.scale.add(batch.targets, metric)
        self._count += len(batch.targets)

    def require(self) -> None:
        """Raise if the mesh has no gradients."""
        if self.obstacle:
            raise InputError(self.obstacle)

    def _inverse(self, coords: Tensor) -> Tensor | None:
        problem = self.problem
        try:
            return inverse_metric(
                coords, problem.shape, problem.periodic, problem.period, self._count
            )
        except InputError as error:
            self.obstacle = str(error)
            return None


def gradients_of(train: Dataset) -> Gradients:
    """The gradients of training samples, computed once."""
    if "gradients" not in train.derived:
        found = Gradients(train)
        if not found.obstacle:
            one_pass(train, [found])
        train.derived["gradients"] = found
    return train.derived["gradients"]


def measure(train: Streamed) -> None:
    """Statistics and gradients of streamed samples: from the saved file, or by one pass."""
    place, key = saved_at(train), _key(train)
    known = _loaded(train, place, key)
    if known is None:
        note(f"{train.what}: one pass over {len(train)} samples for their statistics")
        known = Statistics(train), Gradients(train)
        one_pass(train, known)
        try:
            _save(place, key, *known)
        except InputError as error:
            note(f"the statistics of {train.what} are not kept for the next time: {error}")
    train.derived["statistics"], train.derived["gradients"] = known


def saved_at(train: Streamed) -> Path:
    """The file with the statistics of these samples."""
    path = train.source.path
    return path.with_name(f".{path.name}-{_key(train)[:12]}.statistics")


def _key(train: Streamed) -> str:
    problem = json.dumps(train.problem.to_dict(), sort_keys=True)
    found = hashlib.sha256(f"{FORMAT} {train.source.fingerprint} {problem}".encode())
    found.update(train.indices.astype("<i8").tobytes())
    return found.hexdigest()


def _save(place: Path, key: str, statistics: Statistics, gradients: Gradients) -> None:
    tensors: dict[str, Tensor] = {}
    counts: dict[str, int] = {}
    for name, moments in statistics.moments.items():
        counts[name] = moments.count if isinstance(moments.count, int) else 0
        if not counts[name]:  # some values were NaN
            tensors[f"{name}/count"] = torch.as_tensor(moments.count)
        tensors |= {f"{name}/mean": moments.mean, f"{name}/squares": moments.squares}
    scale = gradients.scale
    if not gradients.obstacle:
        tensors["gradients"] = torch.as_tensor(scale.total)
        tensors["gradients/count"] = torch.as_tensor(scale.count)
    about = {
        "counts": json.dumps(counts),
        "obstacle": gradients.obstacle,
        "checksum": BLANK,
    }
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    with atomic_write(place) as temporary:
        temporary.write_bytes(seal_tensors(save(contiguous, about), place.name, key))


def _loaded(train: Streamed, place: Path, key: str) -> tuple[Statistics, Gradients] | None:
    """What was saved for these samples; None, with a note, if it cannot be used."""
    statistics, gradients = Statistics(train), Gradients(train)
    try:
        content, about = read_sealed_tensors(place, key, MAX_BYTES)
        tensors = load(content)
        statistics.moments = {
            name: Moments(
                count or tensors[f"{name}/count"],
                tensors[f"{name}/mean"],
                tensors[f"{name}/squares"],
            )
            for name, count in json.loads(about["counts"]).items()
        }
        gradients.obstacle = about["obstacle"]
        if not gradients.obstacle:
            gradients.scale.total = tensors["gradients"]
            gradients.scale.count = tensors["gradients/count"]
    except FileNotFoundError:
        return None
    except (OSError, SafetensorError, *DAMAGED) as error:
        note(f"{place} is damaged and not used: {error}")
        return None
    return (statistics, gradients) if statistics.covers(train) else None
