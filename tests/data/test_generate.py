import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from cato.benchmarks.contract import Rejected
from cato.data import generate as module
from cato.data import sampling as draw_module
from cato.data import store as store_module
from cato.data.generate import generate, generate_file
from cato.data.sampling import generate_sample
from cato.data.spec import DataSpec
from cato.data.store import UnfinishedStore, num_rejected, write_store
from cato.errors import InputError
from cato.files import digest
from cato.processes import LocalWorkers

Task = tuple[str, int]

SMOKE = DataSpec("darcy", "smoke")
LONG = DataSpec("darcy", "smoke", count=300)
"""Takes long enough to be caught in the middle, also on a machine that stalls now and then."""


def arrays(path: Path) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: (
                found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
            )
        )
    return found


def kept_in(root: Path) -> set[Task]:
    """The samples of an unfinished file; it is not changed."""
    store = UnfinishedStore(root / LONG.file_name, LONG)
    return store.finished() if store.path.exists() else set()


@contextmanager
def other_process(root: Path, *, num_samples: int) -> Iterator[subprocess.Popen]:
    """Another process that generates, once it has finished some samples."""
    script = (
        "import sys; from pathlib import Path; from cato.data.generate import generate; "
        "generate('darcy', 'smoke', count=300, root=Path(sys.argv[1]), workers=1)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(root)],
        stderr=subprocess.PIPE,
        text=True,
        # Jobs that a shell has put into the background ignore Ctrl-C, and so would their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        deadline = time.monotonic() + 60
        while len(kept_in(root)) < num_samples:
            assert process.poll() is None, "ended too early"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """The tasks that are really solved in a test."""
    tasks: list[Task] = []

    map_unordered = LocalWorkers.map_unordered

    def watched(self: LocalWorkers, function: Any, missing: list[Any]) -> Iterator[Any]:
        tasks.extend(task[1:] for task in missing)
        return map_unordered(self, function, missing)

    monkeypatch.setattr(LocalWorkers, "map_unordered", watched)
    return tasks


def test_two_workers_write_the_very_same_file(pristine: Path, tmp_path: Path) -> None:
    path = generate("darcy", "smoke", root=tmp_path, workers=2)
    assert digest(path) == digest(pristine)
    assert [p.name for p in tmp_path.iterdir()] == [path.name], (
        "unfinished files and locks must be gone"
    )


def test_other_counts_and_splits_share_their_samples(pristine: Path, tmp_path: Path) -> None:
    whole = arrays(pristine)
    some = arrays(generate("darcy", "smoke", root=tmp_path, count=2, splits=["test", "train"]))
    for name in ("inputs", "targets", "sha256"):
        assert np.array_equal(some[f"test/{name}"], whole[f"test/{name}"])
        assert np.array_equal(some[f"train/{name}"], whole[f"train/{name}"][:2])
    assert not any(name.startswith("validation") for name in some)


def test_seeds_differ(pristine: Path, tmp_path: Path) -> None:
    other = arrays(generate("darcy", "smoke", seed=1, root=tmp_path, splits=["test"]))
    assert not np.array_equal(other["test/inputs"], arrays(pristine)["test/inputs"])


def test_existing_file_is_returned_at_once(pristine: Path, solved: list[Task]) -> None:
    before = pristine.stat().st_mtime_ns
    assert generate("darcy", "smoke", root=pristine.parent) == pristine
    assert pristine.stat().st_mtime_ns == before
    assert not solved


def test_kill_and_continue(pristine: Path, tmp_path: Path, solved: list[Task]) -> None:
    with other_process(tmp_path, num_samples=3) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    kept = kept_in(tmp_path)
    assert 3 <= len(kept) < len(LONG.tasks)
    path = generate_file(LONG, tmp_path, workers=2)
    assert set(solved) == set(LONG.tasks) - kept, "finished samples must not be solved again"
    whole, expected = arrays(path), arrays(pristine)
    for name in ("inputs", "targets", "sha256"):
        assert np.array_equal(whole[f"train/{name}"][:24], expected[f"train/{name}"])
        assert np.array_equal(whole[f"test/{name}"], expected[f"test/{name}"])
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_interrupt_keeps_finished_samples_and_says_so(tmp_path: Path) -> None:
    with other_process(tmp_path, num_samples=3) as process:
        process.send_signal(signal.SIGINT)
        _, output = process.communicate(timeout=20)  # at once, not when all are solved
    kept = int(re.search(r"stopped: (\d+) of 316 samples are kept", output)[1])  # type: ignore[index]
    assert "the same command resumes" in output
    assert kept == len(kept_in(tmp_path)) >= 3


def test_damaged_samples_are_solved_again(
    pristine: Path, tmp_path: Path, solved: list[Task]
) -> None:
    target = tmp_path / SMOKE.file_name
    store = UnfinishedStore(target, SMOKE)
    left_out = ("test", 4)
    for task in reversed(SMOKE.tasks):  # any order
        if task != left_out:
            store.write(*task, generate_sample(SMOKE, *task))
    flipped, half_written = ("train", 3), ("validation", 0)
    content = bytearray(store.path.read_bytes())
    with h5py.File(store.path) as file:
        content[file["train/targets"].id.get_offset() + 3 * 15 * 15 * 4 + 7] ^= 1
        checksum = file["validation/sha256"].id.get_offset()
    content[checksum : checksum + 32] = bytes(32)
    store.path.write_bytes(content)
    assert generate_file(SMOKE, tmp_path, workers=1) == target
    assert sorted(solved) == sorted([left_out, flipped, half_written])
    assert digest(target) == digest(pristine)


@pytest.mark.parametrize("size", [0, 100, 3000, 20000])
def test_an_unfinished_file_that_is_cut_off_costs_only_time(
    pristine: Path, tmp_path: Path, size: int
) -> None:
    store = UnfinishedStore(tmp_path / SMOKE.file_name, SMOKE)
    for task in SMOKE.tasks[:5]:
        store.write(*task, generate_sample(SMOKE, *task))
    os.truncate(store.path, size)
    assert digest(generate_file(SMOKE, tmp_path, workers=1)) == digest(pristine)


@pytest.mark.parametrize("place", ["header", "checksum", "name"])
def test_a_kill_while_the_file_gets_its_name(
    pristine: Path, tmp_path: Path, monkeypatch, solved: list[Task], place: str
) -> None:
    """Whatever the header holds by then, the next call completes it and solves nothing again."""

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt  # stands for SIGKILL: nothing is caught there

    writes: list[int] = []

    def pwrite(handle: int, content: bytes, offset: int) -> int:
        if len(content) > 64 and content[:1] == b"{":
            writes.append(offset)
            if place == "header":
                os_pwrite(handle, content[: len(content) // 2], offset)
                killed()
        elif writes and place == "checksum":
            killed()
        return os_pwrite(handle, content, offset)

    os_pwrite = os.pwrite
    with monkeypatch.context() as patch:
        if place == "name":
            patch.setattr(store_module, "rename_durably", killed)
        patch.setattr(store_module.os, "pwrite", pwrite)
        with pytest.raises(KeyboardInterrupt):
            generate_file(SMOKE, tmp_path, workers=1)
    assert not (tmp_path / SMOKE.file_name).exists()
    solved.clear()
    assert digest(generate_file(SMOKE, tmp_path, workers=1)) == digest(pristine)
    assert not solved


def test_an_unfinished_file_takes_the_disk_of_its_samples(tmp_path: Path) -> None:
    spec = DataSpec("darcy", "small", count=200, splits=("train",))
    store = UnfinishedStore(tmp_path / spec.file_name, spec)
    store.write("train", 150, generate_sample(spec, "train", 150))
    assert store.path.stat().st_size > spec.num_bytes
    assert store.disk_bytes < spec.num_bytes / 10
    assert store.finished() == {("train", 150)}


def test_two_at_once(pristine: Path, tmp_path: Path) -> None:
    with other_process(tmp_path, num_samples=1) as process:
        match = rf"another process \(number {process.pid}\) is generating .*wait .*--out"
        with pytest.raises(InputError, match=match):
            generate_file(LONG, tmp_path, workers=1)
        process.wait(timeout=60)
    whole, expected = arrays(tmp_path / LONG.file_name), arrays(pristine)
    assert np.array_equal(whole["test/sha256"], expected["test/sha256"])


def test_leftovers_of_a_dead_process_do_no_harm(tmp_path: Path) -> None:
    spec = DataSpec("darcy", "smoke", splits=("test",))
    (tmp_path / f".{spec.file_name}.lock").write_text("1\n")
    (tmp_path / f".{spec.file_name}.cato-12345678.tmp").write_text("half assembled")
    path = generate_file(spec, tmp_path, workers=1)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_other_contents_are_never_overwritten(smoke_file: Path) -> None:
    renamed = smoke_file.rename(smoke_file.with_name("darcy-smoke-seed7.h5"))
    before = digest(renamed)
    with pytest.raises(InputError, match=r"seed7.h5 holds other data \(seed 0\).*\(seed 7\)"):
        generate("darcy", "smoke", seed=7, root=renamed.parent)
    assert digest(renamed) == before


def test_foreign_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "darcy-smoke-seed0.h5"
    path.write_text("my thesis")
    with pytest.raises(InputError, match=r"not an HDF5 file.*run `cato generate darcy"):
        generate("darcy", "smoke", root=tmp_path)
    assert path.read_text() == "my thesis"


def test_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot write into"):
        generate("darcy", "smoke", root=tmp_path / "file")


def test_no_workers(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="workers"):
        generate("darcy", "smoke", root=tmp_path, workers=0)


def die(*_: Any) -> bytes:
    """Ends its process as the kernel does when out of memory."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def test_killed_worker_is_reported(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "solve_sample", die)
    match = r"killed or crashed, probably out of memory; 0 of 40 samples .*fewer.*\(--workers\)"
    with pytest.raises(InputError, match=match):
        generate_file(SMOKE, tmp_path, workers=1)


def test_failure_inside_a_worker_is_passed_on() -> None:
    wrong = [({**vars(SMOKE), "scale": "huge"}, "train", 0)]
    with pytest.raises(InputError, match="huge"):
        list(LocalWorkers(1).map_unordered(module.solve_sample, wrong))
    with pytest.raises(RuntimeError, match="Traceback"):
        list(LocalWorkers(1).map_unordered(module.solve_sample, [("no spec", "train", 0)]))


def test_a_full_disk_keeps_finished_samples(tmp_path: Path, monkeypatch) -> None:
    store, count = UnfinishedStore.write, []

    def write(self: UnfinishedStore, *arguments: Any) -> None:
        count.append(1)
        if len(count) > 4:
            monkeypatch.setattr(store_module.os, "pwrite", full)
        store(self, *arguments)

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(UnfinishedStore, "write", write)
    with pytest.raises(InputError, match=r"seed0-n300.h5: No space left.*samples are kept"):
        generate_file(LONG, tmp_path, workers=1)
    monkeypatch.undo()
    assert len(kept_in(tmp_path)) == 4


def test_workers_do_without_torch() -> None:
    solver = "cato.benchmarks.darcy.solver"
    code = f"import sys, cato.data.generate, {solver}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.slow
def test_compiling_is_said_once_and_kept(tmp_path: Path, capfd, monkeypatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    one = {"count": 1, "splits": ("train",), "workers": 1}
    generate("plasticity", "smoke", root=tmp_path / "first", **one)
    assert "compiling the solver" in capfd.readouterr().err
    generate("plasticity", "smoke", root=tmp_path / "second", **one)
    assert "compiling the solver" not in capfd.readouterr().err


def test_rejected_draws_are_counted_in_the_file(tmp_path: Path, monkeypatch) -> None:
    """Two of three samples need a second draw; the file says so and holds the second one."""
    draws = draw_with_rejections(monkeypatch, rejected=[("train", 0), ("train", 2)])
    spec = DataSpec("darcy", "smoke", count=3, splits=("train",))
    path = tmp_path / spec.file_name
    write_store(path, spec, [generate_sample(spec, *task) for task in spec.tasks])
    assert num_rejected(path, "") == 2
    assert draws == [0, 1, 0, 0, 1]
    with h5py.File(path) as file:
        assert file["train/attempts"][()].tolist() == [2, 1, 2]


def draw_with_rejections(monkeypatch, rejected: list[Task]) -> list[int]:
    """Have the first draws of some samples fail; returns the list of attempts made."""
    attempts: list[int] = []
    solve = type(SMOKE.definition).timed_solve
    real_rng = draw_module.sample_rng
    current: list[tuple[Task, int]] = []

    def rng(seed, benchmark, split, index, attempt):
        current.append(((split, index), attempt))
        return real_rng(seed, benchmark, split, index, attempt)

    def timed_solve(self, drawn, parameters):
        task, attempt = current[-1]
        attempts.append(attempt)
        if task in rejected and attempt == 0:
            raise Rejected("not this one")
        return solve(self, drawn, parameters)

    monkeypatch.setattr(draw_module, "sample_rng", rng)
    monkeypatch.setattr(type(SMOKE.definition), "timed_solve", timed_solve)
    return attempts
