"""A Dask cluster of real processes on this machine: workers and schedulers that are killed."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cato import cluster as module
from cato.cluster import Cluster, environment, open_cluster, workers_of
from cato.data.generate import generate_file
from cato.data.spec import DataSpec
from cato.data.store import UnfinishedStore
from cato.errors import ClusterError, InputError
from cato.files import digest

distributed = pytest.importorskip("distributed")

SMOKE = DataSpec("darcy", "smoke")
SECONDS = 60


# What workers run.


def facts() -> dict[str, Any]:
    return {"pid": os.getpid(), "parent": os.getppid(), "threads": os.environ["OMP_NUM_THREADS"]}


def wait_for_file(path: str) -> str:
    Path(path).with_suffix(f".{os.getpid()}").touch()
    while not Path(path).exists():
        time.sleep(0.02)
    return path


def save_at_the_end(path: str) -> None:
    def save(*_: Any) -> None:
        Path(path).write_text("saved")
        sys.exit()

    signal.signal(signal.SIGTERM, save)
    wait_for_file(f"{path}.never")


def refuse(reason: str) -> None:
    raise InputError(reason)


def fail() -> None:
    raise KeyError("a bug")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def until(condition: Any) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextmanager
def dask(*words: str, **environ: str):
    """A scheduler or a worker as a user starts it, in the folder that Python searches first."""
    environ = os.environ | {"PYTHONPATH": os.getcwd()} | environ
    process = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_" + words[0], *words[1:]],
        env=environ,
        cwd=environ["PYTHONPATH"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def scheduler(tmp_path: Path):
    """A scheduler, and its address."""
    file = tmp_path / "scheduler.json"
    words = ["--port", "0", "--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(file)]
    with dask("scheduler", *words) as process:
        until(lambda: file.exists() and file.read_text())
        yield process, json.loads(file.read_text())["address"]


@contextmanager
def worker(address: str, folder: Path, *words: str, **environ: str):
    """One worker with two threads and without a nanny, which would start another."""
    local = ["--nthreads", "2", "--no-nanny", "--no-dashboard", "--local-directory", str(folder)]
    with dask("worker", address, *local, *words, **environ) as process:
        yield process


@pytest.fixture(scope="module")
def local() -> Any:
    with open_cluster("local", 2) as cluster:
        yield cluster


def test_files_are_those_of_this_machine(local: Cluster, tmp_path: Path) -> None:
    spec = DataSpec("darcy", "smoke", splits=("test",))
    here = generate_file(spec, tmp_path / "here", workers=1)
    there = generate_file(spec, tmp_path / "there", workers=local)
    assert digest(here) == digest(there)
    assert [p.name for p in there.parent.iterdir()] == [there.name]


def test_functions_run_in_a_process_of_their_own(local: Cluster) -> None:
    found = [result for _, result in local.map_unordered(facts, [()] * 8)]
    assert len({one["pid"] for one in found}) <= 2, "it is kept"
    for one in found:
        assert len({one["pid"], one["parent"], os.getpid()}) == 3
        assert one["threads"] == "1"


def test_errors_come_back_as_they_are(local: Cluster) -> None:
    with pytest.raises(InputError, match=r"^too large$"):
        list(local.map_unordered(refuse, [("too large",)]))
    with pytest.raises(RuntimeError, match=r"(?s)fail failed.*Traceback.*KeyError: 'a bug'"):
        list(local.map_unordered(fail, [()]))
    with pytest.raises(RuntimeError, match="die was killed or crashed"):
        list(local.map_unordered(die, [()]))


def test_a_job_that_is_given_up_saves(local: Cluster, tmp_path: Path) -> None:
    job = local.submit(save_at_the_end, [(str(tmp_path / "job"),)])
    until(lambda: list(tmp_path.glob("job.*")))
    local.cancel(job)
    until(lambda: (tmp_path / "job").exists())


def test_a_worker_that_dies_costs_nothing(local: Cluster, tmp_path: Path) -> None:
    (waiting,) = local.submit(wait_for_file, [(str(tmp_path / "go"),)])
    until(lambda: list(tmp_path.glob("go.*")))
    (process,) = [int(path.suffix[1:]) for path in tmp_path.glob("go.*")]
    worker = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(worker, signal.SIGKILL)
    until(lambda: not is_alive(process))
    (tmp_path / "go").touch()
    assert local.result(waiting) == str(tmp_path / "go")


def test_jobs_need_a_folder_that_the_workers_see(local: Cluster, tmp_path: Path) -> None:
    (slot,) = local.slots(1)
    here = tmp_path / "here"
    here.touch()
    assert slot.run(wait_for_file, str(here)) == str(here)
    (token,) = local.tokens
    local._token_in = lambda folder: tmp_path / "elsewhere"  # type: ignore[method-assign]
    try:
        with pytest.raises(ClusterError, match=r"does not see .*elsewhere; trainings on a cluster"):
            slot.run(wait_for_file, str(here))
    finally:
        del local._token_in
    assert token.exists()


def test_machines_that_differ_are_refused(local: Cluster, monkeypatch) -> None:
    other = environment() | {"numpy": "1.0"}
    monkeypatch.setattr(module, "environment", lambda package: other)
    with pytest.raises(ClusterError, match=r"has numpy .*, this machine 1.0; install the same"):
        list(local.map_unordered(facts, [()]))


def test_no_scheduler(monkeypatch) -> None:
    monkeypatch.setattr(module, "CONNECT_SECONDS", 0.5)
    with (
        pytest.raises(InputError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9 .*local"),
        open_cluster("tcp://127.0.0.1:9"),
    ):
        pass
    with pytest.raises(InputError, match="--workers"), workers_of(2, "tcp://127.0.0.1:9"):
        pass


@pytest.mark.slow
def test_killed_workers_cost_only_unfinished_samples(tmp_path: Path) -> None:
    """Two workers; one is killed in the middle, another joins."""
    spec = DataSpec("darcy", "smoke", count=300)
    here = generate_file(spec, tmp_path / "here", workers=1)
    store = UnfinishedStore(tmp_path / "there" / spec.file_name, spec)
    with scheduler(tmp_path) as (_, address), worker(address, tmp_path):
        with worker(address, tmp_path) as first:
            words = f"{sys.executable} -m cato generate darcy --scale smoke --count 300"
            words += f" --cluster {address} --out"
            generating = subprocess.Popen(
                [*words.split(), str(tmp_path / "there")],
                stderr=subprocess.PIPE,
                text=True,
            )
            until(store.path.exists)
            first.kill()
        with worker(address, tmp_path):
            _, errors = generating.communicate(timeout=SECONDS)
    assert generating.returncode == 0, errors
    assert "dashboard http" in errors
    assert digest(tmp_path / "there" / spec.file_name) == digest(here)


@pytest.mark.slow
def test_a_dead_scheduler_costs_only_unfinished_samples(tmp_path: Path) -> None:
    spec = DataSpec("darcy", "smoke", count=300)
    here = generate_file(spec, tmp_path / "here", workers=1)
    words = ["generate", "darcy", "--scale", "smoke", "--count", "300", "--out", "there"]
    command = [sys.executable, "-m", "cato", *words]
    environ = os.environ | {"PYTHONPATH": os.getcwd()}
    store = UnfinishedStore(tmp_path / "there" / spec.file_name, spec)
    with scheduler(tmp_path) as (process, address), worker(address, tmp_path) as solver:
        generating = subprocess.Popen(
            [*command, "--cluster", address],
            cwd=tmp_path,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        until(store.path.exists)
        children = Path(f"/proc/{solver.pid}/task").glob("*/children")
        pids = [int(pid) for file in children for pid in file.read_text().split()]
        process.kill()
        output, errors = generating.communicate(timeout=SECONDS)
        solver.kill()
        until(lambda: not any(map(is_alive, pids)))
    assert generating.returncode == 2
    assert not output
    last = errors.splitlines()[-1]
    assert f"the connection to the scheduler {address} was lost; what is finished is kept" in last
    assert "Traceback" not in errors
    kept = store.finished()
    assert kept
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert f"resuming: {len(kept)} of 316 samples" in done.stderr
    assert digest(tmp_path / "there" / spec.file_name) == digest(here)


@pytest.mark.slow
def test_a_worker_without_cato_is_named(tmp_path: Path) -> None:
    (tmp_path / "cato.py").write_text("raise ImportError")  # hides one that is installed
    with (
        scheduler(tmp_path) as (_, address),
        worker(address, tmp_path, PYTHONPATH=str(tmp_path)),
        distributed.Client(address, set_as_default=False) as client,
    ):
        client.wait_for_workers(1, timeout=SECONDS)
        with pytest.raises(ClusterError, match="cannot import cato"), open_cluster(address):
            pass
