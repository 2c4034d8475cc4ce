"""Bytes that others wrote: their parsers raise nearly anything, and a user gets one line."""

from collections.abc import Iterator
from contextlib import contextmanager

from cato.errors import InputError


@contextmanager
def parse_errors(what: object, kind: str) -> Iterator[None]:
    """Turn whatever a parser raises into an `InputError`.

    Args:
        what: The file, or the part of it that is read.
        kind: The format.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{what} cannot be read as {kind}: {reason}") from None
