"""The survey script: what it writes into the cards, on invented samples."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from cato.benchmarks import BENCHMARKS

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def survey() -> ModuleType:
    spec = importlib.util.spec_from_file_location("survey", ROOT / "tools" / "survey.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_benchmark_has_facts_and_a_card_with_one_block(survey: ModuleType) -> None:
    assert list(survey.FACTS) == list(BENCHMARKS)
    for name in BENCHMARKS:
        card = (survey.CARDS / f"{name}.md").read_text()
        assert len(survey.BLOCK.findall(card)) == 1, name


def test_a_card_is_filled_between_its_marks_again_and_again(
    survey: ModuleType, tmp_path: Path
) -> None:
    card = tmp_path / "card.md"
    card.write_text("before\n<!-- survey -->\nold\n<!-- /survey -->\nafter\n")
    for text in ("first \\1\n", "second\n"):
        survey.fill_card(card, text)
        marked = f"<!-- survey -->\n{text}<!-- /survey -->"
        assert card.read_text() == f"before\n{marked}\nafter\n"


def test_numbers_of_a_sample_set(survey: ModuleType) -> None:
    values = np.float32([1.0, 2.0, 3.0, 6.0])
    assert survey.range_of(values) == {
        "min": 1, "mean": 3, "std": pytest.approx(np.sqrt(3.5)), "max": 6
    }  # fmt: skip
    assert survey.spread(values) == {"smallest": 1, "median": 2.5, "largest": 6}


def test_rejected_draws_lower_the_acceptance_rate(survey: ModuleType, tmp_path: Path) -> None:
    stored = survey.samples("darcy", "smoke", tmp_path)
    split = stored.splits["train"]
    split.attempts[:] = 1
    split.attempts[0] = 26
    result = survey.survey("darcy", "smoke", stored)
    assert (result["num_accepted"], result["num_drawn"]) == (100, 125)
    assert result["acceptance_rate"] == 0.8
    assert result["channels"]["input a"]["max"] == 12
    text = survey.block("darcy", result)
    assert "125 draws were accepted (80.0%)" in text
    rows = [line for line in text.splitlines() if line.startswith("| input a")]
    assert [row.count("|") for row in rows] == [6]
