"""Problems describe what can be learnt, and refuse what cannot."""

import json

import pytest

from cato.errors import InputError
from cato.problem import Problem


def test_round_trip_through_json():
    problem = Problem(
        "ns", "grid", (8, 8), ("a", "b"), ("w",), periodic=(True, True), period=(1.0, None),
        time="rollout", num_steps=10, normalise=(),
    )  # fmt: skip
    assert Problem.from_dict(json.loads(json.dumps(problem.to_dict()))) == problem


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shape": (1, 8)}, "at least 3 nodes"),
        ({"shape": (8,)}, "as many axes as coordinates"),
        ({"shape": (3, 3, 3, 3), "dimension": 4}, "1 to 3"),
        ({"geometry": "cloud"}, "one axis of points"),
        ({"outputs": ()}, "no output channel"),
        ({"geometry": "gird"}, "geometry must be one of"),
        ({"time": "steddy"}, "time must be one of"),
        ({"outputs": "uvp"}, "outputs must be a tuple of names"),
        ({"normalise": ("targets",)}, "only coords"),
        ({"normalise": ("coords",), "period": (1.0, 1.0)}, "cannot be normalised"),
        ({"periodic": (True,)}, "every axis"),
        ({"period": (1.0,)}, "every one of the 2 coordinates"),
    ],
)
def test_impossible_problems(changes, message):
    values = {"name": "p", "geometry": "mesh", "shape": (8, 8), "inputs": (), "outputs": ("u",)}
    with pytest.raises(InputError, match=message):
        Problem(**(values | changes))
