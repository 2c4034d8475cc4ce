"""The worked examples of docs/user-data.md run as they stand, with a tiny model and one epoch."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import pyvista
import xarray

from cato.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "user-data.md"
SHORT = ["--scale", "smoke", "--train.epochs", "1", "--train.accelerator", "cpu"]
TINY = [*SHORT, "--model.width", "8", "--model.depth", "1"]
SECTION = re.compile(r"^## (.+?)$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = {
    title: BLOCK.findall(text)
    for title, text in SECTION.findall(PAGE.read_text())
    if BLOCK.findall(text)
}


def run_block(language: str, text: str) -> None:
    if language == "python":
        exec(compile(text, str(PAGE), "exec"), {"__name__": "page"})
        return
    for line in text.splitlines():
        name, *words = shlex.split(line, comments=True)
        assert name == "cato"
        small = SHORT if "auto" in words else TINY  # auto refuses settings of one model
        added = {"train": small, "advise": ["--minutes", "0.02"]}
        main([*words, *added.get(words[0], [])])


def test_there_is_an_example_for_each_geometry():
    words = " ".join(EXAMPLES).lower()
    assert all(word in words for word in ("grid", "mesh", "clouds", "three", "time"))


@pytest.mark.parametrize("title", [title for title in EXAMPLES if title != "In Python"])
def test_worked_example(title, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for language, text in EXAMPLES[title]:
        run_block(language, text)
    (report,) = tmp_path.glob("runs/*/report.html")
    assert "Test error" in report.read_text()
    written = {path.name for path in tmp_path.iterdir()}
    assert any(
        name.endswith(("-predicted", "-solved.npz")) or "-predicted." in name for name in written
    )
    if (tmp_path / "heat-predicted.npz").exists():
        with np.load(tmp_path / "heat-predicted.npz", allow_pickle=False) as arrays:
            assert {"temperature_predicted", "temperature_error"} <= set(arrays)
    if (tmp_path / "parts-predicted").exists():
        part = pyvista.read(tmp_path / "parts-predicted" / "part_7.vtu")
        assert part["U_predicted"].shape == part["U"].shape == (47, 3)
    if (tmp_path / "waves-predicted.nc").exists():
        with xarray.open_dataset(tmp_path / "waves-predicted.nc") as data:
            assert data["u_predicted"].shape == (30, 4, 10, 8)


def test_the_python_way(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_block(*EXAMPLES["A grid"][0])
    for block in EXAMPLES["In Python"]:
        run_block(*block)
        assert 0 < float(capsys.readouterr().out.split()[-1]) < 2
