"""A seventh benchmark is one folder and one line: a toy goes the whole way in a copy of cato.

The copy gets the folder `toy` and the line; no other file is touched. All commands run in one
process, the script toy_session.py.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
LAST = '    "elasticity",\n'


def make_copy(root: Path) -> None:
    skip = shutil.ignore_patterns("pretrained")
    for folder in ("cato", "reproduce", "tools", "docs/benchmarks"):
        shutil.copytree(ROOT / folder, root / folder, ignore=skip)
    shutil.copy(ROOT / "mkdocs.yml", root)
    shutil.copytree(ROOT / "tests/benchmarks/toy", root / "cato/benchmarks/toy")
    listing = root / "cato/benchmarks/__init__.py"
    text = listing.read_text()
    assert text.count(LAST) == 1
    listing.write_text(text.replace(LAST, LAST + '    "toy",\n'))


@pytest.fixture(scope="module")
def session(tmp_path_factory) -> SimpleNamespace:
    """The working folder, the fields of the published file, and the answers of all steps."""
    root = tmp_path_factory.mktemp("copy")
    make_copy(root)
    work = root / "work"
    work.mkdir()
    fields = np.random.default_rng(0).random((16, 2, 13, 13), np.float32)
    np.save(work / "toy.npy", fields)
    done = subprocess.run(
        [sys.executable, ROOT / "tests/benchmarks/toy_session.py"],
        cwd=work,
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    answers = json.loads((work / "session.json").read_text())
    assert Path(answers["package"]).is_relative_to(root)
    return SimpleNamespace(work=work, fields=fields, **answers)


def test_it_is_listed_with_the_others(session):
    rows = session.benchmarks["benchmarks"]
    assert [row["name"] for row in rows][-1] == "toy"
    assert len(rows) == 7


def test_it_is_generated_and_learnt(session):
    assert (session.generate["nodes"], session.generate["train"]) == ("9 × 9", 6)
    assert session.train


def test_it_is_evaluated_and_reported(session):
    assert 0 < session.evaluate["relative_l2"] < 100
    assert "Toy Poisson" in (session.work / "run/report.html").read_text()


def test_its_published_files_are_read(session):
    expected = {"sizes": [8, 4, 4], "first": session.fields[12, 1, 0, 0].item()}
    assert session.published == expected


def test_it_is_explored(session):
    (entry,) = session.explorer["listed"]
    assert (entry["name"], entry["title"]) == ("toy", "Toy Poisson")
    (model,) = entry["models"]
    editor = model["editor"]
    assert (editor["kind"], editor["label"]) == ("sliders", "Toy potential")
    assert len(editor["controls"]) == 4
    shapes = session.explorer["shapes"]
    assert shapes["outputs"] == shapes["inputs"] == [9, 9, 1]
    assert session.explorer["finite"]


def test_it_has_a_row_on_the_results_page(session):
    """The paper's number and ours, from a comparison of one short training."""
    (row,) = json.loads((session.work / "results/epochs/compare.json").read_text())["rows"]
    assert row["benchmark"] == "toy"
    page = (session.work / "docs/results.md").read_text()
    assert "Toy Poisson" in page
    assert "1.23%; FNO 4.56%" in page
    assert "Toy Poisson" in (session.work / "results/epochs/compare.md").read_text()


def test_it_has_a_page_in_the_documentation(session):
    root = session.work.parent
    assert "[Toy Poisson](toy.md)" in (root / "docs/benchmarks/index.md").read_text()
    assert "f a sum of four waves" in (root / "docs/benchmarks/toy.md").read_text()
    assert "- benchmarks/toy.md\n" in (root / "mkdocs.yml").read_text()
