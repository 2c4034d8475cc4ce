"""Claims and their verdicts follow from the numbers in the results files."""

import json

import pytest

from cato.cli.main import main
from cato.data.benchmarks import BENCHMARKS
from cato.errors import InputError
from cato.studies.claims import accuracy, claims, lower
from cato.studies.report import report, training_hours


def row(error, spread=None, **more):
    fixed = {"minutes": 3.0, "errors": [error], "mean_predictor": 0.025}
    return {"relative_l2": error, "spread": spread, **fixed, **more}


def compared(ours, rivals, minutes=3.0):
    """Results in which CATO has error `ours` and each rival its own, on all benchmarks."""
    rows = []
    for name in BENCHMARKS:
        model = "cato_pc" if name == "elasticity" else "cato"
        rows.append(row(ours, benchmark=name, model=model))
        rows += [row(error, benchmark=name, model=rival) for rival, error in rivals.items()]
    return {
        "settings": {"scale": "small", "minutes": minutes, "seeds": [0]},
        "environment": {"cores": 2, "processor": "a chip"},
        "rows": rows,
    }


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        (row(0.01), row(0.02), "shown"),
        (row(0.02), row(0.01), "not shown"),
        (row(0.010, 0.003), row(0.012, 0.001), "within the spread"),
        (row(0.010, 0.0003), row(0.012, 0.0001), "shown"),
        (row(0.010, 0.003), row(0.012), "shown"),  # one seed says nothing of its spread
    ],
)
def test_lower_means_by_more_than_the_seeds_vary(ours, theirs, verdict):
    assert lower(ours, theirs) == verdict


@pytest.mark.parametrize(
    ("ours", "reduction", "verdict"),
    [
        (0.01, "50.0%, first on 6 of 6", "shown"),
        (0.018, "10.0%", "shown in part"),
        (0.04, "-100.0%", "not shown"),
    ],
)
def test_reduction_is_against_the_best_rival(ours, reduction, verdict):
    *each, total = accuracy(compared(ours, {"fno": 0.03, "saot": 0.02}))
    assert len(each) == 6
    assert total.ours.startswith(reduction)
    assert total.verdict == verdict
    assert all("best rival SAOT 2.00%" in claim.ours for claim in each)
    assert "rank 1 of 3" in each[0].ours or ours > 0.02
    assert "1 of 2 rivals beat the training mean, 2.5%" in each[0].ours  # FNO does not


def test_studies_that_were_not_run_say_so():
    stated = claims({"time": compared(0.01, {"fno": 0.02})})
    assert [c.verdict for c in stated].count("not run") == 6
    assert [c.verdict for c in stated].count("not testable without a GPU") == 2
    assert len(stated) == 7 + 6 + 2


def test_pages_are_written_from_the_files(tmp_path, capsys):
    folder = tmp_path / "studies" / "time"
    folder.mkdir(parents=True)
    (folder / "compare.json").write_text(json.dumps(compared(0.01234, {"saot": 0.02})))
    main(["study", "report", "--results", str(folder.parent), "--out", str(tmp_path), "--json"])
    shown = json.loads(capsys.readouterr().out)["claims"]
    page, html = ((tmp_path / name).read_text() for name in ("results.md", "results.html"))
    for text in (page, html):
        assert "CATO 1.23%" in text
        assert "3 minutes each" in text
        assert "Not run yet" in text
        assert "make study-scaling" in text
    assert {line["verdict"] for line in shown} == {"shown", "not run", "not testable without a GPU"}
    assert training_hours(compared(0.01, {"saot": 0.02})) == pytest.approx(12 * 3 / 60)


def test_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(InputError, match="holds no results"):
        report(tmp_path, tmp_path)
