"""A few trials of each kind; `make hostile` runs many."""

from tools.hostile.numerics import SPOILS, campaign


def test_no_wrong_number_and_no_traceback():
    found = campaign(60, seed=1, most=len(SPOILS))
    assert found["failures"] == []
    assert found["tried"] == found["correct"] + found["one_line_errors"] >= 5
    assert found["correct"] > 0
    assert found["one_line_errors"] > 0
