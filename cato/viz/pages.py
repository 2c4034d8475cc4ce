"""HTML and Markdown pages from jinja2 templates, with one style sheet.

    render("report.html.j2", title=…)                                a template of this folder
    render("results.html.j2", templates=Path("my/templates"), …)     your template

A page `NAME.html.j2` extends `base.html.j2`, which contains `style.css`; tables and pictures are in
`macros.html.j2`. Values are escaped in `*.html.j2`, but not in other files such as Markdown. An
undefined variable is an error.
"""

import base64
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

TEMPLATES = Path(__file__).parent / "templates"
_TYPES = {".png": "image/png", ".gif": "image/gif"}


def render(template: str, *, templates: Path | None = None, **context: Any) -> str:
    """The text of a page; `templates` is a folder of further templates, searched first."""
    return _environment(templates).get_template(template).render(**context)


def data_uri(image: Path | bytes) -> str:
    """A PNG or GIF file, or the bytes of a PNG image, as an address that contains it.

    Also a filter in templates: `{{ path | data_uri }}`.
    """
    content = image if isinstance(image, bytes) else image.read_bytes()
    kind = "image/png" if isinstance(image, bytes) else _TYPES[image.suffix]
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


@cache
def _environment(templates: Path | None) -> Environment:
    environment = Environment(
        loader=FileSystemLoader([templates, TEMPLATES] if templates else TEMPLATES),
        autoescape=select_autoescape(["html.j2"], default_for_string=False, default=False),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["data_uri"] = data_uri
    return environment
