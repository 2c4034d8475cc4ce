"""Commands that start in one folder, or work on one run, at the same moment never mix."""

import pytest

from tools.hostile import crowds
from tools.hostile.starts import PAIRS, campaign


def test_some_pairs():
    counts = campaign(600, seed=1, most=2)
    assert counts == {"tried": 2, "correct": 2, "wrong": 0, "tracebacks": 0}


@pytest.mark.slow
def test_50_pairs_of_each_kind():
    counts = campaign(1800, seed=2, most=50 * len(PAIRS))
    assert counts == {"tried": 250, "correct": 250, "wrong": 0, "tracebacks": 0}


@pytest.mark.slow
def test_crowds():
    counts = crowds.campaign(600, seed=1, most=10)
    assert counts["correct"] == counts["tried"] == 10
    assert counts["commands"] == 50
