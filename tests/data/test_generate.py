import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest

from cato.benchmarks.contract import Rejected
from cato.data import generate as module
from cato.data import sampling as draw_module
from cato.data.generate import SampleCache, generate, generate_file, solve_in_parallel
from cato.data.sampling import AcceptedSample, generate_sample
from cato.data.spec import DataSpec
from cato.data.store import num_rejected, write_store
from cato.errors import InputError
from cato.files import digest

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
    folder = SampleCache(root / LONG.file_name, LONG).folder
    try:
        deadline = time.monotonic() + 60
        while len(list(folder.glob("*.part"))) < num_samples:
            assert process.poll() is None, "ended too early"
            assert time.monotonic() < deadline
            time.sleep(0.002)
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """The tasks that are really solved in a test."""
    tasks: list[Task] = []

    def watched(cache: SampleCache, missing: Sequence[Task], num_workers: int) -> Iterator[None]:
        tasks.extend(missing)
        return solve_in_parallel(cache, missing, num_workers)

    monkeypatch.setattr(module, "solve_in_parallel", watched)
    return tasks


def test_two_workers_write_the_very_same_file(pristine: Path, tmp_path: Path) -> None:
    path = generate("darcy", "smoke", root=tmp_path, workers=2)
    assert digest(path) == digest(pristine)
    assert [p.name for p in tmp_path.iterdir()] == [path.name], "cache and locks must be gone"


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
    time.sleep(1)  # its worker may still be finishing one sample
    cache = SampleCache(tmp_path / LONG.file_name, LONG)
    kept = [task for task in LONG.tasks if cache.is_intact(*task)]
    assert 3 <= len(kept) < len(LONG.tasks)
    path = generate_file(LONG, tmp_path, workers=2)
    assert set(solved) == set(LONG.tasks) - set(kept), "finished samples must not be solved again"
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
    cache = SampleCache(tmp_path / LONG.file_name, LONG)
    assert kept == sum(cache.is_intact(*task) for task in LONG.tasks) >= 3


def test_damaged_cache_is_solved_again(pristine: Path, tmp_path: Path, solved: list[Task]) -> None:
    spec = DataSpec("darcy", "smoke", splits=("test",))
    target = tmp_path / spec.file_name
    cache = SampleCache(target, spec)
    list(solve_in_parallel(cache, spec.tasks, 1))
    cut, flipped, swapped, foreign = (("test", k) for k in (1, 2, 3, 4))
    content = cache.path(*cut).read_bytes()
    cache.path(*cut).write_bytes(content[: len(content) // 2])
    content = bytearray(cache.path(*flipped).read_bytes())
    content[len(content) // 2] ^= 1
    cache.path(*flipped).write_bytes(content)
    cache.path(*swapped).write_bytes(cache.path("test", 5).read_bytes())
    other = SampleCache(target, DataSpec("darcy", "smoke", seed=1))
    other.write(*foreign, cache.read(*foreign))
    cache.path(*foreign).write_bytes(other.path(*foreign).read_bytes())
    other.remove()
    path = generate_file(spec, tmp_path, workers=1)
    assert sorted(solved) == sorted([cut, flipped, swapped, foreign])
    assert np.array_equal(arrays(path)["test/targets"], arrays(pristine)["test/targets"])


def test_cache_file_damaged_at_the_last_moment_is_named(tmp_path: Path) -> None:
    cache = SampleCache(tmp_path / SMOKE.file_name, SMOKE)
    with pytest.raises(InputError, match=r"train-00003.part was damaged.*same command again"):
        cache.read("train", 3)


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


class DeadlyCache(SampleCache):
    """Kills the worker process that writes sample 1, as the kernel does when out of memory."""

    def write(self, split: str, index: int, accepted: AcceptedSample) -> None:
        if index == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        super().write(split, index, accepted)


def test_killed_worker_is_reported(tmp_path: Path) -> None:
    cache = DeadlyCache(tmp_path / SMOKE.file_name, SMOKE)
    with pytest.raises(InputError, match=r"killed, probably out of memory.*fewer --workers"):
        list(solve_in_parallel(cache, [("train", 0), ("train", 1)], 1))
    assert cache.is_intact("train", 0)


def test_failure_inside_a_worker_is_passed_on(tmp_path: Path) -> None:
    cache = SampleCache(tmp_path / SMOKE.file_name, SMOKE)
    (cache.path("train", 0) / "in the way").mkdir(parents=True)
    with pytest.raises(InputError, match="cannot write"):
        list(solve_in_parallel(cache, [("train", 0)], 1))
    with pytest.raises(RuntimeError, match="Traceback"):
        list(solve_in_parallel(cache, [("no file can be called\0", 0)], 1))


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
