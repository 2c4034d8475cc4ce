"""Shape annotations of the tensor code are checked at run time in every test."""

import os

import torch
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
torch.set_num_threads(1)

# The same examples in every run, so that a failure is a change; HYPOTHESIS=random looks further.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("random", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS", "fixed"))
