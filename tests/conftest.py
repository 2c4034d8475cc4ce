"""Every test computes on one thread, and the shape annotations of tensor code are checked."""

import os

# Workers of pytest have a core each: a second thread would only wait, and busily. NumPy reads this
# when it is loaded, so that no plugin of pytest may load it before (see pyproject.toml).
os.environ["OMP_NUM_THREADS"] = "1"

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

install_import_hook(
    [
        "cato.kernels.attention",
        "cato.kernels.neighbours",
        "cato.models",
        "cato.physics",
        "cato.data",
        "cato.surrogate",
        "reproduce.theory",
    ],
    "beartype.beartype",
)

# The same examples in every run, so that a failure is a change; HYPOTHESIS=random looks further.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("random", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS", "fixed"))


@pytest.fixture(scope="session")
def data_root(tmp_path_factory):
    from cato.data.generate import generate

    root = tmp_path_factory.mktemp("data")
    generate("darcy", "smoke", root=root, workers=1)
    return root


@pytest.fixture
def config_with(data_root):
    """The smoke recipe of Darcy with some settings changed: config_with(train={"epochs": 2})."""
    from cato.runs.settings import build_settings

    defaults = {
        "data": {"root": str(data_root)},
        "model": {"width": 8, "depth": 1},
        "train": {"accelerator": "cpu", "epochs": 2, "batch_size": 5},
    }
    return lambda **groups: build_settings("darcy", "smoke", "cato", defaults, groups)
