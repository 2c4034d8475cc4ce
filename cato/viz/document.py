"""A page made of headings, paragraphs, tables and pictures, as Markdown or as one HTML file.

Paragraphs and cells may have `code`, **bold** and [links](https://example.org).
"""

import base64
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

_STYLE = """
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
         color: #1b1b1f; background: #fff; }
  h2 { margin-top: 2.2rem; border-bottom: 1px solid #ddd; }
  .wide { overflow-x: auto; }
  table { border-collapse: collapse; font-size: .92rem; }
  th, td { padding: .25rem .8rem .25rem 0; text-align: left; vertical-align: top; }
  th { border-bottom: 1px solid #999; } td { border-bottom: 1px solid #eee; }
  img { max-width: 100%; }
  code, pre { background: #f3f3f6; border-radius: 4px; } pre { padding: .8rem; overflow-x: auto; }
"""
_TYPES = {".png": "image/png", ".gif": "image/gif"}
_INLINE = (
    (re.compile(r"`([^`]+)`"), r"<code>\1</code>"),
    (re.compile(r"\*\*([^*]+)\*\*"), r"<strong>\1</strong>"),
    (re.compile(r"\[([^\]]+)\]\(([^)]+)\)"), r'<a href="\2">\1</a>'),
)


@dataclass(frozen=True)
class Heading:
    """A title; level 1 is the page's."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """Some sentences."""

    text: str


@dataclass(frozen=True)
class Code:
    """Commands, as they are typed."""

    text: str


@dataclass(frozen=True)
class TableBlock:
    """Rows of cells under the names of the columns."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Picture:
    """An image file, and what it shows."""

    path: Path
    caption: str


Block = Heading | Paragraph | Code | TableBlock | Picture


def to_markdown(blocks: Sequence[Block], folder: Path, note: str) -> str:
    """The page as Markdown for a file in `folder`, with pictures by relative paths.

    Args:
        blocks: The page; its first block is the title.
        folder: Where the file will be.
        note: A comment below the title, such as who wrote the file.
    """
    title, *rest = blocks
    parts = [_markdown(title, folder), f"<!-- {note} -->", *(_markdown(b, folder) for b in rest)]
    return "\n\n".join(parts) + "\n"


def _markdown(block: Block, folder: Path) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text}"
        case Paragraph(text):
            return text
        case Code(text):
            return f"```sh\n{text}\n```"
        case TableBlock():
            return markdown_table(block)
        case Picture(path, caption):
            return f"![{caption}]({Path(os.path.relpath(path, folder)).as_posix()})\n\n{caption}"


def markdown_table(table: TableBlock) -> str:
    """A table as Markdown."""
    lines = [table.columns, ["---"] * len(table.columns), *table.rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def to_html(blocks: Sequence[Block]) -> str:
    """The page as one HTML file that needs nothing else: pictures are inside."""
    title = next(block.text for block in blocks if isinstance(block, Heading))
    body = "\n".join(map(_html, blocks))
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n{body}\n</html>\n"
    )


def _html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{_inline(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{_inline(text)}</p>"
        case Code(text):
            return f"<pre>{escape(text)}</pre>"
        case TableBlock(columns, rows):
            head = "".join(f"<th>{_inline(name)}</th>" for name in columns)
            lines = ("".join(f"<td>{_inline(cell)}</td>" for cell in row) for row in rows)
            body = "".join(f"<tr>{line}</tr>" for line in lines)
            return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'
        case Picture(path, caption):
            data = base64.b64encode(path.read_bytes()).decode()
            source = f"data:{_TYPES[path.suffix]};base64,{data}"
            text = _inline(caption)
            return f'<figure><img alt="{escape(caption)}" src="{source}"><p>{text}</p></figure>'


def _inline(text: str) -> str:
    text = escape(text, quote=False)
    for pattern, replacement in _INLINE:
        text = pattern.sub(replacement, text)
    return text
