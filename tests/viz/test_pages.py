"""Pages from templates."""

import base64
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from cato.viz.pages import render

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PAGE = """\
{% extends "base.html.j2" %}
{% from "macros.html.j2" import facts, picture, table %}
{% block content %}
{{ table(("name", "error"), [("CATO", "1 %"), ("<FNO>", "2 %")]) }}
{{ facts({"a & b": 3}) }}
{{ picture(image, "a < b", "caption") }}
{% endblock %}
"""


@pytest.fixture
def templates(tmp_path: Path) -> Path:
    (tmp_path / "page.html.j2").write_text(PAGE)
    (tmp_path / "page.md.j2").write_text("# {{ title }}\n")
    (tmp_path / "a.png").write_bytes(PIXEL)
    return tmp_path


def test_html_is_escaped_and_needs_no_other_file(templates: Path) -> None:
    image = templates / "a.png"
    text = render("page.html.j2", templates=templates, title="Title & more", image=image)
    assert text.startswith("<!doctype html>")
    assert "<title>Title &amp; more</title>" in text
    assert "<h1>Title &amp; more</h1>" in text
    assert "border-collapse" in text, "the style sheet is inside"
    assert "<th>name</th><th>error</th></tr>\n<tr><td>CATO</td><td>1 %</td></tr>" in text
    assert "<td>&lt;FNO&gt;</td>" in text
    assert "<td>a &amp; b</td><td>3</td>" in text
    assert 'alt="a &lt; b"' in text
    assert f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}" in text
    assert 'src="/' not in text
    assert str(templates) not in text
    assert text == render("page.html.j2", templates=templates, title="Title & more", image=PIXEL)


def test_markdown_is_not_escaped(templates: Path) -> None:
    assert render("page.md.j2", templates=templates, title="1 < 2 & 3") == "# 1 < 2 & 3\n"


def test_forgotten_variables_are_errors(templates: Path) -> None:
    with pytest.raises(UndefinedError, match="title"):
        render("page.md.j2", templates=templates)
