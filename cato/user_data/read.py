"""From a path and the names of its fields to samples, whatever the format.

`read_files` parses the files (`cato.user_data.readers`), `assemble` makes samples of them.
`open_user_data` opens data for a training: fingerprint, samples and splits, each computed once.
"""

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from cato.benchmarks import BENCHMARKS
from cato.benchmarks.contract import SPLITS
from cato.data.dataset import Splits
from cato.errors import InputError
from cato.files import digest
from cato.sandbox import require_regular
from cato.user_data import vtk
from cato.user_data.inspect import require_usable
from cato.user_data.naming import Naming, ReadRequest
from cato.user_data.periodic import declared_periodic
from cato.user_data.readers import SUFFIXES, read_files, reader_of
from cato.user_data.samples import UserSamples, assemble, dataset_of, recognise

HELD_OUT = 0.1  # Fraction of the samples for validation, and for test.


def is_user_data(name: str) -> bool:
    """Whether what to train on is a file or folder, not a benchmark."""
    path = Path(name)
    looks_like_one = path.suffix.lower() in SUFFIXES or len(path.parts) > 1
    return name not in BENCHMARKS and (looks_like_one or path.exists())


def read_samples(path: Path, request: ReadRequest) -> UserSamples:
    """The samples of a file, or of a folder with one file per sample."""
    path = _existing(path)
    if path.is_dir():
        files = [(split, f) for split, part in _files_by_split(path).items() for f in part]
        found = read_files([file for _, file in files], request, has_samples=False)
        datasets = [
            dataset.assign_attrs(split=split)
            for (split, _), parts in zip(files, found, strict=True)
            for dataset in parts
        ]
    else:
        (datasets,) = read_files([path], request, has_samples=True)
    if reader_of(files_of(path)[0]) is vtk.read_vtk:
        datasets = vtk.without_flat_components(datasets)
    return declared_periodic(assemble(path, datasets, request.naming), request.naming.periodic)


def fingerprint(path: Path) -> str:
    """Sixteen characters that change whenever the data do."""
    path = Path(path)
    if path.is_file():
        return digest(path)[:16]
    lines = (f"{file.relative_to(path).as_posix()} {digest(file)}\n" for file in files_of(path))
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


def _existing(path: Path) -> Path:
    if not Path(path).exists():
        raise InputError(f"{path} does not exist; give a file or a folder of files, one per sample")
    if not Path(path).is_dir():
        require_regular(Path(path))
    return Path(path)


def files_of(path: Path) -> list[Path]:
    """The file itself, or the files of the samples in a folder, in their order."""
    if not path.is_dir():
        return [path]
    return [file for files in _files_by_split(path).values() for file in files]


def _files_by_split(folder: Path) -> dict[str, list[Path]]:
    """The files of each split; all files under the name "" if the folder has no splits."""
    splits = {name: folder / name for name in SPLITS if (folder / name).is_dir()}
    parts = {name: _listed(inner) for name, inner in (splits or {"": folder}).items()}
    found = sorted({file.suffix.lower() for files in parts.values() for file in files})
    if not found:
        raise InputError(f"{folder} holds no file that ends in {', '.join(SUFFIXES)}")
    if len(found) > 1 and not set(found) <= set(vtk.SUFFIXES):
        raise InputError(f"{folder} mixes files that end in {', '.join(found)}; keep one kind")
    return parts


def _listed(folder: Path) -> list[Path]:
    """Files of known formats in natural order: case_2 before case_10."""
    files = [f for f in folder.iterdir() if f.is_file() and f.suffix.lower() in SUFFIXES]

    def key(file: Path) -> list[tuple[int, str]]:
        words = re.split(r"(\d+)", file.name)
        return [(int(w), "") if w.isdecimal() else (-1, w) for w in words]

    return sorted((f for f in files if not f.name.startswith(".")), key=key)


# -- for a training -------------------------------------------------------------------------------


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


def open_user_data(
    path: Path,
    naming: Naming,
    *,
    seed: int = 0,
    count: int | None = None,
    expected_fingerprint: str = "",
) -> tuple[str, Splits]:
    """The fingerprint of a file or folder, and its data, checked and split.

    A second call with unchanged data returns what the first one read. `seed` draws the splits if
    the file names none; `count` is the number of training samples to use, the first ones. Data with
    another fingerprint than the expected one are refused.
    """
    path = _existing(path)
    stamp = _stamp(path)
    found = _fingerprint(path, stamp)
    if expected_fingerprint and found != expected_fingerprint:
        raise InputError(
            f"{path} has changed: its fingerprint is {found}, that of the data of this run "
            f"{expected_fingerprint}; restore the file, or train into a new folder"
        )
    splits = _splits(path, naming, seed, stamp)
    if _stamp(path) != stamp:
        raise InputError(f"{path} changed while it was read; try again when it is complete")
    if count is not None:
        if count > len(splits.train):
            raise InputError(f"{path} has {len(splits.train)} training samples, not {count}")
        splits = splits.with_first(count)
    return found, splits


def changed_since(path: Path, expected_fingerprint: str) -> str:
    """What has become of data since they were read: a few words, empty if they are the same.

    Files whose size and time are still those that were read are not read again.
    """
    try:
        found = _fingerprint(path, _stamp(path))
    except (OSError, InputError):
        return "is gone"
    is_same = found == expected_fingerprint
    return "" if is_same else f"has changed: its fingerprint is {found}"


def _stamp(path: Path) -> tuple[object, ...]:
    """Name, inode, size and time of change of each file: cheap to compare within a process."""
    stats = [(str(file), file.stat()) for file in files_of(path)]
    return tuple((name, s.st_ino, s.st_size, s.st_mtime_ns) for name, s in stats)


@lru_cache(maxsize=1)
def _fingerprint(path: Path, stamp: tuple[object, ...]) -> str:
    return fingerprint(path)


@lru_cache(maxsize=1)  # a training, its evaluation and its report use the same data
def _splits(path: Path, naming: Naming, seed: int, stamp: tuple[object, ...]) -> Splits:
    samples = read_samples(path, ReadRequest(naming))
    require_usable(samples)
    problem = recognise(samples)
    indices = split_indices(samples, seed)
    datasets = {
        name: dataset_of(samples, problem, indices[name], f"{path}, {name} split")
        for name in SPLITS
    }
    return Splits(problem, datasets)
