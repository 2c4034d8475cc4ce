"""The comparison on user data: its data sets, the settings of version 0.1, its rows and table."""

from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest

from cato.training.trials import share_left
from tools.pages import with_block
from tools.user_data import EXAMPLES, PAGE, block, data_sets, measure


def test_the_examples_and_every_worked_example_are_data_sets(tmp_path: Path) -> None:
    known = data_sets()
    assert set(EXAMPLES) < set(known)
    worked = {
        *(
            "A grid",
            "A structured mesh for each sample",
            "Time series",
            "A time series",
            "Three dimensions",
        ),
        *("A periodic mesh", "Clouds of different sizes, from VTK files"),
    }
    assert set(known) - set(EXAMPLES) == worked
    with chdir(tmp_path):
        known["A periodic mesh"].write()
        default, *rivals = known["A periodic mesh"].configs("auto")
    assert default.data.file == str(tmp_path / "ellipses.npz")
    assert (default.data.targets, default.data.periodic) == ("p", (0,))
    assert [config.model_name for config in (default, *rivals)] == ["cato", "f_fno", "geo_fno"]


def test_version_0_1_has_its_conditioning_batch_and_model(tmp_path: Path) -> None:
    """A cube of 17³ nodes: three of them were a batch."""
    data = data_sets()["Poisson's equation in 3-D"]
    line = np.linspace(0, 1, 17)
    coords = np.stack(np.meshgrid(line, line, line, indexing="ij"), axis=-1)
    fields = np.random.default_rng(0).random((2, 80, 17, 17, 17, 1))
    np.savez(tmp_path / "cubes.npz", coords=coords, inputs=fields[0], targets=fields[1])
    with chdir(tmp_path):
        old = type(data)("cubes", data.write, "cubes.npz").version_0_1()
    assert old.data.conditioning == "published"
    assert (old.model.variant, old.model.heads, old.model.kernel) == ("paper", 2, 3)
    assert old.train.batch_size == 3


def test_the_page_has_a_place_for_the_table() -> None:
    assert with_block(PAGE, "measured", "x\n").count("x\n<!-- /measured -->") == 1


@pytest.mark.slow
def test_a_row_has_all_errors_and_the_choice(tmp_path: Path) -> None:
    row = measure(data_sets()["A grid"], tmp_path / "grid", 0.002)
    errors = row["errors"]
    assert set(errors) == {"version_0_1", "default", "fno", "f_fno", "auto"}
    assert all(0 < error < 10 for error in errors.values())
    best = min(row["trials"], key=lambda trial: trial["expected"])
    assert row["auto"] == best["model"]
    if row["auto"] == "cato":
        assert row["steps"]["auto"] == int(share_left(3) * row["steps"]["default"])
    again = measure(data_sets()["A grid"], tmp_path / "grid", 0.002)
    assert again["errors"] == errors  # nothing is trained again
    text = block([row])
    assert f"| A grid | 30 | {row['mean_predictor']:.1%} |" in text
    assert f"{errors['auto']:.2%} (" in text
