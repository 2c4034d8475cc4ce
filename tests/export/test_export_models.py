"""Every model can be exported with a free batch size, and all but a few with a free mesh size."""

import pytest

from cato.export import describe, export_surrogate
from cato.export.formats import FORMATS
from cato.models.registry import MODELS
from tools import exports

ON_ITS_MESH_ONLY = {("wmt", "onnx"), ("wmt", "pt2"), ("lsm", "pt2")}
"""Where the graph depends on the mesh; see the table of docs/export.md."""


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_exported_to_every_format(name, tmp_path):
    surrogate = exports.small_surrogate(name)
    for kind in FORMATS:
        path = tmp_path / f"model.{kind}"
        figures = export_surrogate(surrogate, path, kind)
        assert figures["largest_difference"] <= 1e-4
        assert figures["dynamic"][0] == "batch"
        assert (figures["why_fixed"] is not None) == ((name, kind) in ON_ITS_MESH_ONLY), figures
        assert (figures["why_fixed"] is None) == (len(figures["dynamic"]) > 1)
        assert describe(path)["dynamic"] == figures["dynamic"]


def test_the_table_gets_its_rows_and_nothing_else():
    row = {"model": "fno", "onnx": "any mesh", "pt2": "no: a | b"}
    saot = {"model": "saot", "onnx": "a", "pt2": "b"}
    assert exports.export_table([row, saot]).splitlines() == [
        "| model | onnx | pt2 |",
        "| --- | --- | --- |",
        "| FNO | any mesh | no: a / b |",
        "| SAOT | a | b |",
    ]


def test_the_page_has_the_table_of_the_results_file():
    ((page, text),) = exports.pages().items()
    assert page.read_text() == text
    assert all(f"| {entry.title} |" in text for entry in MODELS.values())
