"""Symmetries: the group that they generate, that solutions stay solutions, and what is refused."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from cato.benchmarks.darcy.solver import solve_darcy
from cato.data.dataset import Batch, Dataset, InMemory
from cato.data.symmetry import draw, mapped, require_symmetric
from cato.errors import InputError
from cato.problem import Problem

ALL = ("flip-0", "flip-1", "transpose")


def batch_of(inputs: np.ndarray, targets: np.ndarray) -> Batch:
    flat = [torch.from_numpy(x).float().flatten()[None, :, None] for x in (inputs, targets)]
    return Batch(torch.zeros(1, flat[0].shape[1], 2), *flat)


def test_a_mapped_darcy_solution_solves_the_mapped_problem():
    size = 17
    medium = np.where(np.random.default_rng(0).random((size, size)) > 0.5, 12.0, 3.0)
    batch = batch_of(medium, solve_darcy(medium).u)
    seen = set()
    for chosen in product((False, True), repeat=3):
        new = mapped(batch, (size, size), ALL, np.array([chosen]))
        other = new.inputs.reshape(size, size).double().numpy()
        seen.add(other.tobytes())
        np.testing.assert_allclose(
            new.targets.reshape(size, size).numpy(), solve_darcy(other).u, rtol=1e-4, atol=1e-7
        )
    assert len(seen) == 8  # the whole group of the square


def test_every_sample_has_its_own_map_and_frames_are_mapped_alike():
    shape = (4, 4)
    inputs = torch.rand(2, 16, 1)
    targets = torch.rand(2, 3, 16, 2)
    batch = Batch(torch.zeros(2, 16, 2), inputs, targets)
    new = mapped(batch, shape, ALL, np.array([[False] * 3, [True, False, True]]))
    assert torch.equal(new.inputs[0], inputs[0])
    expected = targets[1].reshape(3, 4, 4, 2).flip(1).transpose(1, 2).reshape(3, 16, 2)
    assert torch.equal(new.targets[1], expected)


def test_all_maps_are_drawn():
    drawn = draw(ALL, 400, np.random.default_rng(0))
    assert len({tuple(row) for row in drawn.tolist()}) == 8
    assert 0.4 < drawn.mean() < 0.6


def grid(problem: Problem, *lines: np.ndarray) -> Dataset:
    coords = np.stack(np.meshgrid(*lines, indexing="ij"), -1).reshape(-1, len(lines))
    values = np.ones((2, len(coords), 1))
    return InMemory(
        problem, torch.from_numpy(coords).float(), *(torch.from_numpy(values).float(),) * 2
    )


SQUARE = Problem("square", "grid", (5, 5), ("a",), ("u",))
LINE = np.linspace(0, 1, 5)


@pytest.mark.parametrize(
    ("problem", "lines", "names", "message"),
    [
        (SQUARE, (LINE, 2 * LINE), ("transpose",), "not mapped onto itself"),
        (SQUARE, (LINE**2, LINE), ("flip-0",), "not mapped onto itself"),
        (SQUARE, (LINE, LINE), ("flip-2",), "has 2 mesh axes"),
        (replace(SQUARE, periodic=(True, False)), (LINE, LINE), ("flip-1",), "periodic"),
    ],
)
def test_grids_that_are_not_mapped_onto_themselves_are_refused(problem, lines, names, message):
    with pytest.raises(InputError, match=message):
        require_symmetric(names, grid(problem, *lines))


def test_a_square_is_mapped_onto_itself():
    require_symmetric(ALL, grid(SQUARE, LINE, 3 + LINE - 3))
    require_symmetric((), grid(replace(SQUARE, periodic=(True, True)), LINE, LINE))
