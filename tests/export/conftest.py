import jaxtyping
import pytest


@pytest.fixture(autouse=True)
def no_shape_checks():
    """The checker of shapes compares sizes, which a trace would take for conditions on them."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
