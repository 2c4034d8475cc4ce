"""Time series with parameters, controls and irregular steps: what each step of a rollout sees.

The stand-in for a network is the exact step of an equation with a known solution. It gets what the
file holds only if every input reaches the step that it belongs to.
"""

import h5py
import numpy as np
import pytest
import torch

import cato
from cato.data.normalise import Normaliser
from cato.data.rollout import STEP_SIZE
from cato.errors import InputError
from cato.inference.predict import predict_file
from cato.models.contract import Operator, Prediction
from cato.physics.metrics import relative_l2_per_frame
from cato.runs.folder import open_run
from cato.runs.load import load_surrogate
from cato.runs.settings import build_settings
from cato.surrogate import Surrogate, frame_to_learn
from cato.user_data.naming import Naming, ReadRequest
from cato.user_data.read import open_user_data, read_samples
from cato.user_data.samples import dataset_of, recognise
from cato.viz.report import write_report

X = np.linspace(0, 1, 9)
FRAMES, SAMPLES = 8, 4


class Step(Operator):
    """u_k = step(static and controls, u_{k-1}); normalisation is the identity."""

    def operate(self, nodes):
        return Prediction(self.config(nodes.features)[..., None])


def surrogate_of(problem, step):
    return Surrogate(Step(step, problem.seen_by_network), Normaliser(problem))


def read(tmp_path, naming, suffix="npz", **arrays):
    path = tmp_path / f"data.{suffix}"
    np.savez(path, x=X, **arrays)
    samples = read_samples(path, ReadRequest(Naming.parse("x", *naming)))
    problem = recognise(samples)
    return samples, problem, dataset_of(samples, problem, range(len(samples)))


def steps_agree(data, step, steps=None):
    """Both the forecast and the frames of training are those of the exact step."""
    problem, batch = data.problem, data.batch(slice(None))
    surrogate = surrogate_of(problem, step)
    torch.testing.assert_close(surrogate.solve(batch.coords, batch.inputs), batch.targets)
    for k in range(problem.num_steps):
        frame = frame_to_learn(problem, batch.inputs, batch.targets, k)
        values = surrogate(batch.coords, frame.inputs).values
        torch.testing.assert_close(values, frame.target)
    return surrogate


def heat(kappa, times):
    """u = 2 + e^{−κ π² t} cos πx, (samples, frames, nodes): the heat equation, insulated."""
    decay = np.exp(-(np.pi**2) * kappa[:, None] * times)
    return 2 + decay[..., None] * np.cos(np.pi * X)


def test_each_step_sees_the_parameters_of_its_sample(tmp_path):
    kappa = np.linspace(0.1, 0.4, SAMPLES)
    u = heat(kappa, 0.1 * np.arange(FRAMES))
    samples, problem, data = read(tmp_path, ("u[:1],kappa", "u[1:]"), u=u, kappa=kappa)
    assert (problem.time, problem.static, problem.controls) == ("rollout", 1, ())
    assert problem.inputs == ("kappa", "u[0]")

    def step(seen):
        diffusivity, past = seen.unbind(-1)
        return 2 + torch.exp(-(torch.pi**2) * 0.1 * diffusivity) * (past - 2)

    surrogate = steps_agree(data, step)
    # the same model, three times as far
    far = surrogate.predict(samples_inputs(samples), X[:, None], steps=3 * FRAMES)
    np.testing.assert_allclose(far[..., 0], heat(kappa, 0.1 * np.arange(1, 3 * FRAMES + 1)), 1e-5)
    # where nothing is fed back, the model is asked for each time instead
    _, asked, _ = read(tmp_path, ("u[0],kappa", "u[1:]"), u=u, kappa=kappa)
    assert asked.time == "conditioned"


def samples_inputs(samples):
    return np.stack([sample.inputs for sample in samples.samples])


@pytest.mark.parametrize("history", [1, 3])
def test_each_step_sees_the_controls_up_to_its_frame(history, tmp_path):
    """u_k = u_{k−1} + f_k + sum of the controls before that are in sight, each with a weight."""
    rng = np.random.default_rng(0)
    force, u = rng.normal(size=(SAMPLES, FRAMES, 9)), np.empty((SAMPLES, FRAMES, 9))
    weights = 10.0 ** -np.arange(history)  # of the newest control first
    u[:, :history] = rng.normal(size=(SAMPLES, history, 9))
    for k in range(history, FRAMES):
        u[:, k] = u[:, k - 1] + sum(w * force[:, k - j] for j, w in enumerate(weights))
    names = (f"u[:{history}],f", f"u[{history}:]")
    samples, problem, data = read(tmp_path, names, u=u, f=force)
    assert (problem.history, problem.controls, problem.static) == (history, ("f",), 0)
    assert problem.inputs[: FRAMES - 1] == tuple(f"f[{k}]" for k in range(1, FRAMES))
    assert len(problem.seen_by_network.inputs) == problem.num_step_inputs == 2 * history

    def step(seen):
        controls, past = seen[..., :history], seen[..., history:]
        return past[..., -1] + controls.flip(-1) @ torch.tensor(weights, dtype=seen.dtype)

    surrogate = steps_agree(data, step)
    short = problem.with_steps(2)  # the controls of two steps
    first = torch.from_numpy(samples_inputs(samples))[..., : history + 1]
    inputs = torch.cat((first, torch.from_numpy(samples_inputs(samples))[..., -history:]), -1)
    assert inputs.shape[-1] == short.num_inputs
    found = surrogate.predict(inputs, torch.from_numpy(X[:, None]), steps=2)
    np.testing.assert_allclose(found[..., 0], u[:, history : history + 2], atol=1e-5)


def test_controls_and_times_are_continued_after_the_targets_only(tmp_path):
    """What ends before the targets is missing there: a made-up value would be a wrong input."""
    rng = np.random.default_rng(0)
    force, u = rng.normal(size=(2, SAMPLES, FRAMES, 9))
    times = np.tile(np.arange(FRAMES) ** 1.5, (SAMPLES, 1))
    for array in (force, times):
        array[1:3, 6:] = np.nan
    u[1, 6:] = np.nan  # the series of sample 1 ends there, that of sample 2 does not
    names = Naming.parse("x", "u[:2],f", "u[2:]")
    np.savez(tmp_path / "data.npz", x=X, u=u, f=force, times=times)
    samples = read_samples(tmp_path / "data.npz", ReadRequest(names)).samples
    has_values = [np.isfinite(sample.inputs).all() for sample in samples]
    assert has_values == [True, True, False, True]


def test_numbers_in_time_are_controls_too(tmp_path):
    """A tank that is filled: one number per frame and sample, and a parameter."""
    rng = np.random.default_rng(0)
    inflow, leak = rng.random((SAMPLES, FRAMES)), rng.random(SAMPLES)
    u = np.empty((SAMPLES, FRAMES, 9))
    u[:, 0] = 1 + X
    for k in range(1, FRAMES):
        u[:, k] = u[:, k - 1] * (1 - leak[:, None]) + inflow[:, k, None]

    def step(seen):
        leak, inflow, past = seen.unbind(-1)
        return past * (1 - leak) + inflow

    arrays = {"u": u, "inflow": inflow, "leak": leak}
    _, problem, data = read(tmp_path, ("u[:1],inflow,leak", "u[1:]"), **arrays)
    assert (problem.static, problem.controls) == (1, ("inflow",))
    steps_agree(data, step)
    layout = {"coords": X[:, None], "inputs": u[:, :1, :, None], "targets": u[:, 1:, :, None]}
    np.savez(tmp_path / "layout.npz", **layout, scalars=leak, controls=inflow)
    found = read_samples(tmp_path / "layout.npz", ReadRequest(Naming()))
    assert recognise(found).controls == ("control",)
    steps_agree(dataset_of(found, recognise(found), [2, 0]), step)
    with pytest.raises(InputError, match=r"frames 0 to 6, .* one for every frame"):
        read(tmp_path, ("u[:1],inflow[:],leak", "u[1:]"), **arrays | {"inflow": inflow[:, 1:]})


@pytest.mark.parametrize("own_times", [False, True])
def test_irregular_steps_are_seen_by_each_step(own_times, tmp_path):
    """Decay, u' = −λ u, of which the step size is all that differs between steps."""
    rng = np.random.default_rng(0)
    times = np.cumsum(0.1 + rng.random((SAMPLES if own_times else 1, FRAMES)), axis=1)
    u = np.exp(-times)[..., None] * (1 + X) * np.arange(1, SAMPLES + 1)[:, None, None]
    arrays = {"u": u, "times": times if own_times else times[0]}

    def step(seen):
        size, past = seen.unbind(-1)
        return past * torch.exp(-size)

    samples, problem, data = read(tmp_path, ("u[:1]", "u[1:]"), **arrays)
    assert problem.controls == (STEP_SIZE,)
    assert "the model sees the step before each frame (--data.times none" in samples.notes[0]
    steps_agree(data, step)
    even = arrays | {"times": np.arange(FRAMES) / 3}
    assert read(tmp_path, ("u[:1]", "u[1:]"), **even)[1].controls == ()
    with pytest.raises(InputError, match="times should increase"):
        read(tmp_path, ("u[:1]", "u[1:]"), **arrays | {"times": times[0, ::-1]})
    if own_times:
        with pytest.raises(InputError, match="differ between samples, which needs a rollout"):
            read(tmp_path, ("", "u"), **arrays)
    else:
        _, asked, _ = read(tmp_path, ("", "u"), **arrays)
        expected = (times[0] - times[0, 0]) / (times[0, -1] - times[0, 0])
        assert asked.times == pytest.approx(expected.tolist())


def test_the_times_of_frames_reach_a_conditioned_model(tmp_path):
    times = np.array([0.0, 0.1, 0.4, 1.0, 2.0])
    u = (1 + times)[None, :, None] * (1 + X) * np.ones((SAMPLES, 1, 1))

    class Linear(Operator):
        def operate(self, nodes):
            return Prediction((1 + 2 * nodes.time[:, None, None]) * (1 + nodes.coords))

    _, problem, data = read(tmp_path, ("", "u"), u=u, t=times)
    surrogate = Surrogate(Linear(None, problem), Normaliser(problem))
    batch = data.batch(slice(None))
    torch.testing.assert_close(surrogate.solve(batch.coords, batch.inputs), batch.targets)


def test_controls_are_normalised_by_all_their_frames(tmp_path):
    rng = np.random.default_rng(0)
    force = 5 + 3 * rng.normal(size=(SAMPLES, FRAMES, 9))
    u = 1 + rng.random((SAMPLES, FRAMES, 9))
    _, problem, data = read(tmp_path, ("u[:2],f", "u[2:]"), u=u, f=force)
    normaliser = Normaliser.fit(data)
    mean = normaliser.get_buffer("inputs_mean").tolist()
    std = normaliser.get_buffer("inputs_std").tolist()
    seen = force[:, 1:]
    assert mean[:2] == pytest.approx([seen.mean()] * 2, rel=1e-5)
    assert std[:2] == pytest.approx([seen.std()] * 2, rel=1e-5)
    assert mean[2:] == pytest.approx(u[:, :2].mean((0, 2)).tolist(), rel=1e-5)
    assert len(normaliser.of_inputs(problem)[0]) == problem.num_inputs


NAMES = {"coords": "x", "inputs": "u[:1],kappa,q", "targets": "u[1:]"}


@pytest.fixture(scope="module")
def driven(tmp_path_factory):
    """A run on a heated rod: a parameter, a control, irregular steps; and a longer series."""
    folder = tmp_path_factory.mktemp("driven")
    rng = np.random.default_rng(0)
    for name, num_frames in (("rod", 6), ("longer", 11)):
        times = np.cumsum(0.1 + rng.random((100, num_frames)), axis=1)
        kappa, heating = 0.1 + rng.random(100), rng.random((100, num_frames))
        u = heat(kappa, times[0]) + np.cumsum(heating, axis=1)[..., None]
        arrays = {"x": X, "u": u, "kappa": kappa, "q": heating, "times": times}
        np.savez(folder / f"{name}.npz", **arrays)
        np.savez(folder / f"{name}-ahead.npz", **arrays | {"u": u[:, :1]})
    run = cato.train(
        folder / "longer.npz",
        "smoke",
        out=folder / "run",
        model_settings={"width": 8, "depth": 1},
        data_settings=NAMES | {"train_frames": 5},
        train_settings={"steps": 3, "accelerator": "cpu"},
    )
    return open_run(run.folder), folder


def test_the_report_shows_how_the_error_grows_after_the_frames_of_the_training(driven):
    run, folder = driven
    path, figures = write_report(run)
    forecast = figures["forecast"]
    assert (forecast["trained_frames"], len(forecast["frame_errors"])) == (5, 10)
    assert forecast["frame_errors"][:5] == pytest.approx(figures["frame_errors"])
    naming = Naming.parse(*NAMES.values())
    test = open_user_data(folder / "longer.npz", naming)[1].test.batch(slice(None))
    whole = load_surrogate(run).solve(test.coords, test.inputs, steps=10)
    expected = relative_l2_per_frame(whole, test.targets).mean(0).tolist()
    assert forecast["frame_errors"] == pytest.approx(expected, rel=1e-4)
    last = 100 * forecast["frame_errors"][-1]
    assert f"(last of training), {last:.2f} % in frame 10 (last)" in path.read_text()
    with pytest.raises(InputError, match=r"has 10 frames to predict; data\.train_frames is 11"):
        build_settings(folder / "longer.npz", "smoke", None, {"data": NAMES | {"train_frames": 11}})


def test_forecasts_go_on_as_long_as_the_file_or_the_user_wants(driven):
    run, folder = driven
    assert (run.problem.controls, run.problem.num_steps) == (("q", STEP_SIZE), 5)

    def predicted(name, steps=None):
        target = folder / f"{name}-{steps}.npz"
        figures = predict_file(run, folder / f"{name}.npz", target, steps)
        return figures, np.load(target)

    figures, _ = predicted("rod")
    assert (len(figures["frame_errors"]), figures["trained_frames"]) == (5, 5)
    figures, longer = predicted("longer")
    assert (len(figures["frame_errors"]), figures["trained_frames"]) == (10, 5)
    assert longer["u_predicted"].shape == (100, 10, 9)
    bands = longer["u_band"][longer["inside_training_range"] == 1]
    assert len(bands)
    assert (np.isfinite(bands) == (np.arange(10) < 5)[:, None]).all()
    # a step knows nothing of later frames
    _, short = predicted("longer", 3)
    np.testing.assert_allclose(short["u_predicted"], longer["u_predicted"][:, :3], rtol=1e-5)
    assert short["u_error"].shape == (100, 3, 9)
    ahead, forecast = predicted("longer-ahead")  # as far as its controls and times reach
    np.testing.assert_array_equal(forecast["u_predicted"], longer["u_predicted"])
    assert "frame_errors" not in ahead
    with pytest.raises(InputError, match=r"controls of 10 frames .* 11 are to .* use --steps 10"):
        predicted("longer-ahead", 11)


def test_a_model_of_irregular_steps_asks_for_times(driven):
    run, folder = driven
    with np.load(folder / "rod.npz") as arrays:
        np.savez(folder / "timeless.npz", **{n: a for n, a in arrays.items() if n != "times"})
    with pytest.raises(InputError, match="trained on irregular time steps, and the file has no"):
        predict_file(run, folder / "timeless.npz")


def test_steady_and_conditioned_models_have_no_steps(tmp_path):
    with pytest.raises(InputError, match="'darcy' is steady and cannot have 3 steps"):
        predict_file(open_run("darcy"), tmp_path / "in.npz", steps=3)


def test_streamed_series_are_those_in_memory(tmp_path):
    rng = np.random.default_rng(0)
    times = np.cumsum(0.1 + rng.random((12, FRAMES)), axis=1)
    arrays = {"x": X, "u": 1 + rng.random((12, FRAMES, 9)), "k": rng.random(12), "times": times}
    with h5py.File(tmp_path / "data.h5", "w") as file:
        for name, array in arrays.items():
            file[name] = array
    naming = Naming.parse("x", "u[:2],k", "u[2:]")
    _, streamed = open_user_data(tmp_path / "data.h5", naming, streamed=True)
    _, memory = open_user_data(tmp_path / "data.h5", naming)
    assert streamed.problem == memory.problem
    for one, two in zip(streamed.train.batch([1, 3]), memory.train.batch([1, 3]), strict=True):
        assert (one is None and two is None) or torch.equal(one, two)
