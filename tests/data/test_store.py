import json
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from cato import __version__
from cato.data import store
from cato.data.formats import new_hdf5
from cato.data.sampling import AcceptedSample, generate_sample
from cato.data.spec import DataSpec
from cato.data.store import read_header, read_store, write_store
from cato.errors import InputError
from cato.problem import Problem

REMEDY = "delete it and run `cato generate darcy --scale smoke`"


def test_header_tells_where_the_data_come_from(pristine: Path) -> None:
    header = read_header(pristine, REMEDY)
    spec = DataSpec("darcy", "smoke")
    assert header["identity"] == spec.identity
    assert Problem.from_dict(header["problem"]) == spec.problem
    assert header["cato"] == __version__


def test_samples_come_back_as_drawn(pristine: Path) -> None:
    stored = read_store(pristine, REMEDY)
    assert {name: len(split.inputs) for name, split in stored.splits.items()} == {
        "train": 24,
        "validation": 8,
        "test": 8,
    }
    drawn = generate_sample(DataSpec("darcy", "smoke"), "validation", 5)
    split = stored.splits["validation"]
    assert np.array_equal(split.inputs[5], drawn.sample.inputs)
    np.testing.assert_allclose(split.targets[5], drawn.sample.targets, rtol=1e-6)
    assert split.attempts[5] == drawn.attempts == 1
    assert (split.diagnostics["residual"] < 1e-10).all()
    assert stored.coords is not None
    assert stored.coords.shape == (15, 15, 2)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.h5 does not exist"):
        read_store(tmp_path / "none.h5", REMEDY)


@pytest.mark.parametrize("fraction", [0.0, 0.01, 0.5, 0.999])
def test_truncated_file(smoke_file: Path, fraction: float) -> None:
    content = smoke_file.read_bytes()
    smoke_file.write_bytes(content[: int(fraction * len(content))])
    with pytest.raises(InputError, match=r"truncated.*delete it and run `cato generate darcy"):
        read_header(smoke_file, REMEDY)


def test_flipped_bits_are_refused_or_harmless(pristine: Path, tmp_path: Path) -> None:
    """Anywhere in the file: it is refused in one line, or read exactly as it was written."""
    content = pristine.read_bytes()
    original = read_store(pristine, REMEDY)
    rng = np.random.default_rng(0)
    offsets = [*range(0, 1200, 17), *rng.integers(0, len(content), 80)]
    refusals = []
    for offset in offsets:
        damaged = bytearray(content)
        damaged[offset] ^= 1 << int(rng.integers(8))
        path = tmp_path / "damaged.h5"
        path.write_bytes(damaged)
        try:
            stored = read_store(path, REMEDY)
        except InputError as error:
            refusals.append(str(error))
            continue
        assert stored.header == original.header
        assert np.array_equal(stored.coords, original.coords)  # type: ignore[arg-type]
        for name, split in original.splits.items():
            assert np.array_equal(split.inputs, stored.splits[name].inputs)
            assert np.array_equal(split.targets, stored.splits[name].targets)
            assert np.array_equal(split.attempts, stored.splits[name].attempts)
    assert len(refusals) > len(offsets) / 3
    assert all("\n" not in text and text.endswith(REMEDY) for text in refusals)


def edit(path: Path, change: Callable[[h5py.File], None]) -> None:
    with h5py.File(path, "r+") as file:
        change(file)


def set_value(name: str, index: tuple[int, ...], value: float) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        file[name][index] = value

    return change


def remove(name: str) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        del file[name]

    return change


def reshape(file: h5py.File) -> None:
    values = file["test/targets"][:-1]
    del file["test/targets"]
    file["test/targets"] = values


def change_header(file: h5py.File) -> None:
    file.attrs["header"] = file.attrs["header"].replace('"seed": 0', '"seed": 1')


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_value("train/targets", (3, 7, 7, 0), 0.5), "train sample 3 is damaged"),
        (set_value("train/diagnostics", (4, 0), 0.5), "train sample 4 is damaged"),
        (set_value("test/sha256", (0, 0), 1), "its test checksums are damaged"),
        (set_value("coords", (1, 1, 0), 0.3), "its coordinates are damaged"),
        (remove("validation/inputs"), "validation/inputs is missing"),
        (reshape, r"test/targets should be float32 \(8, 15, 15, 1\)"),
        (change_header, "its header is damaged"),
        (lambda file: file.attrs.modify("version", 2), "written in format 2.*reads format 1"),
        (lambda file: file.attrs.modify("format", "other"), "not a cato data file"),
    ],
)
def test_changed_contents_are_refused(
    smoke_file: Path, change: Callable[[h5py.File], None], message: str
) -> None:
    edit(smoke_file, change)
    with pytest.raises(InputError, match=message) as refused:
        read_store(smoke_file, REMEDY)
    assert str(refused.value).startswith(str(smoke_file))
    assert str(refused.value).endswith(REMEDY)


def test_foreign_hdf5_file(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "foreign.h5", "w") as file:
        file["x"] = np.zeros(3)
    with pytest.raises(InputError, match="not a cato data file"):
        read_store(tmp_path / "foreign.h5", REMEDY)


def test_nan_is_named_by_sample_and_channel(pristine: Path, tmp_path: Path) -> None:
    """Even where all checksums are right."""
    spec = DataSpec("darcy", "smoke", count=3, splits=("train",))
    samples = [generate_sample(spec, "train", k) for k in range(3)]
    samples[2].sample.targets[4, 5, 0] = np.nan
    write_store(tmp_path / "nan.h5", spec, samples)
    with pytest.raises(InputError, match=r"train targets.*sample 2.*channel 'u' at \[4, 5\]"):
        read_store(tmp_path / "nan.h5", REMEDY)


def test_failed_write_leaves_nothing(tmp_path: Path) -> None:
    spec = DataSpec("darcy", "smoke", count=3, splits=("train",))

    def interrupted() -> "list[AcceptedSample]":
        yield generate_sample(spec, "train", 0)  # type: ignore[misc]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_store(tmp_path / "half.h5", spec, interrupted())
    assert not list(tmp_path.iterdir())


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from cato.data.sampling import generate_sample
from cato.data.spec import DataSpec
from cato.data.store import write_store
from cato.errors import InputError

spec = DataSpec("darcy", "smoke", count=3, splits=("train",))
drawn = [generate_sample(spec, *task) for task in spec.tasks]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # as on a full disk, writes fail beyond the limit
for limit in (0, 1000, 4000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        write_store(Path(sys.argv[1]) / "full.h5", spec, drawn)
    except InputError as error:
        print(error)
"""


def test_full_disk_is_one_line_per_try(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert all("full.h5: File too large. Nothing was overwritten" in line for line in lines)
    assert not list(tmp_path.iterdir())


def test_files_are_streamed_to_disk(tmp_path: Path) -> None:
    row = np.ones((64, 1024))  # half a megabyte
    tracemalloc.start()
    with new_hdf5(tmp_path / "large.h5") as file:
        file.create_dataset("rows", (64, *row.shape), row.dtype)
        for k in range(64):
            file["rows"][k] = row
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "large.h5").stat().st_size > 2**25
    assert peak < 2**23


def test_attempts_and_own_coordinates_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = DataSpec("darcy", "smoke", count=2, splits=("train",))
    drawn = []
    for k in range(2):
        sample = generate_sample(spec, "train", k).sample
        coords = np.random.default_rng(k).random((15, 15, 2)).astype(np.float32)
        changed = type(sample)(sample.inputs, sample.targets, coords, sample.diagnostics)
        drawn.append(AcceptedSample(changed, attempts=k + 5))
    monkeypatch.setattr(type(spec.definition), "coords", lambda self, parameters: None)
    write_store(tmp_path / "own.h5", spec, drawn)
    stored = read_store(tmp_path / "own.h5", REMEDY)
    assert stored.coords is None
    assert stored.splits["train"].attempts.tolist() == [5, 6]
    assert np.array_equal(stored.splits["train"].coords[1], drawn[1].sample.coords)  # type: ignore


def test_file_is_readable_without_cato(pristine: Path, tmp_path: Path) -> None:
    """The layout promised by the module's docstring."""
    with h5py.File(shutil.copy(pristine, tmp_path)) as file:
        assert file.attrs["format"] == store.FORMAT
        assert json.loads(file.attrs["header"])["identity"]["benchmark"] == "darcy"
        assert file["train/inputs"].shape == (24, 15, 15, 1)
