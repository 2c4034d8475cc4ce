import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cato.errors import InputError
from cato.processes import ONE_THREAD, LocalWorkers, Worker, WorkerDied


def run_alone(function, *arguments):
    with Worker() as worker:
        return worker.run(function, *arguments)


# The functions that workers run.


def square(number: int) -> int:
    return number * number


def refuse(reason: str) -> None:
    raise InputError(reason)


class Unpicklable(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


def fail() -> None:
    raise Unpicklable("this", "breaks")


def leave() -> None:
    sys.exit("enough")


def die(number: int = 0) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def facts() -> dict[str, object]:
    print("not among the results")
    return {
        "pid": os.getpid(),
        "torch": "torch" in sys.modules,
        "threads": {name: os.environ.get(name) for name in ONE_THREAD},
        "blocked": signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []),
    }


def grow(num_bytes: int) -> int:
    """Keep memory; of a second's length, since loky looks once a second."""
    GROWN.append(b"x" * num_bytes)
    time.sleep(1.1)
    return os.getpid()


GROWN: list[bytes] = []


def tell_and_sleep(folder: Path) -> None:
    (folder / str(os.getpid())).touch()
    time.sleep(60)


def save_on_sigterm(folder: Path) -> str:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    (folder / str(os.getpid())).touch()
    assert stopped.wait(60)
    time.sleep(0.3)
    (folder / "saved").touch()
    return "saved"


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def workers_in(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()]


def test_tasks_and_results() -> None:
    found = dict(LocalWorkers(2).map_unordered(square, [(k,) for k in range(20)]))
    assert found == {(k,): k * k for k in range(20)}
    assert list(LocalWorkers(2).map_unordered(square, [])) == []


def test_what_holds_for_every_worker(capfd: pytest.CaptureFixture[str]) -> None:
    found = run_alone(facts)
    assert found["threads"] == ONE_THREAD
    assert not found["torch"]
    assert found["blocked"], "Ctrl-C would reach the worker"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    output = capfd.readouterr()
    assert "not among the results" in output.err
    assert not output.out


def test_errors_of_users_pass_and_others_keep_their_traceback() -> None:
    with pytest.raises(InputError, match=r"^too large$"):
        run_alone(refuse, "too large")
    with pytest.raises(RuntimeError, match=r"(?s)fail failed.*Traceback.*Unpicklable: this breaks"):
        run_alone(fail)
    with pytest.raises(InputError, match="all of them"):
        list(LocalWorkers(2).map_unordered(refuse, [("all of them",)] * 3))


def test_a_function_that_exits_is_an_error_of_the_call() -> None:
    """A `SystemExit` in the caller would end its thread, in a Dask worker for good."""
    with Worker() as worker:
        with pytest.raises(RuntimeError, match=r"(?s)leave failed.*SystemExit: enough"):
            worker.run(leave)
        assert worker.run(square, 3) == 9


def test_killed_worker() -> None:
    with Worker() as worker:
        with pytest.raises(WorkerDied, match="die was killed or crashed"):
            worker.run(die)
        assert worker.run(square, 3) == 9, "the next call has a new process"
    with pytest.raises(WorkerDied):
        list(LocalWorkers(2).map_unordered(die, [(k,) for k in range(3)]))


def test_worker_is_kept_between_calls_and_ends_with_its_block() -> None:
    with Worker() as worker:
        pid = worker.run(facts)["pid"]
        assert worker.run(facts)["pid"] == pid
        assert run_alone(facts)["pid"] != pid
    assert not is_alive(pid)


def test_a_worker_may_grow() -> None:
    """With psutil, which comes with the development tools, loky would end it after 300 MB."""
    with Worker() as worker:
        assert len({worker.run(grow, size) for size in (0, 400_000_000, 0, 0)}) == 1


def test_timeout_kills(tmp_path: Path) -> None:
    with Worker() as worker:
        worker.run(square, 2)
        with pytest.raises(TimeoutError):
            worker.run(tell_and_sleep, tmp_path, timeout=0.5)
        assert not any(map(is_alive, workers_in(tmp_path)))
        assert worker.run(square, 2) == 4


def test_kill_from_another_thread(tmp_path: Path) -> None:
    with Worker() as worker:
        errors: list[Exception] = []

        def run() -> None:
            try:
                worker.run(tell_and_sleep, tmp_path)
            except WorkerDied as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        wait_for(lambda: workers_in(tmp_path))
        worker.kill()
        thread.join(timeout=10)
        assert errors
        assert not any(map(is_alive, workers_in(tmp_path)))


def test_closing_a_map_kills_in_mid_call(tmp_path: Path) -> None:
    results = LocalWorkers(1).map_unordered(save_on_sigterm, [(tmp_path,)])
    thread = threading.Thread(target=lambda: list(results))
    thread.start()
    wait_for(lambda: workers_in(tmp_path))
    os.kill(workers_in(tmp_path)[0], signal.SIGTERM)
    thread.join(timeout=10)
    assert (tmp_path / "saved").exists()
    sleeping = LocalWorkers(2).map_unordered(tell_or_return, [(tmp_path, 0), (tmp_path, 1)])
    next(sleeping)
    wait_for(lambda: len(workers_in(tmp_path)) == 2)
    sleeping.close()
    assert not any(map(is_alive, workers_in(tmp_path)))


def tell_or_return(folder: Path, number: int) -> None:
    if number:
        tell_and_sleep(folder)


def test_terminated_function_may_save(tmp_path: Path) -> None:
    with Worker() as worker:
        results: list[str] = []
        run = threading.Thread(target=lambda: results.append(worker.run(save_on_sigterm, tmp_path)))
        run.start()
        wait_for(lambda: workers_in(tmp_path))
        worker.terminate()
        run.join(timeout=10)
        assert results == ["saved"]


SCRIPT = """
import sys
from pathlib import Path
from cato.processes import LocalWorkers
from tests.test_processes import {function}
print("main script", flush=True)
try:
    list(LocalWorkers(2).map_unordered({function}, [(Path(sys.argv[1]),)] * 2))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.fixture
def started(tmp_path: Path, request: pytest.FixtureRequest):
    """A user's script without a main guard, in a process group of its own, and its two workers."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(function=request.param))
    (tmp_path / "random.py").write_text("raise RuntimeError('a file in the working folder')")
    folder = tmp_path / "workers"
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-P", str(script), str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        wait_for(lambda: process.poll() is not None or len(workers_in(folder)) == 2)
        assert process.poll() is None, process.communicate()
        yield process, folder
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("started", ["tell_and_sleep"], indirect=True)
def test_interrupt_reaches_the_parent_only(started) -> None:
    process, folder = started
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=20)
    assert output == "main script\ninterrupted\n", "workers must not run the main script"
    assert errors == ""
    wait_for(lambda: not any(map(is_alive, workers_in(folder))))


@pytest.mark.parametrize("started", ["tell_and_sleep", "save_on_sigterm"], indirect=True)
def test_workers_end_with_a_killed_parent(started) -> None:
    process, folder = started
    process.kill()
    wait_for(lambda: not any(map(is_alive, workers_in(folder))))
    saves = any("save_on_sigterm" in path.read_text() for path in folder.parent.glob("script.py"))
    assert (folder / "saved").exists() == saves
