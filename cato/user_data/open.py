"""Opening a user's data for a training: fingerprint, samples and splits, each computed once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from cato.benchmarks.contract import SPLITS
from cato.data.dataset import Splits
from cato.errors import InputError
from cato.problem import Problem
from cato.user_data.inspect import require_usable
from cato.user_data.naming import Naming, ReadRequest
from cato.user_data.read import Stamp, file_stamp, fingerprint, read_samples
from cato.user_data.samples import UserSamples, dataset_of, recognise

HELD_OUT = 0.1
"""Fraction of the samples for validation, and for test."""


def split_indices(samples: UserSamples, seed: int) -> dict[str, list[int]]:
    """Indices of the samples of each split.

    Splits that the file names are kept; if it names no validation samples, 10 % of its training
    samples are held out. Otherwise 10 % each are drawn for validation and test.
    """
    rng = np.random.default_rng(seed)
    named = {name: [i for i, s in enumerate(samples.samples) if s.split == name] for name in SPLITS}
    if any(named.values()):
        if not named["validation"] and len(named["train"]) > 1:
            named["validation"], named["train"] = _drawn(named["train"], 1, rng)
        for name, indices in named.items():
            if not indices:
                raise InputError(
                    f"{samples.path} names splits, but no {name} samples; add some, or leave the "
                    f"splits out to have them drawn"
                )
        return named
    if len(samples) < 3:
        raise InputError(
            f"{samples.path} holds {len(samples)} samples; at least 3 are needed, one each to "
            f"train, validate and test, and hundreds to learn well"
        )
    validation, test, train = _drawn(range(len(samples)), 2, rng)
    return {"train": train, "validation": validation, "test": test}


def _drawn(indices: Sequence[int], num_parts: int, rng: np.random.Generator) -> list[list[int]]:
    """Parts of 10 % each, drawn at random, and what is left."""
    order, size = rng.permutation(indices), max(1, round(HELD_OUT * len(indices)))
    parts = np.split(order, [size * (part + 1) for part in range(num_parts)])
    return [sorted(part.tolist()) for part in parts]


@dataclass(frozen=True, eq=False)
class UserData:
    """A file or folder of a user, read once: pass it on instead of opening the path again.

    Attributes:
        path: Where the data are.
        fingerprint: Sixteen characters that change whenever the data do.
        splits: The datasets for training, validation and test.
    """

    path: Path
    fingerprint: str
    splits: Splits

    @property
    def problem(self) -> Problem:
        """The recognised problem."""
        return self.splits.problem


def open_user_data(
    path: Path,
    naming: Naming,
    *,
    seed: int = 0,
    count: int | None = None,
    expected_fingerprint: str = "",
) -> UserData:
    """Fingerprint, read, check and split the data of a file or folder.

    A second call with unchanged files returns what the first one read.

    Args:
        path: Where the data are.
        naming: Which fields are coordinates, inputs and targets.
        seed: Seed of the split, unless the file names one.
        count: Number of training samples to use, the first ones; all by default.
        expected_fingerprint: Data with another fingerprint are refused.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path} does not exist; give a file or a folder of files, one per sample")
    stamp = file_stamp(path)
    fingerprint = _fingerprint(path, stamp)
    if expected_fingerprint and fingerprint != expected_fingerprint:
        raise InputError(
            f"{path} has changed: its fingerprint is {fingerprint}, that of the data of this run "
            f"{expected_fingerprint}; restore the file, or train into a new folder"
        )
    splits = _splits(path, naming, seed, stamp)
    if count is not None:
        if count > len(splits.train):
            raise InputError(f"{path} has {len(splits.train)} training samples, not {count}")
        splits = splits.with_first(count)
    return UserData(path, fingerprint, splits)


@lru_cache(maxsize=1)
def _fingerprint(path: Path, stamp: Stamp) -> str:
    return fingerprint(path)


@lru_cache(maxsize=1)  # a training, its evaluation and its report use the same data
def _splits(path: Path, naming: Naming, seed: int, stamp: Stamp) -> Splits:
    samples = read_samples(path, ReadRequest(naming))
    require_usable(samples)
    problem = recognise(samples)
    indices = split_indices(samples, seed)
    datasets = {
        name: dataset_of(samples, problem, indices[name], f"{path}, {name} split")
        for name in SPLITS
    }
    return Splits(problem, datasets)
