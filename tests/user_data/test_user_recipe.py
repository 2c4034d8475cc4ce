"""The recipe for user data is fitted to their size, and the command of a run names what it got."""

import shlex
from pathlib import Path

import numpy as np
import pytest

from cato.cli.commands import Train
from cato.cli.parsing import parse, split_overrides
from cato.runs.settings import RunConfig, build_settings, command_of


def settings(folder: Path, shape: tuple[int, ...], **model: int) -> RunConfig:
    """Of 100 samples of random fields on a grid."""
    path = folder / "user.npz"
    axes = np.meshgrid(*(np.linspace(0, 1, n) for n in shape), indexing="ij")
    fields = np.random.default_rng(0).random((2, 100, *shape, 1), dtype=np.float32)
    np.savez(path, coords=np.stack(axes, axis=-1), inputs=fields[0], targets=1 + fields[1])
    return build_settings(path, "small", None, {"model": model})


@pytest.mark.parametrize(
    ("shape", "batch_size", "kernel", "width"),
    [((40,), 4, 7, 64), ((32, 32), 4, 7, 64), ((40, 50), 2, 7, 64), ((8, 9, 10), 4, 3, 64),
     ((64, 64), 1, 7, 32)],
)  # fmt: skip
def test_batch_stencil_and_width_follow_the_mesh(tmp_path, shape, batch_size, kernel, width):
    config = settings(tmp_path, shape)
    assert config.train.batch_size == batch_size
    assert (config.model.kernel, config.model.width) == (kernel, width)


@pytest.mark.parametrize(("shape", "model"), [((6, 7, 8), {}), ((6, 7, 8), {"kernel": 7})])
def test_the_command_repeats_a_fitted_recipe(tmp_path, shape, model):
    config = settings(tmp_path, shape, **model)
    changes, words = split_overrides(shlex.split(command_of(config))[2:])
    assert parse(Train, words, "cato train").configs(changes) == [config]
