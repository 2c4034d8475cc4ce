"""The sizes of all models at the published settings, and what `cato models` says of them."""

import pytest

from cato.benchmarks import BENCHMARKS
from cato.cli.catalogue import (
    benchmarks_of,
    counted_on,
    model_card,
    model_table,
    size_on,
)
from cato.models.registry import MODELS
from reproduce.paper import PAPER

COUNTS = {
    "cato": 761_605,
    "cato_pc": 1_944_085,
    "fno": 2_368_001,
    "wmt": 9_223_601,
    "u_fno": 3_990_401,
    "geo_fno": 2_368_257,
    "u_no": 6_239_777,
    "f_fno": 7_102_146,
    "lsm": 19_181_825,
    "galerkin": 2_223_133,
    "ht_net": 12_557_905,
    "oformer": 2_556_321,
    "gnot": 9_714_329,
    "factformer": 3_701_057,
    "ono": 2_025_345,
    "transolver": 2_826_817,
    "saot": 2_692_609,
}
"""On Darcy, CATO-PC on Elasticity: a change of any layer shows here."""


def test_every_model_is_listed_with_its_pinned_size():
    assert {row["name"]: row["parameters"] for row in model_table()} == COUNTS


@pytest.mark.parametrize("name", ["transolver", "saot"])
def test_sizes_are_the_published_ones(name):
    assert benchmarks_of(name) == list(BENCHMARKS)
    for benchmark in BENCHMARKS.values():
        millions = PAPER[benchmark.name].public_millions[name]
        assert size_on(name, benchmark.name) == pytest.approx(1e6 * millions, rel=0.03)


@pytest.mark.parametrize("name", MODELS)
def test_cards_name_every_setting(name):
    card = model_card(name)
    assert card["parameters"] == COUNTS[name]
    assert f"{counted_on(name)}, paper" == card["parameters_counted_on"]
    assert card["--model.width"]["default"] > 0
    assert ("elasticity" in card["runs_on"]) == (card["not_on_clouds_because"] is None)
