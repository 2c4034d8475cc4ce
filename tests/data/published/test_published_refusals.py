"""Files that are missing, damaged or of another kind: one line that names file and remedy."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published import Writer, full, make, refused, same, shrink, write, write_v5, write_v73
from scipy.io import savemat
from scipy.sparse import csc_array

from cato.data.published import read_published
from cato.errors import InputError

SIGMA = "Random_UnitCell_sigma_10.npy"


# Folders


def test_files_may_be_one_folder_down(folder: Path) -> None:
    arrays = make("elasticity")
    write(folder / "Meshes", arrays)
    files = shrink("elasticity")
    assert same(files.read(folder), files.read(folder / "Meshes"))
    (folder / "Meshes" / "Random_UnitCell_XY_10.npy").rename(folder / "Random_UnitCell_XY_10.npy")
    assert len(files.read(folder).test) == 2


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
    message = refused(full("pipe"), folder / "no")
    assert message == (
        f"{folder / 'no'} is not a folder; give the one that holds Pipe_X.npy, Pipe_Y.npy, "
        "Pipe_Q.npy"
    )
    with pytest.raises(InputError, match="no benchmark 'tube'; choose one of darcy"):
        read_published("tube", folder)


def test_missing_files(folder: Path) -> None:
    assert refused(full("airfoil"), folder) == (
        f"NACA_Cylinder_X.npy with real numbers of shape (≥ 1200, 221, 51) is neither in {folder} "
        f"nor in a folder in it; of the 3 airfoil files needed, found: none"
    )
    for letter in "XY":
        np.save(folder / f"NACA_Cylinder_{letter}.npy", 0)
    (folder / "NACA_Cylinder_Q.npy").mkdir()
    (folder / "deep" / "deeper").mkdir(parents=True)
    np.save(folder / "deep" / "deeper" / "NACA_Cylinder_Q.npy", 0)
    assert refused(full("airfoil"), folder) == (
        f"NACA_Cylinder_Q.npy with real numbers of shape (≥ 1200, 5, 221, 51) is neither in "
        f"{folder} nor in a folder in it; of the 3 airfoil files needed, found: "
        f"NACA_Cylinder_X.npy, NACA_Cylinder_Y.npy"
    )
    message = refused(full("plasticity"), folder)
    assert message.startswith("plas_N987_T20.mat with the variable 'input', real numbers of shape")


# Wrong contents


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
    message = refused(full("elasticity"), folder)
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
    files, path = shrink("plasticity"), folder / "plas_N987_T20.mat"
    savemat(path, {"input": csc_array(np.eye(8, 101))})
    assert refused(files, folder).endswith("(≥ 6, 101), but 'input' is sparse")
    savemat(path, {"input": np.ones((8, 101), object)})
    assert refused(files, folder).endswith("but holds object of shape (8, 101)")
    savemat(path, {})
    assert refused(files, folder).endswith("but has no such variable, only none at all")
    with h5py.File(path, "w") as file:
        file.create_group("input")
    assert refused(files, folder).endswith("but 'input' is a struct or sparse")
    with h5py.File(path, "w") as file:
        file["output"] = np.ones(3)
        file["input"] = np.full((101, 8), file["output"].ref, dtype=h5py.ref_dtype)
    assert refused(files, folder).endswith("but holds object of shape (8, 101)")


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
    "v5": (write_v5, full("plasticity").published.layouts[0]),
    "v7.3": (write_v73, full("plasticity").published.layouts[0]),
    "npy": (write_v5, full("elasticity").published.layouts[0]),
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
    files = full("plasticity")
    files = replace(files, published=replace(files.published, layouts=(layout,)))
    message = refused(files, folder)
    assert message.startswith(f"{path} should hold {layout.expected}, but ")
    assert "cannot be read" in message or "no such variable, only none" in message


@pytest.mark.parametrize("content", [b"", b"<html>404</html>", b"version https://git-lfs\n" * 9])
def test_files_of_another_kind(content: bytes, folder: Path) -> None:
    for benchmark in ("elasticity", "plasticity"):
        files = shrink(benchmark)
        for layout in files.published.layouts:
            (folder / layout.file).write_bytes(content)
        message = refused(files, folder)
        assert "but cannot be read (" in message
        assert message.endswith("): truncated, damaged or of another format; fetch it again")
