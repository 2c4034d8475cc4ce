import shutil
from pathlib import Path

import pytest


@pytest.fixture
def pristine(data_root: Path) -> Path:
    """A complete smoke-scale Darcy file that no test changes."""
    return data_root / "darcy-smoke-seed0.h5"


@pytest.fixture
def smoke_file(pristine: Path, tmp_path: Path) -> Path:
    """A copy to tamper with."""
    return Path(shutil.copy(pristine, tmp_path / pristine.name))
