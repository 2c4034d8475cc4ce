"""The same numbers from every format and precision, and no more of a file than is needed.

Where their size allows, files have the published numbers of samples.
"""

import shutil
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from published import (
    Writer,
    make,
    on_mesh,
    same,
    shrink,
    stamp_v73,
    write,
    write_v5,
    write_v7,
    write_v73,
)

from cato.data.dataset import Splits
from cato.data.published import read_published

MATLAB = ("darcy", "navier_stokes", "plasticity")


@pytest.mark.parametrize("benchmark", MATLAB)
def test_matlab_formats_are_told_by_signature_and_equal(benchmark: str, folder: Path) -> None:
    arrays = make(benchmark)
    read = []
    for name, matlab in {"v5": write_v5, "v7": write_v7, "v7.3": write_v73}.items():
        write(folder / name, arrays, matlab)
        read.append(shrink(benchmark).read(folder / name))
        shutil.rmtree(folder / name)
    assert same(read[0], read[1])
    assert same(read[0], read[2])


@pytest.mark.parametrize("matlab", [write_v5, write_v73])
def test_double_precision_is_rounded_once(matlab: Writer, folder: Path) -> None:
    rng = np.random.default_rng(3)
    arrays = {key: rng.random(a.shape) for key, a in make("navier_stokes").items()}
    write(folder, arrays, matlab)
    (u,) = arrays.values()
    _, inputs, _ = on_mesh(shrink("navier_stokes").read(folder).train)
    assert np.array_equal(inputs, u[:3, ..., :10].astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ">f8", np.float16])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_of_any_precision_and_order(dtype: Any, order: Any, folder: Path) -> None:
    arrays = {
        key: np.asarray(np.round(64 * array) + 1, dtype, order=order)
        for key, array in make("elasticity").items()
    }
    write(folder / "a", arrays)
    write(folder / "b", {key: array.astype(np.int64) for key, array in arrays.items()})
    files = shrink("elasticity")
    assert same(files.read(folder / "a"), files.read(folder / "b"))


def test_only_what_is_used_is_read(folder: Path) -> None:
    """Published counts: each variable is 726 MB, of which 85 × 85 nodes of 1000 are used."""
    for smooth in (1, 2):
        path = folder / f"piececonst_r421_N1024_smooth{smooth}.mat"
        with h5py.File(path, "w", userblock_size=512) as file:
            for name, fill in (("coeff", 3.0), ("sol", 0.5)):
                chunks = (5, 105, 1024)
                variable = file.create_dataset(
                    name, (421, 421, 1024), np.float32, chunks=chunks, compression="gzip"
                )
                alike = zlib.compress(np.full(chunks, fill, np.float32).tobytes())
                for row, column in np.ndindex(85, 5):
                    variable.id.write_direct_chunk((5 * row, 105 * column, 0), alike)
                variable[150, 20] = smooth * 10_000 + fill + np.arange(1024)  # node (4, 30)
        stamp_v73(path)
    tracemalloc.start()
    splits = read_published("darcy", folder)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300e6
    for split, count, first in (
        ("train", 900, 10_000.5),
        ("validation", 100, 10_900.5),
        ("test", 200, 20_000.5),
    ):
        _, inputs, targets = on_mesh(splits.datasets[split])
        assert np.array_equal(targets[:, 4, 30, 0], first + np.arange(count))
        assert np.array_equal(inputs[:, 4, 30, 0], first + 2.5 + np.arange(count))
        targets[:, 4, 30] = 0.5
        assert (targets == 0.5).all()


def test_a_v5_variable_does_not_stay_in_memory(folder: Path) -> None:
    arrays = make("darcy")
    write(folder, arrays, write_v5)
    variable = next(iter(arrays.values())).nbytes
    tracemalloc.start()
    splits = shrink("darcy").read(folder)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(splits.train) == 3
    assert kept < variable / 5
    assert peak < 2.5 * variable  # scipy's bytes, and never two variables


# The published splits, with the published numbers of samples


def assert_published(splits: Splits, first_test: int) -> None:
    """Where the targets of sample k are k + 1 at the first node."""
    for split, first, count in (
        ("train", 0, 900),
        ("validation", 900, 100),
        ("test", first_test, 200),
    ):
        data = splits.datasets[split]
        numbers = 1 + torch.arange(first, first + count)
        assert torch.equal(data.targets[:, 0, 0], numbers.float())
        assert torch.equal(data.coords[:, 0, 0], -numbers.float())
        assert torch.equal(data.coords[:, 0, 1], -2 * numbers.float())


def test_published_elasticity(folder: Path) -> None:
    number = 1.0 + np.arange(2000)
    np.save(folder / "Random_UnitCell_sigma_10.npy", np.tile(number, (972, 1)))
    xy = np.tile(number * [[-1], [-2]], (972, 1, 1))
    np.save(folder / "Random_UnitCell_XY_10.npy", xy)
    assert_published(read_published("elasticity", folder), first_test=1800)


def test_published_airfoil_ignores_further_samples(folder: Path) -> None:
    number = 1.0 + np.arange(1300)
    for letter, channels, place, factor in (
        ("X", (), (), -1),
        ("Y", (), (), -2),
        ("Q", (5,), (4,), 1),
    ):
        path, shape = folder / f"NACA_Cylinder_{letter}.npy", (1300, *channels, 221, 51)
        array = np.lib.format.open_memmap(path, "w+", np.float32, shape)  # sparse on disk
        array[(slice(None), *place, 0, 0)] = factor * number
    assert_published(read_published("airfoil", folder), first_test=1000)
