"""Files in exactly the published layouts; where their size allows, with the published counts."""

import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import savemat
from scipy.sparse import csc_array

from cato.data.benchmarks import BENCHMARKS, get_benchmark
from cato.data.dataset import Dataset, Splits
from cato.data.original import ORIGINALS, Original, read_original
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
SPLITS = {"train": [0, 1, 2], "validation": [3], "test": [6, 7]}
FIRST = SPLITS | {"test": [0, 1]}
NEXT = SPLITS | {"test": [4, 5]}
MATLAB = ("darcy", "navier_stokes", "plasticity")


def shrink(benchmark: str) -> Original:
    original = ORIGINALS[benchmark]
    layouts = tuple(
        replace(
            layout,
            samples={k: SMALL[s.start, s.stop] for k, s in layout.samples.items()},
            at_least=6,
        )
        for layout in original.layouts
    )
    return replace(original, layouts=layouts, validation=1)


def make(benchmark: str, dtype: Any = np.float32) -> Arrays:
    """Arrays of the published shapes but for the number of samples."""
    rng = np.random.default_rng(0)
    return {
        (a.file, a.name): rng.random([n or NUM for n in a.shape], np.float32).astype(dtype)
        for a in ORIGINALS[benchmark].layouts
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


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that does not stay: some files are large."""
    yield tmp_path
    shutil.rmtree(tmp_path)


Stock = Callable[[str], tuple[Path, Arrays]]


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stock]:
    """Files that no test changes, and what was written."""
    root, written = tmp_path_factory.mktemp("original"), dict[str, Arrays]()

    def provide(benchmark: str) -> tuple[Path, Arrays]:
        if benchmark not in written:
            written[benchmark] = make(benchmark)
            write(root / benchmark, written[benchmark])
        return root / benchmark, written[benchmark]

    yield provide
    shutil.rmtree(root)


# What is read, from where


PUBLISHED = {
    "darcy": [
        ("piececonst_r421_N1024_smooth1.mat", "coeff", "(≥ 1000, 421, 421)"),
        ("piececonst_r421_N1024_smooth1.mat", "sol", "(≥ 1000, 421, 421)"),
        ("piececonst_r421_N1024_smooth2.mat", "coeff", "(≥ 200, 421, 421)"),
        ("piececonst_r421_N1024_smooth2.mat", "sol", "(≥ 200, 421, 421)"),
    ],
    "navier_stokes": [("NavierStokes_V1e-5_N1200_T20.mat", "u", "(≥ 1200, 64, 64, 20)")],
    "airfoil": [
        ("NACA_Cylinder_X.npy", "", "(≥ 1200, 221, 51)"),
        ("NACA_Cylinder_Y.npy", "", "(≥ 1200, 221, 51)"),
        ("NACA_Cylinder_Q.npy", "", "(≥ 1200, 5, 221, 51)"),
    ],
    "pipe": [
        ("Pipe_X.npy", "", "(≥ 1200, 129, 129)"),
        ("Pipe_Y.npy", "", "(≥ 1200, 129, 129)"),
        ("Pipe_Q.npy", "", "(≥ 1200, 3, 129, 129)"),
    ],
    "plasticity": [
        ("plas_N987_T20.mat", "input", "(≥ 987, 101)"),
        ("plas_N987_T20.mat", "output", "(≥ 987, 101, 31, 20, 4)"),
    ],
    "elasticity": [
        ("Random_UnitCell_sigma_10.npy", "", "(972, ≥ 1200)"),
        ("Random_UnitCell_XY_10.npy", "", "(972, 2, ≥ 1200)"),
    ],
}
NUM_PUBLISHED = {"darcy": 1024, "elasticity": 2000, "plasticity": 987, "navier_stokes": 1200}
FIRST_TEST = {"darcy": 0, "elasticity": 1800, "plasticity": 907}
"""Where it is not sample 1000."""


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_table_is_the_published_one(benchmark: str) -> None:
    original = ORIGINALS[benchmark]
    assert [(a.file, a.name) for a in original.layouts] == [
        (file, name) for file, name, _ in PUBLISHED[benchmark]
    ]
    scale = get_benchmark(benchmark).scale("paper")
    for layout, (*_, shape) in zip(original.layouts, PUBLISHED[benchmark], strict=True):
        assert layout.expected.endswith(shape)
        every = range(NUM_PUBLISHED.get(benchmark, 2310))
        if "train" in layout.samples:
            assert every[layout.samples["train"]] == range(scale.train + scale.validation)
        if "test" in layout.samples:
            first = FIRST_TEST.get(benchmark, 1000)
            assert every[layout.samples["test"]] == range(first, first + scale.test)
    assert original.validation == scale.validation


@pytest.mark.parametrize(
    ("benchmark", "normalise"),
    [
        ("darcy", ("inputs", "outputs")),
        ("navier_stokes", ()),
        ("airfoil", ()),
        ("pipe", ("coords", "outputs")),
        ("plasticity", ("inputs",)),
        ("elasticity", ("outputs",)),
    ],
)
def test_problem_is_the_generated_one_with_published_normalisation(
    benchmark: str, normalise: tuple[str, ...], stock: Stock
) -> None:
    splits = shrink(benchmark).read(stock(benchmark)[0])
    expected = replace(get_benchmark(benchmark).problem("paper"), normalise=normalise)
    assert splits.problem == expected
    assert all(data.problem == expected for data in splits.datasets.values())
    assert [len(splits.datasets[name]) for name in ("train", "validation", "test")] == [3, 1, 2]


def test_darcy_is_every_fifth_node(stock: Stock) -> None:
    folder, arrays = stock("darcy")
    splits = shrink("darcy").read(folder)
    for split, indices in FIRST.items():
        coords, inputs, targets = on_mesh(splits.datasets[split])
        file = f"piececonst_r421_N1024_smooth{2 if split == 'test' else 1}.mat"
        for k, sample in enumerate(indices):
            for i, j in [(0, 0), (84, 84), (3, 70), (41, 12)]:
                assert inputs[k, i, j, 0] == arrays[file, "coeff"][sample, 5 * i, 5 * j]
                assert targets[k, i, j, 0] == arrays[file, "sol"][sample, 5 * i, 5 * j]
        assert coords[21, 63] == pytest.approx([21 / 84, 63 / 84])


def test_navier_stokes_frames_become_inputs_and_steps(stock: Stock) -> None:
    folder, arrays = stock("navier_stokes")
    splits = shrink("navier_stokes").read(folder)
    (u,) = arrays.values()
    for split, indices in SPLITS.items():
        coords, inputs, targets = on_mesh(splits.datasets[split])
        for k, sample in enumerate(indices):
            for i, j in [(0, 0), (63, 5), (7, 40)]:
                for t in range(10):
                    assert inputs[k, i, j, t] == u[sample, i, j, t]
                    assert targets[k, t, i, j, 0] == u[sample, i, j, 10 + t]
        assert coords[16, 48] == pytest.approx([0.25, 0.75])


@pytest.mark.parametrize(
    ("benchmark", "prefix", "channel"), [("airfoil", "NACA_Cylinder", 4), ("pipe", "Pipe", 0)]
)
def test_flow_on_its_mesh(benchmark: str, prefix: str, channel: int, stock: Stock) -> None:
    folder, arrays = stock(benchmark)
    splits = shrink(benchmark).read(folder)
    x, y, q = (arrays[f"{prefix}_{letter}.npy", ""] for letter in "XYQ")
    for split, indices in NEXT.items():
        coords, inputs, targets = on_mesh(splits.datasets[split])
        assert inputs.shape[-1] == 0
        for k, sample in enumerate(indices):
            for i, j in [(0, 0), (128, 50), (3, 17), (90, 2)]:
                assert coords[k, i, j].tolist() == [x[sample, i, j], y[sample, i, j]]
                assert targets[k, i, j, 0] == q[sample, channel, i, j]


def test_plasticity_repeats_the_die_over_the_rows(stock: Stock) -> None:
    folder, arrays = stock("plasticity")
    splits = shrink("plasticity").read(folder)
    die, output = arrays.values()
    for split, indices in SPLITS.items():
        coords, inputs, targets = on_mesh(splits.datasets[split])
        for k, sample in enumerate(indices):
            for i, j in [(0, 0), (100, 30), (17, 4)]:
                assert inputs[k, i, j, 0] == die[sample, i]
                for t in (0, 7, 19):
                    assert targets[k, t, i, j].tolist() == output[sample, i, j, t].tolist()
        assert coords[100, 30] == pytest.approx([1, 0.3])
        assert coords[25, 10] == pytest.approx([0.25, 0.1])


def test_elasticity_samples_are_the_last_axis(stock: Stock) -> None:
    folder, arrays = stock("elasticity")
    splits = shrink("elasticity").read(folder)
    sigma, xy = arrays.values()
    for split, indices in SPLITS.items():
        coords, _, targets = on_mesh(splits.datasets[split])
        for k, sample in enumerate(indices):
            for i in (0, 971, 300):
                assert coords[k, i].tolist() == xy[i, :, sample].tolist()
                assert targets[k, i, 0] == sigma[i, sample]


# Flavours


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
    original = shrink("elasticity")
    assert same(original.read(folder / "a"), original.read(folder / "b"))


def test_only_what_is_used_is_read(folder: Path) -> None:
    """Published counts: each variable is 726 MB, of which 85 × 85 nodes of 1000 are used."""
    for smooth in (1, 2):
        path = folder / f"piececonst_r421_N1024_smooth{smooth}.mat"
        with h5py.File(path, "w", userblock_size=512) as file:
            for name, fill in (("coeff", 3.0), ("sol", 0.5)):
                variable = file.create_dataset(
                    name, (421, 421, 1024), np.float32, chunks=(5, 105, 1024), fillvalue=fill
                )
                variable[150, 20] = smooth * 10_000 + fill + np.arange(1024)  # node (4, 30)
        stamp_v73(path)
    tracemalloc.start()
    splits = read_original("darcy", folder)
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
    assert_published(read_original("elasticity", folder), first_test=1800)


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
    assert_published(read_original("airfoil", folder), first_test=1000)


# Folders


def test_files_may_be_one_folder_down(folder: Path) -> None:
    arrays = make("elasticity")
    write(folder / "Meshes", arrays)
    original = shrink("elasticity")
    assert same(original.read(folder), original.read(folder / "Meshes"))
    (folder / "Meshes" / "Random_UnitCell_XY_10.npy").rename(folder / "Random_UnitCell_XY_10.npy")
    assert len(original.read(folder).test) == 2


def refused(original: Original, folder: Path) -> str:
    with pytest.raises(InputError) as error:
        original.read(folder)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_two_files_of_one_name(folder: Path) -> None:
    arrays = make("elasticity")
    for place in (folder, folder / "b", folder / "a"):
        write(place, arrays)
    name = "Random_UnitCell_sigma_10.npy"
    message = refused(shrink("elasticity"), folder)
    assert message == (
        f"which {name} is meant? There are {folder / name} and {folder / 'a' / name} and "
        f"{folder / 'b' / name}; leave one"
    )


def test_missing_folder_and_benchmark(folder: Path) -> None:
    message = refused(ORIGINALS["pipe"], folder / "no")
    assert message == (
        f"{folder / 'no'} is no folder; give the one that holds Pipe_X.npy, Pipe_Y.npy, Pipe_Q.npy"
    )
    with pytest.raises(InputError, match="no benchmark 'tube'; choose one of darcy"):
        read_original("tube", folder)


def test_missing_files(folder: Path) -> None:
    assert refused(ORIGINALS["airfoil"], folder) == (
        f"NACA_Cylinder_X.npy with real numbers of shape (≥ 1200, 221, 51) is neither in {folder} "
        f"nor in a folder in it; of the 3 airfoil files needed, found: none"
    )
    for letter in "XY":
        np.save(folder / f"NACA_Cylinder_{letter}.npy", 0)
    (folder / "NACA_Cylinder_Q.npy").mkdir()
    (folder / "deep" / "deeper").mkdir(parents=True)
    np.save(folder / "deep" / "deeper" / "NACA_Cylinder_Q.npy", 0)
    assert refused(ORIGINALS["airfoil"], folder) == (
        f"NACA_Cylinder_Q.npy with real numbers of shape (≥ 1200, 5, 221, 51) is neither in "
        f"{folder} nor in a folder in it; of the 3 airfoil files needed, found: "
        f"NACA_Cylinder_X.npy, NACA_Cylinder_Y.npy"
    )
    message = refused(ORIGINALS["plasticity"], folder)
    assert message.startswith("plas_N987_T20.mat with the variable 'input', real numbers of shape")


# Wrong contents

SIGMA = "Random_UnitCell_sigma_10.npy"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda a: a[:, :5], "float32 of shape (972, 5)"),
        (lambda a: a.T, "float32 of shape (8, 972)"),
        (lambda a: a[:900], "float32 of shape (900, 8)"),
        (lambda a: a[0], "float32 of shape (8,)"),
        (lambda a: a[..., None], "float32 of shape (972, 8, 1)"),
        (lambda a: a.sum(), "float32 of shape ()"),
        (lambda a: a + 1j, "complex64 of shape (972, 8)"),
        (lambda a: a > 0.5, "bool of shape (972, 8)"),
        (lambda a: a.astype(str), "<U32 of shape (972, 8)"),
    ],
)
def test_wrong_arrays(change: Any, found: str, folder: Path) -> None:
    arrays = make("elasticity")
    arrays[SIGMA, ""] = change(arrays[SIGMA, ""])
    write(folder, arrays)
    assert refused(shrink("elasticity"), folder) == (
        f"{folder / SIGMA} should hold real numbers of shape (972, ≥ 6), but holds {found}"
    )


def test_too_few_samples_for_the_published_splits(folder: Path) -> None:
    for name, shape in ((SIGMA, (972, 1199)), ("Random_UnitCell_XY_10.npy", (972, 2, 1199))):
        np.save(folder / name, np.ones(shape, np.float32))
    message = refused(ORIGINALS["elasticity"], folder)
    assert message.endswith("shape (972, ≥ 1200), but holds float32 of shape (972, 1199)")


def test_files_that_do_not_belong_together(folder: Path) -> None:
    arrays = make("elasticity")
    xy = "Random_UnitCell_XY_10.npy"
    arrays[xy, ""] = arrays[xy, ""][..., :7]
    write(folder, arrays)
    assert refused(shrink("elasticity"), folder) == (
        f"{folder / xy} holds 7 samples, but {folder / SIGMA} 8; fetch both again from one place"
    )


def test_objects_are_never_unpickled(folder: Path) -> None:
    write(folder, make("elasticity"))
    np.save(folder / SIGMA, np.full((972, 8), None), allow_pickle=True)
    message = refused(shrink("elasticity"), folder)
    assert "shape (972, ≥ 6), but cannot be read (" in message
    assert "Python objects" in message


@pytest.mark.parametrize("matlab", [write_v5, write_v73])
def test_wrong_variables(matlab: Writer, folder: Path) -> None:
    file = "NavierStokes_V1e-5_N1200_T20.mat"
    right = make("navier_stokes")[file, "u"]
    expected = f"{folder / file} should hold the variable 'u', real numbers of shape (≥ 6, 64, 64"
    for variables, reason in (
        ({"a": np.ones((2, 3)), "t": np.ones((1, 20))}, "has no such variable, only a, t"),
        ({"u": right + 1j}, "holds complex64 of shape (8, 64, 64, 20)"),
        ({"u": right.T}, "holds float32 of shape (20, 64, 64, 8)"),
        ({"u": right[:5]}, "holds float32 of shape (5, 64, 64, 20)"),
    ):
        matlab(folder / file, variables)
        assert refused(shrink("navier_stokes"), folder) == f"{expected}, 20), but {reason}"


def test_variables_that_are_no_arrays(folder: Path) -> None:
    original, path = shrink("plasticity"), folder / "plas_N987_T20.mat"
    savemat(path, {"input": csc_array(np.eye(8, 101))})
    assert refused(original, folder).endswith("(≥ 6, 101), but 'input' is sparse")
    savemat(path, {"input": np.ones((8, 101), object)})
    assert refused(original, folder).endswith("but holds object of shape (8, 101)")
    savemat(path, {})
    assert refused(original, folder).endswith("but has no such variable, only none at all")
    with h5py.File(path, "w") as file:
        file.create_group("input")
    assert refused(original, folder).endswith("but 'input' is a struct or sparse")
    with h5py.File(path, "w") as file:
        file["output"] = np.ones(3)
        file["input"] = np.full((101, 8), file["output"].ref, dtype=h5py.ref_dtype)
    assert refused(original, folder).endswith("but holds object of shape (8, 101)")


@pytest.mark.parametrize("matlab", [write_v5, write_v73])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_values_that_are_not_finite(matlab: Writer, value: float, folder: Path) -> None:
    arrays = make("plasticity", np.float64)
    arrays["plas_N987_T20.mat", "output"][3, 17, 3, 8, 2] = value
    write(folder, arrays, matlab)
    message = refused(shrink("plasticity"), folder)
    assert message == (
        "published plasticity train samples: targets: 1 values of sample 3 are NaN or infinite "
        "as float32, the first in channel 'dx' at [8, 17, 3]"
    )


KINDS = {
    "v5": (write_v5, ORIGINALS["plasticity"].layouts[0]),
    "v7.3": (write_v73, ORIGINALS["plasticity"].layouts[0]),
    "npy": (write_v5, ORIGINALS["elasticity"].layouts[0]),
}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(data=st.data())
def test_truncated_files(kind: str, data: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    matlab, layout = KINDS[kind]
    folder = tmp_path_factory.getbasetemp() / f"truncated-{kind}"
    array = np.ones([n or layout.at_least for n in layout.shape])  # no padding after doubles
    write(folder, {(layout.file, layout.name): array}, matlab)
    path = folder / layout.file
    size = path.stat().st_size
    near = st.integers(0, 1000)
    with path.open("r+b") as file:
        file.truncate(data.draw(near | near.map(lambda n: size - 1 - n)))
    message = refused(replace(ORIGINALS["plasticity"], layouts=(layout,)), folder)
    assert message.startswith(f"{path} should hold {layout.expected}, but ")
    assert "cannot be read" in message or "no such variable, only none" in message


@pytest.mark.parametrize("content", [b"", b"<html>404</html>", b"version https://git-lfs\n" * 9])
def test_files_of_another_kind(content: bytes, folder: Path) -> None:
    for benchmark in ("elasticity", "plasticity"):
        original = shrink(benchmark)
        for layout in original.layouts:
            (folder / layout.file).write_bytes(content)
        message = refused(original, folder)
        assert "but cannot be read (" in message
        assert message.endswith("): truncated, damaged or of another format; fetch it again")
