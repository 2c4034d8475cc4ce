import shutil
from pathlib import Path

import pytest

from cato.data.generate import generate


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete smoke-scale Darcy file that no test changes."""
    return generate("darcy", "smoke", root=tmp_path_factory.mktemp("pristine"), workers=1)


@pytest.fixture
def smoke_file(pristine: Path, tmp_path: Path) -> Path:
    """A copy to tamper with."""
    return Path(shutil.copy(pristine, tmp_path / pristine.name))
