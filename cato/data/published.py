"""Reading the published files of a benchmark, by their own names, layouts and splits.

`Benchmark.published` declares the layout. Normalisation is the published one. The files hold more
arrays, channels and samples than are used; only those used are read, except for variables of MATLAB
files before v7.3, which cannot be read in part.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cato.benchmarks import get_benchmark
from cato.benchmarks.contract import Benchmark, Layout, Published
from cato.data.dataset import Dataset, Splits
from cato.data.formats import Reversed, open_variable
from cato.errors import InputError


def read_published(benchmark: str, folder: Path) -> Splits:
    """The published data of a benchmark; the files are in `folder` or in a folder in it."""
    definition = get_benchmark(benchmark)
    if definition.published is None:
        raise InputError(f"{benchmark} has no published files; leave --original out")
    validation = definition.scale("paper").validation
    return read_files(definition, definition.published, Path(folder), validation)


def read_files(
    benchmark: Benchmark[Any], published: Published, folder: Path, num_validation: int
) -> Splits:
    """Read files of the given layout, the last training samples as validation split."""
    problem = benchmark.problem("paper")
    if published.normalise is not None:
        problem = replace(problem, normalise=published.normalise)
    paths = _locate(benchmark.name, published.layouts, folder)
    datasets = {}
    for split, arrays in _read_arrays(published.layouts, paths).items():
        coords, inputs, targets = published.assemble(*arrays)
        if coords is None:
            coords = benchmark.coords(benchmark.parameters("paper"))
        assert coords is not None
        what = f"published {benchmark.name} {split} samples"
        datasets[split] = Dataset.from_arrays(problem, coords, inputs, targets, what=what)
    train, test = datasets["train"], datasets["test"]
    num_train = len(train) - num_validation
    first, last = train.subset(slice(0, num_train)), train.subset(slice(num_train, None))
    return Splits(problem, {"train": first, "validation": last, "test": test})


def _locate(benchmark: str, layouts: Sequence[Layout], folder: Path) -> dict[str, Path]:
    names = list(dict.fromkeys(layout.file for layout in layouts))
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give the one that holds {', '.join(names)}")
    hits = {
        name: [p for p in (folder / name, *sorted(folder.glob(f"*/{name}"))) if p.is_file()]
        for name in names
    }
    for layout in layouts:
        paths = hits[layout.file]
        if not paths:
            there = ", ".join(name for name in names if hits[name]) or "none"
            raise InputError(
                f"{layout.file} with {layout.expected} is neither in {folder} nor in a folder in "
                f"it; of the {len(names)} {benchmark} files needed, found: {there}"
            )
        if len(paths) > 1:
            listed = " and ".join(str(path) for path in paths)
            raise InputError(f"which {layout.file} is meant? There are {listed}; leave one")
    return {name: paths[0] for name, paths in hits.items()}


def _read_arrays(
    layouts: Sequence[Layout], paths: Mapping[str, Path]
) -> dict[str, list[np.ndarray]]:
    """The arrays of the published training and test sets, in the order of the layouts."""
    arrays: dict[str, list[np.ndarray]] = {"train": [], "test": []}
    counts: dict[str, tuple[int, Path]] = {}
    for layout in layouts:
        path = paths[layout.file]
        count, parts = _read_array(path, layout)
        for split, part in parts.items():
            expected, other = counts.setdefault(split, (count, path))
            if count != expected:  # the last samples of the two would not belong together
                raise InputError(
                    f"{path} holds {count} samples, but {other} {expected}; "
                    f"fetch both again from one place"
                )
            arrays[split].append(part)
    return arrays


def _read_array(path: Path, layout: Layout) -> tuple[int, dict[str, np.ndarray]]:
    """The number of samples in the file, and those of each split as float32, samples first."""
    axis, parts = layout.shape.index(None), {}
    with _opened(path, layout) as array:
        count = array.shape[axis] if len(array.shape) == len(layout.shape) else 0
        expected = tuple(count if size is None else size for size in layout.shape)
        if array.dtype.kind not in "fiu" or array.shape != expected or count < layout.at_least:
            raise InputError(f"holds {array.dtype} of shape {array.shape}")
        for split, samples in layout.samples.items():
            index = list(layout.pick) + [slice(None)] * (len(layout.shape) - len(layout.pick))
            index[axis] = samples
            with np.errstate(over="ignore"):  # too large for float32 is infinite, and named as such
                # A copy, since a view would keep the whole variable in memory.
                part = np.array(array[tuple(index)], np.float32)
            parts[split] = np.moveaxis(part, axis, 0)
    return count, parts


@contextmanager
def _opened(path: Path, layout: Layout) -> Iterator[np.ndarray | Reversed]:
    """Open for reading; any error becomes one line that says what was expected."""
    try:
        if layout.name:
            with open_variable(path, layout.name, np.float32) as array:
                yield array
        else:
            yield np.lib.format.open_memmap(path, mode="r")  # refuses pickled objects
    except MemoryError:
        raise
    except InputError as error:
        raise InputError(f"{path} should hold {layout.expected}, but {error}") from None
    except Exception as error:  # parsers of foreign bytes raise nearly anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{path} should hold {layout.expected}, but cannot be read ({reason}): "
            f"truncated, damaged or of another format; fetch it again"
        ) from None
