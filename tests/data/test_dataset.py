from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cato.data.dataset import Dataset, load_dataset
from cato.data.store import read_store
from cato.errors import InputError
from cato.problem import Problem

GRID = Problem("heat", "grid", (4, 5), ("a", "f"), ("u",))
MESH = Problem("flow", "mesh", (4, 5), (), ("u", "v"))
CLOUD = Problem("stress", "cloud", (7,), ("k",), ("s",))
FRAMES = Problem("waves", "grid", (4, 5), ("a",), ("u", "v"), time="conditioned", num_steps=3)


def grid_coords(*shape: int) -> np.ndarray:
    axes = [np.linspace(0, 1 + n, n) for n in shape]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)


def arrays(problem: Problem, num_samples: int = 6) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    time = () if problem.time == "steady" else (problem.num_steps,)
    own = rng.random((num_samples, *problem.shape, 2))
    return {
        "coords": grid_coords(*problem.shape) if problem.geometry == "grid" else own,
        "inputs": rng.random((num_samples, *problem.shape, problem.num_inputs)),
        "targets": rng.random((num_samples, *time, *problem.shape, problem.num_outputs)),
    }


@pytest.mark.parametrize("problem", [GRID, MESH, CLOUD, FRAMES], ids=lambda p: p.name)
def test_nodes_are_row_major(problem: Problem) -> None:
    given = arrays(problem)
    data = Dataset.from_arrays(problem, **given)
    batch = data.batch([4, 1])
    node = (2, 3) if len(problem.shape) == 2 else (3,)
    flat = int(np.ravel_multi_index(node, problem.shape))
    coords = given["coords"] if problem.geometry == "grid" else given["coords"][1]
    assert batch.coords.shape == (2, problem.num_nodes, 2)
    np.testing.assert_allclose(batch.coords[1, flat], coords[node], rtol=1e-6)
    np.testing.assert_allclose(batch.inputs[1, flat], given["inputs"][1][node], rtol=1e-6)
    target = given["targets"][1][(..., *node, slice(None))]
    np.testing.assert_allclose(batch.targets[1, ..., flat, :], target, rtol=1e-6)
    assert batch.targets.dtype == torch.float32
    assert len(data) == 6


def test_shared_coordinates_are_not_copied() -> None:
    data = Dataset.from_arrays(GRID, **arrays(GRID))
    assert data.coords.shape == (20, 2)
    assert data.batch([0, 1, 2]).coords.data_ptr() == data.coords.data_ptr()


@pytest.mark.parametrize("problem", [GRID, CLOUD], ids=lambda p: p.name)
def test_subsets_compose(problem: Problem) -> None:
    data = Dataset.from_arrays(problem, **arrays(problem))
    part = data.subset(slice(1, 5)).subset(torch.tensor([2, 0]))
    assert len(part) == 2
    assert torch.equal(part.targets, data.targets[[3, 1]])
    assert torch.equal(part.batch([0]).coords, data.batch((3,)).coords)


def test_problem_without_inputs() -> None:
    data = Dataset.from_arrays(MESH, **(arrays(MESH) | {"inputs": None}))
    assert data.batch([0]).inputs.shape == (1, 20, 0)


def test_mask_marks_padding() -> None:
    mask = np.ones((6, 7), bool)
    mask[2, 5:] = False
    data = Dataset.from_arrays(CLOUD, **arrays(CLOUD), mask=mask)
    batch = data.batch([2, 3])
    assert batch.mask is not None
    assert batch.mask.sum(1).tolist() == [5, 7]


def test_integers_and_read_only_arrays_are_fine() -> None:
    given = arrays(GRID)
    given["inputs"] = np.arange(6 * 20 * 2).reshape(6, 4, 5, 2)
    given["targets"] = given["targets"].astype(np.float32)
    given["targets"].flags.writeable = False
    data = Dataset.from_arrays(GRID, **given)
    assert data.inputs[0, 1, 1] == 3


def with_value(name: str, index: tuple[int, ...], value: float) -> Any:
    def change(given: dict[str, Any]) -> None:
        given[name][index] = value

    return change


def with_array(name: str, function: Any) -> Any:
    def change(given: dict[str, Any]) -> None:
        given[name] = function(given[name])

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_value("inputs", (3, 1, 2, 1), np.nan), r"own: inputs: 1 values of sample 3.*'f'"),
        (with_value("targets", (5, 0, 0, 0), np.inf), r"targets.*sample 5.*'u' at \[0, 0\]"),
        (with_value("targets", (5, 0, 0, 0), 1e39), "infinite as float32"),
        (with_value("coords", (1, 1, 0), np.nan), "coords.*'x1'"),
        (with_value("targets", (4,), 0.0), "targets of sample 4 are all zero"),
        (
            with_array("targets", lambda a: a[..., 0]),
            r"add the channel axis with array\[..., None\]",
        ),
        (with_array("targets", lambda a: a[:0]), "no samples"),
        (with_array("targets", lambda a: np.array(1.0)), "no samples"),
        (with_array("inputs", lambda a: a[:4]), r"inputs should have shape \(6, 4, 5, 2\)"),
        (with_array("inputs", lambda a: a.swapaxes(1, 2)), r"but have \(6, 5, 4, 2\)"),
        (with_array("inputs", lambda a: a + 1j), "real numbers, but are complex"),
        (with_array("inputs", lambda a: a.astype(object)), "real numbers, but are object"),
        (with_array("coords", lambda a: a[:, :1]), r"coords should have shape .* or \(4, 5, 2\)"),
        (with_array("coords", lambda a: a[..., ::-1]), "coordinate d must run along axis d"),
        (with_array("coords", lambda a: a**2), "in equal steps"),
        (with_array("coords", lambda a: a * a[..., 1:]), "in equal steps"),
        (with_array("coords", lambda a: a * 0), "in equal steps"),
    ],
)
def test_bad_arrays_are_named(change: Any, message: str) -> None:
    given = arrays(GRID)
    change(given)
    with pytest.raises(InputError, match=message) as refused:
        Dataset.from_arrays(GRID, **given, what="own")
    assert str(refused.value).startswith("own: ")
    assert "\n" not in str(refused.value)


def test_missing_inputs_are_named() -> None:
    with pytest.raises(InputError, match=r"inputs should have shape \(6, 4, 5, 2\)"):
        Dataset.from_arrays(GRID, **(arrays(GRID) | {"inputs": None}))


def test_mesh_with_one_row_is_refused() -> None:
    with pytest.raises(InputError, match="at least 3 nodes"):
        replace(MESH, shape=(1, 20))


@pytest.mark.parametrize(
    ("problem", "mask", "message"),
    [
        (GRID, np.ones((6, 20), bool), "only clouds have a mask"),
        (CLOUD, np.ones((6, 7)), "should be bool"),
        (CLOUD, np.ones((6, 8), bool), r"bool \(6, 7\)"),
        (CLOUD, np.arange(42).reshape(6, 7) < 35, "sample 5 is all padding"),
    ],
)
def test_bad_masks_are_named(problem: Problem, mask: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Dataset.from_arrays(problem, **arrays(problem), mask=mask)


def test_zero_targets_behind_padding_are_named() -> None:
    given = arrays(CLOUD)
    given["targets"][1, :4] = 0
    mask = np.ones((6, 7), bool)
    mask[1, 4:] = False
    with pytest.raises(InputError, match="sample 1 are all zero"):
        Dataset.from_arrays(CLOUD, **given, mask=mask)


def test_frames_of_zeros_are_named() -> None:
    """A start from rest; a row of zeros on the mesh is none."""
    given = arrays(FRAMES)
    given["targets"][:, :, 0] = 0
    Dataset.from_arrays(FRAMES, **given)
    given["targets"][2:, 0] = 0
    with pytest.raises(InputError, match=r"frame 0 of sample 2.*4 in all.*targets\[:, 1:\]"):
        Dataset.from_arrays(FRAMES, **given, what="own")
    given["targets"][:] = 0
    with pytest.raises(InputError, match="targets of sample 0 are all zero"):
        Dataset.from_arrays(FRAMES, **given)


def test_load_dataset(pristine: Path) -> None:
    splits = load_dataset("darcy", "smoke", root=pristine.parent)
    stored = read_store(pristine, "")
    assert [len(s) for s in (splits.train, splits.validation, splits.test)] == [24, 8, 8]
    u = splits.test.batch([3]).targets.reshape(15, 15).numpy()
    assert np.array_equal(u, stored.splits["test"].targets[3, ..., 0])
    assert set(splits.train.inputs.unique().tolist()) == {3.0, 12.0}


def test_load_dataset_generates_what_is_missing(tmp_path: Path) -> None:
    splits = load_dataset("darcy", "smoke", root=tmp_path, splits=["test"], workers=1)
    assert len(splits.test) == 8
    assert (tmp_path / "darcy-smoke-seed0-test.h5").exists()
    with pytest.raises(InputError, match="have no train split, only test"):
        _ = splits.train
