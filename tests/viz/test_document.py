"""Pages as Markdown and as HTML with everything inside."""

import base64
from pathlib import Path

from cato.viz.document import (
    Code,
    Heading,
    Paragraph,
    Picture,
    TableBlock,
    to_html,
    to_markdown,
)

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def page(folder):
    picture = folder / "studies" / "a.png"
    picture.parent.mkdir(exist_ok=True)
    picture.write_bytes(PIXEL)
    return [
        Heading("Title & more", 1),
        Paragraph("1 < 2, **bold**, `x < y` and [a link](docs/a.md)."),
        TableBlock(("name", "error"), [("CATO", "1 %"), ("FNO", "**2 %**")]),
        Picture(picture, "a picture"),
        Code("make study && echo <done>"),
    ]


def test_markdown(tmp_path):
    text = to_markdown(page(tmp_path), tmp_path / "docs", "written by a test")
    assert text.startswith("# Title & more\n\n<!-- written by a test -->\n\n1 < 2")
    assert "| name | error |\n| --- | --- |\n| CATO | 1 % |" in text
    assert "![a picture](../studies/a.png)" in text
    assert text.endswith("```sh\nmake study && echo <done>\n```\n")


def test_html_needs_no_other_file(tmp_path):
    text = to_html(page(tmp_path))
    assert "<title>Title &amp; more</title>" in text
    assert "1 &lt; 2, <strong>bold</strong>, <code>x &lt; y</code>" in text
    assert '<a href="docs/a.md">a link</a>' in text
    assert "<th>name</th><th>error</th></tr><tr><td>CATO</td>" in text
    assert f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}" in text
    assert "<pre>make study &amp;&amp; echo &lt;done&gt;</pre>" in text
    assert 'src="/' not in text
    assert str(Path(tmp_path)) not in text
