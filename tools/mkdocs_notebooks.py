"""Hook of mkdocs: the notebooks of examples/notebooks as pages tutorials/NAME of the site.

Text, code, and the outputs that `make notebooks` has kept in them. Links to a notebook lead to its
page, and links of a notebook to pages of the documentation to these.
"""

import json
import posixpath
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"
PLACE = "tutorials"
LINK = re.compile(r"\]\(([^)\s#]*)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Called by mkdocs with the files of the site."""
    from mkdocs.structure.files import File

    for path in sorted(FOLDER.glob("*.ipynb")):
        place = f"{PLACE}/{path.stem}.md"
        files.append(
            File.generated(config, place, content=as_markdown(json.loads(path.read_text())))
        )
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by mkdocs for every page."""
    return with_links(markdown, page.file.src_uri)


def as_markdown(notebook: Any) -> str:
    """A notebook as Markdown."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            heading = re.search(r"^#+ (.*)$", text, re.MULTILINE)
            title = heading[1] if heading else ""
            continue
        parts.append(f"```python\n{text}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                picture = "".join(data["image/png"]).replace("\n", "")
                parts.append(f'<img alt="{title}" src="data:image/png;base64,{picture}">')
            elif text := "".join(output.get("text", data.get("text/plain", ""))):
                parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def with_links(markdown: str, place: str) -> str:
    """Markdown of the page at `place` whose links to and from notebooks are those of the site."""
    here = posixpath.dirname(place)
    is_notebook = here == PLACE

    def on_site(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        if target.endswith(".ipynb"):
            name = posixpath.basename(target).removesuffix(".ipynb")
            return f"]({posixpath.relpath(f'{PLACE}/{name}.md', here or '.')}{anchor})"
        if is_notebook and target.startswith("../../docs/"):
            return f"](../{target.removeprefix('../../docs/')}{anchor})"
        return match[0]

    return LINK.sub(on_site, markdown)
