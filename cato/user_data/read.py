"""From a path and the names of its fields to samples, whatever the format.

`read_files` parses the files (`cato.user_data.readers`), `assemble` makes samples of them.
`open_user_data` opens data for a training: fingerprint, samples and splits, each computed once.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from cato.benchmarks import BENCHMARKS
from cato.benchmarks.contract import SPLITS
from cato.data.dataset import Splits
from cato.errors import InputError
from cato.files import digest, stamp
from cato.problem import Problem
from cato.progress import note
from cato.sandbox import require_regular
from cato.user_data import meshes
from cato.user_data.inspect import assumed, require_usable
from cato.user_data.named import without_flat_components
from cato.user_data.naming import Naming, ReadRequest, natural_order
from cato.user_data.parts import is_entry, parts_of
from cato.user_data.periodic import declared_periodic
from cato.user_data.readers import IN_POINTS, SUFFIXES, guess_names, read_files, suffix_of
from cato.user_data.samples import UserSamples, assemble, dataset_of, recognise
from cato.user_data.streamed import can_stream, open_splits

HELD_OUT = 0.1  # Fraction of the samples for validation, and for test.
FEW = range(10, 51)  # Numbers of samples with which cross-validation is the default.
NUM_FOLDS = 5
FOLDERS = {"train": "train", "validation": "validation", "valid": "validation", "val": "validation"}
FOLDERS |= {"test": "test"}
"""Names of folders that are splits."""


def is_user_data(name: str) -> bool:
    """Whether what to train on is a file or folder, not a benchmark."""
    path = Path(name)
    looks_like_one = path.suffix.lower() in SUFFIXES or len(path.parts) > 1 or name.endswith("/")
    return name not in BENCHMARKS and (looks_like_one or path.exists())


def complete_naming(path: Path, naming: Naming) -> tuple[Naming, list[str]]:
    """The user's names, with a guess from the first file where there are none, and notes on it."""
    path = _existing(path)
    if naming.targets:
        return naming, []
    return guess_names(files_of(path)[0], naming, is_entry(path), path)


def read_samples(path: Path, request: ReadRequest, known: Problem | None = None) -> UserSamples:
    """The samples of a file, or of a folder whose files hold one or more samples each.

    To predict, `known` is the problem of the model.
    """
    path = _existing(path)
    if not is_entry(path):
        files = [(split, f) for split, part in _files_by_split(path).items() for f in part]
        found = read_files([file for _, file in files], request, has_samples=False)
        datasets = [
            dataset.assign_attrs(split=split)
            for (split, _), parts in zip(files, found, strict=True)
            for dataset in parts
        ]
    else:
        (datasets,) = read_files([path], request, has_samples=True)
    if suffix_of(files_of(path)[0]) in IN_POINTS:
        datasets = without_flat_components(datasets)
    samples = assemble(path, datasets, request.naming, known)
    return declared_periodic(samples, request.naming.periodic)


def fingerprint(path: Path) -> str:
    """Sixteen characters that change whenever the data do."""
    path = Path(path)
    if path.is_file() and parts_of(path) == [path]:
        return digest(path)[:16]
    root = path if path.is_dir() else path.parent
    names = ((os.path.relpath(file, root), file) for file in _all_files(path))
    lines = (f"{Path(name).as_posix()} {digest(file)}\n" for name, file in names)
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


def _existing(path: Path) -> Path:
    if not Path(path).exists():
        raise InputError(f"{path} does not exist; give a file or a folder of files, one per sample")
    if not Path(path).is_dir():
        require_regular(Path(path))
    return Path(path)


def files_of(path: Path) -> list[Path]:
    """The file itself, or the files of the samples in a folder, in their order.

    A folder that is one data set, such as a Zarr store or an OpenFOAM case, counts as a file.
    """
    if is_entry(path):
        return [path]
    return [file for files in _files_by_split(path).values() for file in files]


def _all_files(path: Path) -> list[Path]:
    """Every file that the values come from."""
    return [part for file in files_of(path) for part in parts_of(file)]


def _files_by_split(folder: Path) -> dict[str, list[Path]]:
    """The files of each split; all files under the name "" if the folder has no splits."""
    root = folder / "data" if (folder / "data" / "train").is_dir() else folder  # as in The Well
    splits = {split: root / name for name, split in FOLDERS.items() if (root / name).is_dir()}
    parts = {name: _listed(inner) for name, inner in (splits or {"": root}).items()}
    found = sorted({suffix_of(file) for files in parts.values() for file in files})
    if not found:
        raise InputError(f"{folder} holds no file that ends in {', '.join(SUFFIXES)}")
    if len(found) > 1 and not set(found) <= set(meshes.SUFFIXES):
        raise InputError(f"{folder} mixes files that end in {', '.join(found)}; keep one kind")
    return parts


def _listed(folder: Path) -> list[Path]:
    """Data of known formats in natural order, without the parts of others."""
    found = [path for path in folder.iterdir() if is_entry(path) and not path.name.startswith(".")]
    known = [path for path in found if path.is_dir() or path.suffix.lower() in SUFFIXES]
    inner = {part for path in known for part in parts_of(path) if part != path}
    return sorted((p for p in known if p not in inner), key=lambda path: natural_order(path.name))


# -- for a training -------------------------------------------------------------------------------


def split_indices(samples: UserSamples, seed: int) -> dict[str, list[int]]:
    """Indices of the samples of each split.

    Splits that the file names are kept; if it names no validation samples, 10 % of its training
    samples are held out. Otherwise 10 % each are drawn for validation and test.
    """
    return indices_by_split(samples.path, [sample.split for sample in samples.samples], seed)


def indices_by_split(path: Path, words: Sequence[str], seed: int) -> dict[str, list[int]]:
    """`split_indices` for the words that a file has for the split of each sample."""
    rng = np.random.default_rng(seed)
    named = {name: [i for i, word in enumerate(words) if word == name] for name in SPLITS}
    if any(named.values()):
        if not named["validation"] and len(named["train"]) > 1:
            named["validation"], named["train"] = _drawn(named["train"], 1, rng)
        for name, indices in named.items():
            if not indices:
                raise InputError(
                    f"{path} names splits, but no {name} samples; add some, or leave the "
                    f"splits out to have them drawn"
                )
        return named
    if len(words) < 3:
        raise InputError(
            f"{path} holds {len(words)} samples; at least 3 are needed, one each to "
            f"train, validate and test, and hundreds to learn well"
        )
    validation, test, train = _drawn(range(len(words)), 2, rng)
    return {"train": train, "validation": validation, "test": test}


def folds_for(path: Path, words: Sequence[str], wanted: int | None) -> int:
    """Folds of cross-validation for samples with these words for their splits; 0 for none.

    None is the default: some, if there are few samples and the file names no splits.
    """
    is_split, count = any(words), len(words)
    if wanted is None:
        return NUM_FOLDS if count in FEW and not is_split else 0
    if wanted and is_split:
        raise InputError(f"{path} names splits; leave out --data.folds, or the splits")
    if wanted == 1 or wanted > count:
        raise InputError(
            f"{path} holds {count} samples; --data.folds should be 2 to {count}, or 0 for a split"
        )
    return wanted


def split_of(
    path: Path, words: Sequence[str], seed: int, folds: int | None
) -> tuple[dict[str, list[int]], int]:
    """Indices of the samples of each split, and the folds of cross-validation, in which all train.

    `words` are those of the file for the split of each sample.
    """
    num_folds = folds_for(path, words, folds)
    if not num_folds:
        return indices_by_split(path, words, seed), 0
    return {"train": list(range(len(words))), "validation": [], "test": []}, num_folds


def few_samples_note(count: int, num_folds: int) -> str:
    """Why there is cross-validation, and what it means."""
    return (
        f"{num_folds}-fold cross-validation, because {count} samples are few: the error and the "
        f"band come from {num_folds} models, each tested on the samples that it has not seen, and "
        f"the model itself is trained on all (--data.folds 0 splits them instead)"
    )


def _drawn(indices: Sequence[int], num_parts: int, rng: np.random.Generator) -> list[list[int]]:
    """Parts of 10 % each, drawn at random, and what is left."""
    order, size = rng.permutation(indices), max(1, round(HELD_OUT * len(indices)))
    parts = np.split(order, [size * (part + 1) for part in range(num_parts)])
    return [sorted(part.tolist()) for part in parts]


def open_user_data(
    path: Path,
    naming: Naming,
    *,
    seed: int = 0,
    count: int | None = None,
    folds: int | None = 0,
    expected_fingerprint: str = "",
    streamed: bool = False,
) -> tuple[str, Splits]:
    """The fingerprint of a file or folder, and its data, checked and split.

    A second call with unchanged data returns what the first one read. `seed` draws the splits if
    the file names none; `count` is the number of training samples to use, the first ones. `folds`
    of cross-validation are none if 0, and the default if None. Data with another fingerprint than
    the expected one are refused. `streamed` samples are read while they are used.
    """
    path = _existing(path)
    before = stamp(_all_files(path))
    found = _fingerprint(path, before)
    if expected_fingerprint and found != expected_fingerprint:
        raise InputError(
            f"{path} has changed: its fingerprint is {found}, that of the data of this run "
            f"{expected_fingerprint}; restore the file, or train into a new folder"
        )
    splits = _splits(path, naming, seed, folds, before, streamed)
    if stamp(_all_files(path)) != before:
        raise InputError(f"{path} changed while it was read; try again when it is complete")
    if count is not None:
        if count > len(splits.train):
            raise InputError(f"{path} has {len(splits.train)} training samples, not {count}")
        splits = splits.with_first(count)
    return found, splits


def num_bytes_of(path: Path) -> int:
    """Bytes of data that can be streamed; 0 of what is always read into memory."""
    if not path.is_file() and not path.is_dir():
        return 0
    files = {} if is_entry(path) else _files_by_split(path)
    return sum(f.stat().st_size for f in _all_files(path)) if can_stream(path, files) else 0


def changed_since(path: Path, expected_fingerprint: str) -> str:
    """What has become of data since they were read: a few words, empty if they are the same.

    Files whose size and time are still those that were read are not read again.
    """
    try:
        found = _fingerprint(path, stamp(_all_files(path)))
    except (OSError, InputError):
        return "is gone"
    is_same = found == expected_fingerprint
    return "" if is_same else f"has changed: its fingerprint is {found}"


@lru_cache(maxsize=1)
def _fingerprint(path: Path, state: tuple[object, ...]) -> str:
    return fingerprint(path)


@lru_cache(maxsize=1)  # a training, its evaluation and its report use the same data
def _splits(
    path: Path,
    naming: Naming,
    seed: int,
    folds: int | None,
    state: tuple[object, ...],
    streamed: bool,
) -> Splits:
    draw = partial(split_of, path, seed=seed, folds=folds)
    if streamed:
        files = {} if is_entry(path) else _files_by_split(path)
        splits = open_splits(path, naming, _fingerprint(path, state), draw, files)
        return replace(splits, seed=seed)
    samples = read_samples(path, ReadRequest(naming))
    for sentence in samples.notes:
        note(sentence)
    require_usable(samples)
    for sentence in assumed(samples):
        note(sentence)
    indices, num_folds = draw([sample.split for sample in samples.samples])
    return splits_of(samples, indices, num_folds, seed)


def splits_of(
    samples: UserSamples, indices: Mapping[str, list[int]], num_folds: int, seed: int
) -> Splits:
    """Datasets of samples, from `split_of`."""
    problem = recognise(samples)
    train = dataset_of(samples, problem, indices["train"])
    others = {name: indices[name] for name in SPLITS if name != "train"}
    datasets = {
        name: dataset_of(samples, problem, found) if found else train.subset(slice(0))
        for name, found in others.items()
    }
    return Splits(problem, {"train": train, **datasets}, num_folds, seed)
