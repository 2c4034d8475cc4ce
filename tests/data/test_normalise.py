from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cato.data.dataset import Dataset, InMemory
from cato.data.normalise import Normaliser
from cato.errors import InputError
from cato.problem import Problem

CLOUD = Problem(
    "cloud", "cloud", (9,), ("a", "b"), ("u",), normalise=("coords", "inputs", "outputs")
)


def dataset(
    inputs: Tensor, problem: Problem = CLOUD, *, mask: Tensor | None = None, time: int = 0
) -> Dataset:
    num_samples, num_nodes, _ = inputs.shape
    generator = torch.Generator().manual_seed(0)
    shape = (num_samples, time, num_nodes, 1) if time else (num_samples, num_nodes, 1)
    targets = 3 + 5 * torch.randn(shape, generator=generator)
    coords = torch.rand(num_samples, num_nodes, 2, generator=generator)
    return InMemory(problem, coords, inputs, targets, mask)


def encode(normaliser: Normaliser, inputs: Tensor) -> Tensor:
    """Without conditioning, coordinates and shape make no difference."""
    return normaliser.encode_inputs(inputs, inputs, CLOUD.shape)


def decode(normaliser: Normaliser, values: Tensor) -> Tensor:
    return normaliser.decode_outputs(values, values, values, None, CLOUD.shape)


@settings(max_examples=50, deadline=None)
@given(
    scale=st.floats(1e-20, 1e15),
    offset=st.floats(-1e3, 1e3),
    num_samples=st.integers(1, 70),
    seed=st.integers(0, 2**31),
)
def test_round_trip_and_moments(scale: float, offset: float, num_samples: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(num_samples, 9, 2, generator=generator)
    data = dataset((values + offset) * scale)
    data = replace(data, targets=(values[..., :1] + offset) * scale)
    normaliser = Normaliser.fit(data)
    mean, std = normaliser.get_buffer("outputs_mean"), normaliser.get_buffer("outputs_std")
    encoded = (data.targets - mean) / std
    # The offset costs digits: its rounding is seen in units of the deviation.
    tolerance = 1e-5 * (1 + abs(offset))
    assert encoded.mean().abs() < tolerance
    assert (encoded.std(correction=0) - 1).abs() < tolerance
    back = decode(normaliser, encoded)
    torch.testing.assert_close(back, data.targets, rtol=1e-5, atol=1e-5 * scale)


def test_statistics_are_those_of_numpy_in_double_precision() -> None:
    """A mean of 1e4 deviations over many values, where float32 sums would lose all digits."""
    values = 1e4 + torch.randn(300, 9, 2, generator=torch.Generator().manual_seed(1))
    normaliser = Normaliser.fit(dataset(values))
    expected = values.numpy().astype(np.float64).reshape(-1, 2)
    np.testing.assert_allclose(normaliser.get_buffer("inputs_mean"), expected.mean(0), rtol=1e-7)
    np.testing.assert_allclose(normaliser.get_buffer("inputs_std"), expected.std(0), rtol=1e-6)


def test_padding_does_not_count() -> None:
    generator = torch.Generator().manual_seed(2)
    values = torch.randn(5, 9, 2, generator=generator)
    mask = torch.rand(5, 9, generator=generator) < 0.6
    mask[:, 0] = True
    data = dataset(values, mask=mask)
    wild = replace(
        data,
        inputs=torch.where(mask[..., None], values, 1e6),
        coords=torch.where(mask[..., None], data.coords, -1e6),
    )
    ours, theirs = Normaliser.fit(data).state_dict(), Normaliser.fit(wild).state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    torch.testing.assert_close(ours["inputs_mean"], values[mask].mean(0))


def test_padding_does_not_count_with_time() -> None:
    mask = torch.arange(9) < 6
    problem = replace(CLOUD, time="conditioned", num_steps=4)
    data = dataset(torch.ones(5, 9, 2), problem, mask=mask.expand(5, 9), time=4)
    kept = data.targets[:, :, :6]
    mean = Normaliser.fit(data).get_buffer("outputs_mean")
    torch.testing.assert_close(mean, kept.mean((0, 1, 2)))


@pytest.mark.parametrize("constant", [0.0, 0.1, -1e8, 1e-42, 3e38])
def test_constant_channels_keep_their_scale(constant: float) -> None:
    values = torch.randn(20, 9, 2, generator=torch.Generator().manual_seed(3))
    values[..., 1] = constant
    normaliser = Normaliser.fit(dataset(values))
    assert normaliser.get_buffer("inputs_std")[1] == 1
    encoded = encode(normaliser, values)
    assert encoded.isfinite().all()
    assert encoded[..., 1].abs().max() == 0


def test_values_that_are_not_finite_are_refused() -> None:
    values = torch.zeros(20, 9, 2)
    values[3, 3, 1] = torch.nan
    with pytest.raises(InputError, match="training inputs contain NaN"):
        Normaliser.fit(dataset(values))


def test_what_the_problem_does_not_name_is_unchanged() -> None:
    values = torch.randn(20, 9, 2, generator=torch.Generator().manual_seed(4))
    data = dataset(values, replace(CLOUD, normalise=("outputs",)))
    normaliser = Normaliser.fit(data)
    assert torch.equal(encode(normaliser, values), values)
    assert torch.equal(normaliser.encode_coords(data.coords), data.coords)
    assert not torch.equal(decode(normaliser, data.targets), data.targets)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InputError, match="only coords, inputs and outputs"):
        replace(CLOUD, normalise=("targets",))


def test_shared_coordinates_and_no_inputs() -> None:
    data = dataset(torch.zeros(20, 9, 0), replace(CLOUD, inputs=()))
    data = replace(data, coords=data.coords[0])
    normaliser = Normaliser.fit(data)
    torch.testing.assert_close(normaliser.get_buffer("coords_mean"), data.coords.mean(0))
    assert encode(normaliser, data.inputs).shape == (20, 9, 0)


def test_state_survives_the_disk() -> None:
    data = dataset(torch.randn(20, 9, 2))
    fitted, fresh = Normaliser.fit(data), Normaliser(CLOUD)
    fresh.load_state_dict(fitted.state_dict())
    assert torch.equal(encode(fresh, data.inputs), encode(fitted, data.inputs))
    assert not list(fitted.parameters())
