"""The distribution: its contents, whether an index would take it, and that it works installed."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

from cato import __version__
from cato.benchmarks import BENCHMARKS
from cato.runs.folder import pretrained_names

ROOT = Path(__file__).parents[1]
MAX_MEGABYTES = 10
DATA = (
    "cato/py.typed",
    "cato/serve/static/api.html",
    *(f"cato/benchmarks/{name}/recipe.toml" for name in BENCHMARKS),
    *(f"cato/pretrained/{name}/run.json" for name in pretrained_names()),
)


def run(*words: str | Path, cwd: Path, **variables: str) -> str:
    """Standard output of a command that sees neither this repository nor this environment."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, words)), cwd=cwd, env=kept | variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sdist, and the wheel built from it."""
    folder = tmp_path_factory.mktemp("dist")
    # In a copy: setuptools builds inside the source folder, which two test processes share.
    source = tmp_path_factory.mktemp("source")
    shutil.copytree(ROOT / "cato", source / "cato", ignore=shutil.ignore_patterns("__pycache__"))
    for path in (p for p in ROOT.iterdir() if p.is_file()):
        shutil.copy(path, source)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, source, cwd=folder)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return {"sdist": sdist, "wheel": wheel}


@pytest.fixture(scope="module")
def environment(distributions: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel; dependencies are those of this one.

    A .pth file makes them visible. The editable cato of this environment is not among them, as
    .pth files of a folder that is added in this way are not read.
    """
    folder = tmp_path_factory.mktemp("installed") / "env"
    venv.create(folder)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", distributions["wheel"], cwd=folder)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_names_and_sizes(distributions: dict[str, Path]) -> None:
    for path in distributions.values():
        assert path.name.startswith("cato_pde-")
        assert path.stat().st_size < MAX_MEGABYTES * 1e6


def test_an_index_would_take_them(distributions: dict[str, Path]) -> None:
    run(sys.executable, "-m", "twine", "check", "--strict", *distributions.values(), cwd=ROOT)


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(
    distributions: dict[str, Path],
) -> None:
    with zipfile.ZipFile(distributions["wheel"]) as archive:
        names = set(archive.namelist())
    assert {name.split("/")[0] for name in names} == {"cato", f"cato_pde-{__version__}.dist-info"}
    tracked = run("git", "ls-files", "cato", cwd=ROOT).splitlines()
    present = {name for name in tracked if (ROOT / name).exists()}
    assert present <= names, f"missing: {sorted(present - names)[:5]}"
    assert set(DATA) <= names
    assert any(name.startswith("cato/viz/templates/") for name in names)
    assert any(name.endswith(".safetensors") for name in names)


def test_an_installed_wheel_predicts_with_a_pretrained_model(
    environment: Path, tmp_path: Path
) -> None:
    inputs = np.full((1, 29, 29, 1), 3, np.float32)
    inputs[:, :15] = 12
    np.savez(tmp_path / "in.npz", inputs=inputs)
    words = ("predict", "darcy", "in.npz", "out.npz", "--json")
    printed = json.loads(run(environment / "bin" / "cato", *words, cwd=tmp_path))
    assert printed
    with np.load(tmp_path / "out.npz", allow_pickle=False) as saved:
        assert saved["outputs"].shape == (1, 29, 29, 1)
        assert 0.001 < saved["outputs"].max() < 0.1  # the pressure of such a medium


def test_the_installed_package_is_the_one_of_the_wheel(environment: Path, tmp_path: Path) -> None:
    code = (
        "import cato, json, sys; from cato.runs.provenance import commit; "
        "print(json.dumps([cato.__file__, commit(), sys.path]))"
    )
    file, commit, path = json.loads(run(environment / "bin" / "python", "-c", code, cwd=tmp_path))
    assert Path(file).is_relative_to(environment)
    assert commit is None  # a wheel does not know it
    assert str(ROOT) not in path
