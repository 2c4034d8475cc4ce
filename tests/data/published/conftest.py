import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that does not stay: some files are large."""
    yield tmp_path
    shutil.rmtree(tmp_path)
