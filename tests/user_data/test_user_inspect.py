"""What `cato inspect` finds is what a training refuses."""

import numpy as np
import pytest

from cato.errors import InputError
from cato.user_data.inspect import inspect_samples
from cato.user_data.naming import Naming, ReadRequest
from cato.user_data.read import open_user_data, read_samples, split_indices

S, T, H, W = 12, 3, 4, 5


def test_a_start_from_rest_is_found_and_left_out_by_the_advice(tmp_path):
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(np.arange(4.0), np.arange(5.0), indexing="ij"), axis=-1)
    u = 1 + rng.random((S, T, H, W))
    u[:, 0] = 0
    u[7] = 0
    path = tmp_path / "waves.npz"
    np.savez(path, xy=grid, k=rng.random((S, H, W)), u=u)
    naming = Naming.parse("xy", "k", "u")
    samples = read_samples(path, ReadRequest(naming))
    found = inspect_samples(samples, split_indices(samples, 0)).findings
    frame, whole = (finding for finding in found if finding.stops)
    assert "frame 0 of the targets is zero everywhere" in frame.what
    assert "--targets u[1:]" in frame.what
    assert frame.samples == (*range(7), *range(8, S))
    assert "the targets are zero everywhere" in whole.what
    assert whole.samples == (7,)
    with pytest.raises(InputError, match="sample 0: frame 0 of the targets is zero"):
        open_user_data(path, naming)
    u[7] = 1
    np.savez(path, xy=grid, k=rng.random((S, H, W)), u=u)
    assert open_user_data(path, Naming.parse("xy", "k", "u[1:]"))[1].problem.num_steps == T - 1
