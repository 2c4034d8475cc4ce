"""Problems in time: which frames a step learns."""

import numpy as np
import pytest
import torch

from cato.data.dataset import Dataset, Splits
from cato.errors import InputError
from cato.problem import Problem
from cato.runs.folder import create_run
from cato.runs.settings import recipe, run_config
from cato.training.devices import make_fabric
from cato.training.loop import Training
from cato.training.train import train

NUM_FRAMES = 5
WAVES = Problem("waves", "grid", (6, 6), ("a", "b"), ("w",), time="rollout", num_steps=NUM_FRAMES)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    axis = np.linspace(0, 1, 6)
    coords = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1)
    inputs, targets = rng.random((4, 6, 6, 2)), rng.random((4, NUM_FRAMES, 6, 6, 1))
    return Dataset.from_arrays(WAVES, coords, inputs, targets)


@pytest.fixture
def frames_of(data, tmp_path):
    """The numbers of the frames that a step learns: frames_of(step, frames_per_step)."""

    def numbers(step, frames_per_step):
        values = recipe("navier_stokes", "smoke", "cato").to_dict()
        values["train"] |= {"frames_per_step": frames_per_step, "accelerator": "cpu"}
        values["model"] |= {"width": 8, "depth": 1}
        config = run_config(values, "test")
        run = create_run(tmp_path / f"run{len(list(tmp_path.iterdir()))}", config, WAVES)
        splits = Splits(WAVES, {"train": data, "validation": data})
        training = Training(run, splits, make_fabric(config.train))
        training.state.step = step
        batch = data.batch([0, 1])
        return [
            next(k for k in range(NUM_FRAMES) if torch.equal(frame.target, batch.targets[:, k]))
            for frame in training._frames(batch)
        ]

    return numbers


def test_all_frames_unless_asked_otherwise(frames_of):
    assert frames_of(0, None) == list(range(NUM_FRAMES))


def test_some_frames_are_drawn_anew_in_each_step_and_alike_in_each_run(frames_of):
    drawn = [frames_of(step, 2) for step in range(6)]
    assert all(len(set(frames)) == 2 for frames in drawn)
    assert len({tuple(frames) for frames in drawn}) > 2
    assert frames_of(3, 2) == drawn[3]


def test_steady_problems_have_no_frames(tmp_path):
    values = recipe("darcy", "smoke", "cato").to_dict()
    values["train"] |= {"frames_per_step": 1, "accelerator": "cpu"}
    values["data"]["root"] = str(tmp_path)
    with pytest.raises(InputError, match="has no frames"):
        train(run_config(values, "test"), tmp_path / "run")
