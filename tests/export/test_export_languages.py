"""The examples in C++ and JavaScript are compiled and run; they predict what Python predicts."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import cato
from cato.export import export_run
from cato.runs.folder import open_run

EXAMPLES = Path(__file__).parents[2] / "examples"
NUM_NODES = 21  # Not those of the training: the file takes any mesh.
WITH_CPP_HEADERS = "trixie"  # The first Debian that packages ONNX Runtime.
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def run(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(list(map(str, words)), cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done


def require(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


def headers(folder: Path) -> Path:
    """ONNX Runtime's C++ headers: the system's, or those of a newer Debian."""
    for root in ("/usr/include", "/usr/local/include", "/opt/homebrew/include"):
        if (place := Path(root) / "onnxruntime" / "onnxruntime_cxx_api.h").exists():
            return place.parent
    apt = require("apt-get")
    sites = run(apt, "indextargets", "--format", "$(SITE)", folder=folder).stdout.split()
    mirrors = [site for site in sites if site.endswith("/debian")]
    if not mirrors or not Path(KEYRING).exists():
        pytest.skip("ONNX Runtime's C++ headers are not installed (libonnxruntime-dev)")
    source = f"deb [signed-by={KEYRING}] {mirrors[0]} {WITH_CPP_HEADERS} main\n"
    (folder / "sources.list").write_text(source)
    places = {
        "Etc::sourcelist": "sources.list",
        "Etc::sourceparts": "none",
        "State::lists": "lists",
        "Cache": "cache",
    }
    (folder / "lists").mkdir()
    apt_here = [apt, *(f"-oDir::{name}={folder / path}" for name, path in places.items())]
    apt_here.append("-oAPT::Sandbox::User=root")
    run(*apt_here, "update", folder=folder)
    run(*apt_here, "download", "libonnxruntime-dev", folder=folder)
    (package,) = folder.glob("*.deb")
    run("dpkg", "-x", package, "unpacked", folder=folder)
    return folder / "unpacked/usr/include/onnxruntime"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The pretrained Darcy model as an ONNX file, and Python's prediction for the examples."""
    path = tmp_path_factory.mktemp("exported") / "darcy.onnx"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jaxtyping.config.jaxtyping_disable", True)
        export_run(open_run("darcy"), "onnx", path)
    line = np.linspace(0, 1, NUM_NODES, dtype=np.float32)
    coords = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1)
    is_outside = np.hypot(*(coords - 0.5).transpose(2, 0, 1)) > 0.4
    permeability = np.where(is_outside, 12, 3).astype(np.float32)[None, ..., None]
    with pytest.warns(cato.OutsideTrainingRange, match="21 × 21 nodes"):
        pressure = cato.load("darcy").predict(permeability, coords)
    return path, np.concatenate((coords, pressure[0]), axis=-1).reshape(-1, 3)


def assert_predicted(printed: str, expected: np.ndarray) -> None:
    header, *rows = printed.splitlines()
    assert header == "x,y,u"
    found = np.array([row.split(",") for row in rows], dtype=np.float64)
    difference = np.abs(found - expected).max(0) / np.abs(expected).max(0)
    assert (difference < 2e-6).all()


@pytest.mark.slow
def test_cpp(exported, tmp_path):
    """With the library of ONNX Runtime's Python package, which has no headers."""
    path, expected = exported
    compiler, include = require("c++"), headers(tmp_path)
    (library,) = (Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*")
    (tmp_path / "libonnxruntime.so.1").symlink_to(library)
    source = EXAMPLES / "cpp" / "predict.cpp"
    strict = ("-std=c++17", "-Wall", "-Wextra", "-Werror", f"-isystem{include}")
    linked = ("libonnxruntime.so.1", f"-Wl,-rpath,{tmp_path}")
    run(compiler, *strict, source, "-o", "predict", *linked, folder=tmp_path)
    done = run("./predict", path, NUM_NODES, folder=tmp_path)
    assert_predicted(done.stdout, expected)
    assert 'cato.model = "cato"' in done.stderr
    assert "inputs: batch n1 n2 1" in done.stderr
    missing = subprocess.run(
        ["./predict", "none.onnx", "21"], cwd=tmp_path, capture_output=True, text=True
    )
    assert missing.returncode == 1
    assert "none.onnx" in missing.stderr


@pytest.mark.slow
def test_javascript(exported, tmp_path):
    path, expected = exported
    node, npm = require("node"), require("npm")
    shutil.copytree(EXAMPLES / "javascript", folder := tmp_path / "javascript")
    run(npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", folder=folder)
    done = run(node, "predict.mjs", path, NUM_NODES, folder=folder)
    assert_predicted(done.stdout, expected)
    assert "inputs (batch, n1, n2, channel): a" in done.stderr
