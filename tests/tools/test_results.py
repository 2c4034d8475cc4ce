"""Results files carry provenance, and pages cannot differ from them unnoticed."""

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from cato.benchmarks import BENCHMARKS
from reproduce.results import by_headline
from tools import cards, generate, pages, readme, results, speed_page
from tools.results import RESULTS, ROOT, Row, read_results, stamped, update_rows

FILES = sorted(RESULTS.glob("*.json"))


def rows_of(path: Path) -> list[Row]:
    content = json.loads(path.read_text())
    assert all(isinstance(rows, list) and rows for rows in content.values())
    return [row for rows in content.values() for row in rows]


def missing(row: Row) -> set[str]:
    """What a row lacks of the required provenance."""
    origin = row.get("provenance", {})
    required = {"commit", "cato", "hardware", "date", "python", "torch"}
    found = {key for key in required if origin.get(key)}
    found |= {key for key in ("settings", "data") if row.get(key)}
    return (required | {"settings", "data"}) - found


def test_there_is_a_file_for_every_measurement() -> None:
    names = {path.stem for path in FILES}
    later = {"fine_tuning", "user_data"}  # with their next measurement
    assert names - later == {
        *("exports", "hostile", "pretrained", "recipes", "serve", "solvers", "speed", "survey"),
        *("darcy_floor", "mesh_parallel", "scale", "streaming", "training_range"),
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_row_has_provenance(path: Path) -> None:
    for row in rows_of(path):
        assert not missing(row)
        assert re.fullmatch(r"[0-9a-f]{40}(\+changes)?", row["provenance"]["commit"])
        assert datetime.fromisoformat(row["provenance"]["date"]).tzinfo is not None
        assert row["provenance"]["hardware"]["processor"]


def test_a_row_without_provenance_would_be_found() -> None:
    row = stamped({"seconds": 1.0}, {"size": 3}, "key")
    assert not missing(row)
    for key in ("settings", "data", "provenance"):
        assert missing({k: v for k, v in row.items() if k != key})
    del row["provenance"]["commit"]
    assert missing(row) == {"commit"}


def test_rows_are_replaced_and_the_others_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(results, "ROOT", tmp_path)
    order = ("a", "b", "c")
    update_rows("x", [{"name": "c", "n": 1}, {"name": "a", "n": 1}], "name", order)
    update_rows("x", [{"name": "b", "n": 2}, {"name": "a", "n": 2}], "name", order)
    assert [(row["name"], row["n"]) for row in read_results("x")["rows"]] == [
        ("a", 2), ("b", 2), ("c", 1)
    ]  # fmt: skip


def test_a_changed_result_or_an_edited_page_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    text = {page: "CATO 1.76%\n"}
    monkeypatch.setattr(generate, "pages", lambda: text)
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    check = ["generate", "--check"]
    monkeypatch.setattr("sys.argv", check)
    assert generate.main() == 1  # not written yet
    monkeypatch.setattr("sys.argv", ["generate"])
    assert generate.main() == 0
    monkeypatch.setattr("sys.argv", check)
    assert generate.main() == 0
    capsys.readouterr()
    page.write_text("CATO 1.55%\n")
    assert generate.main() == 1
    assert capsys.readouterr().out.startswith("page.md differs")
    assert page.read_text() == "CATO 1.55%\n"  # a check writes nothing


def test_a_block_is_replaced_between_its_marks_again_and_again(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- x -->\nold\n<!-- /x -->\nafter\n")
    for block in ("first \\1\n", "second\n"):
        page.write_text(pages.with_block(page, "x", block))
        assert page.read_text() == f"before\n<!-- x -->\n{block}<!-- /x -->\nafter\n"
    with pytest.raises(ValueError, match="must have one block"):
        pages.with_block(page, "y", "text")


def test_a_table_has_one_line_per_row() -> None:
    assert pages.table(("a", "b"), [("1", "x | y")]) == "| a | b |\n| --- | --- |\n| 1 | x / y |"


def test_cards_quote_the_results_of_the_page_they_link_to() -> None:
    rows = by_headline(json.loads(cards.ERRORS.read_text())["rows"])
    page = cards.ERRORS.with_suffix(".md").read_text()
    assert len(rows) > 90
    for row in rows:
        error = f"{row['relative_l2']:.2%}"
        assert f"| {error} |" in (cards.CARDS / f"{row['model']}.md").read_text()
        assert error in page


def test_every_comparison_with_cato_shows_it_without_compiled_loops() -> None:
    text = speed_page.PAGE.read_text()
    tables = [part for part in text.split("\n\n") if "| Transolver |" in part]
    assert len(tables) == 2
    for table in tables:
        assert "CATO, compiled loops" in table
        assert "CATO, PyTorch operations" in table


def test_the_readme_has_the_lowest_errors_in_bold() -> None:
    block = readme.pages()[ROOT / "README.md"].split("<!-- results -->")[1]
    block = block.split("<!-- /results -->")[0]
    rows = by_headline(json.loads((readme.STUDIES / "time/compare.json").read_text())["rows"])
    for benchmark in {row["benchmark"] for row in rows}:
        lowest = min(row["relative_l2"] for row in rows if row["benchmark"] == benchmark)
        assert f"**{lowest:.2%}**" in block


def test_the_readme_marks_our_variant_and_has_cato_without_loops() -> None:
    """On made-up results of the table: CATO halves the error of its rival on all benchmarks."""

    def line(benchmark: str, model: str, error: float, **settings: str) -> dict[str, Any]:
        found = {"benchmark": benchmark, "model": model, "relative_l2": error, "spread": 1e-4}
        found |= {"mean_predictor": 0.5, "errors": 5 * [error]}
        return found | {"provenance": {"settings": {"model": settings}}}

    def compared(ours: float, minutes: float | None) -> dict[str, Any]:
        rows = []
        for name in BENCHMARKS:
            own = "cato_pc" if name == "elasticity" else "cato"
            variant = {} if own == "cato_pc" else {"variant": "ours"}
            rows += [line(name, own, ours, **variant), line(name, "f_fno", 0.02)]
        settings = {"scale": "small", "minutes": minutes, "share": 0.4, "seeds": [0, 1, 2, 3, 4]}
        variants = [line("darcy", "plain_cato", 0.012)]
        return {"settings": settings, "rows": rows, "variants": variants, "experiment": "time"}

    block = readme.block(compared(0.01, 10.0), compared(0.03, None))
    assert "| CATO, our variant | **1.00%** | " in block
    assert "| CATO in PyTorch's operations | 1.20% | / |" in block
    assert "after 10 minutes of training" in block
    assert "50.0% over 6 benchmarks, clearly first on 6 (shown); the paper has 26.76%" in block
    worse = readme.block(compared(0.03, 10.0), compared(0.03, None))
    assert "| F-FNO | **2.00%** | " in worse
    assert "-50.0% over 6 benchmarks, clearly first on 0 (not shown)" in worse
