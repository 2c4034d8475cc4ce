"""How the weights of transformers start."""

from torch import nn


def start_small(module: nn.Module) -> None:
    """Linear maps start at random with deviation 0.02 and no bias; for `nn.Module.apply`."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
