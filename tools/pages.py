"""Generated pages: templates (jinja2), Markdown tables, and blocks within written pages."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from cato.files import atomic_write
from tools.results import ROOT

Pages = dict[Path, str]
"""Text of generated files by path."""


def render(template: str, **values: Any) -> str:
    """A template of tools/templates with these values; `table` is available in all of them."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ROOT / "tools" / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown
    )
    environment.globals["table"] = table
    return environment.get_template(template).render(**values)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, without a newline at its end."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def with_block(path: Path, name: str, block: str) -> str:
    """The text of a page with the block between `<!-- NAME -->` and `<!-- /NAME -->` replaced."""
    text = path.read_text()
    pattern = rf"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)"
    new, count = re.subn(pattern, lambda _: block, text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{path} must have one block between <!-- {name} --> and <!-- /{name} -->")
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
