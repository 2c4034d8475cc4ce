"""What exported graphs rest on: neighbours and mesh sizes that every runtime finds alike."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cato.kernels.neighbours import nearest_neighbours
from cato.models.baselines.ono import Whitening
from cato.models.layers.mesh import share_of


@pytest.mark.parametrize("period", [(None, None), (8.0, None)])
@pytest.mark.parametrize("num_neighbours", [4, 9, 16])
def test_of_equally_near_points_the_first_are_neighbours(num_neighbours, period):
    lattice = torch.cartesian_prod(torch.arange(8.0), torch.arange(8.0))
    coords = lattice[torch.randperm(64, generator=torch.Generator().manual_seed(0))]
    index, _ = nearest_neighbours(coords[None], num_neighbours, period)
    offset = (coords[:, None] - coords).abs().numpy()
    for axis, length in enumerate(period):
        if length is not None:
            offset[..., axis] = np.minimum(offset[..., axis], length - offset[..., axis])
    # Whole numbers: these distances are exact, and a stable sort leaves the first first.
    expected = np.argsort((offset**2).sum(-1), axis=1, kind="stable")[:, :num_neighbours]
    np.testing.assert_array_equal(index[0], expected)


def test_coincident_points_are_taken_in_their_order():
    index, _ = nearest_neighbours(torch.zeros(1, 6, 2), 3, (None, None))
    assert index[0].tolist() == [[0, 1, 2], [1, 0, 2], [2, 0, 1], [3, 0, 1], [4, 0, 1], [5, 0, 1]]


@given(thousandths=st.integers(0, 999), size=st.integers(1, 5000))
def test_shares_in_integers_are_those_of_floats(thousandths, size):
    # At a half that no float hits, such as 0.35 × 10, floats round either way.
    if thousandths * size % 1000 != 500:
        assert share_of(thousandths / 1000, size) == round(thousandths / 1000 * size)


@given(size=st.integers(1, 5000), share=st.sampled_from([0.0, 0.1, 0.125, 0.25, 0.5, 0.75, 1.0]))
def test_shares_of_the_models_are_rounded_as_ever(size, share):
    assert share_of(share, size) == round(share * size)


def test_a_frozen_whitening_is_the_same_whitening():
    torch.manual_seed(0)
    whitening = Whitening(5).eval()
    root = torch.randn(5, 5)
    whitening.covariance.copy_(root @ root.T + 0.1 * torch.eye(5))
    phi, weights = torch.randn(2, 7, 5), torch.full((1, 7, 1), 1 / 7)
    expected = whitening(phi, weights)
    whitening.freeze()
    torch.testing.assert_close(whitening(phi, weights), expected, rtol=1e-6, atol=1e-6)
