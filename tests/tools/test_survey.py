"""The survey script: what it writes into the cards, on invented samples."""

from pathlib import Path

import numpy as np
import pytest

from cato.benchmarks import BENCHMARKS
from tools import survey
from tools.benchmark_pages import survey_block


def test_facts_are_of_benchmarks() -> None:
    assert set(survey.FACTS) <= set(BENCHMARKS)


def test_numbers_of_a_sample_set() -> None:
    values = np.float32([1.0, 2.0, 3.0, 6.0])
    assert survey.range_of(values) == {
        "min": 1, "mean": 3, "std": pytest.approx(np.sqrt(3.5)), "max": 6
    }  # fmt: skip
    assert survey.spread(values) == {"smallest": 1, "median": 2.5, "largest": 6}


def test_rejected_draws_lower_the_acceptance_rate(tmp_path: Path) -> None:
    stored = survey.samples("darcy", "smoke", tmp_path)
    split = stored.splits["train"]
    split.attempts[:] = 1
    split.attempts[0] = 26
    result = survey.survey("darcy", "smoke", stored)
    assert (result["num_accepted"], result["num_drawn"]) == (100, 125)
    assert result["acceptance_rate"] == 0.8
    assert result["channels"]["input a"]["max"] == 12
    text = survey_block(result)
    assert "125 draws were accepted (80.0%)" in text
    rows = [line for line in text.splitlines() if line.startswith("| input a")]
    assert [row.count("|") for row in rows] == [6]
