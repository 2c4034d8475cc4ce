"""A seventh benchmark is one folder and one line: a toy goes the whole way in a copy of cato.

The copy gets the folder `toy` and the line; no other file is touched.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest
from safetensors.numpy import load

ROOT = Path(__file__).parents[2]
LAST = '    "elasticity",\n'


class Copy:
    """The copied packages, and a working folder for commands that use them."""

    def __init__(self, root: Path) -> None:
        self.root, self.work = root, root / "work"
        self.work.mkdir()
        self.env = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=self.work,
            env=self.env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *words: str) -> str:
        with self.start(*words) as process:
            try:
                out, err = process.communicate(timeout=120)
            finally:
                process.kill()
        assert process.returncode == 0, (words, out, err)
        return out

    def cato(self, *words: str) -> dict:
        return json.loads(self.run("-m", "cato", *words, "--json"))


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Copy:
    root = tmp_path_factory.mktemp("copy")
    skip = shutil.ignore_patterns("pretrained")
    for package in ("cato", "reproduce"):
        shutil.copytree(ROOT / package, root / package, ignore=skip)
    shutil.copytree(ROOT / "tests/benchmarks/toy", root / "cato/benchmarks/toy")
    listing = root / "cato/benchmarks/__init__.py"
    text = listing.read_text()
    assert text.count(LAST) == 1
    listing.write_text(text.replace(LAST, LAST + '    "toy",\n'))
    return Copy(root)


@pytest.fixture(scope="module")
def run(copy) -> Path:
    """A run of two steps; its data were generated before."""
    generated = copy.cato("generate", "toy", "--scale", "smoke", "--workers", "1")
    assert (generated["nodes"], generated["train"]) == ("9 × 9", 6)
    # Not CATO, whose loops Numba might have to compile first.
    options = ("--scale", "smoke", "--model", "fno", "--out", "run", "--train.steps", "2")
    trained = copy.cato("train", "toy", *options, "--train.accelerator", "cpu")
    assert trained
    return copy.work / "run"


def test_it_is_listed_with_the_others(copy):
    rows = copy.cato("benchmarks")["benchmarks"]
    assert [row["name"] for row in rows][-1] == "toy"
    assert len(rows) == 7


def test_it_is_evaluated_and_reported(copy, run):
    figures = copy.cato("evaluate", "run")
    assert 0 < figures["relative_l2"] < 100
    copy.run("-m", "cato", "report", "run")
    page = (run / "report.html").read_text()
    assert "Toy Poisson" in page


def test_its_published_files_are_read(copy):
    fields = np.random.default_rng(0).random((16, 2, 13, 13), np.float32)
    np.save(copy.work / "toy.npy", fields)
    script = (
        "from cato.data.published import read_published; s = read_published('toy', '.'); "
        "print([len(d) for d in s.datasets.values()], s.test.targets[0, 0, 0].item())"
    )
    assert copy.run("-c", script).strip() == f"[8, 4, 4] {fields[12, 1, 0, 0].item()}"


def test_it_is_explored(copy, run):
    process = copy.start("-m", "cato", "serve", "mine=run", "--port", "0", "--json")
    try:
        url = json.loads(process.stdout.readline())["url"] + "/explorer/api"
        with httpx.Client(timeout=60, trust_env=False) as client:
            (entry,) = client.get(f"{url}/benchmarks").json()["benchmarks"]
            assert (entry["name"], entry["title"]) == ("toy", "Toy Poisson")
            (model,) = entry["models"]
            editor = model["editor"]
            assert (editor["kind"], editor["label"]) == ("sliders", "Toy potential")
            assert len(editor["controls"]) == 4
            drawn = client.get(f"{url}/models/mine/draw?seed=1")
            answer = client.post(
                f"{url}/models/mine/predict",
                content=drawn.content,
                headers={"content-type": drawn.headers["content-type"]},
            )
            assert answer.status_code == 200, answer.text
            arrays = load(answer.content)
            assert arrays["outputs"].shape == (9, 9, 1)
            assert arrays["inputs"].shape == (9, 9, 1)
            assert np.isfinite(arrays["outputs"]).all()
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_it_has_a_row_on_the_results_page(copy):
    """The paper's number and ours, from a comparison of one short training."""
    options = ("--benchmarks", "toy", "--models", "fno", "--scale", "smoke", "--seeds", "0")
    folders = ("--share", "1", "--runs", "runs", "--out", "results/epochs", "--workers", "1")
    copy.run("-m", "reproduce", "epochs", *options, *folders)
    copy.run("-m", "reproduce", "pages", "--results", "results", "--out", "docs")
    (row,) = json.loads((copy.work / "results/epochs/compare.json").read_text())["rows"]
    assert row["benchmark"] == "toy"
    page = (copy.work / "docs/results.md").read_text()
    assert "Toy Poisson" in page
    assert "1.23%; FNO 4.56%" in page
    assert "Toy Poisson" in (copy.work / "results/epochs/compare.md").read_text()
