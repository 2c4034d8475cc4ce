"""A damaged run gives the correct result or an error of one line."""

import pytest

from tools.hostile.corruptions import campaign


def bugs_in(counts):
    return {name: counts[name] for name in ("wrong", "tracebacks", "hangs") if counts[name]}


def test_some_corruptions():
    counts = campaign(600, seed=1, most=8)
    assert not bugs_in(counts)
    assert counts["tried"] == counts["correct"] + counts["one_line_errors"] >= 8
    assert counts["correct"]
    assert counts["one_line_errors"]


@pytest.mark.slow
def test_400_corruptions():
    counts = campaign(1800, seed=2, most=400)
    assert counts["tried"] == 400
    assert not bugs_in(counts)
