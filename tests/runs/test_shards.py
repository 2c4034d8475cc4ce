"""Sharded checkpoints hold what was saved, whatever number of processes reads them."""

import multiprocessing
import shutil

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from cato.errors import InputError
from cato.runs.checkpoint import (
    Checkpoints,
    copy_checkpoints,
    load_checkpoint,
    remove_incomplete,
    rewind,
)
from cato.runs.shards import read_shards, save_shards, shapes_in

WHOLE = {
    "w": torch.arange(15.0).reshape(5, 3),
    "bias": torch.ones(1),  # fewer rows than processes
    "step": torch.tensor(7.0),
}


def sharded(mesh, tensors):
    """Rows over the processes, as FSDP does it; numbers stay as they are."""
    return {
        name: distribute_tensor(x.clone(), mesh, [Shard(0)]) if x.ndim else x.clone()
        for name, x in tensors.items()
    }


def in_group(function, rank, size, store, *arguments):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    try:
        return function(init_device_mesh("cpu", (size,)), *arguments)
    finally:
        dist.destroy_process_group()


def write(mesh, folder):
    for step in (1, 2, 3):
        state = {"step": step}
        save_shards(Checkpoints(folder), "last", step, sharded(mesh, WHOLE), state)


def read(mesh, folder):
    tensors = sharded(mesh, {name: torch.zeros_like(x) for name, x in WHOLE.items()})
    read_shards(folder, tensors)
    return {
        name: x.full_tensor() if hasattr(x, "full_tensor") else x for name, x in tensors.items()
    }


@pytest.fixture(scope="module")
def of_two(tmp_path_factory):
    """Three checkpoints, one after another, of two processes; what those read again."""
    folder = tmp_path_factory.mktemp("run")
    calls = [(write, rank, 2, folder / "store", folder / "saved") for rank in range(2)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.starmap(in_group, calls, chunksize=1)
    return folder / "saved"


@pytest.fixture
def saved(of_two, tmp_path):
    return Checkpoints(shutil.copytree(of_two, tmp_path / "saved"))


def test_one_process_reads_what_two_have_written(saved, tmp_path):
    checkpoint = load_checkpoint(saved, "last")
    assert checkpoint.state == {"step": 3}
    assert len(list(checkpoint.shards.iterdir())) == 2
    assert shapes_in(checkpoint.shards) == {name: tuple(x.shape) for name, x in WHOLE.items()}
    plain = {name: torch.zeros_like(x) for name, x in WHOLE.items()}
    read_shards(checkpoint.shards, plain)  # as one process without sharding
    again = in_group(read, 0, 1, tmp_path / "store", checkpoint.shards)
    for name, x in WHOLE.items():
        assert torch.equal(plain[name], x)
        assert torch.equal(again[name], x)


def test_the_newest_two_are_kept(saved):
    folders = {p.name for p in saved.folder.iterdir() if p.is_dir()}
    assert folders == {"last-00000002", "last-00000003"}


@pytest.mark.parametrize("damage", ["truncate", "delete", "more"])
def test_the_one_before_takes_the_place_of_a_damaged_one(saved, damage, capsys):
    file = next((saved.folder / "last-00000003").iterdir())
    if damage == "truncate":
        file.write_bytes(file.read_bytes()[:-1])
    elif damage == "delete":
        file.unlink()
    else:
        shutil.copy(file, file.with_name("shard-00009-model-00001-of-00001.safetensors"))
    assert load_checkpoint(saved, "last").state["step"] == 2
    assert "last-00000003 is damaged" in capsys.readouterr().err.replace("\n", " ")


def test_shards_without_their_json_do_not_exist(saved):
    (saved.folder / "last-00000003.json").unlink()
    remove_incomplete(saved)
    assert not (saved.folder / "last-00000003").exists()
    assert load_checkpoint(saved, "last").state["step"] == 2


def test_copies_and_rewinds_take_the_shards_with_them(saved, tmp_path):
    copy = Checkpoints(tmp_path / "copy", "other")
    copy_checkpoints(saved, copy)
    (saved.folder / "last-00000003.json").unlink()
    older = load_checkpoint(saved, "last")
    rewind(copy, older.__class__({}, {"step": 1}, older.shards))
    found = load_checkpoint(copy, "last")
    assert found.state == {"step": 1}
    plain = {name: torch.zeros_like(x) for name, x in WHOLE.items()}
    read_shards(found.shards, plain)
    assert all(torch.equal(plain[name], x) for name, x in WHOLE.items())


def test_shards_that_cannot_be_read_are_an_error_of_one_line(saved):
    folder = saved.folder / "last-00000003"
    next(folder.iterdir()).write_bytes(b"no tensors")
    with pytest.raises(InputError, match="cannot be read") as error:
        read_shards(folder, {name: torch.zeros_like(x) for name, x in WHOLE.items()})
    assert "\n" not in str(error.value)
