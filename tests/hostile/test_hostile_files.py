"""A small part of the campaign of mutated files, and files made to do harm."""

import time
import warnings
import zipfile

import h5py
import numpy as np
import pytest

from cato import sandbox
from cato.errors import InputError
from cato.user_data.naming import Naming, ReadRequest
from cato.user_data.read import open_user_data, read_samples
from tools.hostile import verdicts
from tools.hostile.mutated_files import FORMATS, attacks
from tools.hostile.verdicts import VERDICTS, run_attacks


def assert_harmless(counts):
    assert not counts["failures"], "\n".join(counts["failures"])
    assert counts["tried"] == counts["correct"] + counts["one_line_errors"]


def test_mutated_files(tmp_path):
    some = tuple(FORMATS)[::3]
    counts = run_attacks(attacks(tmp_path, 0, some), 600, most=3 * len(some))
    assert_harmless(counts)
    assert counts["correct"] >= len(some)  # the first of each format is whole


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_a_thousand_mutated_files(name, tmp_path):
    assert_harmless(run_attacks(attacks(tmp_path, 1, (name,)), 3600, most=1000))


def test_verdicts_tell_good_from_bad(tmp_path):
    functions = (print, int, crash, exit_with_two_lines)
    bad = [("", f, ("x",)) for f in functions]
    counts = run_attacks(bad, 60)
    found = [counts[name] for name in VERDICTS]
    assert found == [1, 0, 1, 1, 1, 0]  # correct, -, wrong, a traceback, a crash, -


@pytest.mark.slow
def test_a_hang_counts_if_it_comes_again(tmp_path, monkeypatch):
    monkeypatch.setattr(verdicts, "HANG", 5.0)
    first = ("", print, ())
    stalls = [("", stall, (tmp_path / f"{times}", times)) for times in (1, 2)]
    counts = run_attacks([first, *stalls], 600)
    assert (counts["correct"], counts["hangs"]) == (2, 1)


def stall(folder, times):
    """Hang in the first calls."""
    folder.mkdir(exist_ok=True)
    calls = len(list(folder.iterdir()))
    (folder / f"{calls}").touch()
    if calls < times:
        time.sleep(1000)


def crash(_):
    import ctypes

    ctypes.string_at(0)


def exit_with_two_lines(_):
    import sys

    print("cato: one\ncato: two", file=sys.stderr)
    sys.exit(2)


# -- files made to do harm ------------------------------------------------------------------------


X = np.ones((3, 4, 4, 1))


def refused(path, naming=None):
    with pytest.raises(InputError) as error:
        read_samples(path, ReadRequest(naming or Naming()))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_hdf5_that_declares_a_petabyte(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["coords"] = np.zeros((4, 4, 2))
        for name in ("inputs", "targets"):
            file.create_dataset(name, (2**41, 4, 4, 8), "f4", chunks=(1, 4, 4, 8))
    assert "declares 1.13 PB of values" in refused(tmp_path / "a.h5")


@pytest.mark.parametrize(
    ("is_confirmed", "words"), [(True, "'inputs' declares 8.8 TB"), (False, "cannot be read as")]
)
def test_npz_whose_headers_lie(is_confirmed, words, tmp_path):
    """The table of the archive confirms the size of the array, or does not."""
    path, declared = tmp_path / "a.npz", 2**40
    np.savez(path, coords=np.zeros((4, 4, 2)), targets=np.ones((3, 4, 4, 1)))
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({declared},), }}"
    text = header.ljust(117).encode() + b"\n"
    start = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("inputs.npy", start)
        archive.infolist()[-1].file_size = len(start) + 8 * declared if is_confirmed else 0
    assert words in refused(path)


def test_zip_bomb(tmp_path, monkeypatch):
    """An honest archive that unpacks to more than its share of memory, here a small one."""
    arrays = {"inputs": np.zeros((3, 4, 4, 2**16), np.float32), "targets": np.ones((3, 4, 4, 1))}
    np.savez_compressed(tmp_path / "a.npz", coords=np.zeros((4, 4, 2)), **arrays)
    assert (tmp_path / "a.npz").stat().st_size < 10**6
    read_samples(tmp_path / "a.npz", ReadRequest(Naming()))
    monkeypatch.setattr(sandbox, "MEMORY", 10**7)
    monkeypatch.setattr(sandbox, "MAX_EXPANSION", 0)
    assert "'inputs' declares 12.6 MB of values, but only" in refused(tmp_path / "a.npz")


def test_an_array_that_an_archive_holds_twice(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, coords=np.zeros((4, 4, 2)), inputs=X, targets=X)
    with zipfile.ZipFile(path, "a") as archive, warnings.catch_warnings(action="ignore"):
        archive.writestr("inputs.npy", archive.read("targets.npy"))
    assert "holds the array 'inputs' twice" in refused(path)


def test_objects(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["coords"] = np.zeros((4, 4, 2))
        file["targets"] = np.ones((3, 4, 4, 1))
        objects = file.create_dataset("inputs", (3, 4, 4, 1), h5py.vlen_dtype(np.float32))
        objects[0, 0, 0, 0] = np.ones(3)
    assert "should be numbers, but is objects" in refused(path)


def test_a_loop_of_links_and_a_pipe(tmp_path):
    import os

    (tmp_path / "loop.h5").symlink_to(tmp_path / "loop.h5")
    os.mkfifo(tmp_path / "pipe.h5")
    (tmp_path / "zero.h5").symlink_to("/dev/zero")
    for name, words in (("loop", "does not exist"), ("pipe", "regular"), ("zero", "regular")):
        assert words in refused(tmp_path / f"{name}.h5")
        with pytest.raises(InputError, match=words):
            open_user_data(tmp_path / f"{name}.h5", Naming())
