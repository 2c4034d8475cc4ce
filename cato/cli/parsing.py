"""Parse arguments into dataclasses with tyro; errors are one line."""

import io
from collections import deque
from contextlib import redirect_stderr
from dataclasses import field, make_dataclass
from typing import Any, TypeVar

import tyro

from cato.errors import InputError

Args = TypeVar("Args")

GROUPS = ("model", "data", "loss", "train")
"""The groups of `cato.runs.settings`, whose settings are options --GROUP.SETTING VALUE."""


def split_overrides(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Separate options such as --model.width, with their values, from all other arguments.

    An option takes the next word, and any numbers that follow it: `--model.modes 12 8`.
    """
    overrides: list[str] = []
    own: list[str] = []
    rest = deque(arguments)
    while rest:
        word = rest.popleft()
        if not any(word.startswith(f"--{group}.") for group in GROUPS):
            own.append(word)
            continue
        overrides.append(word)
        if "=" not in word and rest and not rest[0].startswith("--"):
            overrides.append(rest.popleft())
            while rest and rest[0].isdecimal():
                overrides.append(rest.popleft())
    return overrides, own


def settings_type(config: Any) -> type[Any]:
    """A dataclass of the groups of settings, with the config class of the chosen model."""
    return make_dataclass(
        "Settings", [(group, type(getattr(config, group)), field()) for group in GROUPS]
    )


def changes_of(overrides: list[str]) -> dict[str, Any]:
    """Options such as --model.width 64 as nested settings, whose values are still words."""
    changes: dict[str, Any] = {}
    rest = deque(overrides)
    while rest:
        option, equals, value = rest.popleft().removeprefix("--").partition("=")
        words = [value] if equals else []
        while rest and not rest[0].startswith("--"):
            words.append(rest.popleft())
        *groups, name = option.replace("-", "_").split(".")
        settings = changes
        for group in groups:
            settings = settings.setdefault(group, {})
        settings[name] = None if words == ["None"] else words[0] if len(words) == 1 else words
    return changes


def parse(kind: type[Args], arguments: list[str], program: str, default: Any = None) -> Args:
    """Parse arguments into a dataclass; raises a one-line `InputError`."""
    messages = io.StringIO()
    options: dict[str, Any] = {}
    if default is not None:
        options["default"] = kind(**{group: getattr(default, group) for group in GROUPS})
    # Settings take their value as a word, so that `--train.compile False` means what it says.
    flags = () if default is None else (tyro.conf.FlagConversionOff,)
    try:
        with redirect_stderr(messages):
            return tyro.cli(kind, args=arguments, prog=program, config=flags, **options)
    except SystemExit as stop:
        if stop.code:
            raise InputError(one_line(messages.getvalue())) from None
        raise


def one_line(message: str) -> str:
    """The text of a boxed message."""
    words = "".join(" " if c in "╭─╮│╰╯┃━" else c for c in message).split()
    return " ".join(words).removeprefix("Parsing error ").removeprefix("Unrecognized options ")
