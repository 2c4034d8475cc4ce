"""Trainings on streamed data: the losses of data in memory, resumed bit for bit."""

import json
import os
import shutil
from dataclasses import replace

import pytest
import torch

import cato
from cato.data import streamed as module
from cato.data.dataset import InMemory
from cato.data.streamed import Streamed
from cato.errors import InputError
from cato.inference.evaluate import evaluate_run
from cato.runs import load as loading
from cato.runs.folder import open_run
from cato.runs.load import load_splits
from cato.runs.measure import measure, saved_at
from cato.training import loop
from cato.training.train import resume, train
from cato.viz.report import write_report


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Two samples of Darcy to a piece, three pieces to a block."""
    monkeypatch.setattr(module, "PIECE_BYTES", 4000)
    monkeypatch.setattr(module, "BLOCK_BYTES", 12000)


@pytest.fixture
def root(data_root, tmp_path):
    """A copy of the data, which a test may change."""
    return shutil.copytree(data_root, tmp_path / "data")


@pytest.fixture
def config(config_with, root):
    gradients = {"gradient": 0.2, "flux": 0.2, "consistency": 0.05}
    data = {"streamed": "yes", "root": str(root)}
    return config_with(data=data, loss=gradients)


def log_of(run):
    kept = ("epoch", "loss", "validation", "gradient", "learning_rate")
    return [{name: line[name] for name in kept if name in line} for line in run.log()]


def weights_of(run):
    return {name: t.clone() for name, t in cato.load(run.folder).state_dict().items()}


def assert_same_weights(one, other):
    one, other = weights_of(one), weights_of(other)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_losses_are_those_in_memory_for_the_same_order(config, tmp_path, monkeypatch):
    streamed = train(config, tmp_path / "streamed")
    assert isinstance(load_splits(config).train, Streamed)

    def blocks(self, seed, epoch):
        return module.block_order(len(self), 2, 3, seed, epoch)

    monkeypatch.setattr(InMemory, "order", blocks)
    in_memory = replace(config, data=replace(config.data, streamed="no"))
    assert isinstance(load_splits(in_memory).train, InMemory)
    memory = train(in_memory, tmp_path / "memory")
    assert log_of(streamed) == log_of(memory)
    assert_same_weights(streamed, memory)
    found, expected = (evaluate_run(run).figures for run in (streamed, memory))
    for name in ("relative_l2", "worst", "band", "training_range"):
        assert found[name] == expected[name], name
    assert found["mean_predictor"] == pytest.approx(expected["mean_predictor"], rel=1e-6)


class Killed(BaseException):
    """Stands for SIGKILL: nothing is caught and nothing is saved."""


def test_a_kill_in_the_middle_of_a_block_resumes_bit_for_bit(config, tmp_path, monkeypatch):
    config = replace(config, train=replace(config.train, batch_size=4, checkpoint_minutes=1e-9))
    whole = train(config, tmp_path / "whole")
    step = loop.Training.step

    def dies(self, *wishes):
        if self.state.step == 8:  # 24 samples make 6 steps, a block of 6 one and a half
            raise Killed
        return step(self, *wishes)

    monkeypatch.setattr(loop.Training, "step", dies)
    with pytest.raises(Killed):
        train(config, tmp_path / "killed")
    monkeypatch.undo()
    monkeypatch.setattr(module, "PIECE_BYTES", 4000)
    monkeypatch.setattr(module, "BLOCK_BYTES", 12000)
    resumed = resume(tmp_path / "killed")
    assert log_of(resumed) == log_of(whole)
    assert_same_weights(resumed, whole)


@pytest.mark.parametrize("at", ["a step", "the end of an epoch"])
def test_a_file_that_is_cut_during_training_costs_no_step(config, root, tmp_path, monkeypatch, at):
    config = replace(config, train=replace(config.train, batch_size=4))
    whole = train(config, tmp_path / "whole")
    path = root / "darcy-smoke-seed0.h5"
    content, about = path.read_bytes(), path.stat()
    name = "step" if at == "a step" else "validate_and_log"
    original = getattr(loop.Training, name)

    def cuts(self, *arguments):
        if self.state.step == (8 if at == "a step" else 6):
            os.truncate(path, len(content) // 3)
            # Nothing that was read before is still at hand.
            for data in (self.train_set, self.validation_set):
                data.__dict__.pop("_pieces", None)
        return original(self, *arguments)

    monkeypatch.setattr(loop.Training, name, cuts)
    with pytest.raises(InputError, match=r"darcy-smoke-seed0.h5 .*delete it and run") as error:
        train(config, tmp_path / "cut")
    assert "\n" not in str(error.value)
    monkeypatch.setattr(loop.Training, name, original)
    saved = sorted((tmp_path / "cut" / "checkpoints").glob("last-*.json"))[-1]
    assert json.loads(saved.read_text())["state"]["step"] == (8 if at == "a step" else 6)
    path.write_bytes(content)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    resumed = resume(tmp_path / "cut")
    assert log_of(resumed) == log_of(whole)
    assert_same_weights(resumed, whole)


def test_statistics_are_kept_next_to_the_data(config, capsys):
    train_set = load_splits(config).train
    assert "one pass over 24 samples" in capsys.readouterr().err
    place = saved_at(train_set)
    again = load_splits(config).train
    assert "one pass" not in capsys.readouterr().err
    for name, moments in train_set.derived["statistics"].moments.items():
        assert torch.equal(moments.squares, again.derived["statistics"].moments[name].squares)
    scales = [data.derived["gradients"].scale for data in (train_set, again)]
    assert torch.equal(scales[0].rms, scales[1].rms)
    content = bytearray(place.read_bytes())
    content[-3] ^= 1
    place.write_bytes(content)
    load_splits(config)
    assert "is damaged and not used" in capsys.readouterr().err
    fewer = train_set.subset(slice(10))
    assert saved_at(fewer) != place
    measure(fewer)
    assert fewer.derived["statistics"].moments["inputs"].count == 10 * 15 * 15


def test_a_folder_that_cannot_be_written_costs_only_the_cache(config, capsys, monkeypatch):
    from cato.runs import measure as measuring

    def refuses(path, must_be_new=False):
        raise InputError(f"cannot write {path}: Read-only file system")

    monkeypatch.setattr(measuring, "atomic_write", refuses)
    data = load_splits(config).train
    assert "are not kept for the next time: cannot write" in capsys.readouterr().err
    assert data.derived["statistics"].covers(data)


def test_large_data_are_streamed_with_a_note(config_with, root, tmp_path, capsys, monkeypatch):
    from cato.runs import settings

    config = config_with(data={"root": str(root)})
    assert isinstance(load_splits(config).train, InMemory)
    assert "streamed" not in capsys.readouterr().err
    monkeypatch.setattr(settings, "total_memory", lambda: 250_000)
    assert isinstance(load_splits(config).train, Streamed)
    assert "are streamed from the disk" in capsys.readouterr().err
    memory = config_with(data={"root": str(root), "streamed": "no"})
    assert isinstance(load_splits(memory).train, InMemory)
    run = train(config, tmp_path / "run")
    assert open_run(run.folder).config.data.streamed == "yes", "it is resumed as it began"


def test_a_run_that_began_in_memory_stays_there(config_with, root, tmp_path, monkeypatch):
    from cato.runs import settings

    run = train(config_with(data={"root": str(root)}), tmp_path / "run")
    monkeypatch.setattr(settings, "total_memory", lambda: 250_000)
    assert isinstance(loading.load_run_splits(run, to_train=True).train, InMemory)
    assert isinstance(loading.load_run_splits(run).train, Streamed)


def test_a_report_of_a_streamed_run(config, tmp_path):
    path, figures = write_report(train(config, tmp_path / "run"))
    assert path.exists()
    assert figures["num_samples"] == 8
