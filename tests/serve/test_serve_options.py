"""The options of `cato serve` and their table in docs/serving.md."""

import re
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import pytest

from cato.cli import main
from cato.serve import server
from cato.serve.settings import ServeSettings

PAGE = Path(__file__).parents[2] / "docs" / "serving.md"
OWN = {"--host": "127.0.0.1", "--port": "8000", "--token-file": "", "--open": ""}


def table():
    """Options of the page, with their defaults."""
    section = PAGE.read_text().partition("## Options")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(--[\w-]+)` \| (.*?) \|", section, re.MULTILINE))


def written(value):
    """A default as the page has it."""
    if value in ((), False):
        return ""
    if isinstance(value, int) and value % 2**20 == 0:
        return f"{value // 2**20} MiB"
    return f"{value:g}".replace("e+", "e")


def test_the_page_has_every_option_with_its_default():
    options = {
        f"--{field.name.replace('_', '-')}": written(field.default)
        for field in fields(ServeSettings)
    }
    assert table() == OWN | options


def test_every_setting_is_an_option(monkeypatch):
    """Each is given on the command line and arrives."""
    given = {}
    monkeypatch.setattr(server, "serve", lambda *_, **options: given.update(options))
    words, expected = [], {}
    for field in fields(ServeSettings):
        option = f"--{field.name.replace('_', '-')}"
        if isinstance(field.default, bool):
            expected[field.name] = True
            words.append(option)
        elif isinstance(field.default, tuple):
            expected[field.name] = ("10.0.0.1", "10.0.0.2")
            words += [option, *expected[field.name]]
        else:
            expected[field.name] = 7 + len(expected)
            words += [option, str(expected[field.name])]
    main(["serve", *words])
    assert given["settings"] == ServeSettings(**expected)
    assert given["token"] == ""


def test_help_groups_the_options(capsys):
    with suppress(SystemExit):
        main(["serve", "--help"])
    shown = capsys.readouterr().out
    for group in ("access", "requests", "total", "client", "solvers", "batching"):
        assert f"{group} options" in shown


@pytest.mark.parametrize("name", [field.name for field in fields(ServeSettings)])
def test_every_setting_is_used(name):
    source = PAGE.parents[1] / "cato" / "serve"
    texts = [path.read_text() for path in source.glob("*.py") if path.name != "settings.py"]
    assert any(re.search(rf"settings\.{name}\b", text) for text in texts)
