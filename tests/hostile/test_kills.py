"""Commands that are killed at a random moment end as if they had not been."""

import pytest

from tools.hostile.kills import KINDS, campaign

QUICK = ("adamw", "extend", "evaluate")


def bugs_in(counts):
    names = ("wrong", "tracebacks", "leftovers")
    return {name: counts[name] for name in names if counts[name]}


def test_some_kills():
    counts = campaign(60, seed=1, most=len(QUICK), kinds=QUICK)
    assert not bugs_in(counts)
    assert counts["correct"] == counts["tried"] > 0
    assert counts["kills"]


@pytest.mark.slow
def test_100_kills():
    counts = campaign(3600, seed=2, most=10 * len(KINDS))
    assert not bugs_in(counts)
    assert counts["correct"] == counts["tried"]
    assert counts["kills"] >= 100
