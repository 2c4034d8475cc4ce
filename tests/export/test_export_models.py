"""Every model can be exported with a free batch size, and all but a few with a free mesh size."""

import pytest

from cato.errors import InputError
from cato.export import describe
from cato.export.files import FORMATS
from cato.export.survey import BEGIN, END, small_surrogate, write_page
from cato.export.trace import Traced
from cato.export.write import export_traced
from cato.models.registry import MODELS

ON_ITS_MESH_ONLY = {("wmt", "onnx"), ("wmt", "pt2"), ("lsm", "pt2")}
"""Where the graph depends on the mesh; see the table of docs/export.md."""


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_exported_to_every_format(name, tmp_path):
    traced = Traced(small_surrogate(name))
    for kind in FORMATS:
        path = tmp_path / f"model.{kind}"
        figures = export_traced(traced, path, kind)
        assert figures["largest_difference"] <= 1e-4
        assert figures["dynamic"][0] == "batch"
        assert (figures["why_fixed"] is not None) == ((name, kind) in ON_ITS_MESH_ONLY), figures
        assert (figures["why_fixed"] is None) == (len(figures["dynamic"]) > 1)
        assert describe(path)["dynamic"] == figures["dynamic"]


def test_the_survey_writes_its_rows_and_nothing_else(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        f"above\n{BEGIN}\n| model | onnx | pt2 |\n| SAOT | a | b |\nold\n{END}\nbelow\n"
    )
    write_page(page, {"fno": {"onnx": "any mesh", "pt2": "no: a | b"}})
    text = page.read_text()
    assert text.startswith(f"above\n{BEGIN}\n| model | onnx | pt2 |\n")
    assert text.endswith(f"| FNO | any mesh | no: a / b |\n| SAOT | a | b |\n{END}\nbelow\n")
    assert "old" not in text
    page.write_text("no marks")
    with pytest.raises(InputError, match="must hold the lines"):
        write_page(page, {})
