import pytest

from cato.data.generate import generate
from cato.runs.settings import recipe, run_config


@pytest.fixture(scope="session")
def data_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    generate("darcy", "smoke", root=root, workers=1)
    return root


@pytest.fixture
def config_with(data_root):
    """The smoke recipe of Darcy with some settings changed: config_with(train={"epochs": 2})."""

    def build(**groups):
        values = recipe("darcy", "smoke", "cato").to_dict()
        defaults = {
            "data": {"root": str(data_root)},
            "model": {"width": 8, "depth": 1},
            "train": {"accelerator": "cpu", "epochs": 2, "batch_size": 5},
        }
        for source in (defaults, groups):
            for group, settings in source.items():
                values[group] = values[group] | settings
        return run_config(values, "test")

    return build
