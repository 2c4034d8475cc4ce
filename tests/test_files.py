"""Temporary files of killed processes, sealed files, and JSON that every parser accepts."""

import json
import subprocess
import sys
from math import inf, nan
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cato.errors import InputError
from cato.files import (
    MAX_TEXT,
    atomic_folder,
    atomic_write,
    read_json,
    read_sealed,
    remove_leftovers,
    to_json,
    write_json,
    write_sealed,
)

WRITE = """
import sys
from math import inf, nan
from pathlib import Path
from cato.files import atomic_folder, atomic_write
with atomic_write(Path(sys.argv[1])) as file, atomic_folder(Path(sys.argv[2])) as folder:
    file.write_text("half")
    (folder / "part").write_text("half")
    print("writing", flush=True)
    sys.stdin.read()
"""


def test_only_files_of_dead_processes_are_removed(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WRITE, str(tmp_path / "file"), str(tmp_path / "folder")]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"writing\n"
    (tmp_path / ".file.12345678.tmp").write_text("of another program")
    remove_leftovers(tmp_path)
    assert len(list(tmp_path.glob(".*.tmp"))) == 3, "the process is alive"
    process.kill()
    process.communicate()
    with atomic_write(tmp_path / "other") as temporary:  # the next command, whatever it writes
        temporary.write_text("whole")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".file.12345678.tmp", "other"]


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    with (
        pytest.raises(InputError, match="File exists"),
        atomic_write(tmp_path / "old", True) as new,
    ):
        new.write_text("new")
    with pytest.raises(InputError, match="nothing was written"), atomic_write(tmp_path / "old"):
        pass
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").touch()
    with pytest.raises(InputError, match="not empty"), atomic_folder(tmp_path / "folder") as new:
        (new / "part").touch()
    assert [p.name for p in (tmp_path / "folder").iterdir()] == ["mine"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "old"]
    assert (tmp_path / "old").read_text() == "old"


def test_a_sealed_file_is_that_of_its_owner_and_name(tmp_path: Path) -> None:
    path, values = tmp_path / "a.json", {"id": "me", "ä": [1.5, None], "7": {}}
    write_sealed(path, values, "me")
    assert read_sealed(path, "file", "me") == read_sealed(path, "file", None) == values
    (tmp_path / "b.json").write_bytes(path.read_bytes())
    for other, owner in ((path, "you"), (path, ""), (tmp_path / "b.json", "me")):
        with pytest.raises(InputError, match="its checksum differs"):
            read_sealed(other, "file", owner)
    content = path.read_bytes()
    end = content.rindex(b',\n  "checksum"')
    for place in range(end):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(InputError):
            read_sealed(path, "file", "me")


def test_a_file_without_a_checksum_has_no_owner(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text('{"a": 1}')
    assert read_sealed(tmp_path / "old.json", "file", "") == {"a": 1}
    with pytest.raises(InputError, match="lost its checksum"):
        read_sealed(tmp_path / "old.json", "file", "me")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"a": 1, "a": 2}', "twice"),
        (b"[" * 10**6, "recursion"),
        (b'{"\xff": 1}', "utf-8"),
        (b"9" * 5000, "4300 digits"),
        (b" " * (MAX_TEXT + 1), "expected at most"),
    ],
)
def test_bad_json_is_an_error_of_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "bad.json").write_bytes(content)
    with pytest.raises(InputError, match=words) as error:
        read_json(tmp_path / "bad.json", "file")
    assert "\n" not in str(error.value)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def refuse(word):
    raise AssertionError(f"{word} is not JSON")


@settings(max_examples=50)
@given(VALUES)
def test_json_has_no_nan_and_no_infinity(values):
    json.loads(to_json(values), parse_constant=refuse)


def test_only_what_is_not_finite_becomes_null(tmp_path):
    write_json(tmp_path / "a.json", {"é": [1.5, nan, (inf, -inf, 2)], "b": {"c": -inf}})
    assert read_json(tmp_path / "a.json", "test") == {
        "é": [1.5, None, [None, None, 2]],
        "b": {"c": None},
    }


def test_other_objects_are_refused():
    with pytest.raises(TypeError):
        to_json({"a": object()})
