"""A time budget has a minimum of steps: a slow machine takes longer instead of learning less."""

import time

import numpy as np
import pytest

from cato.errors import InputError
from cato.runs.folder import open_run
from cato.runs.settings import TrainConfig, build_settings
from cato.training import loop
from cato.training.train import resume, train


@pytest.mark.parametrize(("seconds", "num_steps"), [(0.1, 1200), (0.2, 600), (0.4, 600), (60, 600)])
def test_the_minutes_give_the_steps_but_not_fewer_than_the_minimum(seconds, num_steps, capsys):
    config = TrainConfig(minutes=2.0, min_steps=600)
    assert loop.steps_within(config, seconds) == num_steps
    says = capsys.readouterr().err
    assert says.startswith(f"a step takes {1000 * seconds:.0f} ms: 2 minutes ")
    allowed = int(120 / seconds)
    if allowed < num_steps:
        longer = f"allow only {allowed} steps; training 600 instead, about {10 * seconds:.1f} min"
        assert longer in says
    else:
        assert f"are {num_steps} steps" in says
    assert loop.steps_within(TrainConfig(minutes=2.0), 60) == 2


def test_a_slow_machine_trains_longer(tmp_path, config_with, monkeypatch, capsys):
    """Steps of 0.05 s: 0.6 s would be 12 of them, or fewer on a busy machine."""
    original = loop.Training.step

    def slow_step(self, *arguments):
        time.sleep(0.05)
        return original(self, *arguments)

    monkeypatch.setattr(loop.Training, "step", slow_step)
    monkeypatch.setattr(loop, "CALIBRATION_SECONDS", 0.1)
    run = train(config_with(train={"minutes": 0.01, "min_steps": 14}), tmp_path / "run")
    assert run.log()[-1]["step"] == 14
    assert "training 14 instead" in capsys.readouterr().err


def test_an_extended_run_keeps_its_minimum(tmp_path, config_with, monkeypatch):
    """Minutes that allow too few steps, then more, then a number of steps."""
    monkeypatch.setattr(loop.Training, "seconds_per_step", lambda self, duration: 60.0)
    budget = {"minutes": 1.0, "min_steps": 10, "schedule": "wsd"}
    run = train(config_with(train=budget), tmp_path / "run")
    assert run.log()[-1]["step"] == 10
    again = resume(run.folder, {"minutes": 1e-6}, tmp_path / "again")
    assert again.log()[-1]["loss"] == run.log()[-1]["loss"]
    longer = resume(run.folder, {"steps": 20}, tmp_path / "longer")
    assert longer.log()[-1]["step"] == 20
    assert open_run(longer.folder).config.train.min_steps is None


def test_a_minimum_of_steps_needs_a_budget(config_with):
    with pytest.raises(InputError, match=r"train\.min_steps is for a time budget"):
        config_with(train={"min_steps": 10})


def test_the_minimum_of_user_data_follows_the_minutes(tmp_path):
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(np.arange(4.0), np.arange(5.0), indexing="ij"), axis=-1)
    fields = {"inputs": rng.random((10, 4, 5, 1)), "targets": 1 + rng.random((10, 4, 5, 1))}
    np.savez(tmp_path / "user.npz", coords=grid, **fields)

    def floor(**changes):
        return build_settings(tmp_path / "user.npz", "small", None, {"train": changes}).train

    recipe = floor()
    assert recipe.minutes is not None
    assert recipe.min_steps is not None
    assert floor(minutes=recipe.minutes / 3).min_steps == -(-recipe.min_steps // 3)
    assert floor(minutes=10 * recipe.minutes).min_steps == recipe.min_steps
    assert floor(minutes=recipe.minutes / 3, min_steps=7).min_steps == 7
    for length in ({"steps": 5}, {"epochs": 5}):
        assert floor(**length).min_steps is None
