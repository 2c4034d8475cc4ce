"""Training: resuming bit for bit, several processes, time budgets, failures."""

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import cato
from cato.data import dataset
from cato.errors import Diverged, InputError, Interrupted
from cato.inference.evaluate import evaluate_run
from cato.runs.checkpoint import load_checkpoint
from cato.runs.folder import create_run, open_run
from cato.runs.load import load_splits, load_surrogate
from cato.runs.shards import read_shards, shapes_in
from cato.training import loop
from cato.training.train import resume, train

NUM_KILLS = 2


def final_tensors(folder):
    checkpoint = load_checkpoint(open_run(folder).checkpoints, "last")
    if checkpoint.shards is None:
        return checkpoint.tensors
    tensors = {name: torch.empty(shape) for name, shape in shapes_in(checkpoint.shards).items()}
    read_shards(checkpoint.shards, tensors)
    return tensors


def losses(folder):
    keys = ("step", "loss", "value", "gradient", "flux", "consistency", "gdl", "validation")
    return [{k: line[k] for k in keys} for line in open_run(folder).log()]


def assert_same_ending(folder, reference):
    ours, theirs = final_tensors(folder), final_tensors(reference)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert losses(folder) == losses(reference)


def paths(data_root, folder):
    return ["--data.root", data_root, "--out", folder]


def start(arguments, launcher=()):
    return subprocess.Popen(
        [sys.executable, *launcher, "-m", "cato", *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_to_the_end(arguments, launcher=()):
    process = start(arguments, launcher)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
SETTINGS = [
    *("--model.width", "8", "--model.depth", "1", "--train.batch-size", "5"),
    *("--train.epochs", "20", "--train.accelerator", "cpu", "--train.checkpoint-minutes", "1e-9"),
]


@pytest.fixture(scope="module", params=["adamw", pytest.param("muon", marks=pytest.mark.slow)])
def optimizer(request):
    return request.param


def test_killed_runs_end_bit_for_bit_like_an_uninterrupted_one(
    tmp_path, config_with, data_root, optimizer
):
    """A checkpoint is written after every step, so that kills also hit the writing of one."""
    length = {"epochs": 20, "checkpoint_minutes": 1e-9, "optimizer": optimizer, "average": 0.9}
    train(config_with(train=length), tmp_path / "reference")
    killed = tmp_path / "killed"
    arguments = ["train", "darcy", "--scale", "smoke", *SETTINGS, "--train.optimizer", optimizer]
    arguments += ["--train.average", "0.9"]
    process = start([*arguments, *paths(data_root, killed)])
    moments = random.Random(7)
    for number in range(NUM_KILLS):
        if number:
            process = start(["train", "--resume", killed])
        wait_for_progress(process, killed / "checkpoints")
        time.sleep(moments.uniform(0, 0.05))  # a few steps, each with its checkpoint
        process.kill()
        assert process.wait() == -signal.SIGKILL, process.stderr.read()
    resume(killed)
    assert_same_ending(killed, tmp_path / "reference")


def wait_for_progress(process, checkpoints):
    """Until a step has been saved that was not there before."""
    before = set(checkpoints.glob("last-*.json"))
    while set(checkpoints.glob("last-*.json")) <= before and process.poll() is None:
        time.sleep(0.002)


@pytest.mark.parametrize(("share", "lines"), [(0.2, [5, 10, 15]), (0.06, [10, 15])])
def test_ctrl_c_saves_mid_epoch_and_resumes_exactly(
    tmp_path, config_with, monkeypatch, share, lines
):
    monkeypatch.setattr(loop, "VALIDATION_SHARE", share)  # with 0.06 after every second epoch
    config = config_with(train={"epochs": 3})
    train(config, tmp_path / "reference")
    assert [line["step"] for line in open_run(tmp_path / "reference").log()] == lines
    original = loop.Training.step

    def step_with_interrupt(self, stop=False, save=False):
        if self.state.step == 6:  # in the middle of the second epoch
            os.kill(os.getpid(), signal.SIGINT)
        return original(self, stop or self.state.step == 6, save)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Training, "step", step_with_interrupt)
        with pytest.raises(Interrupted, match="cato train --resume"):
            train(config, tmp_path / "stopped")
    assert [line["step"] for line in open_run(tmp_path / "stopped").read_log()] == lines[:-2]
    resume(tmp_path / "stopped")
    assert_same_ending(tmp_path / "stopped", tmp_path / "reference")


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_folder_that_is_moved_while_it_is_trained(
    tmp_path, config_with, monkeypatch, is_replaced
):
    """Nothing is written where it was, and it resumes exactly where it is."""
    config, folder, moved = config_with(train={"epochs": 3}), tmp_path / "run", tmp_path / "moved"
    train(config, tmp_path / "reference")
    original = loop.Training.step

    def step_and_move(self, *wishes):
        if self.state.step == 6:
            folder.rename(moved)
            if is_replaced:
                create_run(folder, config, self.surrogate.problem)
        return original(self, *wishes)

    monkeypatch.setattr(loop.Training, "step", step_and_move)
    with pytest.raises(InputError, match="run was moved, removed or replaced"):
        train(config, folder)
    monkeypatch.undo()
    assert [path.name for path in folder.rglob("*")] == ["run.json"] * is_replaced
    resume(moved)
    assert_same_ending(moved, tmp_path / "reference")


def test_training_in_a_thread(tmp_path, config_with):
    """Where Python allows no signal handlers; the result is that of the main thread."""
    folders = [tmp_path / "main", tmp_path / "thread"]
    handler = signal.getsignal(signal.SIGINT)
    train(config_with(), folders[0])
    with ThreadPoolExecutor(1) as executor:
        executor.submit(train, config_with(), folders[1]).result(timeout=300)
    assert_same_ending(*folders)
    assert signal.getsignal(signal.SIGINT) is handler


def test_one_training_builds_one_model(tmp_path, config_with, monkeypatch):
    built = []
    build = loop.build_model
    monkeypatch.setattr(loop, "build_model", lambda *args: built.append(args) or build(*args))
    train(config_with(train={"steps": 1}), tmp_path / "run")
    assert len(built) == 1


def test_one_training_on_a_file_reads_and_checks_it_once(tmp_path, monkeypatch):
    from cato.user_data import read, samples

    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(np.arange(4.0), np.arange(5.0), indexing="ij"), axis=-1)
    fields = {"inputs": rng.random((10, 4, 5, 1)), "targets": 1 + rng.random((10, 4, 5, 1))}
    np.savez(tmp_path / "user.npz", coords=grid, **fields)
    calls = []
    counted_calls = ((read, "fingerprint"), (read, "read_samples"), (samples, "spreads"))
    for module, name in (*counted_calls, (dataset, "check_arrays")):
        original = getattr(module, name)
        counted = lambda *args, f=original, name=name: calls.append(name) or f(*args)  # noqa: E731
        monkeypatch.setattr(module, name, counted)
    settings = {"steps": 1, "accelerator": "cpu"}
    whole = {"folds": 0}
    cato.train(
        *(tmp_path / "user.npz", "smoke"),
        out=tmp_path / "run",
        data_settings=whole,
        train_settings=settings,
    )
    arrays = 3 * ["spreads"]
    assert sorted(calls) == ["fingerprint", "read_samples", *arrays]


def test_training_learns_and_keeps_the_best_weights(tmp_path, config_with):
    run = train(config_with(train={"epochs": 20}, model={"width": 16}), tmp_path / "run")
    log = run.log()
    assert log[-1]["value"] < 0.6 * log[0]["value"]
    best = min(line["validation"] for line in log)
    figures = evaluate_run(run, "validation").figures
    assert figures["relative_l2"] == pytest.approx(best, rel=1e-5)
    assert figures["num_samples"] == 8


def test_a_finished_run_is_left_alone(tmp_path, config_with, capsys):
    run = train(config_with(), tmp_path / "run")
    before = {p.name: p.stat().st_mtime_ns for p in (run.folder / "checkpoints").iterdir()}
    resume(run.folder)
    assert "already trained" in capsys.readouterr().err
    assert before == {p.name: p.stat().st_mtime_ns for p in (run.folder / "checkpoints").iterdir()}


@pytest.mark.parametrize(
    ("launcher", "settings"),
    [
        ((), ("--train.devices", "2")),
        pytest.param(TORCHRUN, ("--train.strategy", "fsdp"), marks=pytest.mark.slow),
        pytest.param(
            (), ("--train.devices", "2", "--train.mesh-parallel", "2"), marks=pytest.mark.slow
        ),
        pytest.param(
            TORCHRUN,
            ("--train.strategy", "fsdp", "--train.mesh-parallel", "2"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["ddp", "fsdp", "mesh", "fsdp-mesh"],
)
def test_two_processes_give_the_loss_curve_of_one(
    tmp_path, config_with, data_root, launcher, settings
):
    """24 samples in batches of 5: the shards are uneven, and so is the last batch.

    With fsdp one process then takes the last step again, from the checkpoint of two before it.
    """
    train(config_with(train={"epochs": 3, "average": 0.9}), tmp_path / "one")
    arguments = ["train", "darcy", "--scale", "smoke", *SETTINGS[:-2], "--train.epochs", "3"]
    arguments += ["--train.average", "0.9"]
    run_to_the_end([*arguments, *settings, *paths(data_root, tmp_path / "two")], launcher)
    if settings == ("--train.strategy", "fsdp"):
        (tmp_path / "two" / "checkpoints" / "last-00000015.json").unlink()
        run_to_the_end(["train", "--resume", tmp_path / "two"])
    for one, two in zip(losses(tmp_path / "one"), losses(tmp_path / "two"), strict=True):
        assert two == pytest.approx(one, rel=2e-4)
    ours, theirs = final_tensors(tmp_path / "two"), final_tensors(tmp_path / "one")
    for name, tensor in theirs.items():
        if not name.startswith("optimizer"):
            torch.testing.assert_close(ours[name], tensor, rtol=1e-2, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_fewer_validation_samples_than_processes(tmp_path, strategy):
    """A tenth of ten samples is one. With fsdp, one process alone would wait for the other."""
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(np.arange(4.0), np.arange(5.0), indexing="ij"), axis=-1)
    fields = {"inputs": rng.random((10, 4, 5, 1)), "targets": 1 + rng.random((10, 4, 5, 1))}
    np.savez(tmp_path / "own.npz", coords=grid, **fields)
    arguments = ["train", tmp_path / "own.npz", "--scale", "smoke", *SETTINGS[:-2]]
    arguments += ["--train.epochs", "1", "--train.optimizer", "adamw", "--data.folds", "0"]
    run_to_the_end([*arguments, "--out", tmp_path / "one"])
    arguments += ["--train.strategy", strategy]
    run_to_the_end([*arguments, "--out", tmp_path / "two"], TORCHRUN)
    errors = [open_run(tmp_path / name).log()[-1]["validation"] for name in ("one", "two")]
    assert errors[0] == pytest.approx(errors[1], rel=2e-4)


def test_a_time_budget_sets_the_number_of_steps(tmp_path, config_with):
    run = train(config_with(train={"minutes": 0.025}), tmp_path / "run")
    seconds = run.log()[-1]["seconds"]
    assert 0.25 < seconds < 6  # one and a half seconds, on a machine that may be busy
    # calibration leaves no trace: the first steps are those of a run without a budget
    reference = train(config_with(), tmp_path / "reference")
    assert run.log()[0]["validation"] != reference.log()[0]["validation"]  # another schedule


def test_calibration_leaves_weights_and_state_as_they_were(tmp_path, config_with):
    config = config_with()
    from cato.training.train import make_fabric

    splits = load_splits(config)
    run = create_run(tmp_path / "run", config, splits.problem)
    training = loop.Training(
        run, splits, make_fabric(config.train), loop.new_model(config, run.problem)
    )
    before = {k: v.clone() for k, v in training.surrogate.state_dict().items()}
    training.seconds_per_step(0.1)
    assert training.state == loop.TrainState()
    assert all(torch.equal(v, before[k]) for k, v in training.surrogate.state_dict().items())
    assert not any(optimizer.state for optimizer in training.raw_optimizers)


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path, config_with, monkeypatch):
    original = loop.Training._accumulate_gradients

    def poisoned(self, indices):
        sums = original(self, indices)
        if self.state.step == 7:
            sums["loss"] = torch.full_like(sums["loss"], torch.nan)
        return sums

    monkeypatch.setattr(loop.Training, "_accumulate_gradients", poisoned)
    with pytest.raises(InputError, match="epoch 2, batch 3"):
        train(config_with(), tmp_path / "run")
    assert torch.isfinite(final_tensors(tmp_path / "run")["model.lift.out.weight"]).all()
    assert load_surrogate(open_run(tmp_path / "run"))  # the last good weights are there


@pytest.mark.parametrize(
    ("bad_step", "logged"),
    [
        (0, [0]),
        (5, [5]),  # the first of the second epoch
        (7, [5, 7]),
    ],
)
def test_a_diverged_run_has_one_line_per_step(tmp_path, config_with, monkeypatch, bad_step, logged):
    """However often it is resumed; a checkpoint is written after every step."""
    original = loop.Training._require_finite

    def poisoned(self, what, value):
        original(self, what, float("nan") if self.state.step == bad_step else value)

    monkeypatch.setattr(loop.Training, "_require_finite", poisoned)
    folder = tmp_path / "run"
    with pytest.raises(Diverged):
        train(config_with(train={"checkpoint_minutes": 1e-9}), folder)
    for _ in range(2):
        assert [line["step"] for line in open_run(folder).log()] == logged
        assert all("value" in line for line in open_run(folder).log() if line["step"])
        assert load_surrogate(open_run(folder))
        with pytest.raises(Diverged):
            resume(folder)


def test_a_divergent_learning_rate_is_reported(tmp_path, config_with):
    config = config_with(train={"learning_rate": 1e9, "clip": 0.0})
    with pytest.raises(Diverged, match=r"lower --train\.learning-rate"):
        train(config, tmp_path / "run")
    assert load_surrogate(open_run(tmp_path / "run"))  # before any epoch came to its end


def test_two_trainings_into_one_folder(tmp_path, config_with, data_root):
    config = config_with()
    folder = tmp_path / "run"
    run = train(config, folder)
    with pytest.raises(InputError, match="already holds a run"):
        train(config, folder)
    from cato.files import locked

    with locked(run.folder / ".lock", "busy"), pytest.raises(InputError, match="another process"):
        resume(folder)


def test_a_folder_in_use_is_refused_before_data_are_made(tmp_path, config_with):
    train(config_with(train={"steps": 1}), tmp_path / "run")
    with pytest.raises(InputError, match="already holds a run"):
        train(config_with(data={"root": str(tmp_path / "data")}), tmp_path / "run")
    assert not (tmp_path / "data").exists()


def test_impossible_minutes_write_nothing(tmp_path):
    with pytest.raises(InputError, match=r"minutes.*greater than or equal to 0.0.*-1"):
        cato.train("darcy", "smoke", out=tmp_path / "run", minutes=-1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("what", ["darcy", "plate.h5"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("train_settings", None),
        ("data_settings", 3),
        ("model_config", {"width": 8}),
        ("scale_settings", {}),
        ("epochs", 5),
    ],
)
def test_wrong_settings_are_refused_first(what, name, value, tmp_path):
    """Before the data are looked for: the file does not exist."""
    with pytest.raises(InputError, match=f"does not take {name}=.*settings are dictionaries"):
        cato.train(what, "smoke", out=tmp_path / "run", **{name: value})
    assert not list(tmp_path.iterdir())


def test_physical_loss_settings_of_a_cloud_are_refused(config_with):
    from cato.physics.losses import LossConfig, PhysicalLoss
    from cato.problem import Problem

    cloud = Problem("c", "cloud", (9,), (), ("u",))
    with pytest.raises(InputError, match="cloud"):
        PhysicalLoss(LossConfig(gradient=0.2), cloud)


def test_bf16_trains(tmp_path, config_with):
    run = train(config_with(train={"precision": "bf16-mixed", "epochs": 3}), tmp_path / "run")
    log = run.log()
    assert log[-1]["value"] < log[0]["value"]


def test_muon_and_adamw_share_the_parameters(config_with):
    from cato.models.registry import build_model
    from cato.training.optim import build_optimizers

    config = config_with(train={"optimizer": "muon"})
    model = build_model("cato", config.model, load_splits(config).problem)
    groups = [
        {id(p) for group in optimizer.param_groups for p in group["params"]}
        for optimizer in build_optimizers(model, config.train)
    ]
    assert not groups[0] & groups[1]
    assert groups[0] | groups[1] == {id(p) for p in model.parameters()}
    assert groups[1] == {id(p) for p in model.hidden_matrices()}


@pytest.mark.slow  # and needs a C++ compiler
def test_compiled_training_gives_the_same_losses(tmp_path, data_root):
    """In processes of their own: the compiler cannot see through the tests' type checks."""
    arguments = ["train", "darcy", "--scale", "smoke", *SETTINGS, "--train.epochs", "1"]
    for name, compiled in (("eager", False), ("compiled", True)):
        run_to_the_end(
            [*arguments, "--train.compile", compiled, *paths(data_root, tmp_path / name)]
        )
    eager, compiled = losses(tmp_path / "eager"), losses(tmp_path / "compiled")
    assert compiled[0] == pytest.approx(eager[0], rel=1e-3)


def test_tensorboard_gets_every_epoch(tmp_path, config_with):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = train(config_with(), tmp_path / "run")
    events = EventAccumulator(str(run.folder / "tensorboard")).Reload()
    written = [event.value for event in events.Scalars("validation")]
    assert written == pytest.approx([line["validation"] for line in run.log()])


@pytest.mark.parametrize("value", ["abc", "0", "-1", "1.5"])
def test_a_wrong_number_of_processes_in_the_environment(value, tmp_path, config_with, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", value)
    with pytest.raises(InputError, match="LOCAL_WORLD_SIZE must be a number of processes"):
        train(config_with(), tmp_path / "run")
    assert not (tmp_path / "run").exists()
