import pytest

from cato.data.generate import generate
from cato.runs.settings import build_settings


@pytest.fixture(scope="session")
def data_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    generate("darcy", "smoke", root=root, workers=1)
    return root


@pytest.fixture
def config_with(data_root):
    """The smoke recipe of Darcy with some settings changed: config_with(train={"epochs": 2})."""

    defaults = {
        "data": {"root": str(data_root)},
        "model": {"width": 8, "depth": 1},
        "train": {"accelerator": "cpu", "epochs": 2, "batch_size": 5},
    }
    return lambda **groups: build_settings("darcy", "smoke", "cato", defaults, groups)
