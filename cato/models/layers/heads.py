"""Attention heads share the channels of the hidden state."""

from cato.errors import InputError


def check_heads(width: int, heads: int) -> None:
    """Refuse heads that cannot share the width evenly."""
    if width % heads:
        raise InputError(f"width must be a multiple of heads; got {width} with {heads} heads")
