"""Every model can be exported with a free batch size, or says in one line what is in the way."""

import pytest

from cato.errors import InputError
from cato.export import describe, export_surrogate
from cato.export.survey import BEGIN, END, small_surrogate, write_page
from cato.models.registry import MODELS


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pt2", "onnx"])
@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_exported_or_says_why_not(name, kind, tmp_path):
    path = tmp_path / f"model.{kind}"
    refusal, figures = None, {}
    try:
        figures = export_surrogate(small_surrogate(name), path, kind)
    except InputError as error:
        refusal = str(error)
    if refusal is not None:
        assert "cannot be exported" in refusal
        assert "\n" not in refusal
        assert not list(tmp_path.iterdir())
        assert kind == "onnx", f"PyTorch's own format must take every model: {refusal}"
        return
    assert figures["largest_difference"] <= 1e-4
    assert figures["dynamic"][0] == "batch"
    assert (figures["why_fixed"] is None) == (len(figures["dynamic"]) > 1)
    assert describe(path)["dynamic"] == figures["dynamic"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pt2", "onnx"])
@pytest.mark.parametrize("name", ["cato", "cato_pc", "transolver"])
def test_these_take_any_mesh(name, kind, tmp_path):
    figures = export_surrogate(small_surrogate(name), tmp_path / f"model.{kind}", kind)
    assert figures["why_fixed"] is None


def test_the_survey_replaces_its_table_and_nothing_else(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"above\n{BEGIN}\nold\n{END}\nbelow\n")
    write_page(page, {"fno": {"onnx": "any mesh", "pt2": "no: a | b"}})
    text = page.read_text()
    assert text.startswith(f"above\n{BEGIN}\n| model | onnx | pt2 |\n")
    assert text.endswith(f"| FNO | any mesh | no: a / b |\n{END}\nbelow\n")
    assert "old" not in text
    page.write_text("no marks")
    with pytest.raises(InputError, match="must hold the lines"):
        write_page(page, {})
