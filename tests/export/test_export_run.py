"""`cato export` on a trained run, and the page that says how to use the file."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cato.cli import main
from cato.data.generate import generate
from cato.errors import InputError
from cato.export import describe, export_run
from cato.runs.folder import create_run, open_run
from cato.runs.load import load_splits, load_surrogate
from cato.runs.settings import build_settings, run_config
from cato.training.train import train

PAGE = (Path(__file__).parents[2] / "docs/export.md").read_text()


def small_config(root: Path, **data):
    values = build_settings("darcy", "smoke", "cato").to_dict()
    values["data"] |= {"root": str(root), **data}
    values["model"] |= {"width": 8, "depth": 1}
    values["train"] |= {"accelerator": "cpu", "epochs": 1}
    return run_config(values, "test")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working folder with data/ and the trained run runs/first."""
    folder = tmp_path_factory.mktemp("work")
    generate("darcy", "smoke", root=folder / "data", workers=1)
    train(small_config(folder / "data"), folder / "runs/first")
    return folder


@pytest.fixture(scope="module")
def exported(folder):
    """Figures of the export to ONNX, into the run folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jaxtyping.config.jaxtyping_disable", True)
        return export_run(open_run(folder / "runs/first"))


def test_cato_is_checked_on_random_and_real_inputs_of_any_size(folder, exported):
    assert exported["path"] == str(folder / "runs/first/model.onnx")
    assert exported["dynamic"] == ["batch", "n1", "n2"]
    assert exported["largest_difference"] < 1e-4
    assert [name for name in exported["checked_on"] if name.startswith("real")] == [
        f"real, sample {number}" for number in range(3)
    ]
    assert len([name for name in exported["checked_on"] if "mesh" in name]) == 3
    assert exported["milliseconds_pytorch"] > 0
    assert exported["milliseconds_onnxruntime"] > 0


def test_the_metadata_name_the_training(folder, exported):
    run = open_run(folder / "runs/first")
    found = describe(exported["path"])
    assert found["model"] == "cato"
    assert found["run"]["name"] == "first"
    assert found["run"]["created"] == run.record["created"]
    assert found["run"]["seed"] == run.config.train.seed
    assert found["run"]["validation_relative_l2"] == min(x["validation"] for x in run.log())


def test_the_example_of_the_page_needs_numpy_and_onnxruntime_only(folder, exported):
    (example,) = re.findall(r"^```python\n(import json.*?)^```", PAGE, re.M | re.S)
    test = load_splits(open_run(folder / "runs/first").config).test
    np.savez(folder / "in.npz", **test.arrays("inputs"))
    assert_runs_without_cato(example, folder, without=("cato", "torch"))
    with np.load(folder / "out.npz") as saved:
        found = saved["outputs"]
    expected = load_surrogate(open_run(folder / "runs/first")).predict(test.arrays()["inputs"])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


@pytest.mark.slow
def test_the_example_of_the_page_needs_numpy_and_torch_only(folder):
    (example,) = re.findall(
        r"^```python\n(import numpy as np\nimport torch.*?)^```", PAGE, re.M | re.S
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jaxtyping.config.jaxtyping_disable", True)
        export_run(open_run(folder / "runs/first"), "pt2", folder / "darcy.pt2")
    test = load_splits(open_run(folder / "runs/first").config).test
    np.savez(folder / "in.npz", **test.arrays("inputs"))
    assert_runs_without_cato(example, folder)
    expected = load_surrogate(open_run(folder / "runs/first")).predict(test.arrays()["inputs"])
    with np.load(folder / "out.npz") as saved:
        tolerance = 1e-4 * np.abs(expected).max()
        np.testing.assert_allclose(saved["outputs"], expected, rtol=0, atol=tolerance)


def assert_runs_without_cato(example, folder, without=("cato",)):
    alone = f"\nimport sys\nassert not {set(without)} & set(sys.modules)\n"
    done = subprocess.run(
        [sys.executable, "-c", example + alone], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_inspect_tells_a_person_and_a_script_what_the_file_is(exported, capsys):
    main(["inspect", exported["path"]])
    told = " ".join(capsys.readouterr().out.split())
    for words in ("cato", "darcy", "(batch, n1, n2, channel): x, y", "batch, n1, n2"):
        assert words in told
    main(["inspect", exported["path"], "--json"])
    assert json.loads(capsys.readouterr().out) == describe(exported["path"])


def test_an_existing_file_is_refused(folder, exported):
    with pytest.raises(InputError, match=r"model\.onnx exists and is not overwritten"):
        export_run(open_run(folder / "runs/first"))


@pytest.mark.slow
def test_without_data_the_check_is_on_random_inputs_and_says_so(folder, tmp_path, capsys):
    run = open_run(folder / "runs/first")
    away = small_config(tmp_path / "nowhere")
    figures = export_run(
        type(run)(run.folder, away, run.problem, run.record), "pt2", tmp_path / "model.pt2"
    )
    assert all(name.startswith("random") for name in figures["checked_on"])
    assert "random inputs only" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["truncated", "of another seed"])
def test_with_damaged_data_the_check_is_on_random_inputs_too(folder, damage, tmp_path, capsys):
    run = open_run(folder / "runs/first")
    config = small_config(tmp_path)
    (path,) = (folder / "data").glob("*.h5")
    content = path.read_bytes()
    if damage == "truncated":
        content = content[: len(content) // 2]
    else:
        content = generate("darcy", "smoke", seed=1, root=tmp_path / "one", workers=1).read_bytes()
    (tmp_path / path.name).write_bytes(content)
    figures = export_run(
        type(run)(run.folder, config, run.problem, run.record), "pt2", tmp_path / "model.pt2"
    )
    assert all(name.startswith("random") for name in figures["checked_on"])
    assert "random inputs only" in capsys.readouterr().err


def test_runs_that_are_missing_or_untrained_are_refused(folder, tmp_path):
    with pytest.raises(InputError, match="not a run folder"):
        open_run(tmp_path / "none")
    trained = open_run(folder / "runs/first")
    untrained = create_run(tmp_path / "new", trained.config, trained.problem)
    with pytest.raises(InputError, match="no trained weights yet"):
        export_run(untrained)
    assert [path.name for path in untrained.folder.iterdir()] == ["run.json"]


def test_figures_are_json(exported):
    assert json.loads(json.dumps(exported)) == exported
