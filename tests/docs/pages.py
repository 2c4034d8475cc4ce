"""The pages of the documentation, taken apart: code blocks, code within sentences, links."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")], key=lambda page: page.as_posix()
)
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
FORMULA = re.compile(r"^    .*$", re.MULTILINE)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
SHELL = ("sh", "bash", "console", "shell")


class Page(NamedTuple):
    """The parts of a page that can be checked."""

    blocks: list[tuple[str, str]]
    """Language and text of the code blocks."""
    spans: list[str]
    """Code within sentences."""
    links: list[str]


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


each_page = pytest.mark.parametrize("page", PAGES, ids=named)


def read(page: Path) -> Page:
    text = page.read_text()
    prose = FORMULA.sub("", FENCE.sub("", text))
    return Page(FENCE.findall(text), SPAN.findall(prose), LINK.findall(prose))


def lines_of(shell: str) -> list[str]:
    """The commands of a shell block, without comments and prompts, `&&` apart."""
    lines = shell.replace("\\\n", " ").splitlines()
    commands = [part for line in lines for part in re.sub(r"^\$ ", "", line).split("&&")]
    words = [shlex.split(command, comments=True) for command in commands]
    return [shlex.join(w) for w in words if w]


def shell_commands(page: Path) -> list[str]:
    """What the page tells to type, in its order."""
    blocks = read(page).blocks
    return [line for language, text in blocks if language in SHELL for line in lines_of(text)]


def told(page: Path) -> list[list[str]]:
    """Words of the commands in shell blocks and of all code within sentences."""
    words = [shlex.split(command) for command in shell_commands(page)]
    for span in read(page).spans:
        try:
            words += [shlex.split(command, comments=True) for command in span.split("&&")]
        except ValueError:  # a span that is no command, such as an apostrophe
            continue
    return [w for w in words if w]


def cato_arguments(words: list[str]) -> list[str] | None:
    """Arguments of `cato …`, also by way of `torchrun … -m cato …`; None for other commands."""
    if words[0] == "cato" and len(words) > 1:
        return words[1:]
    if words[0] in ("python", "torchrun") and "-m" in words:
        module, *arguments = words[words.index("-m") + 1 :]
        return arguments if module == "cato" else None
    return None
