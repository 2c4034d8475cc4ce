"""The targets of the Makefile and the `cato` commands of their recipes, variables filled in."""

import re
import shlex
from pathlib import Path

TEXT = (Path(__file__).parents[2] / "Makefile").read_text().replace("\\\n", " ")
VARIABLES = {"MAKE": "make"} | dict(re.findall(r"^(\w+) :?\??= (.*)$", TEXT, re.MULTILINE))
RECIPES = {
    name: recipe.splitlines()
    for name, recipe in re.findall(r"^([\w-]+):(?!=)[^\n]*\n((?:\t.*\n?)*)", TEXT, re.MULTILINE)
}
RECIPES |= {
    f"study-{name}": [f"\t$(BIN)/python -m reproduce {name}"]
    for name in VARIABLES["STUDIES"].split()
}
"""The static pattern rule of the studies, expanded."""


def filled_in(text: str) -> str:
    """A line of a recipe as the shell sees it."""

    def call(match: re.Match[str]) -> str:
        name, *values = match[1].split(",")
        body = VARIABLES[name]
        for number, value in enumerate(values, start=1):
            body = body.replace(f"$({number})", value.strip())
        return body

    text = re.sub(r"\$\(call ([^()]*)\)", call, text)
    while variables := re.findall(r"\$\((\w+)\)", text):
        for name in variables:
            text = text.replace(f"$({name})", VARIABLES[name])
    return text


def commands(target: str) -> list[list[str]]:
    """The commands of a target, as words."""
    words = [shlex.split(filled_in(line.lstrip("\t@"))) for line in RECIPES[target]]
    return [line for line in words if line]


def cato_commands(target: str) -> list[list[str]]:
    """The `cato` commands of a target."""
    return [["cato", *words[1:]] for words in commands(target) if words[0].endswith("/cato")]


def module_commands(target: str) -> list[list[str]]:
    """Module and arguments of the `python -m …` commands of a target."""
    return [words[2:] for words in commands(target) if words[1:2] == ["-m"]]
