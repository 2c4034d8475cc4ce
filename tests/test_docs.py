"""The documentation cannot rot: what it names exists, and what it tells to type is understood."""

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import pytest

import cato
from cato.cli.commands import COMMANDS, Generate, Train
from cato.cli.main import split_name
from cato.cli.parsing import parse, split_overrides
from cato.errors import InputError
from cato.models.registry import MODELS

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")], key=lambda page: page.as_posix()
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FORMULA = re.compile(r"^    .*$", re.MULTILINE)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FOLDERS = ("benchmarks/", "cato/", "docs/", "examples/", "tests/")


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


each_page = pytest.mark.parametrize("page", PAGES, ids=named)


class Page(NamedTuple):
    """The parts of a page that can be checked."""

    blocks: list[tuple[str, str]]
    """Language and text of the code blocks."""
    spans: list[str]
    """Code within sentences."""
    links: list[str]


def read(page: Path) -> Page:
    text = page.read_text()
    prose = FORMULA.sub("", FENCE.sub("", text))
    return Page(FENCE.findall(text), SPAN.findall(prose), LINK.findall(prose))


def command_lines(page: Path) -> Iterator[list[str]]:
    """What the page tells to type: lines of shell blocks, and code within sentences."""
    content = read(page)
    shell = [text for language, text in content.blocks if language == "sh"]
    lines = [line for text in shell for line in text.replace("\\\n", " ").splitlines()]
    for line in [*lines, *content.spans]:
        for command in line.split("&&"):
            try:
                words = shlex.split(command, comments=True)
            except ValueError:  # a span that is no command, such as an apostrophe
                continue
            if words:
                yield words


def cato_arguments(words: list[str]) -> list[str] | None:
    """Arguments of `cato …`, also by way of `torchrun … -m cato …`; None for other commands."""
    if words[0] == "cato" and len(words) > 1:
        return words[1:]
    if words[0] in ("python", "torchrun") and "-m" in words:
        module, *arguments = words[words.index("-m") + 1 :]
        return arguments if module == "cato" else None
    return None


def check_arguments(*words: str) -> None:
    """Parse as `cato` would, and check what is checked before anything is done."""
    name, arguments = split_name(list(words))
    assert name in COMMANDS, f"no command {name}"
    if not arguments or "--help" in arguments:  # a command that a sentence names, or its help
        return
    overrides, own = split_overrides(list(arguments))
    command = parse(COMMANDS[name], own if name == "train" else list(arguments), f"cato {name}")
    is_file = isinstance(command, Train) and Path(command.benchmark).suffix  # a reader's own
    if isinstance(command, Train) and command.resume is None and command.benchmark and not is_file:
        command.config(overrides)
    if isinstance(command, Generate):
        command.specs()


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for link in read(page).links:
        if not link.startswith(("http://", "https://")):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), f"{link} does not exist"
            if anchor:
                titles = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
                anchors = [re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles]
                assert anchor in anchors, f"{link}: no such section"


@each_page
def test_files_that_are_named_exist(page: Path) -> None:
    for span in read(page).spans:
        if span.startswith(FOLDERS) and re.fullmatch(r"[\w./-]+", span):
            assert (ROOT / span).exists(), f"{span} does not exist"


@each_page
def test_commands_are_understood(page: Path) -> None:
    for words in command_lines(page):
        arguments = cato_arguments(words)
        if arguments is not None:
            try:
                check_arguments(*arguments)
            except InputError as error:
                pytest.fail(f"{' '.join(words)}: {error}")


@each_page
def test_make_targets_and_scripts_exist(page: Path) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for words in command_lines(page):
        if words[0] == "make" and len(words) == 2:
            assert words[1] in targets, f"no target {words[1]}"
        if words[0] == "python" and len(words) > 1 and words[1].endswith(".py"):
            assert (ROOT / words[1]).exists(), f"{words[1]} does not exist"


@each_page
def test_python_is_python_and_names_are_public(page: Path) -> None:
    for language, text in read(page).blocks:
        if language == "python":
            for node in ast.walk(ast.parse(text)):
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.value, ast.Name)
                    and node.value.id == "cato"
                ):
                    assert node.attr in cato.__all__
    for span in read(page).spans:
        for name in re.findall(r"^cato\.([a-z_]+)\(", span):
            assert name in cato.__all__


def test_readme_names_every_command_and_the_page_of_studies_every_study() -> None:
    pages = (ROOT / "README.md", ROOT / "docs/studies.md")
    lines = [cato_arguments(words) for page in pages for words in command_lines(page)]
    assert set(COMMANDS) <= {split_name(arguments)[0] for arguments in lines if arguments}


@pytest.mark.parametrize("name", ["cato", "cato_pc"])
def test_defaults_in_the_model_tables(name: str) -> None:
    title = MODELS[name].title
    (section,) = re.findall(
        rf"^## {title}: .*?(?=^## )", (ROOT / "docs/models.md").read_text(), re.M | re.S
    )
    told: dict[str, str] = {}
    for names, values in re.findall(r"^\| (`.+?`) \| (.+?) \|", section, re.M):
        told |= zip(SPAN.findall(names), values.replace("`", "").split(", "), strict=True)
    defaults = {f.name: f.default for f in fields(MODELS[name].config)}
    assert told == {key: str(value).lower().removesuffix(".0") for key, value in defaults.items()}


@pytest.mark.parametrize(
    "arguments",
    [
        "fly",
        "train darcy --widht 3",
        "train darcy --model.widht 3",
        "generate darcy --scale huge",
        "evaluate runs/x --fast",
        "predict runs/x",
    ],
)
def test_a_wrong_command_would_be_found(arguments: str) -> None:
    with pytest.raises((InputError, AssertionError)):
        check_arguments(*arguments.split())
