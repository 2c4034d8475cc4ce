import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cato.errors import InputError
from cato.files import locked

HOLD = """
import sys
from pathlib import Path
from cato.files import locked
with locked(Path(sys.argv[1]), "busy"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until its standard input closes."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_the_message_has_the_number_of_the_holder(tmp_path: Path, holder) -> None:
    for _ in range(2):  # a refused attempt must not erase it
        with (
            pytest.raises(InputError, match=f"^process {holder.pid} has it$"),
            locked(tmp_path / "lock", "process {pid} has it"),
        ):
            pass
    holder.communicate()
    with locked(tmp_path / "lock", "busy"):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    assert not list(tmp_path.iterdir())


def test_the_lock_of_a_killed_process_does_no_harm(tmp_path: Path, holder) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / "lock").exists()
    with locked(tmp_path / "lock", "busy"):
        pass
    assert not list(tmp_path.iterdir())


def test_not_twice_in_one_process(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "lock", "busy"),
        pytest.raises(InputError, match=str(os.getpid())),
        locked(tmp_path / "lock", "{pid}"),
    ):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match=r"cannot write into .*Permission denied"):
        locked(tmp_path / "lock", "busy").__enter__()
    tmp_path.chmod(0o700)


def test_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot write into .*choose another folder"):
        locked(tmp_path / "file" / "lock", "busy").__enter__()
