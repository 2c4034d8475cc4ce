"""Checkpoints survive kills, truncation and bit rot, or say that they did not."""

import pytest
import torch

from cato.errors import InputError
from cato.runs.checkpoint import (
    Checkpoint,
    Checkpoints,
    load_checkpoint,
    remove_incomplete,
    rewind,
    save_checkpoint,
)


def save(folder, step, kind="last"):
    tensors = {"w": torch.full((3,), float(step)), "empty": torch.zeros(0)}
    save_checkpoint(
        Checkpoints(folder), kind, step, Checkpoint(tensors, {"step": step, "best": float("inf")})
    )


def test_round_trip_and_pruning(tmp_path):
    assert load_checkpoint(Checkpoints(tmp_path), "last") is None
    for step in (1, 2, 10):
        save(tmp_path, step)
        save(tmp_path, step, "best")
    loaded = load_checkpoint(Checkpoints(tmp_path), "last")
    assert loaded.state == {"step": 10, "best": None}  # JSON has no infinity
    assert torch.equal(loaded.tensors["w"], torch.full((3,), 10.0))
    names = sorted(p.name for p in tmp_path.glob("*.safetensors"))
    kept = ("best-00000002", "best-00000010", "last-00000002", "last-00000010")
    assert names == [f"{name}.safetensors" for name in kept]
    assert not list(tmp_path.glob(".*"))  # no temporary files


@pytest.mark.parametrize("damage", ["truncate", "flip", "delete", "json"])
def test_a_damaged_checkpoint_is_reported_and_the_previous_used(tmp_path, damage, capsys):
    save(tmp_path, 1)
    save(tmp_path, 2)
    weights, vouch = tmp_path / "last-00000002.safetensors", tmp_path / "last-00000002.json"
    if damage == "truncate":
        weights.write_bytes(weights.read_bytes()[:-5])
    elif damage == "flip":
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
    elif damage == "delete":
        weights.unlink()
    else:
        vouch.write_text(vouch.read_text()[:20])
    assert load_checkpoint(Checkpoints(tmp_path), "last").state["step"] == 1
    assert "last-00000002 is damaged" in capsys.readouterr().err.replace("\n", " ")


def test_weights_without_their_json_do_not_exist(tmp_path):
    """What a kill between the two writes leaves behind."""
    save(tmp_path, 1)
    save(tmp_path, 2)
    (tmp_path / "last-00000002.json").unlink()
    assert load_checkpoint(Checkpoints(tmp_path), "last").state["step"] == 1


def test_rewinding_leaves_the_checkpoint_it_was_given(tmp_path):
    for step in (4, 5, 6):
        save(tmp_path, step)
        save(tmp_path, step, "best")
    rewind(Checkpoints(tmp_path), Checkpoint({"w": torch.ones(1)}, {"step": 3}))
    assert [p.name for p in tmp_path.glob("*.json")] == ["last-00000003.json"]


def test_best_weights_are_those_that_the_training_recorded(tmp_path):
    """However the newest are lost: deleted, damaged or replaced by those of another run."""
    saved, tensors = Checkpoints(tmp_path, "run"), {"w": torch.ones(2)}
    for step in (1, 2):
        state = {"step": step, "best_step": step}
        for kind in ("best", "last"):
            save_checkpoint(saved, kind, step, Checkpoint({"w": step * tensors["w"]}, state))
    newest = tmp_path / "best-00000002.json"
    content = newest.read_bytes()
    save_checkpoint(Checkpoints(tmp_path / "other", "other"), "best", 2, Checkpoint(tensors, {}))
    for damaged in (None, content[:-20], (tmp_path / "other/best-00000002.json").read_bytes()):
        newest.unlink() if damaged is None else newest.write_bytes(damaged)
        with pytest.raises(InputError, match="best weights"):
            load_checkpoint(saved, "best")
        # A training resumes before them and writes them again.
        assert load_checkpoint(saved, "last").state["step"] == 1
        newest.write_bytes(content)
    assert load_checkpoint(saved, "best").state["step"] == 2


def test_leftovers_of_kills_are_removed(tmp_path):
    save(tmp_path, 1)
    (tmp_path / "last-00000002.safetensors").write_bytes(b"half")
    (tmp_path / ".last-00000002.json.cato-0a1b2c3d.tmp").write_bytes(b"half")
    remove_incomplete(Checkpoints(tmp_path))
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["last-00000001.json", "last-00000001.safetensors"]


def test_all_damaged_is_an_error(tmp_path):
    save(tmp_path, 1)
    (tmp_path / "last-00000001.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match="all checkpoints"):
        load_checkpoint(Checkpoints(tmp_path), "last")
