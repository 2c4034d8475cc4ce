"""The tutorials run as they stand, with small sizes, and their stored outputs are of their code."""

import re
from pathlib import Path

import nbformat
import pytest

from tools import mkdocs_notebooks
from tools.notebooks import FOLDER, digest, executed

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def printed(notebook) -> str:
    """Standard output of all cells."""
    cells = (cell for cell in notebook.cells if cell.cell_type == "code")
    return "".join(o.text for cell in cells for o in cell.outputs if o.get("name") == "stdout")


def num_pictures(notebook) -> int:
    cells = (cell for cell in notebook.cells if cell.cell_type == "code")
    return sum("image/png" in o.get("data", {}) for cell in cells for o in cell.outputs)


def number(pattern: str, text: str) -> float:
    (found,) = re.findall(pattern + r"[^\d-]*(-?[\d.]+\d)", text)
    return float(found)


@pytest.mark.slow
def test_inverse_design(tmp_path: Path) -> None:
    """The solver's flow around the foil that is found is close to the wish."""
    path = FOLDER / "inverse_design.ipynb"
    notebook = executed(path, tmp_path, {"NUM_STARTS": 1, "MAX_STEPS": 10, "FINE": (45, 11)})
    text = printed(notebook)
    slope, difference = re.findall(r"slope (-?[\d.]+), finite difference (-?[\d.]+)", text)[0]
    assert float(slope) == pytest.approx(float(difference), rel=0.03)
    before = number("undeformed foil, solver − wish:", text)
    assert number("found foil, solver − wish:", text) < 0.2 * before
    assert "the foil is inside the training range" in text
    drags = [float(drag) for drag in re.findall(r"drag ([\d.]+)", text)]
    assert drags[1] < drags[0]
    assert number("area:", text) > 0.999
    assert num_pictures(notebook) == 2


@pytest.mark.slow
def test_own_data(tmp_path: Path) -> None:
    path = FOLDER / "own_data.ipynb"
    notebook = executed(path, tmp_path, {"NUM_SAMPLES": 100, "MINUTES": 0.4})
    text = printed(notebook)
    assert number("test samples:", text) < number("answering the mean:", text)
    assert "('case', 'x', 'y')" in text
    assert "outside: " in text
    assert num_pictures(notebook) == 1


@pytest.mark.slow
def test_compare_models(tmp_path: Path) -> None:
    path = FOLDER / "compare_models.ipynb"
    notebook = executed(path, tmp_path, {"SCALE": "smoke", "MINUTES": 0.1})
    assert len(re.findall(r"is better than \w+ on \d+% of the samples", printed(notebook))) == 2
    assert num_pictures(notebook) == 2


def test_parameters_that_a_notebook_does_not_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"no parameters \['SAMPLES'\]"):
        executed(FOLDER / "own_data.ipynb", tmp_path, {"SAMPLES": 1})


@each
def test_stored_outputs_are_of_the_code(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert notebook.metadata["cato"]["code"] == digest(notebook), "run `make notebooks`"
    assert num_pictures(notebook) > 0
    assert not [
        c for c in notebook.cells if "stderr" in {o.get("name") for o in c.get("outputs", [])}
    ]


@each
def test_links_lead_to_files(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    text = "".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    for target, _ in mkdocs_notebooks.LINK.findall(text):
        assert target.startswith("http") or (path.parent / target).exists(), target


def test_pages_of_the_site_have_code_outputs_and_links() -> None:
    output = {"output_type": "stream", "name": "stdout", "text": ["2\n"]}
    picture = {"output_type": "display_data", "data": {"image/png": "AA==\n", "text/plain": "<F>"}}
    cells = [
        {"cell_type": "markdown", "source": ["# One\n", "[page](../../docs/a.md#b)"]},
        {"cell_type": "code", "source": ["print(1 + 1)"], "outputs": [output, picture]},
    ]
    page = mkdocs_notebooks.as_markdown({"cells": cells})
    assert "```python\nprint(1 + 1)\n```\n\n```text\n2\n```" in page
    assert '<img alt="One" src="data:image/png;base64,AA==">' in page
    assert "[page](../a.md#b)" in mkdocs_notebooks.with_links(page, "tutorials/one.md")
    link = "[x](../../examples/notebooks/one.ipynb)"
    assert mkdocs_notebooks.with_links(link, "benchmarks/a.md") == "[x](../tutorials/one.md)"
    link = "[x](../examples/notebooks/one.ipynb)"
    assert mkdocs_notebooks.with_links(link, "a.md") == "[x](tutorials/one.md)"
