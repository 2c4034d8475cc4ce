"""Fine-tuning: what is taken over, what is refused, and runs that do not need their start again."""

import re
import shlex
import shutil

import numpy as np
import pytest
import torch

import cato
from cato.cli import main
from cato.cli.commands import Train
from cato.cli.parsing import parse, split_overrides
from cato.errors import Diverged, InputError
from cato.runs import start
from cato.runs.checkpoint import load_checkpoint
from cato.runs.folder import open_run
from cato.runs.load import load_surrogate
from cato.runs.settings import FINE_TUNING_RATE, build_settings, command_of
from cato.training import loop
from cato.training.train import resume, train


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory, data_root):
    """A run to start from, with other settings than any recipe."""
    groups = {
        "data": {"root": str(data_root)},
        "model": {"width": 12, "depth": 2, "heads": 2},
        "train": {"accelerator": "cpu", "epochs": 2, "batch_size": 5},
    }
    folder = tmp_path_factory.mktemp("start") / "run"
    return train(build_settings("darcy", "smoke", None, groups), folder)


@pytest.fixture
def user_file(tmp_path):
    """user_file(num_inputs=2, shape=(6, 7)): a file of random samples on a grid."""

    def write(num_inputs=1, num_outputs=1, shape=(6, 7)):
        rng = np.random.default_rng(0)
        axes = (np.linspace(0.0, 2.0, n) for n in shape)
        coords = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
        fields = {"inputs": num_inputs, "targets": num_outputs}
        arrays = {name: 1 + rng.random((10, *shape, n)) for name, n in fields.items()}
        np.savez(tmp_path / "user.npz", coords=coords, **arrays)
        return tmp_path / "user.npz"

    return write


def settings(source, start, **groups):
    """Settings of a short fine-tuning on a benchmark or a file."""
    train = {"accelerator": "cpu", "steps": 4, "start_from": str(start)} | groups.pop("train", {})
    return build_settings(source, "smoke", None, {"train": train, **groups})


def weights_of(run):
    return load_surrogate(run).model.state_dict()


def test_all_that_was_learned_is_taken_over(pretrained, data_root, tmp_path, capsys):
    """On the same data, a step that changes nothing leaves the error of the start."""
    still = {"steps": 1, "learning_rate": 1e-12}
    data = {"root": str(data_root)}
    run = train(settings("darcy", pretrained.folder, train=still, data=data), tmp_path / "run")
    best = min(line["validation"] for line in pretrained.log())
    assert run.log()[-1]["validation"] == pytest.approx(best, rel=1e-4)
    num_tensors = len(weights_of(pretrained))
    note = f"starting from {pretrained.folder}: {num_tensors} of {num_tensors} tensors taken over\n"
    assert note in capsys.readouterr().err


def test_the_model_is_that_of_the_start_and_its_rates_are_lower(pretrained, user_file):
    path = user_file()
    tuned = settings(path, pretrained.folder)
    assert tuned.model == pretrained.config.model
    assert tuned.train.start_fingerprint
    plain = build_settings(path, "smoke")
    for name in ("learning_rate", "muon_learning_rate"):
        old, new = getattr(plain.train, name), getattr(tuned.train, name)
        assert new == pytest.approx(FINE_TUNING_RATE * old)
    changed = settings(path, pretrained.folder, model={"depth": 3}, train={"learning_rate": 1e-3})
    assert (changed.model.width, changed.model.depth, changed.train.learning_rate) == (12, 3, 1e-3)


@pytest.mark.parametrize("shape", [(6, 7), (31, 20)])
def test_other_data_on_another_mesh(pretrained, user_file, tmp_path, shape):
    """The weights are those of the start, the normalisation is that of the data."""
    run = train(settings(user_file(shape=shape), pretrained.folder), tmp_path / "run")
    start = load_checkpoint(run.checkpoints, "start").tensors
    old = weights_of(pretrained)
    assert start.keys() == old.keys()
    assert all(torch.equal(start[name], old[name]) for name in old)
    assert not all(torch.equal(new, old[name]) for name, new in weights_of(run).items())
    inputs = load_surrogate(run).normaliser.inputs_mean
    assert 1 < inputs.item() < 2  # permeabilities of the start are 3 and 12


def test_what_does_not_fit_starts_fresh(pretrained, user_file, tmp_path, capsys):
    deeper = settings(user_file(), pretrained.folder, model={"depth": 3})
    run = train(deeper, tmp_path / "run")
    note = re.search(
        r"(\d+) of (\d+) tensors taken over; (.*) and others start fresh", capsys.readouterr().err
    )
    assert note
    assert (int(note[1]), int(note[2])) == (len(weights_of(pretrained)), len(weights_of(run)))
    assert all(name.startswith("blocks.2.") for name in note[3].split(", "))


def test_the_command_repeats_a_fine_tuning(pretrained, user_file):
    for source in (user_file(), "darcy"):
        config = settings(source, pretrained.folder, model={"depth": 4})
        _, _, *words = shlex.split(command_of(config))
        changes, own = split_overrides(words)
        assert parse(Train, own, "test").configs(changes) == [config]


def test_one_training_reads_the_weights_of_its_start_once(
    pretrained, user_file, tmp_path, monkeypatch
):
    """And nothing but the state of its last checkpoint, which says if it diverged."""
    shutil.copytree(pretrained.folder, tmp_path / "start")
    for file in (tmp_path / "start" / "checkpoints").glob("last-*.safetensors"):
        file.write_bytes(b"damaged")
    read = []
    monkeypatch.setattr(
        start, "load_surrogate", lambda run: read.append(run) or load_surrogate(run)
    )
    train(settings(user_file(), tmp_path / "start"), tmp_path / "run")
    assert len(read) == 1


@pytest.fixture
def killed_at(monkeypatch):
    """killed_at(step, train, …): call a training that is killed before that step."""
    original = loop.Training.step

    def run(step, function, *arguments):
        def step_or_die(self, *wishes):
            if self.state.step == step:
                raise KeyboardInterrupt
            return original(self, *wishes)

        with monkeypatch.context() as patch:
            patch.setattr(loop.Training, "step", step_or_die)
            with pytest.raises(KeyboardInterrupt):
                function(*arguments)

    return run


@pytest.mark.parametrize("step", [0, 3])
def test_a_killed_run_ends_bit_for_bit_without_its_start(
    pretrained, user_file, tmp_path, killed_at, step
):
    """Killed before its first checkpoint, or after one, and the start is gone."""
    shutil.copytree(pretrained.folder, tmp_path / "start")
    config = settings(user_file(), tmp_path / "start", train={"checkpoint_minutes": 1e-9})
    reference = train(config, tmp_path / "reference")
    killed_at(step, train, config, tmp_path / "killed")
    shutil.rmtree(tmp_path / "start")
    killed = resume(tmp_path / "killed")
    ours, theirs = (load_checkpoint(run.checkpoints, "last").tensors for run in (killed, reference))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_run_without_its_initial_weights_is_not_trained_from_scratch(
    pretrained, user_file, tmp_path, killed_at
):
    killed_at(0, train, settings(user_file(), pretrained.folder), tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(InputError, match="has lost its checkpoints; remove it and train again"):
        resume(tmp_path / "run")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_inputs": 2}, r"1 inputs \(a\) and user has 2 \(.*\); train without --from"),
        ({"num_outputs": 3}, r"1 outputs \(u\) and user has 3 \(.*\); train without --from"),
        ({"shape": (4, 5, 3)}, r"2 coordinates \(x, y\) and user has 3 \(x, y, z\)"),
    ],
)
def test_other_channels_are_refused(pretrained, user_file, tmp_path, fields, message):
    config = settings(user_file(**fields), pretrained.folder)
    with pytest.raises(InputError, match=message):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_inputs_that_conditioning_adds_are_channels_too(pretrained, tmp_path):
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(np.arange(5.0), np.arange(6.0), indexing="ij"), axis=-1)
    fields = {name: 1 + rng.random((10, 5, 6, 1)) for name in ("inputs", "targets")}
    coords = grid + 0.1 * rng.random((10, 5, 6, 2))
    np.savez(tmp_path / "user.npz", coords=coords, **fields)
    config = settings(tmp_path / "user.npz", pretrained.folder)
    with pytest.raises(InputError, match=r"has 5 \(.*displacement0.*\); use --data.mesh-inputs F"):
        train(config, tmp_path / "run")
    config = settings(tmp_path / "user.npz", pretrained.folder, data={"mesh_inputs": False})
    assert train(config, tmp_path / "run").log()


def test_another_model_or_hardly_any_weights_are_refused(pretrained, user_file, tmp_path):
    path = user_file()
    start = {"train": {"start_from": str(pretrained.folder)}}
    with pytest.raises(InputError, match="is a cato; leave out the model fno"):
        build_settings(path, "smoke", "fno", start)
    with pytest.raises(InputError, match=r"only .*% of the weights of this model"):
        train(settings(path, pretrained.folder, model={"width": 16}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_start_that_is_gone_diverged_or_changed(pretrained, user_file, tmp_path):
    path = user_file()
    with pytest.raises(InputError, match="not a run folder, nor a model that comes with cato"):
        settings(path, tmp_path / "nothing")
    shutil.copytree(pretrained.folder, tmp_path / "start")
    config = settings(path, tmp_path / "start")
    best = sorted((tmp_path / "start" / "checkpoints").glob("best-*"))
    for file in best:
        file.unlink()
    with pytest.raises(InputError, match=r"start/checkpoints has lost the best weights"):
        train(config, tmp_path / "run")
    shutil.rmtree(tmp_path / "start")
    train(
        settings("darcy", pretrained.folder, data=pretrained.config.to_dict()["data"]),
        tmp_path / "start",
    )
    with pytest.raises(InputError, match=r"weights of .*start have changed"):
        train(config, tmp_path / "run")
    wild = {"steps": 400, "learning_rate": 1e9, "clip": 0.0}
    with pytest.raises(Diverged):
        train(settings(path, pretrained.folder, train=wild), tmp_path / "wild")
    with pytest.raises(InputError, match="diverged and cannot be started from"):
        settings(path, tmp_path / "wild")
    assert not (tmp_path / "run").exists()


def test_from_the_command_line_and_from_python(user_file, tmp_path, monkeypatch, capsys):
    """With a model that comes with the library, recorded by its name."""
    monkeypatch.chdir(tmp_path)
    path = user_file()
    few = ["--train.steps", "2", "--train.accelerator", "cpu"]
    main(["train", str(path), "--from", "darcy", "--out", "command", *few])
    assert "starting from darcy: " in capsys.readouterr().err
    cato.train(path, out="python", start="darcy", train_settings={"steps": 2, "accelerator": "cpu"})
    command, python = (open_run(name).config for name in ("command", "python"))
    assert command == python
    assert command.train.start_from == "darcy"
    assert command.model == open_run("darcy").config.model
    with pytest.raises(SystemExit):
        main(["train", "--resume", "command", "--from", "darcy"])
    assert "--resume takes all settings from the run" in capsys.readouterr().err


def test_the_network_sees_coordinates_as_it_knows_them(pretrained, user_file, tmp_path):
    """The unit square of Darcy, which is not normalised; the square of the file has side 2."""
    path = user_file(shape=(15, 15))
    run = train(settings(path, pretrained.folder), tmp_path / "run")
    line = torch.linspace(0, 2, 15)
    square = torch.stack(torch.meshgrid(line, line, indexing="ij"), dim=-1).flatten(0, 1)
    seen = load_surrogate(run).normaliser.encode_coords(square)
    torch.testing.assert_close(seen, square / 2, rtol=0, atol=1e-5)
    assert open_run(run.folder).problem == run.problem
    again = train(settings(path, run.folder), tmp_path / "again")  # from one that has a frame
    torch.testing.assert_close(
        load_surrogate(again).normaliser.encode_coords(square), square / 2, rtol=0, atol=1e-5
    )
