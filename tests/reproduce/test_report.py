"""Claims and their verdicts follow from the numbers in the results files."""

import json

import pytest
from PIL import Image

from cato.benchmarks import BENCHMARKS
from cato.cli.main import main
from cato.errors import InputError
from reproduce.claims import claims
from reproduce.report import report


def row(error, spread=None, **more):
    fixed = {"errors": [error], "mean_predictor": 0.025}
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
        "minutes": {"one": 6.0, "another": 12.0},
        "rows": rows,
    }


def test_studies_that_were_not_run_say_so():
    stated = claims({"time": compared(0.01, {"fno": 0.02})})
    assert [c.verdict for c in stated].count("not run") == 7 + 2  # studies; SAOT and Transolver
    assert [c.verdict for c in stated].count("not testable without a GPU") == 2
    assert len(stated) == 6 + 5 + 7 + 2


def test_pages_are_written_from_the_files(tmp_path, capsys):
    folder = tmp_path / "studies" / "time"
    folder.mkdir(parents=True)
    (folder / "compare.json").write_text(json.dumps(compared(0.01234, {"saot": 0.02})))
    (folder / "compare.md").write_text("![what it shows](darcy.png)")
    Image.new("RGB", (1, 1)).save(folder / "darcy.png")
    main(["study", "report", "--results", str(folder.parent), "--out", str(tmp_path), "--json"])
    shown = json.loads(capsys.readouterr().out)["claims"]
    page, html = ((tmp_path / name).read_text() for name in ("results.md", "results.html"))
    for text in (page, html):
        assert "CATO 1.23%" in text
        assert "3 minutes each" in text
        assert "Not run yet" in text
        assert "make study-scaling" in text
        assert "what it shows" in text
        assert "which may be luck" in text  # what the verdict means
    assert {line["verdict"] for line in shown} == {
        "shown with one seed",
        "shown",
        "shown in part",
        "not run",
        "not testable without a GPU",
    }
    assert "2 trainings of one thread each, 0.3 hours" in page


def test_a_training_that_two_studies_share_costs_once(tmp_path):
    for study in ("time", "epochs"):
        (tmp_path / study).mkdir()
        (tmp_path / study / "compare.json").write_text(json.dumps(compared(0.01, {"saot": 0.02})))
    report(tmp_path, tmp_path)
    assert "2 trainings of one thread each, 0.3 hours" in (tmp_path / "results.md").read_text()


def test_results_of_another_version_are_an_error(tmp_path):
    old = compared(0.01, {"saot": 0.02})
    del old["rows"][0]["mean_predictor"]
    (tmp_path / "time").mkdir()
    (tmp_path / "time" / "compare.json").write_text(json.dumps(old))
    with pytest.raises(InputError, match="of time lack 'mean_predictor': another version"):
        report(tmp_path, tmp_path)
    (tmp_path / "time" / "compare.json").write_text("{")
    with pytest.raises(InputError, match="results of time"):
        report(tmp_path, tmp_path)


def test_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(InputError, match="holds no results"):
        report(tmp_path, tmp_path)
