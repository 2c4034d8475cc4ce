"""Reading the published files of a benchmark, by their own names, layouts and splits.

`Benchmark.published` declares the layout. Normalisation is the published one. The files hold more
arrays, channels and samples than are used; only those used are read, except for variables of MATLAB
files before v7.3, which cannot be read in part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cato.benchmarks import get_benchmark
from cato.benchmarks.contract import Benchmark, Layout, Published
from cato.data.dataset import Dataset, Splits
from cato.data.published_array import read_array
from cato.errors import InputError
from cato.sandbox import parse


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
        if layout.name:
            ((count, parts),) = parse(read_array, [path], layout, imports=())
        else:  # NumPy maps the values and parses only the header
            count, parts = read_array(path, layout)
        for split, part in parts.items():
            expected, other = counts.setdefault(split, (count, path))
            if count != expected:  # the last samples of the two would not belong together
                raise InputError(
                    f"{path} holds {count} samples, but {other} {expected}; "
                    f"fetch both again from one place"
                )
            arrays[split].append(part)
    return arrays
