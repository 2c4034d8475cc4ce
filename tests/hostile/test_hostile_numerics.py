"""A few trials of each kind; `make hostile` runs many."""

from tools.hostile.numerics import campaign


def test_no_wrong_number_and_no_traceback():
    found = campaign(0, seed=1)
    assert found["failures"] == []
    assert found["tried"] == found["correct"] + found["one_line_errors"] >= 5
    assert found["correct"] > 0
    assert found["one_line_errors"] > 0
