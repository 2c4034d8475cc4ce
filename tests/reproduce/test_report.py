"""Claims, verdicts and pages follow from the results files."""

import json
from pathlib import Path

import pytest
from PIL import Image
from trials import measured

from cato.benchmarks import BENCHMARKS
from cato.errors import InputError
from reproduce.claims import claims
from reproduce.cli import main
from reproduce.experiment import all_experiments
from reproduce.pages import all_pages, page_of, write_all
from reproduce.results import FORMAT, PROVENANCE, by_headline, read_results, rows_of
from reproduce.studies.compare import mean_ranks

ROOT = Path(__file__).parents[2]


def row(error, spread=None, **more):
    fixed = {"errors": [error], "mean_predictor": 0.025, "provenance": measured()}
    fixed |= {"diverged": 0, "frame_errors": None, "parameters": 1, "epochs": 1.0}
    fixed |= {"seconds_per_sample": 0.1, "solver_seconds_per_sample": 0.2}
    return {"relative_l2": error, "spread": spread, **fixed, **more}


def compared(ours, rivals, name="time", minutes=3.0):
    """Results in which CATO has error `ours` and each rival its own, on all benchmarks."""
    rows = []
    for benchmark in BENCHMARKS:
        model = "cato_pc" if benchmark == "elasticity" else "cato"
        rows.append(row(ours, benchmark=benchmark, model=model))
        rows += [row(error, benchmark=benchmark, model=rival) for rival, error in rivals.items()]
    return {
        "format": FORMAT,
        "experiment": name,
        "kind": "compare",
        "settings": {"scale": "small", "minutes": minutes, "seeds": [0]},
        "minutes": {"one": 6.0, "another": 12.0},
        "rows": rows,
    }


def write(results, root):
    folder = root / "studies" / results["experiment"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "compare.json").write_text(json.dumps(results))
    return folder


def test_studies_that_were_not_run_say_so():
    stated = claims({"time": compared(0.01, {"fno": 0.02})})
    assert [c.verdict for c in stated].count("not run") == 9 + 2  # studies; SAOT and Transolver
    assert [c.verdict for c in stated].count("not testable without a GPU") == 2
    assert len(stated) == 6 + 6 + 5 + 9 + 2 + 1


def test_pages_are_written_from_the_files(tmp_path, capsys):
    folder = write(compared(0.01234, {"saot": 0.02}), tmp_path)
    Image.new("RGB", (1, 1)).save(folder / "darcy.png")
    words = ["pages", "--results", str(folder.parent), "--out", str(tmp_path)]
    main([*words, "--json"])
    shown = json.loads(capsys.readouterr().out)["claims"]
    page, html = ((tmp_path / name).read_text() for name in ("results.md", "results.html"))
    for text in (page, html):
        assert "CATO 1.23%" in text
        assert "3 minutes each" in text
        assert "not run yet" in text
        assert "make study-scaling" in text
        assert "at least one side has a single seed" in text.lower()  # what the verdict means
    assert "CATO's median test sample" in html
    assert {line["verdict"] for line in shown} == {
        "shown with one seed",
        "shown in part",
        "not run",
        "not testable without a GPU",
        "contradictory in the paper",
    }
    assert page.index("heatmap.png") < page.index("## Shown with one seed") < page.index("## Not")
    assert "2 trainings of one thread each, 0.3 core hours" in page
    assert (folder.parent / "heatmap.png").stat().st_size > 5000


def with_fields(line, displacement):
    """The row with errors of fields, as they are measured now."""
    outputs = dict.fromkeys(("x", "y", "dx", "dy"), line["relative_l2"])
    errors = {"displacement": displacement} | outputs
    fields = {
        name: {"relative_l2": error, "spread": None, "errors": [error], "mean_predictor": 0.5}
        for name, error in errors.items()
    }
    return line | {"headline": "displacement", "fields": fields}


def test_tables_show_the_headline_and_claims_the_papers_metric(tmp_path):
    """The rival is better in all outputs, CATO in displacement."""
    results = compared(0.012, {"saot": 0.02})
    for line in results["rows"]:
        if line["benchmark"] == "plasticity":
            ours = line["model"] == "cato"
            line |= with_fields(
                line | {"relative_l2": 0.011 if ours else 0.007}, 0.15 if ours else 0.25
            )
    shown = {r["model"]: r for r in by_headline(results["rows"]) if r["benchmark"] == "plasticity"}
    assert {name: r["relative_l2"] for name, r in shown.items()} == {"cato": 0.15, "saot": 0.25}
    assert {r["field"] for r in shown.values()} == {"displacement"}
    assert mean_ranks(by_headline(results["rows"])) == {"cato": 1, "saot": 2}
    assert mean_ranks(results["rows"]) != {"cato": 1, "saot": 2}
    page = page_of(results)
    assert "| Plasticity, displacement |" in page
    assert "| CATO | 15.00% | 1.10% |" in page  # the published metric comes second
    assert "| *training mean* | 50.00% | 2.50% |" in page
    (claim,) = [c for c in claims({"time": results}) if "lowest error on Plasticity" in c.text]
    assert claim.verdict == "not shown"
    assert "CATO 1.10%; best rival SAOT 0.70%" in claim.ours
    assert "displacement: CATO 15.00%, best rival SAOT 25.00%" in claim.details


@pytest.mark.parametrize("measured_model", [None, "cato"])
def test_an_error_of_all_outputs_is_never_called_that_of_the_headline(measured_model):
    results = compared(0.012, {"saot": 0.02})
    for line in results["rows"]:
        if line["benchmark"] == "plasticity" and line["model"] == measured_model:
            line |= with_fields(line, 0.15)
    shown = [r for r in by_headline(results["rows"]) if r["benchmark"] == "plasticity"]
    assert [(r["field"], r["relative_l2"]) for r in shown] == [
        ("all outputs", 0.012), ("all outputs", 0.02)
    ]  # fmt: skip
    page = page_of(results)
    assert "| Plasticity, all outputs |" in page
    assert "was not measured" in page
    assert "15.00%" not in page
    assert "displacement |" not in page
    assert {r["field"] for r in by_headline(results["rows"]) if r not in shown} >= {""}


def test_a_training_that_two_studies_share_costs_once(tmp_path):
    for name, minutes in (("time", 3.0), ("epochs", None)):
        results = compared(0.01, {"saot": 0.02}, name, minutes)
        results["settings"]["share"] = 1.0
        write(results, tmp_path)
    write_all(tmp_path / "studies", tmp_path)
    text = (tmp_path / "results.md").read_text()
    assert "2 trainings of one thread each, 0.3 core hours" in text


def test_results_of_another_version_are_an_error_and_bugs_are_not(tmp_path):
    folder = write(compared(0.01, {"saot": 0.02}) | {"format": 1}, tmp_path)
    with pytest.raises(InputError, match="has results of format 1, expected 2: another version"):
        write_all(folder.parent, tmp_path)
    (folder / "compare.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        write_all(folder.parent, tmp_path)
    broken = compared(0.01, {"saot": 0.02})
    del broken["rows"][0]["mean_predictor"]
    write(broken, tmp_path)
    with pytest.raises(KeyError, match="mean_predictor"):
        write_all(folder.parent, tmp_path)


def test_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(InputError, match="holds no results"):
        write_all(tmp_path, tmp_path)


COMMITTED = [e for e in all_experiments() if (ROOT / e.results).exists()]


def test_most_experiments_have_committed_results():
    assert len(COMMITTED) >= 12


@pytest.mark.parametrize("experiment", COMMITTED, ids=lambda e: e.name)
def test_every_committed_row_has_its_provenance(experiment):
    rows = list(rows_of(read_results(ROOT / experiment.results)))
    assert rows
    for line in rows:
        assert set(PROVENANCE) <= set(line["provenance"])
        assert all(line["provenance"][name] not in (None, "", {}) for name in PROVENANCE)


def test_the_committed_pages_are_those_of_the_results():
    _, texts = all_pages(ROOT / "docs/studies", ROOT / "docs")
    assert len(texts) > len(COMMITTED)
    assert {path: path.read_text() for path in texts} == texts


def test_experiments_are_listed(capsys):
    main(["--json"])
    listed = json.loads(capsys.readouterr().out)["experiments"]
    assert {"time": "compare", "theory": "theory"}.items() <= {
        line["name"]: line["kind"] for line in listed
    }.items()
    main([])
    assert "lr-sweep" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rates"], "now `python -m reproduce lr-sweep`"),
        (["nonsense"], "no experiment 'nonsense'; choose one of theory"),
        (["theory", "--models", "cato"], "theory has no --models; leave it out"),
        (["time", "--benchmarks", "moon"], "moon"),
    ],
)
def test_bad_commands_are_one_line(words, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
