"""Schedule wsd: a trunk that does not depend on the length, extended without training it again."""

import json
from itertools import pairwise

import pytest
import torch

from cato.errors import Diverged, InputError
from cato.runs.checkpoint import load_checkpoint
from cato.runs.folder import open_run
from cato.training import loop
from cato.training.optim import decay_start, warm_up_stable_decay
from cato.training.train import resume, train


@pytest.fixture
def trained(tmp_path, config_with):
    """trained(name, steps): a finished run with schedule wsd."""

    def build(name, steps, **settings):
        config = config_with(train={"steps": steps, "schedule": "wsd", **settings})
        return train(config, tmp_path / name)

    return build


def weights_of(run):
    return load_checkpoint(run.checkpoints, "last").tensors


def losses_of(run):
    return [{k: line[k] for k in ("step", "loss", "validation")} for line in run.log()]


def test_the_trunk_does_not_depend_on_the_length():
    for step in range(80):
        assert warm_up_stable_decay(step, 100) == warm_up_stable_decay(step, 1000)
    rates = [warm_up_stable_decay(step, 1000)[0] for step in range(1000)]
    assert rates[:100] == pytest.approx([(k + 1) / 100 for k in range(100)])
    assert rates[100 : decay_start(1000)] == 700 * [1.0]
    decay = rates[decay_start(1000) :]
    assert all(a > b > 0 for a, b in pairwise(decay))
    assert decay[-1] < 0.01


def test_an_extended_run_ends_bit_for_bit_like_one_of_that_length(trained):
    long = trained("long", 20)
    extended = resume(trained("short", 10).folder, {"steps": 20})
    ours, theirs = weights_of(extended), weights_of(long)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert losses_of(extended)[-1] == losses_of(long)[-1]
    assert open_run(extended.folder).config.train.steps == 20
    assert "--train.steps 20" in json.loads((extended.folder / "run.json").read_text())["command"]


def test_a_branch_leaves_its_run_as_it_was(trained, tmp_path):
    run = trained("run", 10)
    files = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    branch = resume(run.folder, {"steps": 20}, tmp_path / "branch")
    assert files == {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    assert branch.folder == tmp_path / "branch"
    (branch.folder / "run.json").unlink()
    with pytest.raises(InputError, match=r"log\.jsonl of a run without run\.json"):
        resume(run.folder, {"steps": 20}, branch.folder)
    (branch.folder / ".new").touch()  # as if killed while it was copied
    branch = resume(run.folder, {"steps": 20}, branch.folder)
    assert branch.log()[-1]["step"] == 20
    assert resume(run.folder, {"steps": 20}).log()[-1]["loss"] == branch.log()[-1]["loss"]


def test_the_best_weights_of_an_extension_are_not_those_of_the_decay_it_left(trained, monkeypatch):
    """Here every epoch is worse than the one before, but for the short run's decay."""

    def scripted(self):
        in_short_decay = self.state.num_steps == 20 and self.state.step > 16
        return 0.01 * self.state.step - (1.0 if in_short_decay else 0.0)

    monkeypatch.setattr(loop.Training, "validate", scripted)
    long, short = trained("long", 40, batch_size=6), trained("short", 20, batch_size=6)
    assert load_checkpoint(short.checkpoints, "best").state["step"] == 20
    branch = resume(short.folder, {"steps": 40}, short.folder.with_name("branch"))
    for extended in (branch, resume(short.folder, {"steps": 40})):
        ours, theirs = (load_checkpoint(r.checkpoints, "best") for r in (extended, long))
        assert ours.state["step"] == theirs.state["step"] == 4
        assert all(torch.equal(ours.tensors[name], theirs.tensors[name]) for name in theirs.tensors)


def test_an_extended_run_says_from_where(trained):
    short = trained("short", 10)
    trunk = load_checkpoint(short.checkpoints, "trunk").state
    branch = resume(short.folder, {"steps": 20}, short.folder.with_name("branch"))
    assert "branch" not in open_run(short.folder).record
    assert open_run(branch.folder).record["branch"] == {
        "step": 8,
        "seconds": trunk["seconds"],
        "num_steps": 20,
    }


def test_an_extension_that_is_killed_resumes(trained, monkeypatch):
    long, short = trained("long", 20), trained("short", 10)
    original = loop.Training.step

    def killed_at_14(self, *wishes):
        if self.state.step == 14:
            raise KeyboardInterrupt
        return original(self, *wishes)

    monkeypatch.setattr(loop.Training, "step", killed_at_14)
    with pytest.raises(KeyboardInterrupt):
        resume(short.folder, {"steps": 20})
    monkeypatch.undo()
    extended = resume(short.folder)
    ours, theirs = weights_of(extended), weights_of(long)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_what_cannot_be_extended(trained, config_with, tmp_path):
    run = trained("run", 10)
    before = (run.folder / "run.json").read_bytes()
    with pytest.raises(InputError, match="give a longer one"):
        resume(run.folder, {"steps": 5})
    with pytest.raises(InputError, match=r"set train\.steps or train\.minutes, not both"):
        resume(run.folder, {"steps": 50, "minutes": 1.0})
    with pytest.raises(InputError, match=r"the new length: train\.minutes"):
        resume(run.folder, {"minutes": -1.0})
    with pytest.raises(InputError, match="give a new length"):
        resume(run.folder, out=tmp_path / "copy")
    with pytest.raises(InputError, match="already holds a run"):
        resume(run.folder, {"steps": 20}, run.folder)
    assert (run.folder / "run.json").read_bytes() == before
    cycle = train(config_with(train={"steps": 2}), tmp_path / "cycle")
    with pytest.raises(InputError, match="schedule onecycle, which cannot be extended"):
        resume(cycle.folder, {"steps": 20})


def test_a_diverged_run_is_neither_resumed_nor_extended(config_with, tmp_path):
    wild = {"steps": 400, "schedule": "wsd", "learning_rate": 1e9, "clip": 0.0}
    with pytest.raises(Diverged, match="learning-rate"):
        train(config_with(train=wild), tmp_path / "run")
    with pytest.raises(Diverged, match="learning-rate"):
        resume(tmp_path / "run")
    with pytest.raises(InputError, match="diverged and cannot be extended"):
        resume(tmp_path / "run", {"steps": 500})
