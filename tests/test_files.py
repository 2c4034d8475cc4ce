"""JSON that every parser accepts."""

import json
from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cato.files import read_json, to_json, write_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def refuse(word):
    raise AssertionError(f"{word} is not JSON")


@settings(max_examples=50)
@given(VALUES)
def test_json_has_no_nan_and_no_infinity(values):
    json.loads(to_json(values), parse_constant=refuse)


def test_only_what_is_not_finite_becomes_null(tmp_path):
    write_json(tmp_path / "a.json", {"é": [1.5, nan, (inf, -inf, 2)], "b": {"c": -inf}})
    assert read_json(tmp_path / "a.json", "test") == {
        "é": [1.5, None, [None, None, 2]],
        "b": {"c": None},
    }


def test_other_objects_are_refused():
    with pytest.raises(TypeError):
        to_json({"a": object()})
