"""Commands that are killed end as if they had not been."""

import pytest

from tools.hostile.kills import campaign
from tools.hostile.launcher import can_trace

QUICK = ("adamw",)


def bugs_in(counts):
    names = ("wrong", "tracebacks", "leftovers")
    return {name: counts[name] for name in names if counts[name]}


def test_some_kills():
    counts = campaign(120, seed=1, most=2, kinds=QUICK)
    assert not bugs_in(counts)
    assert counts["kills"] >= counts["correct"] == counts["tried"] > 0
    assert counts["calls"] or not can_trace()


@pytest.mark.slow
def test_100_kills():
    counts = campaign(3600, seed=2, most=100)
    assert not bugs_in(counts)
    assert counts["correct"] == counts["tried"] == 100
