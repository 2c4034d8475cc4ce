"""Datasets as models see them: flattened nodes, validated.

A `Dataset` is `InMemory`, or `Streamed` from its file (`cato.data.streamed`) where the file is
larger than the memory. Values are float32, or float64 where `Problem.float64` says that float32
cannot carry them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cato.benchmarks.contract import SPLITS
from cato.data.arrays import check_arrays, check_mask, require_nonzero, variation
from cato.data.generate import covering, generate_file
from cato.data.moments import Moments
from cato.data.rollout import fewer_steps
from cato.data.spec import DEFAULT_ROOT, DataSpec
from cato.data.store import StoredSamples, read_header, read_store
from cato.errors import InputError
from cato.partition import Partition
from cato.problem import Conditioning, Problem


class Batch(NamedTuple):
    """Some samples. For problems in time, targets are (B, T, N, C_out)."""

    coords: Float[Tensor, "B N D"]
    inputs: Float[Tensor, "B N C_in"]
    targets: Float[Tensor, "B *T N C_out"]
    mask: Bool[Tensor, "B N"] | None = None

    def part(self, partition: Partition) -> "Batch":
        """The nodes of this process."""
        if partition.is_whole:
            return self
        return Batch(*(partition.slab(x) for x in (self.coords, self.inputs, self.targets)))


Indices = Sequence[int] | Tensor | slice


class Dataset(ABC):
    """Samples of one problem in physical units; row-major nodes.

    The properties `coords`, `inputs`, `targets` and `mask` hold the values of all samples. What
    must also work on data larger than the memory uses `batches` instead.

    Attributes:
        problem: The problem they are samples of.
        coords: Node positions, (N, D) shared by all samples or (S, N, D).
        inputs: Input channels.
        targets: Output channels; for problems in time (S, T, N, C_out).
        mask: False marks padding, in clouds of different sizes.
        derived: What was computed from all samples, by name, so that it is computed once.
    """

    problem: Problem
    coords: Tensor
    inputs: Tensor
    targets: Tensor
    mask: Tensor | None
    derived: dict[str, Any]

    @staticmethod
    def from_arrays(
        problem: Problem,
        coords: np.ndarray,
        inputs: np.ndarray | None,
        targets: np.ndarray,
        *,
        mask: np.ndarray | None = None,
        what: str = "data",
    ) -> "InMemory":
        """Create a dataset from NumPy arrays on the mesh and validate it.

        Args:
            problem: The problem the arrays are samples of.
            coords: (*shape, D) for all samples or (S, *shape, D).
            inputs: (S, *shape, C_in); None if the mesh is the only input.
            targets: (S, *shape, C_out); for problems in time (S, T, *shape, C_out).
            mask: (S, N), clouds only; False marks padding, whose values must be finite.
            what: Prefix of error messages.
        """
        if inputs is None:
            inputs = np.zeros((*targets.shape[:1], *problem.shape, 0), np.float32)
        arrays = {"coords": coords, "inputs": inputs, "targets": targets}
        arrays |= {} if mask is None else {"mask": mask}
        return InMemory(problem, **validated(problem, arrays, what))

    @staticmethod
    def from_checked(
        problem: Problem, arrays: Mapping[str, np.ndarray], mask: np.ndarray | None
    ) -> "InMemory":
        """A dataset of the arrays of `from_arrays`, which were checked; shares their memory."""
        flat = {name: _flatten(array, problem) for name, array in arrays.items()}
        return InMemory(problem, **flat, mask=None if mask is None else torch.from_numpy(mask))

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def shared_coords(self) -> Tensor | None:
        """The nodes (N, D) of all samples; None if each sample has its own."""

    @property
    @abstractmethod
    def is_padded(self) -> bool:
        """Whether samples have a mask."""

    @abstractmethod
    def batch(self, indices: Indices) -> Batch:
        """The samples at `indices`; shared coordinates are expanded without copying."""

    @abstractmethod
    def subset(self, indices: Indices) -> "Dataset":
        """The dataset of the samples at `indices`."""

    @abstractmethod
    def on(self, problem: Problem) -> "Dataset":
        """The same samples of a problem that differs in its conditioning."""

    def over(self, problem: Problem) -> "Dataset":
        """The same samples over the first frames, as many as `problem` has."""
        raise InputError(f"{problem.name} is streamed, and all its frames are used")

    @abstractmethod
    def order(self, seed: int, epoch: int) -> Tensor:
        """The samples in the random order of an epoch of training."""

    @abstractmethod
    def mean_target(self) -> Tensor:
        """The mean over the samples of the targets at every node and frame."""

    def prefetch(self, indices: Indices) -> None:  # noqa: B027  (nothing to do in memory)
        """Begin to read samples that `batch` will be asked for."""

    lookahead = 0
    """Number of samples worth prefetching."""

    def batches(self, size: int) -> Iterator[Batch]:
        """All samples in batches, in their order."""
        for first in range(0, len(self), size):
            batch = self.batch(slice(first, first + size))
            self.prefetch(slice(first + size, first + 2 * size))
            yield batch

    def arrays(self, *names: str) -> dict[str, np.ndarray]:
        """NumPy arrays on the mesh: all, or those of "coords", "inputs", "targets" in `names`."""
        return {
            name: getattr(self, name).unflatten(-2, self.problem.shape).numpy()
            for name in names or ("coords", "inputs", "targets")
        }


@dataclass(frozen=True, eq=False)
class InMemory(Dataset):
    """A dataset whose samples are in memory."""

    problem: Problem
    coords: Float[Tensor, "*shared N D"]
    inputs: Float[Tensor, "S N C_in"]
    targets: Float[Tensor, "S *T N C_out"]
    mask: Bool[Tensor, "S N"] | None = None
    derived: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def shared_coords(self) -> Tensor | None:
        return self.coords if self.coords.ndim == 2 else None

    @property
    def is_padded(self) -> bool:
        return self.mask is not None

    def batch(self, indices: Indices) -> Batch:
        part = self.subset(indices)
        coords = part.coords.expand(len(part), *part.coords.shape[-2:])
        return Batch(coords, part.inputs, part.targets, part.mask)

    def subset(self, indices: Indices) -> "InMemory":
        index = indices if isinstance(indices, slice) else torch.as_tensor(indices)
        return replace(
            self,
            coords=self.coords if self.coords.ndim == 2 else self.coords[index],
            inputs=self.inputs[index],
            targets=self.targets[index],
            mask=None if self.mask is None else self.mask[index],
        )

    def on(self, problem: Problem) -> "InMemory":
        same = replace(self, problem=problem)
        object.__setattr__(same, "derived", self.derived)
        return same

    def over(self, problem: Problem) -> "InMemory":
        inputs = fewer_steps(problem, self.inputs)
        return replace(
            self, problem=problem, inputs=inputs, targets=self.targets[:, : problem.num_steps]
        )

    def mean_target(self) -> Tensor:
        if not self.problem.has_gaps:
            return self.targets.mean(0)
        return Moments.of(self.targets).filled().to(self.targets.dtype)

    def order(self, seed: int, epoch: int) -> Tensor:
        return torch.randperm(len(self), generator=epoch_generator(seed, epoch))


def validated(problem: Problem, arrays: dict[str, np.ndarray], what: str) -> dict[str, Tensor]:
    """Arrays as in a file, checked and with flattened nodes; `coords` and `mask` may be missing."""
    values = {name: array for name, array in arrays.items() if name != "mask"}
    values = check_arrays(problem, values, what)
    mask = arrays.get("mask")
    if mask is not None:
        mask = check_mask(problem, mask, len(values["targets"]), what)
    require_nonzero(variation(problem, values["targets"]), mask, what)
    flat = {name: _flatten(array, problem) for name, array in values.items()}
    return flat if mask is None else flat | {"mask": torch.from_numpy(mask)}


def epoch_generator(seed: int, epoch: int) -> torch.Generator:
    """The random numbers of the order of an epoch."""
    return torch.Generator().manual_seed(seed * 1_000_003 + epoch)


@dataclass(frozen=True)
class Splits:
    """Training, validation and test data of one problem.

    Where the training uses the first frames of longer series, `forecast` has the held-out samples
    with all frames. For cross-validation the training data are all samples, and nothing else is
    held out: `fold` gives the data of each of the `num_folds` trainings that measure the error.
    """

    problem: Problem
    datasets: Mapping[str, Dataset]
    num_folds: int = 0  # 0 without cross-validation.
    seed: int = 0  # Of the draw of the folds.

    @property
    def train(self) -> Dataset:
        return self._split("train")

    @property
    def validation(self) -> Dataset:
        return self._split("validation")

    @property
    def test(self) -> Dataset:
        return self._split("test")

    def with_first(self, count: int) -> "Splits":
        """These splits with only the first `count` training samples."""
        return replace(self, datasets={**self.datasets, "train": self.train.subset(slice(count))})

    def conditioned(self, conditioning: Conditioning) -> "Splits":
        """These splits for a network with this conditioning."""
        problem = replace(self.problem, conditioning=conditioning)
        datasets = {
            name: data.on(replace(data.problem, conditioning=conditioning))
            for name, data in self.datasets.items()
        }
        return replace(self, problem=problem, datasets=datasets)

    def with_train_frames(self, num_frames: int) -> "Splits":
        """These splits over the first frames; the split `forecast` is that for testing over all."""
        if num_frames > self.problem.num_steps:
            raise InputError(
                f"{self.problem.name} has {self.problem.num_steps} frames to predict; "
                f"data.train_frames is {num_frames}"
            )
        if num_frames == self.problem.num_steps:
            return self
        problem = self.problem.with_steps(num_frames)
        datasets = {name: data.over(problem) for name, data in self.datasets.items()}
        whole = self.datasets["train" if self.num_folds else "test"]
        return replace(self, problem=problem, datasets=datasets | {"forecast": whole})

    def held_out(self, fold: int) -> np.ndarray:
        """Indices of the samples of a fold of cross-validation, which its training does not see."""
        order = np.random.default_rng(self.seed).permutation(len(self.train))
        return np.sort(np.array_split(order, self.num_folds)[fold])

    def fold(self, fold: int) -> "Splits":
        """The data of a fold: it is the test split, all other samples are for training."""
        held_out, data = self.held_out(fold), self.train
        others = np.setdiff1d(np.arange(len(data)), held_out)
        datasets = {
            "train": data.subset(others.tolist()),
            "validation": data.subset(slice(0)),
            "test": data.subset(held_out.tolist()),
        }
        if "forecast" in self.datasets:
            datasets["forecast"] = self.datasets["forecast"].subset(held_out.tolist())
        return Splits(self.problem, datasets)

    def _split(self, name: str) -> Dataset:
        if name not in self.datasets:
            raise InputError(
                f"these {self.problem.name} data have no {name} split, only "
                f"{', '.join(self.datasets)}; load them with splits that include it"
            )
        return self.datasets[name]


def load_dataset(
    benchmark: str,
    scale: str,
    *,
    seed: int = 0,
    count: int | None = None,
    resolution: int | None = None,
    splits: Sequence[str] = SPLITS,
    root: Path = DEFAULT_ROOT,
    workers: int | None = None,
) -> Splits:
    """Load the data of a benchmark; generate them first if the file is missing. See `generate`.

    If the file of the whole scale exists, fewer training samples are the first ones of that file.
    """
    spec = DataSpec(benchmark, scale, seed, count, resolution, tuple(splits))
    return load_spec(spec, root, workers)


def load_spec(
    spec: DataSpec, root: Path = DEFAULT_ROOT, workers: int | None = None, streamed: bool = False
) -> Splits:
    """`load_dataset` for a `DataSpec`; `streamed` data are read while they are used."""
    whole = covering(spec, root)
    path = generate_file(whole, root, workers)
    remedy = spec.remedy(path.parent)
    found = _open_streamed(path, list(whole.counts), remedy) if streamed else _read(path, remedy)
    return found.with_first(spec.counts["train"]) if "train" in found.datasets else found


def _read(path: Path, remedy: str) -> Splits:
    stored = read_store(path, remedy)
    problem, datasets = stored.problem, {}
    for name, split in stored.splits.items():
        coords = stored.coords if split.coords is None else split.coords
        assert coords is not None
        datasets[name] = Dataset.from_arrays(
            problem, coords, split.inputs, split.targets, what=f"{problem.name} {name}"
        )
    return Splits(problem, datasets)


def _open_streamed(path: Path, splits: list[str], remedy: str) -> Splits:
    from cato.data.streamed import Streamed  # which is a Dataset

    problem = Problem.from_dict(read_header(path, remedy)["problem"])
    datasets = {
        name: Streamed.of(problem, StoredSamples(path, name, remedy), f"{problem.name} {name}")
        for name in splits
    }
    return Splits(problem, datasets)


def _flatten(array: np.ndarray, problem: Problem) -> Tensor:
    """Merge the mesh axes, which precede the channels, into one axis of nodes."""
    leading = array.shape[: array.ndim - 1 - len(problem.shape)]
    return torch.from_numpy(array).reshape(*leading, problem.num_nodes, array.shape[-1])
