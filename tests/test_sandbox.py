"""The child process that parses foreign files: it may do anything, and the parent goes on."""

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cato import sandbox
from cato.errors import InputError
from cato.memory import available_memory, require_memory
from cato.sandbox import parse

# What the child runs.


def arrays_of(path):
    rng = np.random.default_rng(0)
    return {
        "numbers": [rng.random((3, 4)), np.asfortranarray(np.arange(6).reshape(2, 3))],
        "text": (np.array(["a", "bc"]), path.read_text()),
        "empty": np.zeros((0, 3), np.float32),
        "flags": np.array([True, False]),
        "nothing": None,
    }


def crash(path):
    if path.name == "bad":
        ctypes.string_at(0)


def abort(path):
    os.write(2, b"free(): invalid pointer\n")
    os.abort()


def hang_with_the_lock(path):
    path.with_suffix(".pid").write_text(str(os.getpid()))
    re.match(r"(a+)+$", "a" * 60 + "b")  # holds the interpreter's lock for ages


def eat(path, num_bytes):
    np.ones(num_bytes, np.uint8)


def objects(path):
    return np.array([object()])


def fail(path):
    raise KeyError("two\nlines")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_text("text")
    return path


def rest(_):
    time.sleep(1)


def refused(function, files, *arguments):
    with pytest.raises(InputError) as error:
        parse(function, files, *arguments, imports=())
    assert "\n" not in str(error.value)
    return str(error.value)


def test_values_and_arrays_come_back_as_they_were(file):
    expected = arrays_of(file)
    first, second = parse(arrays_of, [file, file], imports=())
    for found in (first, second):
        np.testing.assert_equal(found, expected)
        assert found["numbers"][0].dtype == np.float64
        assert found["empty"].dtype == np.float32
    first["numbers"][0][:] = 0  # theirs alone, and writable
    assert second["numbers"][0].all()


def test_a_crash_names_its_file_and_the_next_call_works(tmp_path, capfd):
    files = [tmp_path / name for name in ("good", "bad", "last")]
    for path in files:
        path.touch()
    assert f"{tmp_path / 'bad'} cannot be read" in refused(crash, files)
    assert "crashed" in refused(abort, files[:1])
    assert parse(crash, files[:1], imports=()) == [None]
    assert capfd.readouterr().err == ""


def test_a_hang_ends_at_the_time_limit(file, monkeypatch):
    monkeypatch.setattr(sandbox, "SECONDS", 0.5)
    monkeypatch.setattr(sandbox, "slowness", lambda: 1)
    began = time.monotonic()
    assert "given up after" in refused(hang_with_the_lock, [file])
    assert time.monotonic() - began < 15


def test_the_time_limit_grows_with_the_load(file, monkeypatch):
    monkeypatch.setattr(sandbox, "SECONDS", 0.01)
    monkeypatch.setattr(os, "getloadavg", lambda: (6000.0 * os.cpu_count(), 0.0, 0.0))
    assert parse(rest, [file], imports=()) == [None]
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    assert "given up after" in refused(rest, [file])


def test_memory_is_limited_by_the_size_of_the_file(file):
    parse(eat, [file], sandbox.MEMORY // 4, imports=())
    assert "1.07 GB of memory" in refused(eat, [file], 2 * sandbox.MEMORY)
    parse(eat, [file], sandbox.MEMORY // 4, imports=())


def test_objects_and_exceptions_are_one_line(file):
    assert "should be numbers or text, but is object" in refused(objects, [file])
    assert "cannot be read: 'two\\nlines'" in refused(fail, [file])


def test_memory_that_cannot_be_had_is_refused():
    assert 10**6 < available_memory() < 10**15
    with pytest.raises(InputError, match=r"it needs 8.88 PB of memory, but only .*; go away"):
        require_memory(8.88e15, "it", "go away")


PARENT = """
from pathlib import Path
from cato.sandbox import parse
from tests.test_sandbox import hang_with_the_lock
import cato.sandbox
cato.sandbox.SECONDS, cato.sandbox.slowness = 3, lambda: 1
parse(hang_with_the_lock, [Path({path!r})], imports=())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["kill", "Ctrl-C"])
def test_a_parser_does_not_outlive_its_parent(number, file):
    root = str(Path(__file__).parents[1])
    code = f"import sys; sys.path.insert(0, {root!r})\n" + PARENT.format(path=str(file))
    parent = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    told, deadline = file.with_suffix(".pid"), time.monotonic() + 300
    while not (told.exists() and told.read_text()):  # it imports a lot first
        assert time.monotonic() < deadline
        time.sleep(0.05)
    deadline = time.monotonic() + 60
    parent.send_signal(number)
    parent.wait(20)
    while is_running(int(told.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
