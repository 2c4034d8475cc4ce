"""Problems in time: which frames a step learns."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cato.data.dataset import Dataset, Splits
from cato.errors import InputError
from cato.problem import Problem
from cato.runs.folder import create_run
from cato.runs.settings import build_settings
from cato.surrogate import frame_to_learn
from cato.training import loop
from cato.training.loop import Training, new_model
from cato.training.train import make_fabric, train

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
def training_of(data, tmp_path):
    """A training that learns some frames per step: training_of(frames_per_step, seed)."""

    def build(frames_per_step, seed=0):
        changes = {
            "train": {"frames_per_step": frames_per_step, "accelerator": "cpu", "seed": seed},
            "model": {"width": 8, "depth": 1},
        }
        config = build_settings("navier_stokes", "smoke", "cato", changes)
        run = create_run(tmp_path / f"run{len(list(tmp_path.iterdir()))}", config, WAVES)
        splits = Splits(WAVES, {"train": data, "validation": data})
        return Training(run, splits, make_fabric(config.train), new_model(config, WAVES))

    return build


@pytest.fixture
def frames_of(data, training_of):
    """The numbers of the frames that a step learns, for each sample: frames_of(step, number)."""

    def numbers(step, frames_per_step, places=(0, 1)):
        training = training_of(frames_per_step)
        training.state.step = step
        batch = data.batch(places)
        return numbers_of(batch, training._frames(batch, torch.tensor(places)))

    return numbers


def numbers_of(batch, frames):
    return [
        [
            next(k for k in range(NUM_FRAMES) if torch.equal(frame.target[i], batch.targets[i, k]))
            for frame in frames
        ]
        for i in range(len(batch.targets))
    ]


def test_all_frames_unless_asked_otherwise(frames_of):
    assert frames_of(0, None) == 2 * [list(range(NUM_FRAMES))]


def test_some_frames_are_drawn_anew_in_each_step_and_alike_in_each_run(frames_of):
    drawn = [frames_of(step, 2) for step in range(6)]
    assert all(len(set(frames)) == 2 for sample in drawn for frames in sample)
    assert len({tuple(frames) for sample in drawn for frames in sample}) > 2
    assert frames_of(3, 2) == drawn[3]


def test_each_sample_of_a_batch_learns_its_own_frame_whatever_process_holds_it(frames_of):
    drawn = [frames_of(step, 1) for step in range(6)]
    assert any(first != second for first, second in drawn)
    assert frames_of(3, 1, places=(1,)) == drawn[3][1:]


def test_only_the_drawn_frames_are_built(data, training_of, monkeypatch):
    built = []

    def counting(problem, inputs, targets, step):
        built.append(step)
        return frame_to_learn(problem, inputs, targets, step)

    monkeypatch.setattr(loop, "frame_to_learn", counting)
    assert len(training_of(2)._frames(data.batch([0, 1]), torch.arange(2))) == 2
    assert len(built) == 2 * 2


def test_frames_do_not_follow_from_the_order_of_the_samples(data, training_of):
    """With as many frames as samples, a shared random stream would give one permutation twice."""
    same = []
    for seed in range(12):
        training = training_of(NUM_FRAMES, seed)
        as_many = torch.arange(NUM_FRAMES) % len(data)
        training.train_set = data.subset(as_many)  # as many samples as frames
        training.config = replace(training.config, batch_size=NUM_FRAMES)
        batch = data.batch([0])
        (drawn,) = numbers_of(batch, training._frames(batch, torch.arange(1)))
        same.append(drawn == training._batch_indices(0).tolist())
    assert sum(same) < 3  # by chance one in 120


def test_steady_problems_have_no_frames(tmp_path):
    train_changes = {"frames_per_step": 1, "accelerator": "cpu"}
    changes = {"train": train_changes, "data": {"root": str(tmp_path)}}
    with pytest.raises(InputError, match="has no frames"):
        train(build_settings("darcy", "smoke", "cato", changes), tmp_path / "run")
