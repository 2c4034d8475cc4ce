"""Shape annotations of the tensor code are checked at run time in every test."""

import torch
from jaxtyping import install_import_hook

install_import_hook(
    ["cato.models", "cato.physics", "cato.data", "cato.surrogate"], "beartype.beartype"
)
torch.set_num_threads(1)
