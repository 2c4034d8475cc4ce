"""The surrogate: physical units, time protocols, and predictions for users."""

import numpy as np
import pytest
import torch

from cato.data.dataset import Dataset
from cato.data.normalise import Normaliser
from cato.errors import InputError
from cato.models.cato.grid import CatoConfig
from cato.models.contract import Operator, Prediction
from cato.models.registry import build_model
from cato.problem import Conditioning, Problem
from cato.surrogate import NotFinite, Surrogate, frame_to_learn, next_past


class LastInput(Operator):
    """û = newest input + time; its flux is û along every axis."""

    def operate(self, nodes):
        coords, features, time, *_ = nodes
        values = features[..., -self.problem.num_outputs :]
        if time is not None:
            values = values + time[:, None, None]
        return Prediction(values, values[..., None].expand(*values.shape, coords.shape[-1]))


def problem_of(**kwargs):
    defaults = {"inputs": ("a",), "outputs": ("u",)}
    return Problem("test", "mesh", (4, 3), **(defaults | kwargs))


def surrogate_of(problem, **kwargs):
    return Surrogate(LastInput(None, problem), Normaliser(problem), **kwargs)


def test_physical_values_go_in_and_come_out():
    problem = problem_of()
    torch.manual_seed(0)
    inputs, targets = 5 + 3 * torch.randn(6, 4, 3, 1), 100 + 20 * torch.randn(6, 4, 3, 1)
    coords = np.stack(np.meshgrid(np.arange(4.0), np.arange(3.0), indexing="ij"), -1)
    data = Dataset.from_arrays(problem, coords, inputs.numpy(), targets.numpy())
    surrogate = Surrogate(LastInput(None, problem), Normaliser.fit(data))
    solution = surrogate.predict(inputs.numpy(), coords)
    # the model is the identity on normalised values
    expected = (inputs - inputs.mean()) / inputs.std(correction=0)
    expected = expected * targets.std(correction=0) + targets.mean()
    np.testing.assert_allclose(solution, expected, rtol=1e-4)


def test_flux_is_scaled_to_physical_units():
    problem = problem_of(outputs=("u", "v"), inputs=("u0", "v0"))
    surrogate = surrogate_of(problem, flux_scale=torch.tensor([2.0, 30.0]))
    values, flux = surrogate(torch.rand(1, 12, 2), torch.rand(1, 12, 2))
    torch.testing.assert_close(flux[..., 0], values * torch.tensor([2.0, 30.0]))


def test_rollout_feeds_back_its_own_frames():
    problem = problem_of(inputs=("w0", "w1", "w2"), outputs=("w",), time="rollout", num_steps=4)

    class AddOne(LastInput):
        def forward(self, coords, features, **kwargs):
            return Prediction(features[..., -1:] + 1)

    surrogate = Surrogate(AddOne(None, problem), Normaliser(problem))
    inputs = torch.zeros(2, 12, 3)
    frames = surrogate.solve(torch.rand(2, 12, 2), inputs)
    assert frames.shape == (2, 4, 12, 1)
    assert frames[0, :, 0, 0].tolist() == [1, 2, 3, 4]


def test_rollouts_are_taught_with_the_true_past():
    problem = problem_of(inputs=("w0", "w1", "w2"), outputs=("w",), time="rollout", num_steps=4)
    inputs = torch.tensor([0.0, 1.0, 2.0]).expand(1, 12, 3)
    targets = torch.arange(3.0, 7.0).view(1, 4, 1, 1).expand(1, 4, 12, 1)
    frames = [frame_to_learn(problem, inputs, targets, k) for k in range(4)]
    assert [f.inputs[0, 0].tolist() for f in frames] == [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]
    assert [f.target[0, 0].item() for f in frames] == [3, 4, 5, 6]
    assert all(f.time is None for f in frames)


def test_frames_of_several_channels_and_a_past_that_is_no_multiple_of_them():
    """Equal to feeding the true frames back one by one."""
    names = ("u0", "v0", "c", "u1", "v1")
    problem = problem_of(inputs=names, outputs=("u", "v"), time="rollout", num_steps=5)
    inputs, targets = torch.rand(2, 12, 5), torch.rand(2, 5, 12, 2)
    past = inputs
    for k in range(5):
        frame = frame_to_learn(problem, inputs, targets, k)
        assert torch.equal(frame.inputs, past)
        assert torch.equal(frame.target, targets[:, k])
        past = next_past(past, targets[:, k])


def test_conditioned_problems_are_asked_for_every_time():
    problem = problem_of(time="conditioned", num_steps=5)
    surrogate = surrogate_of(problem)
    frames = surrogate.solve(torch.rand(1, 12, 2), torch.zeros(1, 12, 1))
    assert frames[0, :, 0, 0].tolist() == pytest.approx([0, 0.25, 0.5, 0.75, 1])
    inputs, targets = torch.zeros(1, 12, 1), torch.zeros(1, 5, 12, 1)
    trained_on = [frame_to_learn(problem, inputs, targets, k) for k in range(5)]
    assert [f.time.item() for f in trained_on] == pytest.approx([0, 0.25, 0.5, 0.75, 1])


def test_predictions_do_not_depend_on_the_batch_size_and_keep_the_kind_of_array():
    surrogate = surrogate_of(problem_of(), coords=torch.rand(12, 2))
    inputs = torch.rand(5, 4, 3, 1)
    whole = surrogate.predict(inputs)
    assert isinstance(whole, torch.Tensor)
    assert torch.equal(whole, surrogate.predict(inputs, batch_size=2))
    from_numpy = surrogate.predict(inputs.double().numpy())
    assert isinstance(from_numpy, np.ndarray)
    np.testing.assert_array_equal(from_numpy, whole.numpy())


def test_predict_keeps_training_mode():
    surrogate = surrogate_of(problem_of(), coords=torch.rand(12, 2)).train()
    surrogate.predict(torch.rand(1, 4, 3, 1))
    assert surrogate.training


@pytest.mark.parametrize(
    ("inputs", "coords", "message"),
    [
        (np.zeros((2, 4, 3, 2)), None, "inputs must have shape"),
        (np.zeros((4, 3, 1)), None, "inputs must have shape"),
        (np.zeros((0, 4, 3, 1)), None, "no sample"),
        (np.zeros((2, 8, 5, 1)), None, "coords are required"),
        (np.zeros((2, 3, 4, 1)), None, "coords are required"),  # as many nodes, another mesh
        (np.full((2, 4, 3, 1), np.nan), None, "NaN or infinite"),
        (np.zeros((2, 4, 3, 1)), np.zeros((3, 4, 3, 2)), "coords must have shape"),
        (np.full((2, 4, 3, 1), np.inf), None, "NaN or infinite"),
        (np.array([["x"]]), None, "array of numbers"),
    ],
)
def test_bad_arrays(inputs, coords, message):
    surrogate = surrogate_of(problem_of(), coords=torch.rand(12, 2))
    with pytest.raises(InputError, match=message):
        surrogate.predict(inputs, coords)


class Burst(LastInput):
    """The square of the inputs, with a weight."""

    def __init__(self, problem):
        super().__init__(None, problem)
        self.weight = torch.nn.Parameter(torch.ones(1))

    def operate(self, nodes):
        return Prediction(self.weight * nodes.features[..., -1:] ** 2)


def test_overflow_is_refused_with_its_sample_and_its_cause():
    surrogate = Surrogate(Burst(problem_of()), Normaliser(problem_of()), coords=torch.rand(12, 2))
    inputs = np.ones((3, 4, 3, 1))
    assert np.isfinite(surrogate.predict(inputs)).all()
    inputs[1, 2, 0, 0] = 1e25
    with pytest.raises(NotFinite, match=r"sample 1 is not finite: 1 of 12.*Its a is up to 1e\+25"):
        surrogate.predict(inputs)


def test_weights_that_are_not_finite_are_the_cause():
    surrogate = Surrogate(Burst(problem_of()), Normaliser(problem_of()), coords=torch.rand(12, 2))
    surrogate.model.weight.data.fill_(torch.nan)
    with pytest.raises(InputError, match=r"weights of the model are not finite \(model\.weight\)"):
        surrogate.predict(np.ones((3, 4, 3, 1)))


def test_float64_is_kept_outside_the_network():
    """1e9 + small values: the network sees them to float32, and so do the outputs."""
    problem = problem_of(float64=("inputs", "outputs"))
    small = np.random.default_rng(0).normal(size=(6, 4, 3, 1))
    inputs, targets = 1e9 + 1e-3 * small, -1e12 + 5 * small
    coords = np.stack(np.meshgrid(np.arange(4.0), np.arange(3.0), indexing="ij"), -1)
    data = Dataset.from_arrays(problem, coords, inputs, targets)
    surrogate = Surrogate(LastInput(None, problem), Normaliser.fit(data))
    solution = surrogate.predict(inputs, coords)
    assert solution.dtype == np.float64
    # the model is the identity on normalised values
    np.testing.assert_allclose(solution + 1e12, 5 * small, rtol=0, atol=1e-2)


@pytest.mark.parametrize("time", ["steady", "rollout"])
def test_solutions_are_differentiable_by_nodes_and_inputs_in_physical_units(time):
    shape, steps = (6, 5), 3 if time == "rollout" else 1
    problem = Problem(
        "test",
        "mesh",
        shape,
        ("u0",),
        ("u",),
        time=time,
        num_steps=steps,
        normalise=("coords", "inputs", "outputs"),
        conditioning=Conditioning(reference="node", mesh_inputs=True),
    )
    torch.manual_seed(0)
    axes = torch.meshgrid(*(torch.arange(float(n)) for n in shape), indexing="ij")
    coords = (torch.stack(axes, dim=-1) + 0.2 * torch.rand(4, *shape, 2)).numpy()
    inputs, targets = 5 + 3 * torch.randn(4, *shape, 1), 100 + torch.randn(4, steps, *shape, 1)
    targets = targets if time == "rollout" else targets[:, 0]
    data = Dataset.from_arrays(problem, coords, inputs.numpy(), targets.numpy())
    model = build_model("cato", CatoConfig(width=8, depth=1, heads=2), problem)
    surrogate = Surrogate(model, Normaliser.fit(data)).double()
    arrays = torch.from_numpy(coords), inputs
    given = [a[:1].flatten(1, 2).double().requires_grad_() for a in arrays]

    def solve(nodes, values):
        return surrogate.solve(nodes, values, shape=shape)

    assert torch.autograd.gradcheck(solve, given, fast_mode=True)
