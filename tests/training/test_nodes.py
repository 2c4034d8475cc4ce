"""Training on two nodes: two agents of torchrun on this machine, which meet over loopback."""

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch.distributed as dist

from cato.errors import InputError
from cato.runs.folder import open_run
from cato.training import devices
from cato.training.train import train

SETTINGS = [
    *("--model.width", "8", "--model.depth", "1", "--train.batch-size", "5"),
    *("--train.steps", "50", "--train.accelerator", "cpu", "--train.checkpoint-minutes", "1e-9"),
]


def agents(arguments, log, processes=1):
    """The same command on two nodes, with the words of docs/many-gpus.md."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    words = [
        *("-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", str(processes)),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}"),
        *("--rdzv-id", f"test-{port}", "--max-restarts", "3", "-m", "cato"),
    ]
    return [
        subprocess.Popen(
            [sys.executable, *words, *map(str, arguments)],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"GLOO_SOCKET_IFNAME": "lo"},
        )
        for _ in range(2)
    ]


def worker_of(agent):
    """Number of a process that an agent has started."""
    return int(Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()[0])


def last_step(folder):
    steps = [int(p.stem.split("-")[1]) for p in (folder / "checkpoints").glob("last-*.json")]
    return max(steps, default=0)


def finish(nodes, log):
    for node in nodes:
        assert node.wait(timeout=300) == 0, Path(log.name).read_text()


@pytest.mark.parametrize(
    ("settings", "processes", "kill"),
    [
        pytest.param((), 1, True, marks=pytest.mark.slow),
        pytest.param(("--train.strategy", "fsdp"), 1, True, marks=pytest.mark.slow),
        pytest.param(("--train.mesh-parallel", "2"), 2, False, marks=pytest.mark.slow),
    ],
    ids=["ddp", "fsdp", "ddp-mesh"],
)
def test_two_nodes_train_like_one_process(
    tmp_path, config_with, data_root, settings, processes, kill
):
    """Also if a process is killed on the way: torchrun starts all again, and they resume."""
    train(config_with(train={"steps": 50}), tmp_path / "one")
    folder = tmp_path / "two"
    arguments = ["train", "darcy", "--scale", "smoke", *SETTINGS, *settings]
    with open(tmp_path / "log", "w") as log:
        nodes = agents([*arguments, "--data.root", data_root, "--out", folder], log, processes)
        try:
            while kill and not last_step(folder):
                time.sleep(0.05)
                assert all(node.poll() is None for node in nodes), Path(log.name).read_text()
            if kill:
                os.kill(worker_of(nodes[1]), signal.SIGKILL)
            finish(nodes, log)
        finally:
            for node in nodes:
                node.kill()
    text = (tmp_path / "log").read_text()
    assert ("started the processes" in text) == kill
    one, two = (open_run(tmp_path / name).log() for name in ("one", "two"))
    assert [line["step"] for line in one] == [line["step"] for line in two]
    for name in ("loss", "value", "gradient", "validation"):
        assert two[-1][name] == pytest.approx(one[-1][name], rel=1e-5)


def test_processes_agree_on_a_name_whatever_the_dead_have_left():
    """A second start of both, beside what a first start has left in the store."""
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    clients = [dist.TCPStore("localhost", store.port, is_master=False) for _ in range(3)]
    clients[0].set("cato/hello/1", "of one that died")
    names = []
    for _ in range(2):
        with ThreadPoolExecutor(3) as pool:
            calls = [pool.submit(devices.agreed_name, clients[k], k, 3, 60) for k in range(3)]
            (name,) = {call.result() for call in calls}
            names.append(name)
    assert names[0] != names[1]


def test_a_process_that_does_not_come_is_noticed():
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    with pytest.raises(InputError, match="only 1 of 2 processes have started"):
        devices.agreed_name(store, 0, 2, 0.1)


@pytest.mark.parametrize(
    ("what", "value"), [("cato", "0.0.9"), ("PyTorch", "1.0"), ("data", "abc")]
)
def test_processes_that_differ_are_refused(config_with, monkeypatch, what, value):
    class Fabric:
        world_size = 2

    def gathered(found, own):
        found[:] = [own, own | {what: (value, "")}]

    monkeypatch.setattr(devices.dist, "all_gather_object", gathered)
    with pytest.raises(InputError, match=rf"^process 1 has other {what} than process 0 \({value}"):
        devices.require_agreement(Fabric(), config_with(), "key")


def test_another_launch_does_not_continue_a_run(tmp_path, config_with, monkeypatch):
    """Only the same launch with the same settings does, and only if it has started again."""
    config, folder = config_with(train={"steps": 2}), tmp_path / "run"
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job-1")
    run = train(config, folder)
    assert train(config, folder).record["id"] == run.record["id"]  # finished, and left alone
    with pytest.raises(InputError, match="already holds a run"):
        train(config_with(train={"steps": 3}), folder)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job-2")
    with pytest.raises(InputError, match="already holds a run"):
        train(config, folder)
