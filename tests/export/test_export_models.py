"""Every model can be exported with a free batch size, and all but a few with a free mesh size."""

import importlib.util
from pathlib import Path

import pytest

from cato.errors import InputError
from cato.export import describe
from cato.export.files import FORMATS
from cato.export.trace import Traced
from cato.export.write import export_traced
from cato.models.registry import MODELS

ON_ITS_MESH_ONLY = {("wmt", "onnx"), ("wmt", "pt2"), ("lsm", "pt2")}
"""Where the graph depends on the mesh; see the table of docs/export.md."""


@pytest.fixture(scope="module")
def exports():
    path = Path(__file__).parents[2] / "tools" / "exports.py"
    spec = importlib.util.spec_from_file_location("exports", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_exported_to_every_format(exports, name, tmp_path):
    traced = Traced(exports.small_surrogate(name))
    for kind in FORMATS:
        path = tmp_path / f"model.{kind}"
        figures = export_traced(traced, path, kind)
        assert figures["largest_difference"] <= 1e-4
        assert figures["dynamic"][0] == "batch"
        assert (figures["why_fixed"] is not None) == ((name, kind) in ON_ITS_MESH_ONLY), figures
        assert (figures["why_fixed"] is None) == (len(figures["dynamic"]) > 1)
        assert describe(path)["dynamic"] == figures["dynamic"]


def test_the_table_gets_its_rows_and_nothing_else(exports, tmp_path):
    begin, end, page = exports.BEGIN, exports.END, tmp_path / "page.md"
    page.write_text(
        f"above\n{begin}\n| model | onnx | pt2 |\n| SAOT | a | b |\nold\n{end}\nbelow\n"
    )
    exports.write_page(page, {"fno": {"onnx": "any mesh", "pt2": "no: a | b"}})
    text = page.read_text()
    assert text.startswith(f"above\n{begin}\n| model | onnx | pt2 |\n")
    assert text.endswith(f"| FNO | any mesh | no: a / b |\n| SAOT | a | b |\n{end}\nbelow\n")
    assert "old" not in text
    page.write_text("no marks")
    with pytest.raises(InputError, match="must hold the lines"):
        exports.write_page(page, {})
