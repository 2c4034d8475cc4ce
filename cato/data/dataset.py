"""Datasets in memory, as models see them: flattened nodes, validated.

Values are float32, or float64 where `Problem.float64` says that float32 cannot carry them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cato.benchmarks.contract import SPLITS
from cato.data.arrays import check_arrays, check_mask, require_nonzero, variation
from cato.data.generate import covering, generate_file
from cato.data.spec import DEFAULT_ROOT, DataSpec
from cato.data.store import read_store
from cato.errors import InputError
from cato.problem import Conditioning, Problem


class Batch(NamedTuple):
    """Some samples. For problems in time, targets are (B, T, N, C_out)."""

    coords: Float[Tensor, "B N D"]
    inputs: Float[Tensor, "B N C_in"]
    targets: Float[Tensor, "B *T N C_out"]
    mask: Bool[Tensor, "B N"] | None = None


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples of one problem in physical units; row-major nodes.

    Attributes:
        problem: The problem they are samples of.
        coords: Node positions, (N, D) shared by all samples or (S, N, D).
        inputs: Input channels.
        targets: Output channels; for problems in time (S, T, N, C_out).
        mask: False marks padding, in clouds of different sizes.
    """

    problem: Problem
    coords: Float[Tensor, "*shared N D"]
    inputs: Float[Tensor, "S N C_in"]
    targets: Float[Tensor, "S *T N C_out"]
    mask: Bool[Tensor, "S N"] | None = None

    @classmethod
    def from_arrays(
        cls,
        problem: Problem,
        coords: np.ndarray,
        inputs: np.ndarray | None,
        targets: np.ndarray,
        *,
        mask: np.ndarray | None = None,
        what: str = "data",
    ) -> "Dataset":
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
        arrays = check_arrays(
            problem, {"coords": coords, "inputs": inputs, "targets": targets}, what
        )
        if mask is not None:
            mask = check_mask(problem, mask, len(targets), what)
        require_nonzero(variation(problem, arrays["targets"]), mask, what)
        flat = {name: _flatten(array, problem) for name, array in arrays.items()}
        return cls(problem, **flat, mask=None if mask is None else torch.from_numpy(mask))

    def __len__(self) -> int:
        return len(self.targets)

    def arrays(self, *names: str) -> dict[str, np.ndarray]:
        """NumPy arrays on the mesh: all, or those of "coords", "inputs", "targets" in `names`."""
        return {
            name: getattr(self, name).unflatten(-2, self.problem.shape).numpy()
            for name in names or ("coords", "inputs", "targets")
        }

    def batch(self, indices: Sequence[int] | Tensor | slice) -> Batch:
        """The samples at `indices`; shared coordinates are expanded without copying."""
        part = self.subset(indices)
        coords = part.coords.expand(len(part), *part.coords.shape[-2:])
        return Batch(coords, part.inputs, part.targets, part.mask)

    def subset(self, indices: Sequence[int] | Tensor | slice) -> "Dataset":
        """The dataset of the samples at `indices`."""
        index = indices if isinstance(indices, slice) else torch.as_tensor(indices)
        return replace(
            self,
            coords=self.coords if self.coords.ndim == 2 else self.coords[index],
            inputs=self.inputs[index],
            targets=self.targets[index],
            mask=None if self.mask is None else self.mask[index],
        )


@dataclass(frozen=True)
class Splits:
    """Training, validation and test data of one problem."""

    problem: Problem
    datasets: dict[str, Dataset]

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
        return replace(self, datasets=self.datasets | {"train": self.train.subset(slice(count))})

    def conditioned(self, conditioning: Conditioning) -> "Splits":
        """These splits for a network with this conditioning."""
        problem = replace(self.problem, conditioning=conditioning)
        datasets = {name: replace(data, problem=problem) for name, data in self.datasets.items()}
        return Splits(problem, datasets)

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


def load_spec(spec: DataSpec, root: Path = DEFAULT_ROOT, workers: int | None = None) -> Splits:
    """`load_dataset` for a `DataSpec`."""
    path = generate_file(covering(spec, root), root, workers)
    stored = read_store(path, remedy=spec.remedy(path.parent))
    problem, datasets = stored.problem, {}
    for name, split in stored.splits.items():
        coords = stored.coords if split.coords is None else split.coords
        assert coords is not None
        datasets[name] = Dataset.from_arrays(
            problem, coords, split.inputs, split.targets, what=f"{problem.name} {name}"
        )
    found = Splits(problem, datasets)
    return found.with_first(spec.counts["train"]) if "train" in datasets else found


def _flatten(array: np.ndarray, problem: Problem) -> Tensor:
    """Merge the mesh axes, which precede the channels, into one axis of nodes."""
    leading = array.shape[: array.ndim - 1 - len(problem.shape)]
    return torch.from_numpy(array).reshape(*leading, problem.num_nodes, array.shape[-1])
