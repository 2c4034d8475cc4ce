"""The splits of a training on own data: those of the file, or drawn from a seed."""

from functools import lru_cache
from pathlib import Path

import numpy as np

from cato.benchmarks.contract import SPLITS
from cato.data.dataset import Splits
from cato.errors import InputError
from cato.user_data.axes import Wanted
from cato.user_data.inspect import require_usable
from cato.user_data.naming import Naming
from cato.user_data.read import fingerprint, read_samples
from cato.user_data.recognise import dataset_of, recognise
from cato.user_data.samples import OwnSamples

HELD_OUT = 0.1
"""Share of the samples for validation, and for test."""


def split_indices(samples: OwnSamples, seed: int) -> dict[str, list[int]]:
    """Numbers of the samples of each split, in their order.

    Splits that the file names are kept; if it names no validation samples, a tenth of its training
    samples is held out. Otherwise a tenth each is drawn for validation and test.
    """
    count = len(samples)
    rng = np.random.default_rng(seed)
    named = {name: [i for i, s in enumerate(samples.samples) if s.split == name] for name in SPLITS}
    if any(named.values()):
        if not named["validation"] and len(named["train"]) > 1:
            order = rng.permutation(named["train"]).tolist()
            num_held = max(1, round(HELD_OUT * len(order)))
            named["validation"] = sorted(order[:num_held])
            named["train"] = sorted(order[num_held:])
        for name, indices in named.items():
            if not indices:
                raise InputError(
                    f"{samples.path} names splits, but no {name} samples; add some, or leave the "
                    f"splits out to have them drawn"
                )
        return named
    num_held = max(1, round(HELD_OUT * count))
    if count < 2 * num_held + 1:
        raise InputError(
            f"{samples.path} holds {count} samples; at least 3 are needed, one each to train, "
            f"validate and test, and hundreds to learn well"
        )
    order = rng.permutation(count).tolist()
    return {
        "train": sorted(order[2 * num_held :]),
        "validation": sorted(order[:num_held]),
        "test": sorted(order[num_held : 2 * num_held]),
    }


def own_splits(
    path: Path, naming: Naming, *, seed: int = 0, count: int | None = None, expected: str = ""
) -> Splits:
    """The data sets of a file or folder.

    Args:
        path: Where the data are.
        naming: Their fields.
        seed: Of the split, where the file names none.
        count: Training samples to use, the first ones; all unless given.
        expected: Fingerprint of the data; other data are refused.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(
            f"the data {path} are gone; put them back. `cato predict` works without them"
        )
    stamp = fingerprint(path)
    if expected and stamp != expected:
        raise InputError(
            f"{path} has changed: its fingerprint is {stamp}, that of the data of this run "
            f"{expected}; restore the file, or train into a new folder"
        )
    splits = _splits(path, naming, seed, stamp)
    if count is None:
        return splits
    if count > len(splits.train):
        raise InputError(f"{path} has {len(splits.train)} training samples, not {count}")
    return splits.with_first(count)


@lru_cache(maxsize=1)  # a training, its evaluation and its report read the same file
def _splits(path: Path, naming: Naming, seed: int, stamp: str) -> Splits:
    samples = read_samples(path, Wanted(naming))
    require_usable(samples)
    problem = recognise(samples)
    indices = split_indices(samples, seed)
    datasets = {
        name: dataset_of(samples, problem, indices[name], f"{path}, {name} split")
        for name in SPLITS
    }
    return Splits(problem, datasets)
