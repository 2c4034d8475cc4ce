"""A small part of the campaign of bad invocations."""

from itertools import islice

import pytest

from tools.hostile.invocations import SURROUNDINGS, attacks, named, prepared, run_in_shell
from tools.hostile.verdicts import judge, run_attacks


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("invocations"))


def test_named_and_random_invocations(folder):
    everything = attacks(folder, seed=0)
    first = list(islice(everything, len(named(folder))))
    random = islice(everything, len(SURROUNDINGS), len(SURROUNDINGS) + 25)
    counts = run_attacks([*first, *random], 600)
    assert not counts["failures"], "\n".join(counts["failures"])
    assert counts["one_line_errors"] >= len(first) - 1


ASCII, CLOSED, FULL = SURROUNDINGS[0], SURROUNDINGS[6], SURROUNDINGS[9]


@pytest.mark.parametrize(
    ("command", "verdict"),
    [(ASCII, "correct"), (CLOSED, "correct"), (FULL, "one_line_errors")],
    ids=["an ASCII terminal", "closed output", "a full disk"],
)
def test_surroundings(command, verdict, folder):
    found, detail = judge(run_in_shell, folder, command)
    assert found == verdict, detail


@pytest.mark.slow
@pytest.mark.parametrize("command", SURROUNDINGS)
def test_all_surroundings(command, folder):
    verdict, detail = judge(run_in_shell, folder, command)
    assert verdict in ("correct", "one_line_errors"), detail
