"""Parse arguments into dataclasses with tyro; errors are one line."""

import io
import re
from collections import deque
from contextlib import redirect_stderr, suppress
from dataclasses import make_dataclass
from inspect import cleandoc
from typing import Any, TypeVar

import tyro

from cato.errors import InputError

Args = TypeVar("Args")

if hasattr(tyro._strings, "remove_single_line_breaks"):
    # tyro joins the lines of a field's docstring, but not those that are indented: all but one.
    _join = tyro._strings.remove_single_line_breaks
    tyro._strings.remove_single_line_breaks = lambda helptext: _join(cleandoc(helptext))

GROUPS = ("model", "data", "loss", "train")
"""The groups of `cato.runs.settings`, whose settings are options --GROUP.SETTING VALUE."""


def split_overrides(arguments: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Separate options such as --model.width 64 from all other arguments.

    They become nested settings, whose values are still words. An option takes the next word, and
    any numbers that follow it: `--model.modes 12 8`.
    """
    changes: dict[str, Any] = {}
    own: list[str] = []
    rest = deque(arguments)
    while rest:
        word = rest.popleft()
        if not any(word.startswith(f"--{group}.") for group in GROUPS):
            own.append(word)
            continue
        option, equals, value = word.removeprefix("--").partition("=")
        words = [value] if equals else []
        if not equals and rest and not rest[0].startswith("--"):
            words.append(rest.popleft())
            while rest and rest[0].isdecimal():
                words.append(rest.popleft())
        *groups, name = option.replace("-", "_").split(".")
        settings = changes
        for group in groups:
            settings = settings.setdefault(group, {})
        settings[name] = None if words == ["None"] else words[0] if len(words) == 1 else words
    return changes, own


def print_settings(config: Any) -> None:
    """Help on every setting of a run, with its value as the default."""
    groups = {group: getattr(config, group) for group in GROUPS}
    settings = make_dataclass("Settings", [(name, type(value)) for name, value in groups.items()])
    # Settings take their value as a word, so that `--train.compile False` means what it says.
    flags = (tyro.conf.FlagConversionOff,)
    with suppress(SystemExit):
        tyro.cli(
            settings,
            prog="cato train",
            args=["--help"],
            default=settings(**groups),
            config=flags,
        )


def parse(kind: type[Args], arguments: list[str], program: str) -> Args:
    """Parse arguments into a dataclass; raises a one-line `InputError`."""
    messages = io.StringIO()
    try:
        with redirect_stderr(messages):
            return tyro.cli(kind, args=arguments, prog=program)
    except SystemExit as stop:
        if not stop.code:
            raise
        message = " ".join(
            re.sub("[╭─╮│╰╯┃━]|-{3,}|[+|] ", " ", messages.getvalue()).split()
        )  # not boxed
        for title in ("Parsing error ", "Unrecognized options "):
            message = message.removeprefix(title)
        raise InputError(message) from None
