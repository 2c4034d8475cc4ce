"""Shape annotations of the package are checked at run time in every test."""

import torch
from jaxtyping import install_import_hook

install_import_hook("cato", "beartype.beartype")
torch.set_num_threads(1)
