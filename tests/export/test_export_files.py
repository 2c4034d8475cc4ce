"""Exported files give what the surrogate gives, and say what they are."""

import io
import json
import pickletools
import re
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from toys import GRID, ROLLOUT, SHAPED, TIMED, Pointwise, Singular, SizeDependent, surrogate

from cato.errors import InputError
from cato.export import describe, export_surrogate
from cato.export.formats import FORMATS
from cato.problem import Problem

both_formats = pytest.mark.parametrize("name", ["onnx", "pt2"])
DETAILS = {"model": "pointwise", "run": {"seed": 3, "validation_relative_l2": 0.25}}
Export = Callable[[Problem, str], tuple[Path, dict[str, Any]]]


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Export:
    """File and figures of a pointwise model, which is exported once for all tests that read it."""

    @cache
    def export(problem: Problem, name: str) -> tuple[Path, dict[str, Any]]:
        path = tmp_path_factory.mktemp("exported") / f"model.{name}"
        return path, export_surrogate(surrogate(Pointwise, problem), path, name, DETAILS)

    return export


def run_file(path: Path, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """As a user would, without this library."""
    if path.suffix == ".onnx":
        session = onnxruntime.InferenceSession(str(path))
        return session.run(None, arrays)[0]
    module = torch.export.load(path).module()
    return module(**{key: torch.from_numpy(value) for key, value in arrays.items()}).numpy()


def arrays_of(problem: Problem, batch: int, shape: tuple[int, ...], seed: int = 5):
    rng = np.random.default_rng(seed)
    arrays = {"coords": rng.random((batch, *shape, problem.dimension), np.float32)}
    if problem.num_inputs:
        arrays["inputs"] = rng.random((batch, *shape, problem.num_inputs), np.float32)
    return arrays


@both_formats
@pytest.mark.parametrize(
    "problem", [GRID, ROLLOUT, pytest.param(SHAPED, marks=pytest.mark.slow)], ids=lambda p: p.name
)
def test_physical_values_in_and_out_on_any_mesh(name, problem, exported):
    model = surrogate(Pointwise, problem)
    path, figures = exported(problem, name)
    assert figures["dynamic"] == ["batch", "n1", "n2"]
    assert figures["largest_difference"] < 1e-5
    for batch, shape in ((1, (6, 5)), (4, (6, 5)), (3, (9, 4))):
        arrays = arrays_of(problem, batch, shape)
        empty = np.zeros((batch, *shape, 0), np.float32)
        expected = model.predict(arrays.get("inputs", empty), arrays["coords"])
        steps = (problem.num_steps,) if problem.time == "rollout" else ()
        found = run_file(path, arrays)
        assert found.shape == (batch, *steps, *shape, problem.num_outputs)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@both_formats
def test_a_conditioned_problem_takes_a_time_per_sample(name, tmp_path):
    model = surrogate(Pointwise, TIMED)
    path = tmp_path / f"model.{name}"
    export_surrogate(model, path, name)
    arrays = arrays_of(TIMED, 1, TIMED.shape)
    frames = model.predict(arrays["inputs"], arrays["coords"])[0]
    copies = {key: np.repeat(value, 3, axis=0) for key, value in arrays.items()}
    found = run_file(path, copies | {"time": np.array([0.0, 0.5, 1.0], np.float32)})
    np.testing.assert_allclose(found, frames, rtol=1e-5, atol=1e-6)


@both_formats
def test_a_cloud_has_any_number_of_points(name, tmp_path):
    cloud = Problem("drops", "cloud", (20,), ("a",), ("u",))
    model = surrogate(Pointwise, cloud)
    path = tmp_path / f"model.{name}"
    assert export_surrogate(model, path, name)["dynamic"] == ["batch", "points"]
    arrays = arrays_of(cloud, 2, (31,))
    expected = model.predict(arrays["inputs"], arrays["coords"])
    np.testing.assert_allclose(run_file(path, arrays), expected, rtol=1e-5, atol=1e-6)


@both_formats
def test_the_file_describes_itself(name, exported):
    path, _ = exported(ROLLOUT, name)
    found = describe(path)
    assert Problem.from_dict(found["problem"]) == ROLLOUT
    assert found["model"] == "pointwise"
    assert found["run"] == DETAILS["run"]
    assert found["dynamic"] == ["batch", "n1", "n2"]
    assert found["why_fixed"] is None
    assert "rollout of 4 steps" in found["computes"]
    assert found["layout"]["inputs"]["inputs"]["channels"] == ["w1", "w2"]
    assert found["layout"]["outputs"]["outputs"]["axes"] == ["batch", "step", "n1", "n2", "channel"]
    assert "float32" in found["precision"]


def test_onnx_properties_and_axes_have_names_for_every_reader(exported):
    path, _ = exported(GRID, "onnx")
    session = onnxruntime.InferenceSession(str(path))
    properties = session.get_modelmeta().custom_metadata_map
    assert json.loads(properties["cato.problem"])["name"] == "toy"
    assert {i.name: i.shape for i in session.get_inputs()} == {
        "coords": ["batch", "n1", "n2", 2],
        "inputs": ["batch", "n1", "n2", 2],
    }
    assert [o.name for o in session.get_outputs()] == ["outputs"]
    onnx.checker.check_model(str(path), full_check=True)


def test_a_pt2_file_holds_no_pickled_code(exported):
    path, _ = exported(GRID, "pt2")
    with zipfile.ZipFile(path) as archive:
        entries = {entry: archive.read(entry) for entry in archive.namelist()}
    assert not any(is_pickle(content) for content in entries.values()), list(entries)


def is_pickle(content: bytes) -> bool:
    if zipfile.is_zipfile(io.BytesIO(content)):
        return True  # what torch.save writes
    if not content.startswith(b"\x80"):
        return False
    try:
        return bool(list(pickletools.genops(content)))
    except ValueError:
        return False


@both_formats
def test_a_graph_that_depends_on_the_mesh_keeps_it_and_says_why(name, tmp_path, capsys):
    model = surrogate(SizeDependent, GRID)
    path = tmp_path / f"model.{name}"
    figures = export_surrogate(model, path, name)
    assert figures["dynamic"] == ["batch"]
    assert "axis 1" in figures["why_fixed"]
    assert describe(path)["why_fixed"] == figures["why_fixed"]
    assert "fixed at (6, 5)" in " ".join(capsys.readouterr().err.split())
    arrays = arrays_of(GRID, 5, GRID.shape)
    expected = model.predict(arrays["inputs"], arrays["coords"])
    np.testing.assert_allclose(run_file(path, arrays), expected, rtol=1e-5, atol=1e-6)


def test_an_operation_in_the_way_is_named_and_nothing_is_left(tmp_path):
    with pytest.raises(
        InputError, match=r"cannot be exported to onnx: .*aten::_?linalg_svd"
    ) as hit:
        export_surrogate(surrogate(Singular, GRID), tmp_path / "model.onnx")
    assert "\n" not in str(hit.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "wrong"), [("onnx", 1.001), ("pt2", float("nan"))])
def test_a_file_that_differs_from_pytorch_is_not_kept(name, wrong, tmp_path, monkeypatch):
    right = FORMATS[name].load

    def load(path):
        program = right(path)
        return lambda arrays: wrong * program(arrays)

    monkeypatch.setattr(FORMATS[name], "load", load)
    with pytest.raises(InputError, match=r"differs from PyTorch by (1\.0e-03|nan)"):
        export_surrogate(surrogate(Pointwise, GRID), tmp_path / f"model.{name}", name)
    assert not list(tmp_path.iterdir())


def test_a_model_that_is_wrong_on_other_meshes_only_keeps_its_mesh(tmp_path, monkeypatch):
    right = FORMATS["pt2"].load

    def load(path):
        program = right(path)
        return lambda arrays: program(arrays) * (1 if arrays["coords"].shape[1] == 6 else 2)

    monkeypatch.setattr(FORMATS["pt2"], "load", load)
    figures = export_surrogate(surrogate(Pointwise, GRID), tmp_path / "model.pt2", "pt2")
    assert figures["dynamic"] == ["batch"]
    assert re.search(r"mesh 7 × 6.* differs", figures["why_fixed"])


def test_bad_targets_are_refused_before_the_work(tmp_path):
    model = surrogate(Pointwise, GRID)
    existing = tmp_path / "model.onnx"
    existing.write_text("precious")
    with pytest.raises(InputError, match="not overwritten"):
        export_surrogate(model, existing)
    assert existing.read_text() == "precious"
    with pytest.raises(InputError, match=r"folder .*missing does not exist"):
        export_surrogate(model, tmp_path / "missing" / "model.onnx")
    with pytest.raises(InputError, match=r"must end in \.pt2"):
        export_surrogate(model, tmp_path / "other.onnx", "pt2")
    with pytest.raises(InputError, match="unknown format 'tflite'; choose one of onnx, pt2"):
        export_surrogate(model, tmp_path / "model.tflite", "tflite")


def test_missing_packages_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr("cato.export.formats.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'cato-pde\[export\]'"):
        export_surrogate(surrogate(Pointwise, GRID), tmp_path / "model.onnx")


def test_files_of_others_are_not_described(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        describe(tmp_path / "none.onnx")
    text = tmp_path / "text.onnx"
    text.write_text("not a model at all")
    with pytest.raises(InputError, match="neither an ONNX nor"):
        describe(text)
    with zipfile.ZipFile(tmp_path / "other.pt2", "w") as archive:
        archive.writestr("model.json", "{}")
    with pytest.raises(InputError, match="not written by cato"):
        describe(tmp_path / "other.pt2")
    graph = onnx.helper.make_graph([], "empty", [], [])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "other.onnx")
    with pytest.raises(InputError, match="not written by cato"):
        describe(tmp_path / "other.onnx")
