"""Generated pages: templates (jinja2), Markdown tables, and blocks within written pages."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cato.files import atomic_write
from cato.viz.pages import render as render_template
from reproduce.pages import table as markdown_table
from tools.results import ROOT

Pages = dict[Path, str]
"""Text of generated files by path."""


def render(template: str, **values: Any) -> str:
    """A template of tools/templates with these values."""
    return render_template(template, templates=ROOT / "tools" / "templates", **values)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, without a newline at its end; cells may contain bars."""
    cells = [[cell.replace("|", "/") for cell in row] for row in rows]
    return markdown_table(header, cells)


def with_block(path: Path, name: str, block: str) -> str:
    """The text of a page with the block between `<!-- NAME -->` and `<!-- /NAME -->` replaced."""
    return replace_block(path.read_text(), name, block, str(path))


def replace_block(text: str, name: str, block: str, where: str) -> str:
    """`with_block` for a text; `where` names it in messages."""
    pattern = rf"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)"
    new, count = re.subn(pattern, lambda _: block, text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(
            f"{where} must have one block between <!-- {name} --> and <!-- /{name} -->"
        )
    return new


def write_pages(pages: Mapping[Path, str]) -> list[Path]:
    """Write the pages that differ from what is there; returns their paths."""
    changed = outdated(pages)
    for path in changed:
        with atomic_write(path) as temporary:
            temporary.write_text(pages[path])
    return changed


def outdated(pages: Mapping[Path, str]) -> list[Path]:
    """The pages whose file is missing or differs."""
    return [path for path, text in pages.items() if not path.exists() or path.read_text() != text]
