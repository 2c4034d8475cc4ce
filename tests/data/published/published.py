"""Files in exactly the published layouts, with few samples."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from scipy.io import savemat

from cato.benchmarks import get_benchmark
from cato.benchmarks.contract import Published
from cato.data.dataset import Dataset, Splits
from cato.data.published import read_files
from cato.errors import InputError

Arrays = dict[tuple[str, str], np.ndarray]
"""By file and variable."""
Writer = Callable[[Path, dict[str, np.ndarray]], None]

NUM = 8
SMALL = {  # the same splits with few samples: 3 + 1, and 2 for testing; the file has 2 to spare
    (0, 1000): slice(0, 4),
    (0, 900): slice(0, 4),
    (1000, 1200): slice(4, 6),
    (0, 200): slice(0, 2),
    (-200, None): slice(-2, None),
    (-80, None): slice(-2, None),
}


@dataclass(frozen=True)
class Files:
    """The published files of a benchmark, perhaps with few samples."""

    benchmark: str
    published: Published
    num_validation: int

    def read(self, folder: Path) -> Splits:
        return read_files(
            get_benchmark(self.benchmark), self.published, folder, self.num_validation
        )


def full(benchmark: str) -> Files:
    definition = get_benchmark(benchmark)
    assert definition.published is not None
    return Files(benchmark, definition.published, definition.scale("paper").validation)


def shrink(benchmark: str) -> Files:
    published = full(benchmark).published
    layouts = tuple(
        replace(
            layout,
            samples={k: SMALL[s.start, s.stop] for k, s in layout.samples.items()},
            at_least=6,
        )
        for layout in published.layouts
    )
    return Files(benchmark, replace(published, layouts=layouts), 1)


def make(benchmark: str, dtype: Any = np.float32) -> Arrays:
    """Arrays of the published shapes but for the number of samples."""
    rng = np.random.default_rng(0)
    return {
        (a.file, a.name): rng.random([n or NUM for n in a.shape], np.float32).astype(dtype)
        for a in full(benchmark).published.layouts
    }


def write_v5(path: Path, variables: dict[str, np.ndarray], compressed: bool = False) -> None:
    savemat(path, variables, do_compression=compressed)


def write_v7(path: Path, variables: dict[str, np.ndarray]) -> None:
    write_v5(path, variables, compressed=True)


def write_v73(path: Path, variables: dict[str, np.ndarray]) -> None:
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in variables.items():
            file[name] = array.T
            file[name].attrs["MATLAB_class"] = np.bytes_("double")
        file.create_group("#refs#")
    stamp_v73(path)


def stamp_v73(path: Path) -> None:
    """MATLAB's text, version 2 and endianness mark in the user block."""
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")


def write(folder: Path, arrays: Arrays, matlab: Writer = write_v73) -> None:
    folder.mkdir(exist_ok=True)
    for file in {file for file, _ in arrays}:
        variables = {name: array for (f, name), array in arrays.items() if f == file}
        if file.endswith(".npy"):
            np.save(folder / file, variables[""])
        else:
            matlab(folder / file, variables)


def on_mesh(data: Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    arrays = data.arrays()
    return arrays["coords"], arrays["inputs"], arrays["targets"]


def same(a: Splits, b: Splits) -> bool:
    return all(
        torch.equal(getattr(a.datasets[split], name), getattr(b.datasets[split], name))
        for split in ("train", "validation", "test")
        for name in ("coords", "inputs", "targets")
    )


def refused(files: Files, folder: Path) -> str:
    with pytest.raises(InputError) as error:
        files.read(folder)
    message = str(error.value)
    assert "\n" not in message
    return message
